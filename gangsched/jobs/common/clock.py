"""The time as a step of a reconcile sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """The present moment, in seconds and as the API writes it."""

    now_s: float
    now: str
