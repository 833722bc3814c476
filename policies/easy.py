"""EASY backfill: the first gang that does not fit gets a reservation; others may not delay it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Easy:
    """Reservations for the first `heads` gangs (Lifka, JSSPP'95: one)."""

    heads: int = 1

    def allows_reservation(self, count: int) -> bool:
        """Return whether one more gang gets a reservation."""
        return count < self.heads
