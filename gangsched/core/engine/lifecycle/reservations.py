"""Reservations of the nodes that a plan chose, at once or once their capacity is there."""

from gangsched.core import orders as o
from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import Stage, State
from gangsched.core.engine.lifecycle.capacity_wait import CapacityWait
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.stop_notices import StopNotices
from gangsched.core.engine.lifecycle.transition import Cause, Transition
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.pending.refusal_reports import RefusalReports
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.engine.timing.timers import Timers
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Reason, plural
from gangsched.core.planning.planner import Planned


class Reservations:
    """Makes reservations; it owns nothing."""

    def __init__(
        self,
        allocations: Allocations,
        pending: PendingQueue,
        refusals: RefusalReports,
        timers: Timers,
        deadlines: StartDeadlines,
        admitted: AdmittedChanges,
        capacity: CapacityWait,
        stops: StopNotices,
        lifecycle: Lifecycle,
        outbox: Outbox,
    ) -> None:
        self._allocations = allocations
        self._pending = pending
        self._refusals = refusals
        self._timers = timers
        self._deadlines = deadlines
        self._admitted = admitted
        self._capacity = capacity
        self._stops = stops
        self._lifecycle = lifecycle
        self._outbox = outbox

    def reserve(
        self, gang: GangState, planned: Planned, now_s: float, *, held_back: bool = False
    ) -> None:
        """Reserve the nodes of a plan; with `held_back`, wait until other gangs have left them."""
        devices = dict(planned.placement.devices)
        gang.reservation.proof = planned.placement.proof.value
        for name, node in planned.placement.nodes:
            member = gang.members[name]
            member.assigned_node = node
            gang.set_stage(member, Stage.RESERVED)
            chosen = devices.get(name, ())
            key = (gang.id, name)
            member.devices = self._allocations.charge(key, node, member.needs, gang.id, chosen)
        if gang.state is State.PENDING:
            self._lifecycle.move(gang, Transition(State.RESERVED, Cause.PLANNED), now_s)
        self._allocations.note_admitted(gang)
        self._admitted.claim_domains(gang, [])
        gang.mark_changed()
        self._deadlines.allow_start(gang, now_s)
        self._pending.remove(gang.id)
        self._refusals.withdraw(gang)
        if held_back or planned.placement.repartitions or planned.placement.evicts:
            self._hold(gang, planned.placement, now_s)
        else:
            self._release_pods(gang, now_s)
        self._timers.watch(gang.id)

    def node_seen(self, node: Node, now_s: float) -> None:
        """Check whether a node has the layout that gangs wait for, or failed to get it."""
        for gang in self._capacity.node_seen(node):
            self._lifecycle.fail(gang, f"node {node.name} failed to repartition its GPUs", now_s)
            self._lifecycle.settle(gang, now_s)

    def capacity_freed(self, now_s: float) -> None:
        """Continue with the gangs that have the capacity that they waited for."""
        for gang in self._capacity.ready():
            self._deadlines.allow_start(gang, now_s)
            self._release_pods(gang, now_s)

    def _hold(self, gang: GangState, placement: Placement, now_s: float) -> None:
        """Order that capacity is freed, and hold the gang back until it is free."""
        self._outbox.emit(*self._capacity.hold(gang, placement.repartitions))
        self._deadlines.allow_capacity(gang, now_s, self._stops.wait_s(gang.id, now_s))
        cut = ", ".join(repartition.node for repartition in placement.repartitions)
        evicted = ", ".join(eviction.gang for eviction in placement.evicts)
        parts = [f"repartitioning idle GPUs of {cut}"] * bool(cut)
        parts += [f"preempting {evicted}"] * bool(evicted)
        what = " and ".join(parts) or "waiting for other gangs to terminate"
        self._outbox.report(gang, Reason.FREEING_CAPACITY, f"{what[0].upper()}{what[1:]}.")

    def _release_pods(self, gang: GangState, now_s: float) -> None:
        """Release the pods of a reserved gang, now that its nodes have the capacity."""
        self._outbox.emit(o.Reserve(gang.id, gang.assignments()))
        nodes = len({member.assigned_node for member in gang.members.values() if member.stage})
        pods, on = plural(gang.members.in_progress(), "pod"), plural(nodes, "node")
        self._outbox.report(
            gang, o.ReportReason.RESERVED, f"Capacity for {pods} is reserved on {on}."
        )
        self._lifecycle.advance(gang, now_s)
