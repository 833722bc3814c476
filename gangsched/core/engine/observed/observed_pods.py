"""Facts about pods: a pod that runs is charged, whatever its labels and its gang declare."""

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import MemberState, Stage, State
from gangsched.core.engine.gangs.pod_templates import excess
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.stop_notices import StopNotices
from gangsched.core.engine.observed.gang_removal import GangRemoval
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.engine.views.running_set import RunningSet
from gangsched.core.model.ids import NodeName, PodUid


class ObservedPods:
    """Applies facts about pods to gangs and charges; it owns nothing."""

    def __init__(
        self,
        settings: Settings,
        table: GangTable,
        allocations: Allocations,
        running: RunningSet,
        admitted: AdmittedChanges,
        deadlines: StartDeadlines,
        members: MemberSteps,
        stops: StopNotices,
        lifecycle: Lifecycle,
        removal: GangRemoval,
        outbox: Outbox,
    ) -> None:
        self._settings = settings
        self._table = table
        self._allocations = allocations
        self._running = running
        self._admitted = admitted
        self._deadlines = deadlines
        self._members = members
        self._stops = stops
        self._lifecycle = lifecycle
        self._removal = removal
        self._outbox = outbox

    # -- pods that come and go ----------------------------------------------------------------

    def seen(self, fact: f.PodSeen, now_s: float) -> None:
        """Apply that a pod exists, with these properties now."""
        known = self._table.pods.get(fact.uid)
        if known is not None and known.ended and not fact.ended:
            return
        fact = self._table.reconciled(fact)
        if known is not None and known.gang != fact.gang:
            self.gone(fact.uid, now_s)  # it is a member of another gang now
        self._table.pods[fact.uid] = fact
        if fact.gang is not None:
            self._take_place(self._table.ensure(fact.gang), fact)
        devices: Devices = ()
        if fact.node is not None and not fact.ended:
            devices = self._charge(fact, fact.node)
        else:
            self._allocations.release(fact.uid)
        if fact.gang is not None:
            self._fold(self._table.ensure(fact.gang), fact, devices, now_s)

    def gone(self, uid: PodUid, now_s: float) -> None:
        """Apply that a pod no longer exists."""
        known = self._table.pods.pop(uid, None)
        if known is None:
            return
        self._allocations.release(uid)
        if known.gang is None:
            return
        gang = self._table.gangs.get(known.gang)
        member = None if gang is None else gang.members.get(known.name)
        if gang is None or member is None or member.pod != uid:
            return
        lost_reserved = member.stage is not None
        if lost_reserved:
            self._members.settle(gang, member)
        gang.remove_pod(member)
        gang.forget_predecessor(known)
        self._running.pod_left(gang)
        if lost_reserved and gang.state in (State.RESERVED, State.BINDING):
            reason = f"pod {known.name} left before the gang had started"
            self._lifecycle.fail(gang, reason, now_s)
        self._lifecycle.settle(gang, now_s)
        self._removal.remove_if_vanished(gang)

    def _fold(self, gang: GangState, fact: f.PodSeen, devices: Devices, now_s: float) -> None:
        held = gang.holds_nodes()
        changed = gang.observe_pod(fact)
        self._stops.pod_seen(gang, fact.stop_by_s)
        if not held and gang.holds_nodes():  # another scheduler or an earlier process bound it
            self._admitted.take_over_running(gang)
        member = gang.members[fact.name]
        if member.pod == fact.uid and fact.terminating and member.runs and not member.evicted:
            member.evicted = True  # another client or an earlier process deleted it
            self._running.mark_evicted(gang.id)
            self._table.mark(gang.id)
        if member.pod == fact.uid and member.bound_node:
            member.devices = devices
            if member.stage is not None:
                self._members.settle(gang, member)
                changed = True
        if not changed or self.outgrown(gang, member, now_s):
            return
        waits = gang.reservation.waits_for_capacity or member.stage is not Stage.RESERVED
        if gang.state in (State.RESERVED, State.BINDING) and not waits:
            self._members.prepare(gang, member)  # no other member has changed
        elif gang.state is not State.BINDING or gang.members.under_way() == 0:
            self._lifecycle.settle(gang, now_s)

    def _take_place(self, gang: GangState, fact: f.PodSeen) -> None:
        """Let a new pod fill a late member of its role, and take over the charge of that member."""
        before = gang.fill_late_place(fact)
        if before is not None and gang.members[fact.name].stage is not None:
            self._allocations.rename((gang.id, before), (gang.id, fact.name))
            self._running.renamed(gang.id)

    def _charge(self, fact: f.PodSeen, node: NodeName) -> Devices:
        """Charge a bound pod in place of its reservation; return the shared GPUs that it uses."""
        gang = self._table.gangs.get(fact.gang) if fact.gang is not None else None
        member = gang.members.get(fact.name) if gang is not None else None
        devices = fact.devices
        if gang is not None and member is not None and not fact.terminating:
            expected = member.stage is not None and member.assigned_node == node
            if expected and member.pod in (None, fact.uid):
                devices = member.devices
                self._allocations.transfer((gang.id, fact.name), fact.uid, node, fact.needs)
        return self._allocations.charge(fact.uid, node, fact.needs, fact.gang, devices)

    def devices_known(self, name: NodeName) -> None:
        """Record the shared GPUs of pods that were observed before their node."""
        for key, devices in self._allocations.cluster.shared_devices(name).items():
            entry = self._table.member(PodUid(str(key)))
            if entry is not None and entry[1].devices != devices:
                entry[1].devices = devices
                self._table.mark(entry[0].id)

    # -- pods that ask for more than was planned ----------------------------------------------

    def outgrown(self, gang: GangState, member: MemberState, now_s: float) -> bool:
        """Withdraw a reserved member if its pod requests more than was planned; return whether.

        The member was admitted and placed with the planned requirements. Before its pod exists,
        the template of its role is compared.
        """
        staged = member.stage is not None and member.stage is not Stage.BINDING
        asked = member.pod_needs or member.template
        if not staged or asked is None or member.assigned_node is None:
            return False
        cluster = self._allocations.cluster
        row = cluster.rows.get(member.assigned_node)
        node = cluster.nodes[row] if row is not None else None
        why = excess(member.needs, asked, node, judged=self._settings.driver_checks_unmodelled)
        if not why:
            return False
        reason = f"pod {member.name} {why}" if member.pod_needs else f"role {member.role} {why}"
        gang.learn_from_pod(member)
        if gang.state is State.PLACED:
            self._members.withdraw(gang, member, reason)
            gang.mark_changed()
            self._outbox.report(gang, o.ReportReason.OUTGROWN, f"{reason}. It is planned again.")
        else:
            self._lifecycle.fail(gang, reason, now_s)
        self._lifecycle.settle(gang, now_s)
        return True

    # -- the barrier --------------------------------------------------------------------------

    def prepared(self, uid: PodUid, node: NodeName, now_s: float) -> None:
        """Apply that a pod is ready to be bound to a node."""
        entry = self._table.member(uid)
        if entry is None:
            return
        gang, member = entry
        if member.assigned_node != node or member.stage is not Stage.PREPARING:
            if member.stage is not Stage.PREPARED and member.stage is not Stage.BINDING:
                reason = f"{node} is not reserved for this pod"
                self._outbox.emit(o.RejectPod(gang.id, uid, member.name, reason))
            return
        gang.set_stage(member, Stage.PREPARED)
        if gang.members.before_barrier() == 0 or gang.state is State.PLACED:
            self._lifecycle.advance(gang, now_s)

    def refused(self, fact: f.PrepareFailed | f.BindFailed, now_s: float) -> None:
        """Settle a member that a node or the API server refused for good: it will not be bound."""
        node = fact.node
        entry = self._table.member(fact.uid)
        if entry is None:
            return
        gang, member = entry
        if member.stage is None or member.assigned_node != node or member.bound_node:
            return
        fits = fact.fits if isinstance(fact, f.PrepareFailed) else None
        if fits is None:  # the members may have anti-affinity to each other
            fits = (
                sum(1 for m in gang.members.values() if node in (m.assigned_node, m.bound_node)) - 1
            )
        self._members.settle(gang, member)
        self._deadlines.exclude_node(gang, node, fits, now_s)
        surplus = gang.members.under_way() + gang.members.bound_count() >= gang.start_minimum()
        if gang.state is State.PLACED or (surplus and gang.state is State.BINDING):
            gang.mark_changed()
            self._deadlines.back_off_shortly(gang, now_s)
        elif gang.state in (State.RESERVED, State.BINDING):
            reason = f"{node} refused pod {member.name}: {fact.reason}"
            self._lifecycle.fail(gang, reason, now_s)
        self._lifecycle.settle(gang, now_s)

    def node_gone(self, name: NodeName, now_s: float) -> None:
        """Withdraw what is reserved on a node that no longer exists."""
        for gang in list(self._table.gangs.values()):
            lost = [
                m for m in gang.members.values() if m.assigned_node == name and m.stage is not None
            ]
            if lost and gang.state in (State.RESERVED, State.BINDING):
                reason = f"node {name} went away before the gang had started"
                self._lifecycle.fail(gang, reason, now_s)
                self._lifecycle.settle(gang, now_s)
            elif lost:  # refills of a running gang: withdraw members without a bind in flight
                for member in lost:
                    if member.stage is not Stage.BINDING:
                        self._members.withdraw(gang, member, f"node {name} went away")
                gang.mark_changed()
                self._lifecycle.settle(gang, now_s)
