"""The next deadline of each gang: read often, changed seldom."""

from collections.abc import Callable
from heapq import heappop, heappush

from gangsched.core.model.ids import GangId

DueOf = Callable[[GangId], float | None]


class Timers:
    """The deadlines of gangs; `due_of` returns the next deadline of a gang, or None.

    `watch` a gang whenever its deadline may be earlier than before. A deadline that became later,
    or was dropped, is noticed when the old one comes.
    """

    def __init__(self, due_of: DueOf) -> None:
        self._due_of = due_of
        self._heap: list[tuple[float, GangId]] = []
        self._known: dict[GangId, float] = {}

    def watch(self, gang: GangId) -> None:
        """Record that the next deadline of a gang may have changed."""
        due_s = self._due_of(gang)
        if due_s is not None and due_s < self._known.get(gang, float("inf")):
            self._known[gang] = due_s
            heappush(self._heap, (due_s, gang))

    def forget(self, gang: GangId) -> None:
        """Drop the deadlines of a gang."""
        self._known.pop(gang, None)

    def next_s(self) -> float | None:
        """Return the first deadline, None if no gang has one."""
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
        """Return the gangs with a deadline that has passed; they have to be watched again."""
        gangs: list[GangId] = []
        while (at_s := self.next_s()) is not None and at_s <= now_s:
            _, gang = heappop(self._heap)
            del self._known[gang]
            gangs.append(gang)
        return gangs
