"""How long each step in the life of a gang may take."""

from dataclasses import dataclass

from gangsched.core.model.gangs import Gang


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the engine, in seconds.

    `schedule_timeout_s` bounds the time from reservation to the barrier, unless the gang sets its
    own; `backoff_s` doubles with each teardown up to `backoff_max_s`. `node_exclusion_s` is how
    long a gang excludes a node that refused one of its pods, while other nodes have capacity.
    `repartition_s` bounds the wait for GPUs to be repartitioned, and `advice_ttl_s` is how long
    remedies are valid. Refused gangs are planned again after `retry_interval_s` even if no capacity
    came free: time alone may let them preempt others. Every `report_interval_s`, refusals
    that changed are reported. A gang that does not become ready fails after `ready_tries`.
    No gang gets more than `checkpoint_grace_max_s` to save its work before it is stopped; with 0
    no stop is announced.
    """

    schedule_timeout_s: float = 60.0
    backoff_s: float = 1.0
    backoff_max_s: float = 60.0
    node_exclusion_s: float = 60.0
    repartition_s: float = 600.0
    advice_ttl_s: float = 30.0
    retry_interval_s: float = 10.0
    report_interval_s: float = 0.2
    ready_tries: int = 5
    checkpoint_grace_max_s: float = 600.0

    def allowed_grace_s(self, gang: Gang | None) -> float | None:
        """Return how long a gang may save its work before it is stopped; None: it does not ask."""
        asked_s = gang.checkpoint_grace_s if gang is not None else None
        if asked_s is None or self.checkpoint_grace_max_s <= 0:
            return None
        return min(asked_s, self.checkpoint_grace_max_s)
