"""When time alone changes something for a gang: asked for often, changed seldom."""

from collections.abc import Callable
from heapq import heappop, heappush

from gangsched.core.model.ids import GangId

DueOf = Callable[[GangId], float | None]


class Timers:
    """The moments gangs wait for; `due_of` tells a gang's next, None if there is none.

    A gang is `watch`ed whenever it may be due earlier than before. That it is due later, or never,
    is found out when its old moment comes.
    """

    def __init__(self, due_of: DueOf) -> None:
        self._due_of = due_of
        self._heap: list[tuple[float, GangId]] = []
        self._known: dict[GangId, float] = {}

    def watch(self, gang: GangId) -> None:
        """Take note that a gang's next moment may have changed."""
        due_s = self._due_of(gang)
        if due_s is not None and due_s < self._known.get(gang, float("inf")):
            self._known[gang] = due_s
            heappush(self._heap, (due_s, gang))

    def forget(self, gang: GangId) -> None:
        """Wait for nothing of a gang any more."""
        self._known.pop(gang, None)

    def next_s(self) -> float | None:
        """Return the first moment, None if nobody waits for any."""
        while self._heap:
            at_s, gang = self._heap[0]
            known = self._known.get(gang) == at_s
            if known and self._due_of(gang) == at_s:
                return at_s
            heappop(self._heap)
            if known:
                del self._known[gang]
                self.watch(gang)
        return None

    def due(self, now_s: float) -> list[GangId]:
        """Return the gangs whose moment has come; they are to be watched again."""
        found: list[GangId] = []
        while (at_s := self.next_s()) is not None and at_s <= now_s:
            _, gang = heappop(self._heap)
            del self._known[gang]
            found.append(gang)
        return found
