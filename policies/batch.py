"""Batch: gangs that arrive at about the same time are chosen together, for the most GPU-hours."""

from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.model.gangs import PendingGang


@dataclass(frozen=True, slots=True)
class Batch:
    """First in, first out within a priority, but arrivals within `window_s` are peers.

    The window bounds how long a gang can lose to later arrivals.
    """

    window_s: float = 60.0
    orders_by_age: ClassVar[bool] = True

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key: higher priority first, then the longest waiting."""
        return (-waiting.priority, waiting.queued_since_s, waiting.gang.id)

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        """Return whether two gangs of one priority arrived within the window."""
        same = first.priority == other.priority
        return same and other.queued_since_s - first.queued_since_s <= self.window_s
