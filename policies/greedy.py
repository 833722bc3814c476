"""No reservations: every gang that fits may start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Greedy:
    """The behaviour of most schedulers on Kubernetes; a large gang may never start."""

    def allows_reservation(self, count: int) -> bool:
        """Return False: no gang gets a reservation."""
        return False
