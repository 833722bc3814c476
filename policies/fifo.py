"""First in, first out within a priority: the order of kube-scheduler and Slurm's builtin."""

from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.model.gangs import PendingGang


@dataclass(frozen=True, slots=True)
class Fifo:
    """Higher priority first, then the longest waiting; the name breaks ties."""

    orders_by_age: ClassVar[bool] = True

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key; it does not depend on the time."""
        del now_s
        return (-waiting.priority, waiting.queued_since_s, waiting.gang.id)

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        """Return False: no gang is overtaken for a better fit."""
        return False
