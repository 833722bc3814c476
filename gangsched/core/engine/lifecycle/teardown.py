"""Gangs that are torn down; each member is released as facts about it come."""

from gangsched.core import orders as o
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import Stage, State
from gangsched.core.engine.lifecycle.capacity_wait import CapacityWait
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.transition import Cause, Transition
from gangsched.core.engine.outbox import Outbox


class Teardown:
    """The state BROKEN."""

    def __init__(self, members: MemberSteps, capacity: CapacityWait, outbox: Outbox) -> None:
        self._members = members
        self._capacity = capacity
        self._outbox = outbox

    def step(self, gang: GangState, after: Transition | None, now_s: float) -> Transition | None:
        """Evict pods that were bound meanwhile; check whether the gang is torn down."""
        del after, now_s
        pinned = gang.is_pinned()
        for member in gang.members.values():
            late = member.bound_node or (pinned and member.stage is None)
            if late and member.pod and not member.ended and not member.evicted:
                self._members.evict(gang, member, gang.retry.teardown_reason)
        if any(
            member.stage is Stage.BINDING
            or (member.pod and not member.ended and (member.bound_node or pinned))
            for member in gang.members.values()
        ):
            return None
        return Transition(State.GATHERING, Cause.TORN_DOWN)

    def enter(self, gang: GangState, why: Transition, now_s: float) -> Transition:
        """End a gang as a whole: withdraw what is not in flight, evict what is bound."""
        del now_s
        preempted = why.cause is Cause.PREEMPTED
        gang.enter(State.BROKEN)
        gang.retry.teardown_reason = why.message
        gang.reservation.proof = ""
        gang.retry.attempts += not preempted
        gang.mark_changed()
        gang.end_run()
        again = "" if gang.retry.failure_message else " and will be planned again"
        reason = o.ReportReason.PREEMPTED if preempted else o.ReportReason.BROKEN
        self._outbox.report(gang, reason, f"{why.message}. The gang is stopped{again}.")
        self._outbox.emit(o.Release(gang.id))
        self._capacity.drop(gang)
        pinned = gang.is_pinned()
        for member in gang.members.values():
            in_flight = member.stage is Stage.BINDING
            if member.stage is not None and not in_flight:
                self._members.withdraw(gang, member, why.message)
            # A pod that was created pinned to a node cannot be planned again: it must be replaced.
            if (
                member.pod
                and not member.ended
                and (member.bound_node or (pinned and not in_flight))
            ):
                self._members.evict(gang, member, why.message, preempted=preempted)
        return why
