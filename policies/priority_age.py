"""Priority with ageing: a pending gang gains priority over time, so that none starves."""

from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.model.gangs import PendingGang


@dataclass(frozen=True, slots=True)
class PriorityAge:
    """A priority point is worth `point_s` seconds of waiting (Slurm's multifactor age, linear)."""

    point_s: float = 600.0
    orders_by_age: ClassVar[bool] = True

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key: priority plus age, in points."""
        age = max(now_s - waiting.queued_since_s, 0.0) / self.point_s
        return (-(waiting.priority + age), waiting.queued_since_s, waiting.gang.id)

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        """Return False: no gang is overtaken for a better fit."""
        return False
