"""Gangs that run: late members are bound, and its run is watched."""

from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.transition import Cause, Transition
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.pending.refusal_reports import RefusalReports
from gangsched.core.engine.pending.start_conditions import StartConditions
from gangsched.core.engine.timing.minimum_watch import MinimumWatch
from gangsched.core.engine.timing.run_times import RunTimes, is_done
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.engine.timing.timers import Timers
from gangsched.core.model.dependencies import Outcome


class Running:
    """The state PLACED."""

    def __init__(
        self,
        allocations: Allocations,
        admitted: AdmittedChanges,
        members: MemberSteps,
        deadlines: StartDeadlines,
        timers: Timers,
        minimum: MinimumWatch,
        run_times: RunTimes,
        refusals: RefusalReports,
        outbox: Outbox,
        conditions: StartConditions,
    ) -> None:
        self._allocations = allocations
        self._admitted = admitted
        self._members = members
        self._deadlines = deadlines
        self._timers = timers
        self._minimum = minimum
        self._run_times = run_times
        self._refusals = refusals
        self._outbox = outbox
        self._conditions = conditions

    def step(self, gang: GangState, after: Transition | None, now_s: float) -> Transition | None:
        """Bind late members, and check whether the gang is complete, ready, empty or done."""
        del after
        self._bind_late(gang)
        if self._minimum.is_empty(gang, now_s):
            self._members.withdraw_empty(gang)
            if gang.members.in_progress() == 0:
                return Transition(State.GATHERING, Cause.EMPTY)
        self._watch_work(gang, now_s)
        return None

    def enter(self, gang: GangState, why: Transition, now_s: float) -> Transition:
        """Bring a gang into PLACED, whether this process started it or not."""
        adopted = why.cause is Cause.ALREADY_RUNS
        gang.enter(State.PLACED)
        if not gang.job_ended:
            gang.outcome = None
        gang.run.minimum = gang.start_minimum()
        self._allocations.note_admitted(gang)
        gang.retry.no_shows = 0
        gang.run.placed_s = now_s
        if not adopted:
            self._run_times.record_start(gang, now_s)
        # An earlier process observed the end of a gang without running pods.
        gang.run.runtime_recorded = adopted and not gang.members.bound_count()
        limit_s = self._run_times.limit_s(gang)
        if limit_s is not None:
            gang.run.end_by_s = running_view(gang).started_s + limit_s
            self._timers.watch(gang.id)
        gang.retry.attempts = 0
        gang.retry.excluded_nodes.clear()
        gang.retry.pods_per_node_max = gang.retry.pods_per_node_until_s = None
        self._deadlines.allow_late_pods(gang, now_s)
        gang.mark_changed()
        self._refusals.withdraw(gang)
        self._outbox.report_placed(gang, adopted=adopted)
        self._admitted.take_over_placed(gang)
        if why.message:  # its run time is over, and its pods had done their work meanwhile
            self._refusals.refuse_given_up(gang, now_s)
        return why

    def _bind_late(self, gang: GangState) -> None:
        if gang.reservation.waits_for_capacity:
            return
        staged = self._members.prepare_reserved(gang)
        self._members.bind_prepared(gang, staged)
        whole = gang.members.under_way() == 0 and not gang.members.to_come()
        if whole and gang.run.below_minimum_since_s is None:
            if gang.reservation.start_by_s is not None:
                self._admitted.report_whole(gang)
            gang.reservation.start_by_s = None  # its late members have all arrived

    def _watch_work(self, gang: GangState, now_s: float) -> None:
        """Set the deadline for readiness, and record the run time of a finished gang."""
        if is_done(gang):
            self._run_times.record(gang, now_s)
            self._conditions.record_end(gang, Outcome.SUCCEEDED, now_s)
            gang.run.ready_by_s = gang.run.end_by_s = None
            return
        spec = gang.spec
        if spec is None or spec.ready_timeout_s is None or not gang.unready_count():
            if gang.run.ready_by_s is not None:
                gang.run.ready_by_s, gang.retry.unready_tries = None, 0
        elif gang.run.ready_by_s is None:
            gang.run.ready_by_s = now_s + spec.ready_timeout_s
