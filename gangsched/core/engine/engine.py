"""The engine: folds facts, takes snapshots, accepts plans, and settles by facts alone.

`machine.py` draws the life of a gang. What always holds:

- A reservation ends only by an observed fact. A broken gang keeps the room of every bind in
  flight until that bind is answered, and of every bound member until its pod is gone; freeing it
  at the first refusal would over-commit a node, because another bind may still succeed.
- No member is bound before every reserved member has passed the barrier (two-phase commit).
- A plan is checked again on the current state; a gang that changed meanwhile is dropped whole.

The engine has no clock: every call brings the time, in seconds from any fixed point.
"""

from dataclasses import replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.carried_over import past_of, recall
from gangsched.core.engine.gangs.gang_views import GangState, Limits, Stage, State
from gangsched.core.engine.gangs.pod_templates import excess
from gangsched.core.engine.lifecycle.capacity_wait import CapacityWait
from gangsched.core.engine.lifecycle.timers import Timers
from gangsched.core.engine.observed_pods import Pods
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.revalidation import still_fits, without_victims
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import PodNeeds
from gangsched.core.model.refusal import Reason, Refusal, plural
from gangsched.core.model.topology import Topology
from gangsched.core.placement.advice import without
from gangsched.core.planning.planner import Plan, Planned
from gangsched.core.quota.ledger import Ledger
from gangsched.core.snapshot import BackfillReservation, RunningGang, Snapshot


