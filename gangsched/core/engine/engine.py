"""The engine: folds facts, takes snapshots, accepts plans, and settles by facts alone.

It is made of parts (`parts.py`), and only routes: each fact goes to the part that folds it.
`lifecycle/lifecycle.py` draws the life of a gang. What always holds:

- A reservation ends only by an observed fact. A broken gang keeps what it is charged for every bind
  in flight until that bind is answered, and for every bound member until its pod is gone; freeing
  it at the first refusal would over-commit a node, because another bind may still succeed.
- No member is bound before every reserved member has passed the barrier (two-phase commit).
- A plan is checked again on the current state; a gang that changed meanwhile is dropped whole.

The engine has no clock: every call brings the time, in seconds from any fixed point.
"""

from collections.abc import Mapping
from dataclasses import replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.declarations import Change
from gangsched.core.engine.gangs.gang_views import GangState, Limits, Stage, State
from gangsched.core.engine.lifecycle.run_times import finished
from gangsched.core.engine.parts import PARTS, PartClasses, Parts
from gangsched.core.engine.preemption_history import PreemptionHistory
from gangsched.core.engine.revalidation import still_fits, without_victims
from gangsched.core.engine.settings import Settings
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.queues import AdvanceReservation, Queue, QuotaKey
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.model.topology import Topology
from gangsched.core.planning.planner import Plan, Planned
from gangsched.core.quota.ledger import Ledger
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.snapshot import Asked, BackfillReservation, RunningGang, Snapshot


