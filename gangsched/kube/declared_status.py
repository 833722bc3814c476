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


class DeclaredStatus:
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
        self._said: dict[str, Mapping[str, Any]] = {}

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
        self._said[name] = stored

    def gone(self, name: str) -> None:
        """Forget an object that was deleted."""
        for known in (self._uids, self.problems, self._said):
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
        said, wanted = self._said.get(name, {}), dict(status)
        if name in self.problems:
            wanted["message"] = self.problems[name]
        if ready is not None:
            wanted["conditions"] = [_condition(ready, said)]
        if not anyway and name in self._said and (said == wanted or same(said, wanted)):
            self._said[name] = wanted
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
            self._said[name] = wanted
        return True


def _condition(ready: Ready, said: Mapping[str, Any]) -> dict[str, str]:
    """Return the condition as the API has it; it turned when what was `said` last was otherwise."""
    status = str(ready.holds)
    before = (one for one in said.get("conditions") or () if isinstance(one, dict))
    turned = (
        one.get("lastTransitionTime")
        for one in before
        if (one.get("type"), one.get("status")) == ("Ready", status)
    )
    return {
        "type": "Ready",
        "status": status,
        "reason": ready.reason,
        "message": ready.message,
        "lastTransitionTime": next(turned, None) or stamp(),
    }
