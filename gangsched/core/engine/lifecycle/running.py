"""Gangs that run: late members are bound, and its run is watched."""

from gangsched.core.engine.admitted_changes import AdmittedChanges
from gangsched.core.engine.allocations import Allocations
from gangsched.core.engine.gangs.gang_views import GangState, State
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.minimum_watch import MinimumWatch
from gangsched.core.engine.lifecycle.run_times import RunTimes, finished
from gangsched.core.engine.lifecycle.start_deadlines import StartDeadlines
from gangsched.core.engine.lifecycle.timers import Timers
from gangsched.core.engine.lifecycle.transition import Cause, Transition
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.refusal_reports import RefusalReports


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

    def step(self, gang: GangState, after: Transition | None, now_s: float) -> Transition | None:
        """Bind late members, and look whether the gang is whole, ready, empty or done."""
        del after
        self._bind_late(gang)
        if self._minimum.is_empty(gang, now_s):
            self._members.withdraw_empty(gang)
            if gang.in_progress() == 0:
                return Transition(State.GATHERING, Cause.EMPTY)
        self._watch_work(gang, now_s)
        return None

    def enter(self, gang: GangState, why: Transition, now_s: float) -> Transition:
        """Bring a gang into PLACED, started by this process or met as it runs."""
        met = why.cause is Cause.ALREADY_RUNS
        gang.enter(State.PLACED)
        gang.ran_with = gang.enough()
        self._allocations.note_admitted(gang)
        gang.no_shows = 0
        gang.placed_s = now_s
        if not met:
            self._run_times.started(gang, now_s)
        gang.learnt = met and not gang.bound_count()  # an earlier process saw it end
        limit_s = self._run_times.limit_s(gang)
        if limit_s is not None:
            gang.end_by_s = gang.running().started_s + limit_s
            self._timers.watch(gang.id)
        gang.attempts = 0
        gang.avoid.clear()
        gang.most_per_node = gang.most_until_s = None
        gang.deadline_s = self._deadlines.kept_until_s(gang, now_s)
        gang.bump()
        self._refusals.withdraw(gang)
        self._outbox.report_placed(gang, met=met)
        self._admitted.take_over_placed(gang)
        if why.message:  # its run time is over, and its pods had done their work meanwhile
            self._refusals.refuse_given_up(gang, now_s)
        return why

    def _bind_late(self, gang: GangState) -> None:
        if gang.held_back:
            return
        staged = self._members.prepare_reserved(gang)
        self._members.bind_prepared(gang, staged)
        whole = gang.under_way() == 0 and not gang.to_come()
        if whole and gang.below_since_s is None:
            if gang.deadline_s is not None:
                self._admitted.report_whole(gang)
            gang.deadline_s = None  # its late members have all arrived

    def _watch_work(self, gang: GangState, now_s: float) -> None:
        """Have a gang become ready in time, and learn how long it ran."""
        if finished(gang):
            self._run_times.learn(gang, now_s)
            gang.ready_by_s = gang.end_by_s = None
            return
        spec = gang.spec
        if spec is None or spec.ready_timeout_s is None or not gang.unready():
            if gang.ready_by_s is not None:
                gang.ready_by_s, gang.unready_tries = None, 0
        elif gang.ready_by_s is None:
            gang.ready_by_s = now_s + spec.ready_timeout_s
