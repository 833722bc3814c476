"""The base classes of informers: decode an object, track its name, report malformed objects."""

import logging
from collections import Counter

from gangsched.kube.client.errors import EngineError
from gangsched.kube.decoding import metadata
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.quantities import DecodeError, UnknownClassError
from gangsched.metrics import Metrics

log = logging.getLogger(__name__)


class Informer:
    """The informer of one kind: it counts, reports and skips malformed objects."""

    kind = ""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lacking: dict[str, bytes] = {}

    def on_update(self, raw: bytes) -> None:
        """Decode an object and apply it."""
        if self._lacking:
            self._lacking.pop(metadata.group_key(raw)[2], None)
        try:
            self.decode_and_apply(ApiObject(raw))
        except DecodeError as error:
            self.wrong(raw, error)
        except (EngineError, RecursionError):  # the watch retries a too deep object, cut short
            raise
        except Exception as error:  # one unreadable object must not end all scheduling
            log.exception("skipped: %s %s/%s", self.kind, *metadata.group_key(raw)[:2])
            problem = f"{type(error).__name__}: {error}"
            self._skip(raw, f"the object cannot be read ({problem}); please report the error")

    def wrong(self, raw: bytes, error: DecodeError) -> None:
        """Skip a malformed object; if its PriorityClass is missing, read it again later."""
        log.warning("skipped: %s", error)
        self._skip(raw, str(error))
        if isinstance(error, UnknownClassError):
            self._lacking[metadata.group_key(raw)[2]] = raw

    def _skip(self, raw: bytes, message: str) -> None:
        self._metrics.malformed.labels(self.kind).inc()
        self.malformed(raw, message)

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        raise NotImplementedError

    def predecode(self, raw: bytes) -> None:
        """Decode what may be decoded before the object is applied."""

    def malformed(self, raw: bytes, message: str) -> None:
        """Report in the object's status that it is malformed, if its kind has a status."""

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object."""
        raise NotImplementedError

    def classes_changed(self) -> None:
        """Read the objects again that name a missing PriorityClass."""
        for raw in list(self._lacking.values()):
            self.on_update(raw)


class NameTracking(Informer):
    """The informer of objects that are known by name; it reports when no object has a name."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics)
        self._holders: Counter[str] = Counter()
        self._names: dict[str, str] = {}

    def track(self, obj: ApiObject, alias: str = "") -> bool:
        """Track the name (or `alias`) of an object by its uid; return whether the object is new."""
        name, uid = obj.metadata.name, obj.metadata.uid
        if uid in self._names:
            return False
        self._names[uid] = alias or name
        self._holders[alias or name] += 1
        return True

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object."""
        self._lacking.pop(uid, None)
        name = self._names.pop(uid, None)
        if name is None:
            return
        self._holders[name] -= 1
        if not self._holders[name]:
            del self._holders[name]
            self.on_name_released(name)

    def on_name_released(self, name: str) -> None:
        """Observe that no object has the name any more."""
        raise NotImplementedError
