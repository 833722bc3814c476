"""The questions that drivers and commands may ask of an engine.

No answer changes the state that decisions depend on.
"""

from collections.abc import Mapping

from gangsched.core import facts as f
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import Stage
from gangsched.core.engine.parts import Parts
from gangsched.core.engine.timing.run_times import is_done
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.node_pools import NodeSupply
from gangsched.core.model.queues import AdvanceReservation, Queue, QuotaKey
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.model.topology import Topology
from gangsched.core.quota.ledger import Ledger
from gangsched.core.snapshot import BackfillReservation, RunningGang, Snapshot


class EngineView:
    """The state of one engine, for reading. What it returns is the engine's own, not a copy."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # -- gangs --------------------------------------------------------------------------------

    @property
    def gangs(self) -> Mapping[GangId, GangState]:
        """Every gang by its name."""
        return self._parts.table.gangs

    def pending(self, gang: GangId) -> PendingGang:
        """Return a gang as a planner sees it, with the data of its queue."""
        return self._parts.views.view(self._parts.table.gangs[gang])

    def running(self) -> tuple[RunningGang, ...]:
        """Return every placed gang, with an estimate of its run time."""
        return self._parts.running.running()

    def starting(self) -> tuple[RunningGang, ...]:
        """Return the parts of gangs that are reserved, or bound before their gang is complete."""
        return self._parts.running.starting()

    def terminating(self) -> tuple[RunningGang, ...]:
        """Return the parts of gangs that are evicted and still use nodes."""
        return self._parts.running.terminating()

    def is_finished(self, gang: GangState) -> bool:
        """Return whether the work of a gang is done."""
        return is_done(gang)

    def is_over(self, gang: GangState) -> bool:
        """Return whether a gang is finished, or only pods that ended are left of it.

        The PodGroup of a job that ended may be deleted before its pods.
        """
        members = gang.members
        left = gang.spec is None and bool(members) and members.ended_count() == len(members)
        return left or is_done(gang)

    def past(self) -> tuple[f.StoredFact, ...]:
        """Return the state that no object stores, for the next process."""
        return self._parts.restoration.past()

    def recent_preemptions(self, now_s: float) -> tuple[tuple[GangId, GangId, float], ...]:
        """Return victim, preemptor and moment of each recent preemption."""
        return self._parts.preemption_history.entries(now_s)

    @property
    def mutual_preemptions(self) -> int:
        """How often a gang was preempted for a gang that it had preempted recently."""
        return self._parts.preemption_history.mutual_count

    # -- pending gangs ------------------------------------------------------------------------

    @property
    def refusals(self) -> Mapping[GangId, Refusal]:
        """Why each pending gang does not start."""
        return self._parts.pending.refusals

    def refusal_counts(self) -> dict[Reason, int]:
        """Return how many gangs wait for each reason."""
        return self._parts.pending.refusals.reasons()

    def has_pending_gangs(self) -> bool:
        """Return whether any gang is pending."""
        return self._parts.pending.has_pending_gangs()

    def unclassified(self) -> list[GangId]:
        """Return the gangs that changed since they were planned last, or were never planned."""
        return self._parts.pending.unclassified()

    @property
    def backfill_reservations(self) -> Mapping[GangId, BackfillReservation]:
        """Backfill reservations by gang."""
        return self._parts.feedback.backfill_reservations

    @property
    def stale_plans(self) -> int:
        """How many placements were dropped because the state had changed."""
        return self._parts.feedback.stale_plans

    def snapshot_all(self, now_s: float = 0.0) -> Snapshot:
        """Return a snapshot with every pending gang, for forecasts and explanations.

        A gang that cannot be shown to planners is left out; the next cycle sets the gang aside.
        """
        return self._parts.snapshots.with_all(now_s)

    def snapshot_cluster(self, now_s: float = 0.0) -> Snapshot:
        """Return a snapshot without pending gangs."""
        return self._parts.snapshots.with_none(now_s)

    # -- nodes and queues ---------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The nodes and their charges."""
        return self._parts.allocations.cluster

    @property
    def ledger(self) -> Ledger:
        """The present and past usage of queues, with the capacity of the present cluster."""
        return self._parts.allocations.ledger_with_capacity()

    def capacity(self) -> Mapping[QuotaKey, int]:
        """Return the capacity of the whole cluster, in the units of quotas."""
        return self._parts.allocations.capacity()

    @property
    def drift(self) -> int:
        """How many differences audits found and corrected."""
        return self._parts.allocations.drift

    @property
    def queues(self) -> Mapping[str, Queue]:
        """Queues as they are declared."""
        return self._parts.declarations.queues

    @property
    def bookings(self) -> Mapping[str, AdvanceReservation]:
        """Advance reservations as they are declared."""
        return self._parts.declarations.bookings

    @property
    def topologies(self) -> Mapping[str, Topology]:
        """Topologies as they are declared."""
        return self._parts.declarations.topologies

    @property
    def protected(self) -> frozenset[GangId]:
        """Gangs that a PodDisruptionBudget protects."""
        return self._parts.declarations.protected

    @property
    def node_supply(self) -> NodeSupply:
        """The nodes that can be bought, and those that come."""
        return self._parts.declarations.node_supply

    # -- pods ---------------------------------------------------------------------------------

    def pod(self, uid: PodUid) -> f.PodSeen | None:
        """Return the latest fact about a pod."""
        return self._parts.table.pods.get(uid)

    def pods(self) -> tuple[f.PodSeen, ...]:
        """Return the latest fact about every pod."""
        return tuple(self._parts.table.pods.values())

    def reconciled(self, fact: f.PodSeen) -> f.PodSeen:
        """Return a pod as it would be recorded: a bound pod keeps its node and its gang."""
        return self._parts.table.reconciled(fact)

    def assigned_node(self, uid: PodUid) -> NodeName | None:
        """Return the node that a pod may be bound to now, or None."""
        entry = self._parts.table.member(uid)
        if entry is None:
            return None
        gang, member = entry
        if gang.reservation.waits_for_capacity or member.stage is None:
            return None
        return member.assigned_node

    def node_of_expected_pod(self, gang: GangId, name: PodName) -> NodeName | None:
        """Return the node that is reserved for a pod that no fact has reported yet, or None."""
        state = self._parts.table.gangs.get(gang)
        member = state.members.get(name) if state is not None else None
        if state is None or member is None or member.pod is not None:
            return None
        if state.reservation.waits_for_capacity or member.stage is not Stage.RESERVED:
            return None
        return member.assigned_node
