"""Shortest remaining time: the gang that is expected to end first goes first (SRTF, SRSF)."""

from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.model.gangs import PendingGang, runtime_s
from gangsched.core.model.pods import GPU


@dataclass(frozen=True, slots=True)
class Shortest:
    """Least remaining run time first, times the GPUs to the power of `service`.

    With 0 that is SRTF, with 1 SRSF; 0.9 was a little better than either on three of Muri's four
    traces (docs/benchmarks.md).

    This order is best for the mean wait, but long gangs starve under load. Gangs that waited for
    more than `patience_s` therefore come before all others, the longest wait first.
    """

    service: float = 0.0
    patience_s: float = 86_400.0
    orders_by_age: ClassVar[bool] = False

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key: the remaining run time."""
        waited_s = now_s - waiting.queued_since_s
        if waited_s > self.patience_s:
            return (0.0, waiting.queued_since_s, waiting.gang.id)
        left_s = max(runtime_s(waiting) - waiting.attained_s, 1.0)
        weight = requested_gpus(waiting) ** self.service if self.service else 1.0
        return (1.0, left_s * weight, waiting.gang.id)

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        """Return False: no gang is overtaken for a better fit."""
        return False


def requested_gpus(waiting: PendingGang) -> int:
    """Return the GPUs of all members, at least one."""
    return max(sum(dict(m.needs.requests).get(GPU, 0) for m in waiting.members), 1)
