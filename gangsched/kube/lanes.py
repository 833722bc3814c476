"""A queue with a lane for each namespace: each has its turn, however much others have put in."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """A queue of items, each in the lane that `lane` says; lanes take turns, items in order."""

    def __init__(self, lane: Callable[[T], str]) -> None:
        self._lane = lane
        self._lanes: dict[str, deque[T]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    def put(self, item: T) -> None:
        """Add an item."""
        self._lanes.setdefault(self._lane(item), deque()).append(item)
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def get(self) -> T:
        """Take the first item of the lane whose turn it is, once there is one."""
        while not self._lanes:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # it was our turn: it is somebody else's
                raise
        lane = next(iter(self._lanes))
        items = self._lanes.pop(lane)
        item = items.popleft()
        if items:
            self._lanes[lane] = items  # at the end: dicts keep their order
        return item

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))
