"""Dominant resource fairness: the queue with the smallest share of what it uses most is next."""

from dataclasses import dataclass

from gangsched.core.policy import QueueView


@dataclass(frozen=True, slots=True)
class Drf:
    """Weighted and hierarchical: asked at each level of the tree (Ghodsi et al., NSDI'11; HDRF).

    Queues of higher priority come first; then those that stay within their guarantee.
    """

    def key(self, view: QueueView) -> tuple[float, ...]:
        """Return the sort key: priority, loans, then the share over the weight."""
        return (-view.queue.priority, float(view.beyond), view.share)
