"""The life of a gang: its states, and what moves it from one to the next.

The states::

             every member known      plan accepted      all at the barrier    minimum bound
    GATHERING ---------------> PENDING ----------> RESERVED ----------> BINDING -------> PLACED
      ^  ^  ^                   |   |                 |                    |              |  |
      |  |  |  a member left    |   | below its       | a member refused,  | fewer bound  |  |
      |  |  +-------------------+   | minimum for     | gone or late; its  | than its     |  |
      |  |                          | too long        | node gone          | minimum      |  |
      |  |                          v                 v                    v              |  |
      |  +------------------------ BROKEN <-----------------------------------------------+  |
      |    every bind answered,         failed, preempted, drained, over its run time        |
      |    every bound pod gone                                                              |
      +--------------------------------------------------------------------------------------+
                                      no pod of it is left

GATHERING, PENDING and RESERVED lead to PLACED too, where enough pods are bound by others or by an
earlier process, and GATHERING to BROKEN like PENDING. `transition.LEGAL` lists every change.

The states are handled by four classes. A handler looks at a gang, orders what its state needs, and
returns the transition that it asks for; it never calls another handler. `Lifecycle` makes the
transition, and asks the handler of the next state.

A gang that is preempted is BROKEN too, but did not fail: it does not back off and keeps its turn.
"""

from collections.abc import Mapping
from typing import Protocol

from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.lifecycle.transition import LEGAL, Cause, Transition
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.pending.start_conditions import StartConditions
from gangsched.core.engine.timing.timers import Timers

_ROUNDS = 8
"""The most transitions for one fact; further ones wait for the next fact."""


class Handler(Protocol):
    """Handles the gangs of some states."""

    def step(self, gang: GangState, after: Transition | None, now_s: float) -> Transition | None:
        """Do what the state of a gang needs; return the transition it asks for, or None.

        `after` is the transition by which the gang has just come into its state, None if it was
        there before.
        """

    def enter(self, gang: GangState, why: Transition, now_s: float) -> Transition:
        """Enter a state; return the transition with data for the next step."""


class Lifecycle:
    """Makes the transitions of gangs; it owns nothing but the table of handlers."""

    def __init__(
        self,
        handlers: Mapping[State, Handler],
        pending: PendingQueue,
        timers: Timers,
        conditions: StartConditions,
    ) -> None:
        self._handlers = handlers
        """Of every state."""
        self._pending = pending
        self._timers = timers
        self._conditions = conditions

    def settle(self, gang: GangState, now_s: float) -> None:
        """Update the state of a gang from its members, and have it planned."""
        last = self.advance(gang, now_s)
        if last is not None and last.cause is Cause.TORN_DOWN:
            self.advance(gang, now_s)  # what it lacks now is reported last
        self._conditions.settled(gang)
        if gang.is_plannable():
            self._pending.add(gang.id)
        else:
            self._pending.remove(gang.id)
        self._timers.watch(gang.id)

    def advance(self, gang: GangState, now_s: float) -> Transition | None:
        """Make the transitions that a gang's members allow; return the last one."""
        return self._go_on(gang, None, now_s)

    def tear_down(self, gang: GangState, cause: Cause, reason: str, now_s: float) -> None:
        """End a whole gang; its charges are released as facts come."""
        why = self.move(gang, Transition(State.BROKEN, cause, reason), now_s)
        self._go_on(gang, why, now_s)

    def fail(self, gang: GangState, reason: str, now_s: float) -> None:
        """Tear down a gang that did not start, or cannot continue."""
        self.tear_down(gang, Cause.FAILED, reason, now_s)

    def move(self, gang: GangState, transition: Transition, now_s: float) -> Transition:
        """Make one transition; return it with what the next step has to know."""
        edge = (gang.state, transition.to)
        assert edge in LEGAL, f"{gang.id}: no way from {edge[0]} to {edge[1]}"  # noqa: S101
        return self._handlers[transition.to].enter(gang, transition, now_s)

    def _go_on(self, gang: GangState, after: Transition | None, now_s: float) -> Transition | None:
        for _ in range(_ROUNDS):
            transition = self._handlers[gang.state].step(gang, after, now_s)
            if transition is None:
                break
            after = self.move(gang, transition, now_s)
        return after
