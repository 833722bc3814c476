"""EASY backfill: room is kept for the first gang that does not fit; others may go round it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Easy:
    """Reservations for the first `heads` gangs (Lifka, JSSPP'95: one)."""

    heads: int = 1

    def reserves(self, made: int) -> bool:
        """Tell whether one more gang gets room kept."""
        return made < self.heads
