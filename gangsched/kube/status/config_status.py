"""The status of the administrators' objects: queues, reservations, topologies."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gangsched.api import names
from gangsched.api.timestamps import rfc3339
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound, Throttled, Unavailable
from gangsched.kube.status.events import ObjectRef, post_event
from gangsched.kube.status.status_record import same

log = logging.getLogger(__name__)

_WARNED = 16
"""Warning Events of one object at most, while one process leads."""


_OBSERVED = "observedGeneration"
"""Earlier versions stored 0 here by a default of the schema, and `kubectl wait` ignores such a
condition. So the status of the object is written again, once, without the field."""


class ConfigCondition(NamedTuple):
    """A condition without the time of its last change."""

    holds: bool
    reason: str
    message: str
    type: str = "Ready"


class ConfigStatusWriter:
    """Writes the statuses of the objects of one kind, by name.

    A status is written when it changed, to the object that has the name now. With `warns` a false
    condition becomes a Warning Event too, once for each message.
    """

    def __init__(self, client: KubeClient, kind: str, plural: str, *, warns: bool = False) -> None:
        self.problems: dict[str, str] = {}
        """The problems of malformed objects, by name."""

        self._client = client
        self._kind = kind
        self._plural = plural
        self._warns = warns
        self._warned: dict[str, set[str]] = {}
        self._uids: dict[str, str] = {}
        self._written: dict[str, Mapping[str, Any]] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the present names, without those that are forgotten meanwhile."""
        return (name for name in list(self._uids) if name in self._uids)

    def track(self, name: str, uid: str, problem: str | None) -> None:
        """Record an object, and its problem or None."""
        if self._uids.get(name) != uid:
            self.forget(name)  # a deleted object of the same name
            self._uids[name] = uid
        if problem is None:
            self.problems.pop(name, None)
        else:
            self.problems[name] = problem

    def restore(self, name: str, stored: Mapping[str, Any]) -> None:
        """Restore the status of an earlier process, so that a thousand queues need no write."""
        self._written[name] = stored
        self._warned[name] = {
            str(condition.get("message"))
            for condition in _conditions(stored)
            if condition.get("status") == "False"
        }

    def forget(self, name: str) -> None:
        """Forget an object that was deleted."""
        for known in (self._uids, self.problems, self._written, self._warned):
            known.pop(name, None)

    async def write(
        self,
        name: str,
        status: Mapping[str, Any],
        *conditions: ConfigCondition,
        beside: Callable[[], Mapping[str, Any]] = dict,
        anyway: bool = False,
    ) -> bool:
        """Write a status if it changed; return whether it is written or its object is gone.

        Args:
            name: the name of a tracked object.
            status: the fields that are compared with the last written ones.
            conditions: the conditions of the kind.
            beside: returns fields that are written too, but are no reason for a write.
            anyway: whether to write an unchanged status.

        """
        last_written, wanted = self._written.get(name, {}), dict(status)
        if name in self.problems:
            wanted["message"] = self.problems[name]
        if conditions:
            wanted["conditions"] = [_condition(condition, last_written) for condition in conditions]
        anyway |= any(_OBSERVED in condition for condition in _conditions(last_written))
        if (
            not anyway
            and name in self._written
            and (last_written == wanted or same(last_written, wanted))
        ):
            self._written[name] = wanted
            return True
        uid = self._uids[name]
        path = f"/apis/{names.GROUP}/{names.VERSION}/{self._plural}/{name}/status"
        body = {"metadata": {"uid": uid}, "status": {**wanted, **beside()}}
        try:
            await self._warn(name, uid, conditions)
            await self._client.patch(path, body)
        except (NotFound, Conflict):
            return True  # the object is deleted, and its watch will report that
        except KubeError as error:
            log.warning("status of %s %s: %s", self._kind, name, error)
            return False
        if self._uids.get(name) == uid:
            self._written[name] = wanted
        return True

    async def _warn(self, name: str, uid: str, conditions: Iterable[ConfigCondition]) -> None:
        """Write Warning Events for false conditions; the next try repeats a failed Event."""
        warned = self._warned.setdefault(name, set())
        api_version = f"{names.GROUP}/{names.VERSION}"
        for condition in conditions if self._warns else ():
            if not condition.holds and condition.message not in warned:
                if len(warned) >= _WARNED:
                    return  # the condition flaps; its status has the message
                subject = ObjectRef(api_version, self._kind, "", name, uid)
                try:
                    await post_event(
                        self._client, subject, "Warning", condition.reason, condition.message
                    )
                except (Unavailable, Throttled):
                    raise
                except KubeError as error:  # the status has the message too
                    log.warning("Event of %s %s: %s", self._kind, name, error)
                warned.add(condition.message)


def _conditions(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the conditions of a status, which other writers may have malformed."""
    listed = status.get("conditions")
    return (
        condition
        for condition in (listed if isinstance(listed, list) else ())
        if isinstance(condition, dict)
    )


def _condition(condition: ConfigCondition, last_written: Mapping[str, Any]) -> dict[str, str]:
    """Return a condition as JSON of the API, with the time of its last change."""
    status = str(condition.holds)
    turned = (
        before.get("lastTransitionTime")
        for before in _conditions(last_written)
        if (before.get("type"), before.get("status")) == (condition.type, status)
    )
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": next(turned, None) or rfc3339(),
    }
