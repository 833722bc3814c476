"""First in, first out within a priority: the order of kube-scheduler and of Slurm's builtin."""

from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.model.gangs import Waiting


@dataclass(frozen=True, slots=True)
class Fifo:
    """Higher priority first, then the longest waiting; the name breaks ties."""

    by_age: ClassVar[bool] = True

    def key(self, waiting: Waiting, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key; the present time plays no part."""
        del now_s
        return (-waiting.priority, waiting.since_s, waiting.gang.id)

    def peers(self, first: Waiting, other: Waiting) -> bool:
        """Nobody is passed over for the sake of a better fit."""
        return False
