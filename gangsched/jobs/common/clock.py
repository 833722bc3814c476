"""The time of one step of a reconcile."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """The current time, in seconds and as an API timestamp."""

    now_s: float
    now: str
