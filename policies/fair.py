"""Fair share over time: the queue that had least, its past fading with a half-life, is next."""

from dataclasses import dataclass

from gangsched.core.policy import QueueView


@dataclass(frozen=True, slots=True)
class Fair:
    """Decayed GPU time over weight, asked at each level of the tree (Slurm's Fair Tree).

    The half-life is the cluster's `half_life_s`. What a queue holds now breaks ties, so that
    queues without a past take turns too.
    """

    def key(self, view: QueueView) -> tuple[float, ...]:
        """Return the sort key: priority, loans, then decayed use over the weight."""
        return (-view.queue.priority, float(view.beyond), view.decayed, view.share)
