"""First in, first out within a priority: the order of kube-scheduler and of Slurm's builtin."""

from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.model.gangs import PendingGang


@dataclass(frozen=True, slots=True)
class Fifo:
    """Higher priority first, then the longest waiting; the name breaks ties."""

    by_age: ClassVar[bool] = True

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key; the present time plays no part."""
        del now_s
        return (-waiting.priority, waiting.since_s, waiting.gang.id)

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        """Nobody is passed over for the sake of a better fit."""
        return False
