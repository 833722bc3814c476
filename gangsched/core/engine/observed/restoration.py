"""Restores reservations and histories of an earlier process, as far as they are valid."""

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.admission.preemption_history import PreemptionHistory
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.pod_templates import excess
from gangsched.core.engine.gangs.running_views import terminating_view
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.reservations import Reservations
from gangsched.core.engine.lifecycle.stop_notices import StopNotices
from gangsched.core.engine.observed.carried_over import history_of, restore_history, stop_of
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.pending.refusal_reports import RefusalReports
from gangsched.core.engine.pending.start_conditions import StartConditions
from gangsched.core.engine.plans.plan_feedback import PlanFeedback
from gangsched.core.engine.plans.revalidation import still_fits
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.model.placement import Placement
from gangsched.core.planning.planner import Planned
from gangsched.core.snapshot import BackfillReservation
from gangsched.core.what_if import cluster_without


class Restoration:
    """Restores the state of an earlier process, and returns that for the next; it owns nothing."""

    def __init__(
        self,
        settings: Settings,
        table: GangTable,
        allocations: Allocations,
        preemptions: PreemptionHistory,
        feedback: PlanFeedback,
        admitted: AdmittedChanges,
        refusals: RefusalReports,
        deadlines: StartDeadlines,
        lifecycle: Lifecycle,
        reservations: Reservations,
        stops: StopNotices,
        outbox: Outbox,
        conditions: StartConditions,
    ) -> None:
        self._settings = settings
        self._table = table
        self._allocations = allocations
        self._preemptions = preemptions
        self._feedback = feedback
        self._admitted = admitted
        self._refusals = refusals
        self._deadlines = deadlines
        self._lifecycle = lifecycle
        self._reservations = reservations
        self._stops = stops
        self._outbox = outbox
        self._conditions = conditions

    def reservation(self, fact: f.AssignmentsRestored, now_s: float) -> None:
        """Restore the assignments that an earlier process stored, if all are still valid."""
        gang = self._table.gangs.get(fact.gang)
        if gang is None or gang.state is not State.PENDING:
            return
        known = tuple((n, node) for n, node in fact.assignments if n in gang.members)
        open_places = tuple((n, node) for n, node in known if not gang.members[n].bound_node)
        planned = Planned(gang.id, gang.version, Placement(open_places))
        whole = len(known) >= gang.minimum() and open_places and self._as_planned(gang)
        cluster = self._allocations.cluster
        if whole and self._admitted.still_admitted(gang) and still_fits(cluster, gang, planned):
            self._reservations.reserve(gang, planned, now_s)
        elif len(known) < len(fact.assignments) or open_places:
            self._outbox.emit(o.Release(gang.id))

    def history(self, past: f.HistoryRestored, now_s: float) -> None:
        """Restore the history of a gang, unless it is another gang of that name."""
        gang = self._table.gangs.get(past.gang)
        if gang is None or gang.waits_since_s() != past.created_s:
            return
        restore_history(gang, past, now_s)
        notice = stop_of(past)
        if notice is not None and gang.state is State.PLACED and gang.run.stop is None:
            self._stops.restore(gang, notice)
        waits_or_runs = (State.PENDING, State.PLACED)
        if gang.retry.failure_message and gang.state is State.PENDING:
            self._refusals.refuse_given_up(gang, now_s)
        if past.backoff_until_s is not None and past.backoff_until_s > now_s:
            self._deadlines.back_off(gang, past.backoff_until_s)
        if past.reserved_start_s is not None and gang.state in waits_or_runs:
            reserved = BackfillReservation(gang.id, past.reserved_start_s, past.reserved_nodes)
            self._feedback.restore(reserved)
        if past.places and gang.state in waits_or_runs:
            self._places(gang, past, now_s)
        self._lifecycle.settle(gang, now_s)

    def past(self) -> tuple[f.StoredFact, ...]:
        """Return the state that no object stores.

        Gangs with an announced stop come first, because others are held back for what they use;
        then those with backfill reservations.
        """
        held, kept, gangs = (
            self._allocations.ledger.usage_of_gang,
            self._feedback.backfill_reservations,
            self._table.gangs,
        )
        others = (gang for gang in gangs if gang not in kept)
        known = [gangs[gang] for gang in (*kept, *others) if gang in gangs]
        known.sort(key=lambda gang: gang.run.stop is None)
        pasts = (history_of(gang, kept.get(gang.id), held(gang.id)) for gang in known)
        stopped = (
            f.PreemptionRestored(*gang)
            for gang in self._preemptions.entries(self._allocations.now_s)
        )
        ended = (
            f.EndRestored(one.gang, one.outcome, one.at_s)
            for one in self._conditions.ended.stored(self._allocations.now_s)
        )
        return (*(gang for gang in pasts if gang is not None), *stopped, *ended)

    def _places(self, gang: GangState, past: f.HistoryRestored, now_s: float) -> None:
        """Reserve the stored assignments again, if they are still valid.

        A gang that was held back is held back again until other gangs have left its nodes; what
        these use counts as free.
        """
        open_names = {member.name for member in gang.unassigned_members()}
        places = tuple((name, node) for name, node in past.places if name in open_names)
        if gang.state is State.PENDING and len(places) < len(past.places):
            return  # some binds are in flight: the rest of the gang is planned with them
        gangs, cluster = self._table.gangs.values(), self._allocations.cluster
        parts = (terminating_view(state) for state in gangs) if past.waits_for_capacity else ()
        gone = tuple(part for part in parts if part is not None)
        left = cluster_without(cluster, gone) if gone else cluster
        planned = Planned(gang.id, gang.version, Placement(places))
        # A gang that is held back is admitted once it has what it waits for.
        admitted = bool(gone) or self._admitted.still_admitted(gang)
        if places and admitted and self._as_planned(gang) and still_fits(left, gang, planned):
            self._reservations.reserve(gang, planned, now_s, held_back=bool(gone))

    def _as_planned(self, gang: GangState) -> bool:
        """Return whether no pending pod requests more than its role, which was admitted."""
        judged = self._settings.driver_checks_unmodelled
        return not any(
            excess(member.template, member.pod_needs, None, judged=judged)
            for member in gang.members.values()
            if member.template is not None
            and member.pod_needs is not None
            and not member.bound_node
        )
