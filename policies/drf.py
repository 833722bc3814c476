"""Dominant resource fairness: the queue with the smallest dominant share is next."""

from dataclasses import dataclass

from gangsched.core.policy import QueueView


@dataclass(frozen=True, slots=True)
class Drf:
    """Weighted and hierarchical: applied at each level of the tree (Ghodsi et al., NSDI'11; HDRF).

    Queues of higher priority come first, then those within their nominal quota.
    """

    def key(self, view: QueueView) -> tuple[float, ...]:
        """Return the sort key: priority, use above nominal quota, then share over weight."""
        return (-view.queue.priority, float(view.exceeds_nominal), view.dominant_share)
