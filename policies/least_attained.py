"""Least attained service: the gang with the least GPU time first; no estimates (Tiresias)."""

from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.pods import GPU


@dataclass(frozen=True, slots=True)
class LeastAttained:
    """Two-dimensional LAS with discrete queues (Gu et al., NSDI'19).

    Gangs with less than `threshold_gpu_s` GPU-seconds come first. Each of the two groups is first
    in, first out, so that equal gangs do not preempt each other in turn. A gang that waits for
    `promote` times its run time returns to the first group, as in the paper.
    """

    threshold_gpu_s: float = 3_600.0
    promote: float = 8.0
    orders_by_age: ClassVar[bool] = False

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key: the queue by attained service, then arrival."""
        gpus = max(sum(dict(m.needs.requests).get(GPU, 0) for m in waiting.members), 1)
        attained = waiting.attained_s * gpus
        waited_s = now_s - waiting.queued_since_s - waiting.attained_s
        demoted = attained >= self.threshold_gpu_s
        if demoted and waited_s > self.promote * waiting.attained_s:
            demoted = False
        return (float(demoted), waiting.queued_since_s, waiting.gang.id)

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        """Return False: no gang is overtaken for a better fit."""
        return False
