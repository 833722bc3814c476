"""How long each step in the life of a gang may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the engine, in seconds.

    `barrier_s` bounds the time from reservation to the barrier, unless the gang sets its own;
    `backoff_s` doubles with each teardown up to `backoff_max_s`. `avoid_s` is how long a gang
    excludes a node that refused one of its pods, while other nodes have capacity. `repartition_s`
    bounds the wait for GPUs to be repartitioned, and `advice_s` is how long remedies are valid.
    Refused gangs are planned again after `replan_s` even if no capacity came free: time alone may
    let them preempt others. Every `patrol_s`, gangs whose refusal changed are reported. A gang that
    does not become ready fails after `ready_tries`.
    """

    barrier_s: float = 60.0
    backoff_s: float = 1.0
    backoff_max_s: float = 60.0
    avoid_s: float = 60.0
    repartition_s: float = 600.0
    advice_s: float = 30.0
    replan_s: float = 10.0
    patrol_s: float = 0.2
    ready_tries: int = 5
