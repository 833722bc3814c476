"""How long each step in the life of a gang may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the engine, in seconds.

    `barrier_s` bounds the time from reservation to the barrier when the gang sets none;
    `backoff_s` doubles with each break up to `backoff_max_s`; `avoid_s` is how long a gang stays
    away from a node that refused one of its members, while others have room; `repartition_s` bounds
    the wait for GPUs to be cut anew, and `advice_s` is how long advice is believed. Refused gangs
    are planned again after `replan_s` even if no room came: time alone may let them stop others.
    Every `patrol_s` it is looked for gangs that have not heard why they wait now. A gang that does
    not become ready is given up after `ready_tries`.
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
