"""Fair share over time: the queue with the least decayed GPU time is next."""

from dataclasses import dataclass

from gangsched.core.policy import QueueView


@dataclass(frozen=True, slots=True)
class Fair:
    """Decayed GPU time over weight, applied at each level of the tree (Slurm's Fair Tree).

    The half-life is the cluster's `half_life_s`. Present use breaks ties, so that new queues take
    turns too.
    """

    def key(self, view: QueueView) -> tuple[float, ...]:
        """Return the sort key: priority, use above nominal quota, then decayed use over weight."""
        return (
            -view.queue.priority,
            float(view.exceeds_nominal),
            view.historical_gpu_s,
            view.dominant_share,
        )
