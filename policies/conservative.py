"""Conservative backfill: every pending gang gets a reservation, so that none is ever delayed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conservative:
    """Reservations for the first `most` gangs: the bound keeps a planning cycle short.

    Slurm's bf_max_job_test is the same bound.
    """

    most: int = 50

    def allows_reservation(self, count: int) -> bool:
        """Return whether one more gang gets a reservation."""
        return count < self.most
