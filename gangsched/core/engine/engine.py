"""The engine: applies facts, takes snapshots and accepts plans. Only facts end reservations.

It is made of parts (`parts.py`), and only routes: each fact goes to the part that folds it.
`lifecycle/lifecycle.py` draws the life of a gang. What always holds:

- A reservation ends only by an observed fact. A broken gang keeps what it is charged for every bind
  in flight until that bind is answered, and for every bound member until its pod is gone; freeing
  it at the first refusal would over-commit a node, because another bind may still succeed.
- No member is bound before every reserved member has passed the barrier (two-phase commit).
- A plan is checked again on the current state; a gang that changed meanwhile is dropped whole.

The engine has no clock: every call brings the time, in seconds from any fixed point.
"""

from dataclasses import replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.allocation.declarations import Change
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import Stage, State
from gangsched.core.engine.limits import Limits
from gangsched.core.engine.parts import PARTS, PartClasses, Parts
from gangsched.core.engine.plans.revalidation import cluster_without_victims, still_fits
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.view import EngineView
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Refusal
from gangsched.core.planning.planner import Plan, Planned
from gangsched.core.quota.ledger import Ledger
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.snapshot import Snapshot


class Engine:
    """All state of the scheduler, by its parts. One task owns it."""

    def __init__(
        self, limits: Limits, ledger: Ledger | None = None, *, classes: PartClasses = PARTS
    ) -> None:
        self.parts = Parts(Settings(limits), ledger or Ledger(), classes)
        """Every part; drivers ask the view instead."""
        self.view = EngineView(self.parts)
        """The state, for reading."""
        self._replanned_s = 0.0
        """When all refused gangs were last planned again because of time alone."""

    # -- facts --------------------------------------------------------------------------------

    def observe(self, fact: f.Fact, now_s: float) -> tuple[o.Order, ...]:
        """Apply one fact; return the orders that follow from it."""
        parts = self.parts
        parts.allocations.advance_to(now_s)
        match fact:
            case f.PodSeen():
                parts.pods.seen(fact, now_s)
            case f.PodGone(uid):
                parts.pods.gone(uid, now_s)
            case f.Prepared(uid, node):
                parts.pods.prepared(uid, node, now_s)
            case f.Bound(uid, node):
                pod = parts.table.pods.get(uid)
                if pod is not None and pod.node is None:
                    parts.pods.seen(replace(pod, node=node, gated=False), now_s)
            case f.PrepareFailed() | f.BindFailed():
                parts.pods.refused(fact, now_s)
            case f.PlanFailed(gang_id):
                if (failed := parts.table.gangs.get(gang_id)) is not None:
                    parts.deadlines.back_off_after_plan_failure(failed, fact, now_s)
            case f.NodeSeen(node=node_seen):
                if parts.allocations.put_node(node_seen):
                    parts.pods.devices_known(node_seen.name)
                    parts.reservations.node_seen(node_seen, now_s)
            case f.NodeGone(name):
                if parts.allocations.remove_node(name):
                    parts.pods.node_gone(name, now_s)
            case f.GangSeen():
                self._gang_seen(fact, now_s)
            case f.GangGone(gang_id):
                self._gang_gone(gang_id, now_s)
            case f.JobEnded():
                parts.conditions.record_job_end(fact, now_s)
            case f.AssignmentsRestored():
                parts.restoration.reservation(fact, now_s)
            case f.HistoryRestored():
                parts.restoration.history(fact, now_s)
            case f.PreemptionRestored(victim, by, at_s):
                parts.preemption_history.restore(victim, by, at_s)
            case f.EndRestored():
                parts.conditions.restore_end(fact)
            case f.UsageRestored():
                parts.allocations.restore_usage(fact)
            case _:
                self._declared(parts.declarations.fold(fact))
        if parts.pending.capacity_freed and parts.capacity.is_anything_held():
            parts.reservations.capacity_freed(now_s)
        if parts.stops.is_any():
            parts.preemptions.settle_stops(now_s)
        if parts.conditions.is_due():
            parts.conditions.judge(now_s)
        return parts.outbox.drain()

    def _declared(self, change: Change) -> None:
        if change is Change.REQUESTS:
            self.parts.pending.rebuild()
        elif change is Change.TOPOLOGIES:
            self.parts.allocations.set_topologies()

    def _gang_seen(self, fact: f.GangSeen, now_s: float) -> None:
        parts = self.parts
        gang = parts.table.ensure(fact.gang.id)
        again, gang.undeclared, gang.declaration = gang.undeclared, False, fact.gang
        parts.table.mark(gang.id)
        if parts.admitted.take_over(gang) or again:
            for member in list(gang.members.values()) if gang.members.in_progress() else ():
                parts.pods.outgrown(gang, member, now_s)
            parts.lifecycle.settle(gang, now_s)

    def _gang_gone(self, gang_id: GangId, now_s: float) -> None:
        parts, gang = self.parts, self.parts.table.gangs.get(gang_id)
        if gang is None or gang.spec is None or gang.undeclared:
            return
        if gang.state is State.PLACED:
            parts.run_times.record(gang, now_s)
        parts.conditions.record_deleted(gang, now_s)
        gang.undeclare()
        if gang.state in (State.RESERVED, State.BINDING):
            reason = "its PodGroup was deleted before the gang had started"
            parts.lifecycle.fail(gang, reason, now_s)
        parts.members.withdraw_empty(gang)
        parts.lifecycle.settle(gang, now_s)
        parts.removal.remove_if_vanished(gang)

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> tuple[o.Order, ...]:
        """Let time pass: act on deadlines, and end back-offs."""
        parts = self.parts
        parts.allocations.advance_to(now_s)
        if now_s - self._replanned_s >= self.limits.retry_interval_s:
            self._replanned_s = now_s
            parts.pending.requeue_relearned()
            parts.pending.retry_all()
            parts.feedback.retry_preemption()
            parts.conditions.judge_all()
            for gang in parts.admitted.reconsider():
                parts.lifecycle.settle(gang, now_s)
        parts.stops.withdraw_unknown()
        drained_gangs = set()
        for drained in parts.drained.find(now_s):
            drained_gangs.add(drained.gang.id)
            parts.preemptions.drain(drained, now_s)
        if parts.stops.is_any():
            parts.preemptions.keep_drained(drained_gangs, now_s)
        for gang_id in parts.timers.due(now_s):
            due = self.parts.table.gangs.get(gang_id)
            if due is not None:
                parts.due.act(due, now_s)
                parts.timers.watch(gang_id)
        if parts.stops.is_any():
            parts.preemptions.settle_stops(now_s)
        if parts.conditions.is_due():
            parts.conditions.judge(now_s)
        for gang_id in parts.pending.take_unreported(now_s, self.limits.report_interval_s):
            parts.refusals.report(self.parts.table.gangs[gang_id])
        return parts.outbox.drain()

    def audit(self, now_s: float) -> dict[str, int]:
        """Compare usage with the pods and assignments that exist; return what was corrected."""
        self.parts.allocations.advance_to(now_s)
        return self.parts.allocations.audit(self.parts.table.pods.values())

    # -- planning -----------------------------------------------------------------------------

    def begin_cycle(self, now_s: float = 0.0, *, pods_max: int | None = None) -> Snapshot:
        """Return a snapshot with the gangs to plan next; planning ends after `pods_max` pods."""
        return self.parts.snapshots.begin_cycle(now_s, pods_max)

    def accept(self, plan: Plan, now_s: float) -> tuple[o.Order, ...]:
        """Check every placement on the current state, and reserve those that still hold."""
        parts = self.parts
        parts.allocations.advance_to(now_s)
        for planned in plan.placements:
            self._place(planned, now_s)
        if not plan.advice:
            parts.feedback.learn(plan)
            parts.pending.refusals.plan_count += 1
            parts.pending.planned(plan.snapshot_number)
        for key, refusal in plan.class_refusals:
            parts.pending.record_class_refusal(key, refusal)
        for waiting, refusal in plan.refusals:
            gang = self.parts.table.gangs.get(waiting.gang.id)
            if gang is None or gang.version != waiting.version:
                continue
            if plan.advice:  # the gang may be in its class again, and has to stay there
                if parts.pending.is_current(gang.id, refusal):
                    parts.refusals.refuse(gang, refusal, now_s)
            else:
                parts.pending.classify(
                    waiting, alone=gang.id in parts.feedback.backfill_reservations
                )
                parts.refusals.refuse(gang, refusal, now_s)
                parts.deadlines.shorten_exclusions(gang, now_s)
        if plan.deferred or plan.truncated:
            parts.pending.retry_all()
        if parts.stops.is_any():
            parts.preemptions.settle_stops(now_s)
        if parts.conditions.is_due():
            parts.conditions.judge(now_s)
        return parts.outbox.drain()

    def _place(self, planned: Planned, now_s: float) -> None:
        parts, gang = self.parts, self.parts.table.gangs.get(planned.gang)
        fresh = gang is not None and gang.version == planned.version
        left = self._without_victims(planned) if fresh else None
        if gang is None or left is None or not still_fits(left, gang, planned):
            parts.feedback.count_stale()
            if gang is not None:
                parts.pending.add(gang.id)
            return
        for eviction in planned.placement.evicts:
            parts.preemptions.preempt(self.parts.table.gangs[eviction.gang], eviction, gang, now_s)
        parts.reservations.reserve(gang, planned, now_s)

    def _without_victims(self, planned: Planned) -> Cluster | None:
        """Return the cluster without the victims of a placement; None if one has changed."""
        evicts = planned.placement.evicts
        if not evicts:
            return self.parts.allocations.cluster
        return cluster_without_victims(
            self.parts.allocations.cluster,
            self.parts.table.gangs,
            evicts,
            self.parts.running.terminating(),
        )

    def take_advice_requests(
        self, limit: int, now_s: float
    ) -> tuple[tuple[PendingGang, Refusal], ...]:
        """Return refused gangs that need advice, at most `limit`; they count as advised now."""
        due = self.parts.pending.take_advice_requests(limit, now_s, self.limits.advice_ttl_s)
        return tuple((self.parts.views.view(gang), refusal) for gang, refusal in due)

    def has_pending_work(self) -> bool:
        """Return whether a plan made now may place a gang that the last plan did not."""
        return self.parts.pending.has_pending_work()

    def next_deadline_s(self) -> float | None:
        """Return when `tick` has something to do next, or None."""
        return self.parts.timers.next_s()

    # -- settings -----------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """How long each step in the life of a gang may take."""
        return self.parts.settings.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.parts.settings.limits = limits

    @property
    def driver_checks_unmodelled(self) -> bool:
        """Whether the driver checks what the planner does not model."""
        return self.parts.settings.driver_checks_unmodelled

    @driver_checks_unmodelled.setter
    def driver_checks_unmodelled(self, checks: bool) -> None:
        self.parts.settings.driver_checks_unmodelled = checks

    @property
    def history(self) -> RuntimeHistory:
        """Run times that were observed; a driver restores those of an earlier process."""
        return self.parts.history


__all__ = ["Engine", "GangState", "Limits", "Stage", "State"]
