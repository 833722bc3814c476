"""The quarantine, kept across restarts: requests that hang planning, objects that end the process.

An entry has a subject, a problem and an end. A gang is identified by its request: another gang with
an equal request is not planned either, and the gang is planned again if its request changes. An
object is identified by its uid and by the fields that its owner wrote. Another version of gangsched
drops all entries.

A gang with slow planning is a suspect until its planning ends. If two processes end while they plan
it, perhaps killed for their memory, the gang is quarantined too.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum

import msgspec

from gangsched import __version__
from gangsched.core.bounds import SET_ASIDE
from gangsched.core.engine.view import EngineView
from gangsched.core.facts import PlanFailed
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.client.json_depth import decode_bounded
from gangsched.kube.stored.config_map import ConfigMapEntry

log = logging.getLogger(__name__)

SLOW_S = 3600.0
"""Seconds in quarantine of a gang with planning that took too long and could be stopped."""

LOST_S = 86_400.0
"""Seconds in quarantine of a gang or object that ended a process: at most once a day."""

_SAVE_S = 5.0
_PROBLEM_MAX = 200
_TIMES = 2


class QuarantineEntry(msgspec.Struct, frozen=True):
    """A gang or object in quarantine, the reason, and the end in seconds since the epoch."""

    subject: str = msgspec.field(name="who")
    problem: str
    until_s: float


class Suspect(msgspec.Struct, frozen=True):
    """A gang with slow planning, and how many processes ended while they planned it."""

    subject: str = msgspec.field(name="who")
    times: int


class _Written(msgspec.Struct):
    version: str
    gangs: dict[str, QuarantineEntry] = {}
    suspects: dict[str, Suspect] = {}
    objects: dict[str, QuarantineEntry] = {}


class _Metadata(msgspec.Struct):
    uid: str = ""
    namespace: str = ""
    name: str = ""
    labels: msgspec.Raw = msgspec.Raw(b"")
    annotations: msgspec.Raw = msgspec.Raw(b"")


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: msgspec.Raw = msgspec.Raw(b"")


_object = msgspec.json.Decoder(_Object)
_written = msgspec.json.Decoder(_Written)


class Quarantine:
    """The entries, and the ConfigMap that keeps them."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._place = ConfigMapEntry(client, config_map, "set-aside.json")
        self._gangs: dict[str, QuarantineEntry] = {}
        self._objects: dict[str, QuarantineEntry] = {}
        self._suspects: dict[str, Suspect] = {}
        self._saving = asyncio.Lock()
        self._new = False
        self._changed = False

    # -- kept across restarts -----------------------------------------------------------------

    async def read(self, now_s: float) -> None:
        """Restore the entries of an earlier process."""
        text = await self._place.read()
        if not text:
            return
        try:
            stored = _written.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            log.warning("%s: %s", self._place, error)
            return
        if stored.version != __version__:
            log.info("%s: is of version %s; all is tried again", self._place, stored.version)
            return
        self._gangs, self._objects, self._new = stored.gangs, stored.objects, True
        for mark, suspect in stored.suspects.items():
            if suspect.times < _TIMES:
                self._suspects[mark] = suspect
                continue
            problem = f"{suspect.times} processes ended while they planned the gang"
            self._gangs = _with(
                self._gangs, mark, QuarantineEntry(suspect.subject, problem, now_s + LOST_S), now_s
            )
            self._changed = True
        for entry in (*self._gangs.values(), *self._objects.values()):
            log.warning("%s is set aside: %s", entry.subject, entry.problem)

    async def save(self) -> None:
        """Write the entries if they changed; a failure is logged and not retried."""
        async with self._saving:  # the newest must be the last
            if not self._changed:
                return
            self._changed = False
            written = _Written(__version__, self._gangs, self._suspects, self._objects)
            try:
                async with asyncio.timeout(_SAVE_S):
                    await self._place.write(msgspec.json.encode(written).decode())
            except (KubeError, TimeoutError) as error:
                log.warning("%s: is not written: %s", self._place, error or "no answer")

    # -- gangs --------------------------------------------------------------------------------

    def add_gang(self, waiting: PendingGang, problem: str, for_s: float, now_s: float) -> None:
        """Quarantine the request of a gang, for every gang of its namespace with this request."""
        entry = QuarantineEntry(waiting.gang.id, problem, now_s + for_s)
        log.error("%s is set aside: %s", entry.subject, problem)
        self._gangs = _with(self._gangs, request(waiting), entry, now_s)
        self._new = self._changed = True

    def suspect(self, waiting: PendingGang) -> str:
        """Record that planning of a gang is slow; return the key for `clear`."""
        mark = request(waiting)
        known = self._suspects.pop(mark, None)
        times = known.times + 1 if known is not None else 1
        self._suspects[mark] = Suspect(waiting.gang.id, times)
        self._suspects = dict(list(self._suspects.items())[-SET_ASIDE.most :])
        self._changed = True
        return mark

    def clear(self, mark: str) -> None:
        """Record that the planning of a suspect has ended."""
        self._changed |= self._suspects.pop(mark, None) is not None

    def caught(self, view: EngineView, now_s: float) -> list[PlanFailed]:
        """Return a fact for each gang to plan that is in quarantine."""
        self._gangs = {mark: entry for mark, entry in self._gangs.items() if now_s < entry.until_s}
        if not self._gangs:
            return []
        gangs = list(view.gangs) if self._new else view.unclassified()
        self._new = False
        return list(self._among(gangs, view))

    def _among(self, gangs: Iterable[GangId], view: EngineView) -> Iterator[PlanFailed]:
        namespaces = {mark.partition("/")[0] for mark in self._gangs}
        for gang_id in gangs:
            gang = view.gangs.get(gang_id)
            if gang_id.partition("/")[0] in namespaces and gang is not None and gang.is_plannable():
                entry = None
                with suppress(Exception):  # the next snapshot reports the error
                    entry = self._gangs.get(request(view.pending(gang_id)))
                if entry is not None:
                    same_request = (
                        ""
                        if entry.subject == gang_id
                        else f"; gang {entry.subject} has an equal request"
                    )
                    yield PlanFailed(gang_id, f"{entry.problem}{same_request}", entry.until_s)

    # -- objects ------------------------------------------------------------------------------

    def add_object(self, kind: str, raw: bytes, error: BaseException, now_s: float) -> None:
        """Quarantine the present state of an object, because the engine failed on it."""
        decoded = decode_bounded(_object.decode, raw)
        subject = f"{kind} {decoded.metadata.namespace}/{decoded.metadata.name}"
        cause = error.__cause__ or error
        failure = f"{type(cause).__name__}: {cause}"[:_PROBLEM_MAX]
        problem = f"the scheduler failed on this object ({failure}); please report the error"
        entry = QuarantineEntry(subject, problem, now_s + LOST_S)
        log.error("%s is set aside: %s", subject, problem)
        self._objects = _with(self._objects, _mark(decoded), entry, now_s)
        self._changed = True

    def of_object(self, raw: bytes, now_s: float) -> str:
        """Return why an object is in quarantine, or the empty string."""
        if not self._objects:
            return ""
        decoded = decode_bounded(_object.decode, raw)
        if not any(mark.startswith(decoded.metadata.uid) for mark in self._objects):
            return ""
        entry = self._objects.get(_mark(decoded))
        return entry.problem if entry is not None and now_s < entry.until_s else ""


