"""What a gang waits for before it is planned: other gangs, and its turn in a series."""

from dataclasses import dataclass
from enum import StrEnum


class DependencyCondition(StrEnum):
    """What has to be true of the gang that another gang depends on."""

    SUCCEEDED = "Succeeded"
    ENDED = "Ended"
    FAILED = "Failed"
    STARTED = "Started"


class Outcome(StrEnum):
    """How a gang ended: its work was done, or it failed, was cancelled or was deleted."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job or a PodGroup of the same namespace, by name, and what has to be true of it."""

    name: str
    condition: DependencyCondition


@dataclass(frozen=True, slots=True)
class Series:
    """Gangs of one namespace that name the same series: at most `running_max` run at a time."""

    name: str
    running_max: int


def is_met(condition: DependencyCondition, outcome: Outcome | None, *, started: bool) -> bool:
    """Return whether a condition holds for a gang with this outcome (None: it has not ended)."""
    if condition is DependencyCondition.STARTED:
        return started or outcome is not None
    if outcome is None:
        return False
    return condition is DependencyCondition.ENDED or condition.value == outcome.value
