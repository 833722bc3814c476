"""A queue with a lane for each namespace: no namespace delays the items of another."""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NamespaceFairQueue(Generic[T]):
    """A queue of items in lanes, by the function `lane`; lanes take turns, and keep their order.

    At most `most` items of a lane are out at a time, where `done` is called with each.
    """

    def __init__(self, lane: Callable[[T], str], most: int = sys.maxsize) -> None:
        self._lane = lane
        self._most = most
        self._out: Counter[str] = Counter()
        self._lanes: dict[str, deque[T]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    def put(self, item: T) -> None:
        """Add an item."""
        self._lanes.setdefault(self._lane(item), deque()).append(item)
        self._wake()

    def done(self, item: T) -> None:
        """Record that the work on an item has ended."""
        lane = self._lane(item)
        self._out[lane] -= 1
        if not self._out[lane]:
            del self._out[lane]
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def get(self) -> T:
        """Wait for an item, and take the first one of the next lane."""
        while (lane := self._next()) is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # this waiter is cancelled, so the next one gets the item
                raise
        items = self._lanes.pop(lane)
        item = items.popleft()
        if self._most < sys.maxsize:
            self._out[lane] += 1
        if items:
            self._lanes[lane] = items  # at the end: dicts keep their order
        return item

    def _next(self) -> str | None:
        return next((lane for lane in self._lanes if self._out[lane] < self._most), None)

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))
