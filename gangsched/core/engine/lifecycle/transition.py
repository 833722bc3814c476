"""Transitions between the states of a gang, and which of them are legal."""

from dataclasses import dataclass
from enum import Enum, auto

from gangsched.core.engine.gangs.member import State


class Cause(Enum):
    """Why a gang changes its state."""

    INCOMPLETE = auto()
    """Its declaration or a pod that it needs is missing."""
    COMPLETE = auto()
    """Every member that it needs is known."""
    ALREADY_RUNS = auto()
    """Enough of its pods are bound, by others or by an earlier process."""
    PLANNED = auto()
    """A plan was accepted that places it."""
    AT_BARRIER = auto()
    """Every member that it needs is ready to be bound."""
    BOUND = auto()
    """Enough of its members are bound."""
    FAILED = auto()
    """It did not start, or cannot continue: it backs off."""
    PREEMPTED = auto()
    """Another gang preempts it, or an administrator drains it: it keeps its turn."""
    EMPTY = auto()
    """No pod of it is left."""
    TORN_DOWN = auto()
    """Every bind is answered, and every bound pod is gone."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state that a handler asks for; the lifecycle makes it."""

    to: State
    cause: Cause
    message: str = ""


LEGAL = frozenset(
    {
        (State.GATHERING, State.PENDING),
        (State.GATHERING, State.PLACED),
        (State.GATHERING, State.BROKEN),
        (State.PENDING, State.GATHERING),
        (State.PENDING, State.RESERVED),
        (State.PENDING, State.PLACED),
        (State.PENDING, State.BROKEN),
        (State.RESERVED, State.BINDING),
        (State.RESERVED, State.PLACED),
        (State.RESERVED, State.BROKEN),
        (State.BINDING, State.PLACED),
        (State.BINDING, State.BROKEN),
        (State.PLACED, State.GATHERING),
        (State.PLACED, State.BROKEN),
        (State.BROKEN, State.GATHERING),
    }
)
"""Every change of state that may happen; `lifecycle.py` draws them."""
