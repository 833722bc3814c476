"""The status of what admins declare: queues, reservations, topologies."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gangsched.api import names
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Conflict, KubeError, NotFound
from gangsched.kube.stamps import stamp
from gangsched.kube.words import same

log = logging.getLogger(__name__)


class Ready(NamedTuple):
    """What the condition of this type says, but for when it came to say so."""

    holds: bool
    reason: str
    message: str


class Declared:
    """The objects of one kind, by name, and what their statuses say.

    A status is written when it changed, and to the object that has the name now.
    """

    def __init__(self, client: KubeClient, kind: str, plural: str) -> None:
        self.problems: dict[str, str] = {}
        """What is wrong with the last declaration of each."""

        self._client = client
        self._kind = kind
        self._plural = plural
        self._uids: dict[str, str] = {}
        self._written: dict[str, dict[str, Any]] = {}
        self._stored: dict[str, Mapping[str, Any]] = {}
        self._turned: dict[str, tuple[str, str]] = {}

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the first moment, but for those that go meanwhile."""
        return (name for name in list(self._uids) if name in self._uids)

    def seen(self, name: str, uid: str, problem: str | None) -> None:
        """Learn that an object exists, and what is wrong with it."""
        if self._uids.get(name) != uid:
            self.gone(name)  # another that had its name
            self._uids[name] = uid
        if problem is None:
            self.problems.pop(name, None)
        else:
            self.problems[name] = problem

    def adopt(self, name: str, stored: Mapping[str, Any]) -> None:
        """Learn what an earlier process wrote: a thousand queues are not written anew."""
        self._stored[name] = stored
        for one in stored.get("conditions") or ():
            if isinstance(one, dict) and one.get("type") == "Ready":
                self._turned[name] = str(one.get("status")), str(one.get("lastTransitionTime"))

    def gone(self, name: str) -> None:
        """Forget an object that was deleted."""
        for known in (self._uids, self.problems, self._written, self._stored, self._turned):
            known.pop(name, None)

    async def write(
        self,
        name: str,
        status: Mapping[str, Any],
        ready: Ready | None = None,
        *,
        beside: Callable[[], Mapping[str, Any]] = dict,
        anyway: bool = False,
    ) -> bool:
        """Write a status if it changed, and tell whether it need not be tried again.

        Args:
            name: the object, one of those that this iterates over.
            status: what is compared with what was written last.
            ready: the condition of this type, where the kind has one.
            beside: what is written too, but is no reason to write.
            anyway: write it even if nothing changed.

        """
        wanted = dict(status)
        if name in self.problems:
            wanted["message"] = self.problems[name]
        if ready is not None:
            wanted["conditions"] = [self._condition(name, ready)]
        stored = self._stored.pop(name, None)
        if stored is not None and same(stored, wanted):
            self._written[name] = wanted
        if self._written.get(name) == wanted and not anyway:
            return True
        uid = self._uids[name]
        path = f"/apis/{names.GROUP}/{names.VERSION}/{self._plural}/{name}/status"
        body = {"metadata": {"uid": uid}, "status": {**wanted, **beside()}}
        try:
            await self._client.patch(path, body)
        except (NotFound, Conflict):
            return True  # it was deleted, as its watch is about to tell
        except KubeError as error:
            log.warning("status of %s %s: %s", self._kind, name, error)
            return False
        if self._uids.get(name) == uid:
            self._written[name] = wanted
        return True

    def _condition(self, name: str, ready: Ready) -> dict[str, str]:
        status = str(ready.holds)
        before, since = self._turned.get(name, ("", ""))
        if before != status:
            since = stamp()
            self._turned[name] = status, since
        return {
            "type": "Ready",
            "status": status,
            "reason": ready.reason,
            "message": ready.message,
            "lastTransitionTime": since,
        }
