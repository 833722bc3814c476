"""The clock of virtual time, and what is scheduled on it."""

import heapq
from collections.abc import Callable


class EventLoop:
    """Runs events in the order of their times; of equal times, in the order of scheduling."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, at_s: float, event: Callable[[], None]) -> None:
        """Schedule an event."""
        self._sequence += 1
        heapq.heappush(self._events, (at_s, self._sequence, event))

    def next_s(self) -> float:
        """Return the time of the next event, infinity without one."""
        return self._events[0][0] if self._events else float("inf")

    def run_next(self) -> None:
        """Run the next event at its time, or now if that has passed."""
        at_s, _, event = heapq.heappop(self._events)
        self.now_s = max(self.now_s, at_s)
        event()
