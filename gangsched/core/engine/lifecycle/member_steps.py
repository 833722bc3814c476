"""The steps of single members of a gang: prepare, bind, withdraw, evict, settle."""

from gangsched.core import orders as o
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import MemberState, Stage, State
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.engine.views.running_set import RunningSet
from gangsched.core.model.ids import NodeName, PodUid


class MemberSteps:
    """Moves members through their stages, and emits the orders for that; it owns nothing."""

    def __init__(
        self,
        table: GangTable,
        allocations: Allocations,
        running: RunningSet,
        deadlines: StartDeadlines,
        outbox: Outbox,
    ) -> None:
        self._table = table
        self._allocations = allocations
        self._running = running
        self._deadlines = deadlines
        self._outbox = outbox

    def prepare_reserved(self, gang: GangState) -> list[MemberState]:
        """Prepare every reserved member that has a pod; return all members with a stage."""
        staged = [m for m in gang.members.values() if m.stage is not None]
        for member in staged:
            if member.stage is Stage.RESERVED:
                self.prepare(gang, member)
        return staged

    def prepare(self, gang: GangState, member: MemberState) -> None:
        """Bring a member to the barrier, if its pod exists and may be scheduled."""
        if member.pod is None or member.gated_by:
            return
        gang.set_stage(member, Stage.PREPARING)
        if not gang.members.waits_for_pods():
            self._deadlines.all_pods_exist(gang)
        gated = self._table.pods[member.pod].gated
        self._outbox.emit(o.Prepare(gang.id, member.pod, member.name, _node(member), gated))

    def bind_prepared(self, gang: GangState, staged: list[MemberState]) -> None:
        """Bind every member that is prepared."""
        ready = [m for m in staged if m.stage is Stage.PREPARED]
        for member in ready:
            gang.set_stage(member, Stage.BINDING)
            node, minimum = _node(member), gang.minimum_to_record()
            bind = o.Bind(gang.id, _uid(member), member.name, node, member.devices, minimum)
            self._outbox.emit(bind)

    def settle(self, gang: GangState, member: MemberState) -> None:
        """End a member's reservation, and release what it was charged."""
        self._allocations.release((gang.id, member.name))
        gang.set_stage(member, None)
        member.assigned_node = None

    def withdraw(self, gang: GangState, member: MemberState, reason: str) -> None:
        """End the reservation of a member that no bind is in flight for."""
        stage = member.stage
        self.settle(gang, member)
        if member.pod is not None and stage in (Stage.PREPARING, Stage.PREPARED):
            self._outbox.emit(o.RejectPod(gang.id, member.pod, member.name, reason))

    def withdraw_late(self, gang: GangState, now_s: float) -> None:
        """Withdraw the members of a running gang that did not reach the barrier in time."""
        no_show = gang.members.waits_for_pods()
        for member in gang.members.values():
            if member.stage is not None and member.stage is not Stage.BINDING:
                member.planned_early = False
                self.withdraw(gang, member, "the pod did not come to the barrier in time")
                gang.mark_changed()
        if no_show:
            gang.retry.no_shows += 1
            self._deadlines.back_off_after_failure(gang, now_s)

    def withdraw_empty(self, gang: GangState) -> None:
        """Withdraw the reserved members of a running gang that have no pods yet."""
        if gang.state is not State.PLACED:
            return
        for member in gang.members.values():
            if member.stage is not None and member.pod is None:
                self.withdraw(gang, member, "no pod of the gang is left")
                gang.mark_changed()

    def evict(
        self, gang: GangState, member: MemberState, reason: str, *, preempted: bool = False
    ) -> None:
        """Have a member's pod deleted, once."""
        if member.pod is None or member.evicted:
            return
        member.evicted = True
        member.terminated_pod = member.pod
        self._running.mark_evicted(gang.id)
        self._outbox.emit(o.Evict(gang.id, member.pod, member.name, reason, preempted))


def _node(member: MemberState) -> NodeName:
    assert member.assigned_node is not None, "a staged member has a node"  # noqa: S101
    return member.assigned_node


def _uid(member: MemberState) -> PodUid:
    assert member.pod is not None, "a member at the barrier has a pod"  # noqa: S101
    return member.pod