def request(waiting: PendingGang) -> str:
    """Return the namespace of a gang, and a digest of the values that its planning depends on."""
    counts = Counter(member.needs for member in waiting.members)
    planning_input = (
        (waiting.gang.queue, waiting.members_min, waiting.role_members_min),
        (waiting.constraints, waiting.near_role),
        sorted((repr(_values(needs)), count) for needs, count in counts.items()),
    )
    return f"{waiting.gang.id.partition('/')[0]}/{_digest(repr(_values(planning_input)).encode())}"


def _values(value: object) -> object:
    """Return a value without the names of its classes and fields, which may change.

    An old entry with a digest of these names matches no gang: its gang is planned again, once, and
    the entry ends at its time.
    """
    if is_dataclass(value):
        return tuple(_values(getattr(value, field.name)) for field in fields(value) if field.repr)
    if isinstance(value, Mapping):
        return tuple((key, _values(value[key])) for key in sorted(value))
    if isinstance(value, tuple | list):
        return tuple(map(_values, value))
    return value.value if isinstance(value, Enum) else value


def _mark(decoded: _Object) -> str:
    metadata = decoded.metadata
    text = b"\n".join(bytes(part) for part in (metadata.labels, metadata.annotations, decoded.spec))
    return f"{metadata.uid}/{_digest(text)}"


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _with(
    entries: dict[str, QuarantineEntry], mark: str, entry: QuarantineEntry, now_s: float
) -> dict[str, QuarantineEntry]:
    """Return the entries with an additional one, without ended ones and too many old ones."""
    kept = {
        key: kept_entry
        for key, kept_entry in entries.items()
        if now_s < kept_entry.until_s and key != mark
    }
    kept[mark] = entry
    return dict(list(kept.items())[-SET_ASIDE.most :])
