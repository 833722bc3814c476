"""Gangs that gather their members, and gangs that are complete and wait for a plan."""

from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.incomplete import incomplete_reason
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.lifecycle.transition import Cause, Transition
from gangsched.core.engine.pending.refusal_reports import RefusalReports
from gangsched.core.engine.pending.start_conditions import StartConditions
from gangsched.core.engine.timing.minimum_watch import MinimumWatch
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.engine.views.running_set import RunningSet
from gangsched.core.model.dependencies import Outcome
from gangsched.core.model.refusal import Reason, Refusal


class Gathering:
    """The states GATHERING and PENDING."""

    def __init__(
        self,
        admitted: AdmittedChanges,
        running: RunningSet,
        deadlines: StartDeadlines,
        minimum: MinimumWatch,
        refusals: RefusalReports,
        conditions: StartConditions,
    ) -> None:
        self._admitted = admitted
        self._running = running
        self._deadlines = deadlines
        self._minimum = minimum
        self._refusals = refusals
        self._conditions = conditions

    def step(self, gang: GangState, after: Transition | None, now_s: float) -> Transition | None:
        """Check whether a gang is complete, or runs already; `after` is its last transition."""
        if after is not None and after.cause is Cause.COMPLETE:  # both were checked for it
            self._minimum.is_empty(gang, now_s)
            return None
        settled = gang.members.bound_count() + gang.members.ended_count()
        torn_down = after is not None and after.cause is Cause.TORN_DOWN
        given_up = gang.retry.failure_message if torn_down else ""
        if (
            gang.spec is not None
            and (gang.spec.started or settled >= gang.start_minimum())
            and settled
        ):
            return Transition(State.PLACED, Cause.ALREADY_RUNS, given_up)
        why = incomplete_reason(gang)
        if why is not None:
            if gang.state is State.PENDING:
                return Transition(State.GATHERING, Cause.INCOMPLETE)
            if any(not (member.ended or member.terminating) for member in gang.members.values()):
                self._refusals.refuse(gang, why, now_s)
            if given_up:
                self._refusals.refuse_given_up(gang, now_s)
        elif gang.state is State.GATHERING:
            return Transition(State.PENDING, Cause.COMPLETE, after.message if after else "")
        self._minimum.is_empty(gang, now_s)
        return None

    def enter(self, gang: GangState, why: Transition, now_s: float) -> Transition:
        """Bring a gang into GATHERING or PENDING; return why it is there."""
        gang.enter(why.to)
        if why.to is State.PENDING:
            gang.queued_since_s = gang.queued_since_s if gang.queued_since_s is not None else now_s
            gang.mark_changed()
            self._refusals.withdraw(gang)
            if gang.retry.failure_message:
                self._refusals.refuse_given_up(gang, now_s)
            elif why.message:
                refusal = Refusal(gang.id, Reason.BACKING_OFF, why.message)
                self._refusals.refuse(gang, refusal, now_s)
            return why
        if why.cause is Cause.INCOMPLETE:
            gang.mark_changed()
            return why
        gang.start_over()
        self._admitted.take_over(gang)
        if why.cause is Cause.EMPTY:
            self._conditions.record_end(gang, Outcome.FAILED, now_s)
            return why
        self._running.all_left(gang.id)
        if (
            gang.retry.failure_message or not gang.retry.attempts
        ):  # one that was preempted keeps its turn
            return why
        wait_s = self._deadlines.back_off_after_failure(gang, now_s)
        message = f"{gang.retry.teardown_reason}; trying again in {wait_s:g} s."
        return Transition(why.to, why.cause, message)