class Engine:
    """All state of the scheduler, by its parts. One task owns it."""

    def __init__(
        self, limits: Limits, ledger: Ledger | None = None, *, classes: PartClasses = PARTS
    ) -> None:
        self.parts = Parts(Settings(limits), ledger or Ledger(), classes)
        """Every part; drivers ask the engine instead."""
        self._replanned_s = 0.0
        """When all refused gangs were last planned again because of time alone."""

    # -- facts --------------------------------------------------------------------------------

    def observe(self, fact: f.Fact, now_s: float) -> tuple[o.Order, ...]:
        """Fold one fact in; return what has to be done because of it."""
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
                pod = self.pod(uid)
                if pod is not None and pod.node is None:
                    parts.pods.seen(replace(pod, node=node, gated=False), now_s)
            case f.PrepareFailed() | f.BindFailed():
                parts.pods.refused(fact, now_s)
            case f.PlanFailed(gang_id):
                failed = self.gangs.get(gang_id)
                if failed is not None:
                    parts.deadlines.set_aside(failed, fact, now_s)
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
            case f.ReservationSeen():
                parts.restoration.reservation(fact, now_s)
            case f.PastSeen():
                parts.restoration.history(fact, now_s)
            case f.StoppedSeen(victim, by, at_s):
                parts.preemption_history.recall(victim, by, at_s)
            case f.GpuTimeSeen():
                parts.allocations.restore_usage(fact)
            case _:
                self._declared(parts.declarations.fold(fact))
        if parts.pending.room_grew and parts.capacity.any():
            parts.reservations.capacity_freed(now_s)
        return parts.outbox.drain()

    def _declared(self, change: Change) -> None:
        if change is Change.REQUESTS:
            self.parts.pending.anew()
        elif change is Change.TOPOLOGIES:
            self.parts.allocations.set_topologies()

    def _gang_seen(self, fact: f.GangSeen, now_s: float) -> None:
        parts = self.parts
        gang = parts.table.ensure(fact.gang.id)
        again, gang.undeclared, gang.asked = gang.undeclared, False, fact.gang
        parts.table.mark(gang.id)
        if parts.admitted.take_over(gang) or again:
            for member in list(gang.members.values()) if gang.in_progress() else ():
                parts.pods.outgrown(gang, member, now_s)
            parts.lifecycle.settle(gang, now_s)

    def _gang_gone(self, gang_id: GangId, now_s: float) -> None:
        parts, gang = self.parts, self.gangs.get(gang_id)
        if gang is None or gang.spec is None or gang.undeclared:
            return
        if gang.state is State.PLACED:
            parts.run_times.learn(gang, now_s)
        gang.undeclare()
        if gang.state in (State.RESERVED, State.BINDING):
            reason = "its PodGroup was deleted before the gang had started"
            parts.lifecycle.fail(gang, reason, now_s)
        parts.members.withdraw_empty(gang)
        parts.lifecycle.settle(gang, now_s)
        parts.removal.remove_if_vanished(gang)

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> tuple[o.Order, ...]:
        """Let time pass: end what is overdue, and let what backed off try again."""
        parts = self.parts
        parts.allocations.advance_to(now_s)
        if now_s - self._replanned_s >= self.limits.replan_s:
            self._replanned_s = now_s
            parts.pending.relearn()
            parts.pending.again()
            parts.feedback.lapse()
            for gang in parts.admitted.reconsider():
                parts.lifecycle.settle(gang, now_s)
        for drained in parts.drained.find(now_s):
            parts.preemptions.drain(drained, now_s)
        for gang_id in parts.timers.due(now_s):
            due = self.gangs.get(gang_id)
            if due is not None:
                parts.due.act(due, now_s)
                parts.timers.watch(gang_id)
        for gang_id in parts.pending.untold(now_s, self.limits.patrol_s):
            parts.refusals.report(self.gangs[gang_id])
        return parts.outbox.drain()

    def audit(self, now_s: float) -> dict[str, int]:
        """Compare usage with the pods and places that exist; correct it, return differences."""
        self.parts.allocations.advance_to(now_s)
        return self.parts.allocations.audit(self.pods())

    # -- planning -----------------------------------------------------------------------------

    def snapshot(
        self, now_s: float = 0.0, *, who: Asked = Asked.DUE, starts: int | None = None
    ) -> Snapshot:
        """Return a frozen view with the gangs to plan; planning ends after `starts` pods."""
        snapshots = self.parts.snapshots
        if who is Asked.ALL:
            return snapshots.with_all(now_s, starts)
        if who is Asked.DUE:
            return snapshots.begin_cycle(now_s, starts)
        return snapshots.with_none(now_s, starts)

    def accept(self, plan: Plan, now_s: float) -> tuple[o.Order, ...]:
        """Check every placement on the current state, and reserve those that still hold."""
        parts = self.parts
        parts.allocations.advance_to(now_s)
        for planned in plan.placements:
            self._place(planned, now_s)
        if not plan.advice:
            parts.feedback.learn(plan)
            parts.pending.refusals.plans += 1
            parts.pending.planned(plan.number)
        for alike, refusal in plan.lines:
            parts.pending.say_line(alike, refusal)
        for waiting, refusal in plan.refusals:
            gang = self.gangs.get(waiting.gang.id)
            if gang is None or gang.version != waiting.version:
                continue
            if plan.advice:  # it may be in line again meanwhile, and must stay there
                if parts.pending.stands(gang.id, refusal):
                    parts.refusals.refuse(gang, refusal, now_s)
            else:
                parts.pending.join(waiting, alone=gang.id in self.reserved)
                parts.refusals.refuse(gang, refusal, now_s)
                parts.deadlines.shorten_exclusions(gang, now_s)
        if plan.postponed or plan.cut:
            parts.pending.again()
        return parts.outbox.drain()

    def _place(self, planned: Planned, now_s: float) -> None:
        parts, gang = self.parts, self.gangs.get(planned.gang)
        fresh = gang is not None and gang.version == planned.version
        left = self._without_victims(planned) if fresh else None
        if gang is None or left is None or not still_fits(left, gang, planned):
            parts.feedback.count_stale()
            if gang is not None:
                parts.pending.want(gang.id)
            return
        for eviction in planned.placement.evicts:
            parts.preemptions.preempt(self.gangs[eviction.gang], eviction, gang, now_s)
        parts.reservations.reserve(gang, planned, now_s)

    def _without_victims(self, planned: Planned) -> Cluster | None:
        """Return the cluster without the victims of a placement; None if one has changed."""
        evicts = planned.placement.evicts
        if not evicts:
            return self.cluster
        return without_victims(self.cluster, self.gangs, evicts, self.leaving())

    def pending(self, gang: GangId) -> PendingGang:
        """Return a gang as a planner sees it, complete with what its queue adds."""
        return self.parts.views.view(self.gangs[gang])

    def unadvised(self, limit: int, now_s: float) -> tuple[tuple[PendingGang, Refusal], ...]:
        """Return refused gangs to think about, at most `limit`; they count as advised now."""
        due = self.parts.pending.unadvised(limit, now_s, self.limits.advice_s)
        return tuple((self.parts.views.view(gang), refusal) for gang, refusal in due)

    # -- settings -----------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """How long each step in the life of a gang may take."""
        return self.parts.settings.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.parts.settings.limits = limits

    @property
    def beyond_is_judged(self) -> bool:
        """Whether the driver checks what the planner does not model."""
        return self.parts.settings.beyond_is_judged

    @beyond_is_judged.setter
    def beyond_is_judged(self, judged: bool) -> None:
        self.parts.settings.beyond_is_judged = judged

    # -- questions: the answers change nothing ------------------------------------------------

    @property
    def gangs(self) -> dict[GangId, GangState]:
        """Every gang by its name."""
        return self.parts.table.gangs

    @property
    def cluster(self) -> Cluster:
        """Nodes, and what they are charged."""
        return self.parts.allocations.cluster

    @property
    def ledger(self) -> Ledger:
        """What queues hold, and have used."""
        return self.parts.allocations.ledger

    @property
    def drift(self) -> int:
        """How many differences audits found and corrected."""
        return self.parts.allocations.drift

    @property
    def queues(self) -> dict[str, Queue]:
        """Queues as they are declared."""
        return self.parts.declarations.queues

    @property
    def bookings(self) -> dict[str, AdvanceReservation]:
        """Advance reservations as they are declared."""
        return self.parts.declarations.bookings

    @property
    def topologies(self) -> dict[str, Topology]:
        """Topologies as they are declared."""
        return self.parts.declarations.topologies

    @property
    def protected(self) -> frozenset[GangId]:
        """Gangs that a PodDisruptionBudget protects."""
        return self.parts.declarations.protected

    @property
    def history(self) -> RuntimeHistory:
        """What is learned of run times."""
        return self.parts.history

    @property
    def loops(self) -> PreemptionHistory:
        """Which gang was preempted for which, a short time ago."""
        return self.parts.preemption_history

    @property
    def reserved(self) -> dict[GangId, BackfillReservation]:
        """Backfill reservations."""
        return self.parts.feedback.reserved

    @property
    def stale_plans(self) -> int:
        """How many placements were dropped because the state had changed."""
        return self.parts.feedback.stale_plans

    @property
    def refusals(self) -> Mapping[GangId, Refusal]:
        """Why each pending gang does not start."""
        return self.parts.pending.refusals

    def reasons(self) -> dict[Reason, int]:
        """Return how many gangs wait for which reason."""
        return self.parts.pending.refusals.reasons()

    def capacity(self) -> dict[QuotaKey, int]:
        """Return what the whole cluster has, in the units of quotas."""
        return self.parts.allocations.capacity()

    def next_due_s(self) -> float | None:
        """Return when `tick` has something to do next, or None."""
        return self.parts.timers.next_s()

    def wants_plan(self) -> bool:
        """Return whether a gang waits that was not refused on what is free now already."""
        return self.parts.pending.any()

    def waits(self) -> bool:
        """Return whether any gang waits."""
        return self.parts.pending.waits()

    def newcomers(self) -> list[GangId]:
        """Return the gangs that changed since they were planned last, or were never planned."""
        return self.parts.pending.newcomers()

    def running(self) -> tuple[RunningGang, ...]:
        """Return every gang that runs whole, with an estimate of how long."""
        return self.parts.running.running()

    def coming(self) -> tuple[RunningGang, ...]:
        """Return what is reserved, or bound before its gang is whole, with an estimate."""
        return self.parts.running.starting()

    def leaving(self) -> tuple[RunningGang, ...]:
        """Return what was evicted and still takes nodes."""
        return self.parts.running.terminating()

    def finished(self, gang: GangState) -> bool:
        """Return whether the work of a gang is done."""
        return finished(gang)

    def past(self) -> tuple[f.PastSeen | f.StoppedSeen, ...]:
        """Return what the next process cannot learn from objects."""
        return self.parts.restoration.past()

    # -- questions about pods -----------------------------------------------------------------

    def pod(self, uid: PodUid) -> f.PodSeen | None:
        """Return the latest fact about a pod."""
        return self.parts.table.pods.get(uid)

    def pods(self) -> tuple[f.PodSeen, ...]:
        """Return the latest fact about every pod, for checkers."""
        return tuple(self.parts.table.pods.values())

    def as_known(self, fact: f.PodSeen) -> f.PodSeen:
        """Return what is believed of a pod."""
        return self.parts.table.as_known(fact)

    def reservation(self, uid: PodUid) -> NodeName | None:
        """Return the node a pod may go to now, for a driver's look-up."""
        found = self.parts.table.member(uid)
        if found is None or found[0].held_back or found[1].stage is None:
            return None
        return found[1].node

    def awaited(self, gang: GangId, name: PodName) -> NodeName | None:
        """Return the node that is reserved for a pod of which no fact has come yet."""
        state = self.gangs.get(gang)
        member = state.members.get(name) if state is not None else None
        if state is None or member is None or state.held_back or member.pod is not None:
            return None
        return member.node if member.stage is Stage.RESERVED else None


__all__ = ["Engine", "GangState", "Limits", "Stage", "State"]
