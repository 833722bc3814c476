"""Conservative backfill: room is kept for every gang that waits, so that nobody is ever delayed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conservative:
    """Reservations for the first `most` gangs: the bound keeps a planning cycle short.

    Slurm's bf_max_job_test is the same bound.
    """

    most: int = 50

    def reserves(self, made: int) -> bool:
        """Tell whether one more gang gets room kept."""
        return made < self.most
