"""No backfill: whoever fits may go, and nothing is kept for those who do not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Greedy:
    """What most schedulers on Kubernetes do; a large gang may wait for ever."""

    def reserves(self, made: int) -> bool:
        """Nobody gets room kept."""
        return False
