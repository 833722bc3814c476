"""The record of a gang that ended: what `gangsched history` shows and a simulation replays."""

from enum import StrEnum

import msgspec


class GangOutcome(StrEnum):
    """How a gang ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    """A pod failed."""
    TIMEOUT = "Timeout"
    """It ran for as long as it may."""
    PREEMPTED = "Preempted"
    """It was preempted, and deleted before it ran again."""
    CANCELLED = "Cancelled"
    """It was deleted before a pod had ended, or before it ran."""


class GangRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One gang from its first pod to its end. Times are seconds since 1970.

    `gangsched` learns the times from objects, so they outlive its restarts; of `reasons`,
    `preemptions` and the parts of earlier runs it knows what this process and, after a restart,
    the file have seen. A gang that never started has no `started_s`.
    """

    namespace: str
    name: str
    created_s: float
    """When it was created: with its name it identifies the gang."""
    queue: str
    user: str
    outcome: GangOutcome
    submitted_s: float
    ended_s: float
    started_s: float | None = None
    """When it started first."""
    ran_s: float = 0.0
    """How long it ran, in all its runs."""
    pods: int = 0
    """The pods of the last run; of a gang that never started, those that had to start."""
    gpus_per_pod: float = 0.0
    """GPUs of the pod with the most."""
    priority: int = 0
    gpu_s: dict[str, float] = {}
    """GPU-seconds by GPU model, "" for one that is not known."""
    reasons: dict[str, float] = {}
    """Seconds for which each reason kept it from starting, as far as they were seen."""
    nodes: tuple[str, ...] = ()
    """The nodes of the last run."""
    runs: int = 0
    preemptions: int = 0
    lost_gpu_s: float = 0.0
    """GPU-seconds since the last checkpoint that preemptions cost."""
    expected_runtime_s: float | None = None
    cost: float | None = None
    """What its share of nodes with a price cost, and its GPU time on others by the setting
    `gpu_prices`; None if no price is known."""

    @property
    def wait_s(self) -> float:
        """Return how long it waited for its first start, or in vain."""
        return max(
            (self.ended_s if self.started_s is None else self.started_s) - self.submitted_s, 0.0
        )

    @property
    def gpus(self) -> float:
        """Return the GPUs that it used on average while it ran."""
        return sum(self.gpu_s.values()) / self.ran_s if self.ran_s > 0 else 0.0

    @property
    def key(self) -> tuple[str, str, float]:
        """Return what identifies the gang."""
        return self.namespace, self.name, self.created_s