class Engine(Pods):
    """All state of the scheduler. One task owns it; see the module's drawing."""

    def __init__(self, limits: Limits, ledger: Ledger | None = None) -> None:
        super().__init__(ledger)
        self.limits = limits
        self.cluster = Cluster()
        self.gangs: dict[GangId, GangState] = {}
        self.beyond_is_judged = True
        self.stale_plans = 0
        self.topologies: dict[str, Topology] = {}
        self._holding = CapacityWait(self.cluster, self._within_quota)
        self._backlog = PendingQueue(self.gangs)
        self._pods: dict[PodUid, f.PodSeen] = {}
        self._timers = Timers(self._due_s)
        self._leavers: dict[GangId, None] = {}
        self._changes: dict[GangId, None] = {}
        self._running: dict[GangId, RunningGang] = {}
        self._coming: dict[GangId, RunningGang] = {}
        self._running_stamp = 0
        self._waiting_known: dict[GangId, tuple[tuple[int, int], PendingGang, tuple[int, int]]] = {}
        self._needs_known: dict[PodNeeds, PodNeeds] = {}
        self._births = 0
        self._replanned_s = 0.0

    # -- facts --------------------------------------------------------------------------------

    def observe(self, fact: f.Fact, now_s: float) -> tuple[o.Order, ...]:
        """Fold one fact in; return what has to be done because of it."""
        self._now_s = max(now_s, self._now_s)
        match fact:
            case f.PodSeen():
                self._pod_seen(fact, now_s)
            case f.PodGone(uid):
                self._pod_gone(uid, now_s)
            case f.Prepared(uid, node):
                self._prepared(uid, node, now_s)
            case f.Bound(uid, node):
                pod = self._pods.get(uid)
                if pod is not None and pod.node is None:
                    self._pod_seen(replace(pod, node=node, gated=False), now_s)
            case f.PrepareFailed() | f.BindFailed():
                self._refused(fact, now_s)
            case f.PlanFailed():
                self._set_aside(fact, now_s)
            case f.NodeSeen(node=seen):
                if self.cluster.put_node(seen):
                    self._backlog.room_grew = True
                    self._devices_known(seen.name)
                    self._gpus_cut(seen, now_s)
            case f.NodeGone(name):
                self._node_gone(name, now_s)
            case f.TopologySeen(topology):
                self._topologies({**self.topologies, topology.name: topology})
            case f.TopologyGone(name):
                self._topologies({k: v for k, v in self.topologies.items() if k != name})
            case f.GangSeen(gang):
                state = self._gang(gang.id)
                again, state.undeclared, state.asked = state.undeclared, False, gang
                self._changes[gang.id] = None
                if self._believe(state) or again:
                    for member in list(state.members.values()) if state.in_progress() else ():
                        self._outgrown(state, member, now_s)
                    self._refresh(state, now_s)
            case f.GangGone(gang_id):
                self._gang_gone(gang_id, now_s)
            case f.ReservationSeen():
                self._adopt(fact, now_s)
            case f.PastSeen():
                self._recall(fact, now_s)
            case f.StoppedSeen(victim, by, at_s):
                self.loops.recall(victim, by, at_s)
            case _:
                self._queue_fact(fact)
        if self._backlog.room_grew and self._holding.any():
            self._room_came(now_s)
        return self._take_orders()

    def tick(self, now_s: float) -> tuple[o.Order, ...]:
        """Let time pass: break what is overdue, and let what backed off try again."""
        self._now_s = max(now_s, self._now_s)
        if now_s - self._replanned_s >= self.limits.replan_s:
            self._replanned_s = now_s
            self._backlog.relearn()
            self._backlog.again()
            self.unhelped.clear()
            for state in self._reconsider():
                self._refresh(state, now_s)
        for unwanted, reason in self._unwanted():
            unwanted.attained_s += max(now_s - unwanted.running().started_s, 0.0)
            self._break(unwanted, reason, now_s, word="Preempted")
        for gang_id in self._timers.due(now_s):
            gang = self.gangs.get(gang_id)
            if gang is not None:
                self._due(gang, now_s)
                self._timers.watch(gang_id)
        for gang_id in self._backlog.untold(now_s, self.limits.patrol_s):
            self._tell(self.gangs[gang_id])
        return self._take_orders()

    # -- planning -----------------------------------------------------------------------------

    def accept(self, plan: Plan, now_s: float) -> tuple[o.Order, ...]:
        """Check every placement on the current state, and reserve those that still hold."""
        self._now_s = max(now_s, self._now_s)
        for planned in plan.placements:
            gang = self.gangs.get(planned.gang)
            fresh = gang is not None and gang.version == planned.version
            left = self._emptied(planned) if fresh else None
            if gang is None or left is None or not still_fits(left, gang, planned):
                self.stale_plans += 1
                if gang is not None:
                    self._backlog.want(gang.id)
                continue
            for eviction in planned.placement.evicts:
                self._stop(self.gangs[eviction.gang], eviction, gang, now_s)
            self._reserve(gang, planned, now_s)
        if not plan.advice:
            self.reserved = {one.gang: one for one in plan.reserved}
            self.unhelped |= plan.unhelped
            self._backlog.refusals.plans += 1
            self._backlog.planned(plan.number)
        for alike, refusal in plan.lines:
            self._backlog.say_line(alike, refusal)
        for waiting, refusal in plan.refusals:
            gang = self.gangs.get(waiting.gang.id)
            if gang is None or gang.version != waiting.version:
                continue
            if plan.advice:  # it may be in line again meanwhile, and must stay there
                if self._backlog.stands(gang.id, refusal):
                    self._refuse(gang, refusal)
            else:
                self._backlog.join(waiting, alone=gang.id in self.reserved)
                self._refuse(gang, refusal)
                self._relent(gang, now_s)
        if plan.postponed or plan.cut:
            self._backlog.again()
        return self._take_orders()

    def _emptied(self, planned: Planned) -> Cluster | None:
        """Return the cluster without those a placement stops; None if one of them has changed."""
        evicts = planned.placement.evicts
        return (
            without_victims(self.cluster, self.gangs, evicts, self.leaving())
            if evicts
            else self.cluster
        )

    def _reserve(
        self, gang: GangState, planned: Planned, now_s: float, *, held_back: bool = False
    ) -> None:
        devices = dict(planned.placement.devices)
        gang.proof = planned.placement.proof.value
        for name, node in planned.placement.nodes:
            member = gang.members[name]
            member.node = node
            gang.move(member, Stage.RESERVED)
            chosen = devices.get(name, ())
            key = (gang.id, name)
            member.devices = self._charge(key, node, member.needs, gang.id, chosen)
        if gang.state is State.PENDING:
            gang.enter(State.RESERVED)
            gang.reserved_s = now_s
        self._admit(gang)
        self._claim(gang, [])
        gang.bump()
        self._allow(gang, self._patience_s(gang), now_s)
        self._backlog.pause(gang.id)
        self._backlog.refusals.unsay(gang.id)
        if held_back or planned.placement.repartitions or planned.placement.evicts:
            self._hold(gang, planned.placement, now_s)
        else:
            self._reserved(gang, now_s)
        self._timers.watch(gang.id)

    def _reserved(self, gang: GangState, now_s: float) -> None:
        """Let a reserved gang's pods come, now that all its room exists."""
        self._orders.append(o.Reserve(gang.id, gang.assignments()))
        nodes = len({member.node for member in gang.members.values() if member.stage})
        self._report(
            gang,
            "Reserved",
            f"room for {plural(gang.in_progress(), 'pod')} is reserved on {plural(nodes, 'node')}.",
        )
        self._advance(gang, now_s)

    # -- room that does not exist yet ---------------------------------------------------------

    def _hold(self, gang: GangState, placement: Placement, now_s: float) -> None:
        """Have the room made, and hold the gang back until it is there."""
        self._orders.extend(self._holding.hold(gang, placement.repartitions))
        self._allow(gang, self.limits.repartition_s, now_s)
        cut = ", ".join(one.node for one in placement.repartitions)
        gone = ", ".join(eviction.gang for eviction in placement.evicts)
        parts = [f"idle GPUs of {cut} are being cut anew"] * bool(cut)
        parts += [f"{gone} is being stopped"] * bool(gone)
        said = " and ".join(parts) or "others are being stopped"
        self._report(gang, Reason.MAKING_ROOM.value, f"{said} to make room.")

    def _gpus_cut(self, node: Node, now_s: float) -> None:
        for gang in self._holding.node_seen(node):
            self._break(gang, f"node {node.name} could not cut its GPUs anew", now_s)
            self._refresh(gang, now_s)

    def _room_came(self, now_s: float) -> None:
        for gang in self._holding.ready():
            self._allow(gang, self._patience_s(gang), now_s)
            self._reserved(gang, now_s)

    def _topologies(self, topologies: dict[str, Topology]) -> None:
        """Take the topologies over; one called "default" is the default, else the first by name."""
        if topologies != self.topologies:
            self.topologies = topologies
            order = sorted(topologies.values(), key=lambda one: (one.name != "default", one.name))
            self.cluster.set_topologies(tuple(order))
            self._backlog.room_grew = True

    # -- nodes and gangs ----------------------------------------------------------------------

    def _node_gone(self, name: NodeName, now_s: float) -> None:
        if not self.cluster.remove_node(name):
            return
        for gang in list(self.gangs.values()):
            lost = [m for m in gang.members.values() if m.node == name and m.stage is not None]
            if lost and gang.state in (State.RESERVED, State.BINDING):
                self._break(gang, f"node {name} went away before the gang had started", now_s)
                self._refresh(gang, now_s)
            elif lost:  # refills of a running gang: take back those whose bind is not in flight
                for member in lost:
                    if member.stage is not Stage.BINDING:
                        self._withdraw(gang, member, f"node {name} went away")
                gang.bump()
                self._refresh(gang, now_s)

    def _gang_gone(self, gang_id: GangId, now_s: float) -> None:
        gang = self.gangs.get(gang_id)
        if gang is None or gang.spec is None or gang.undeclared:
            return
        if gang.state is State.PLACED:
            self._learn(gang)
        gang.undeclare()
        if gang.state in (State.RESERVED, State.BINDING):
            self._break(gang, "its PodGroup was deleted before the gang had started", now_s)
        self._withdraw_empty(gang)
        self._refresh(gang, now_s)
        if gang.vanished():
            self._forget(gang)

    def _adopt(self, fact: f.ReservationSeen, now_s: float) -> None:
        """Take over a reservation an earlier process wrote, if it still holds whole."""
        gang = self.gangs.get(fact.gang)
        if gang is None or gang.state is not State.PENDING:
            return
        known = tuple((n, node) for n, node in fact.assignments if n in gang.members)
        open_places = tuple((n, node) for n, node in known if not gang.members[n].bound)
        planned = Planned(gang.id, gang.version, Placement(open_places))
        whole = len(known) >= gang.minimum() and open_places and self._as_planned(gang)
        if whole and self._still_admitted(gang) and still_fits(self.cluster, gang, planned):
            self._reserve(gang, planned, now_s)
        elif len(known) < len(fact.assignments) or open_places:
            self._orders.append(o.Release(gang.id))

    def _recall(self, past: f.PastSeen, now_s: float) -> None:
        """Let a gang have its past back, unless it is another gang of that name."""
        gang = self.gangs.get(past.gang)
        if gang is None or gang.waits_since_s() != past.since_s:
            return
        recall(gang, past, now_s)
        if gang.given_up and gang.state is State.PENDING:
            self._refuse(gang, Refusal(gang.id, Reason.GIVEN_UP, f"{gang.given_up}."))
        if past.not_before_s is not None and past.not_before_s > now_s:
            self._back_off(gang, past.not_before_s)
        if past.promised_s is not None and gang.state in (State.PENDING, State.PLACED):
            self.reserved[gang.id] = BackfillReservation(gang.id, past.promised_s, past.promised)
        if past.places and gang.state in (State.PENDING, State.PLACED):
            self._regain(gang, past, now_s)
        self._refresh(gang, now_s)

    def _regain(self, gang: GangState, past: f.PastSeen, now_s: float) -> None:
        """Reserve again what was reserved, if that still holds; what others leave counts as free.

        Who was held back is so again until they have left.
        """
        open_names = {member.name for member in gang.open_members()}
        places = tuple((name, node) for name, node in past.places if name in open_names)
        if gang.state is State.PENDING and len(places) < len(past.places):
            return  # some of it is in flight: the rest of the gang is planned with that
        parts = (one.terminating() for one in self.gangs.values()) if past.held_back else ()
        gone = tuple(part for part in parts if part is not None)
        room = without(Snapshot(self.cluster, ()), gone).cluster if gone else self.cluster
        planned = Planned(gang.id, gang.version, Placement(places))
        admitted = bool(gone) or self._still_admitted(gang)  # who is held back is asked in the end
        if places and admitted and self._as_planned(gang) and still_fits(room, gang, planned):
            self._reserve(gang, planned, now_s, held_back=bool(gone))

    def past(self) -> tuple[f.PastSeen | f.StoppedSeen, ...]:
        """Return what the next process cannot learn from objects; promises in their order."""
        held, kept = self.ledger.of_gang, self.reserved
        others = (gang for gang in self.gangs if gang not in kept)
        known = (self.gangs[gang] for gang in (*kept, *others) if gang in self.gangs)
        pasts = (past_of(one, kept.get(one.id), held(one.id)) for one in known)
        stopped = (f.StoppedSeen(*one) for one in self.loops.all(self._now_s))
        return (*(one for one in pasts if one is not None), *stopped)

    def _as_planned(self, gang: GangState) -> bool:
        """Tell whether no pod that waits asks for more than its role, for which it was admitted."""
        return not any(
            excess(member.template, member.asks, None, judged=self.beyond_is_judged)
            for member in gang.members.values()
            if member.template is not None and member.asks is not None and not member.bound
        )

    def _take_orders(self) -> tuple[o.Order, ...]:
        if not self._orders:
            return ()
        taken = tuple(self._orders)
        self._orders.clear()
        return taken


__all__ = ["Engine", "GangState", "Limits", "Stage", "State"]
