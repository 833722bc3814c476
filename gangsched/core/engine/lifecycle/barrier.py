"""Gangs with a reservation: their members come to the barrier, and are bound together."""

from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import Stage, State
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.transition import Cause, Transition


class Barrier:
    """The states RESERVED and BINDING."""

    def __init__(self, members: MemberSteps) -> None:
        self._members = members

    def step(self, gang: GangState, after: Transition | None, now_s: float) -> Transition | None:
        """Move reserved members towards the barrier, and all of them through it together."""
        del after, now_s
        if gang.reservation.waits_for_capacity:
            return None
        staged = self._members.prepare_reserved(gang)
        there = (Stage.PREPARED, Stage.BINDING)
        if all(m.awaits_late_pod or m.stage in there for m in staged):
            if gang.members.under_way() and gang.state is State.RESERVED:
                return Transition(State.BINDING, Cause.AT_BARRIER)
            self._members.bind_prepared(gang, staged)
        if gang.members.under_way():
            return None
        if gang.members.bound_count() + gang.members.ended_count() >= gang.start_minimum():
            return Transition(State.PLACED, Cause.BOUND)
        return Transition(State.BROKEN, Cause.FAILED, "fewer members than its minimum were bound")

    def enter(self, gang: GangState, why: Transition, now_s: float) -> Transition:
        """Bring a gang into RESERVED or BINDING."""
        gang.enter(why.to)
        if why.to is State.RESERVED:
            gang.reservation.reserved_s = now_s
        return why
