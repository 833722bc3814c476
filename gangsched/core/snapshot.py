"""A view to plan on, with what-if: leaving `with snapshot.trial():` undoes changes of usage."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.constraints import NO_CONSTRAINTS, Constraints, LevelRequest
from gangsched.core.model.gangs import EquivalenceClassView, Gang, PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.node_pools import NodeSupply
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.queues import AdvanceReservation, Amounts, GpuTypes, QuotaKey
from gangsched.core.model.runtime import Estimate
from gangsched.core.progress import Progress
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.usage import Usage
from gangsched.core.renamed import RenamedAttribute, renamed


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where one member of a running gang is."""

    name: PodName
    role: str
    node: NodeName
    needs: PodRequirements
    devices: Devices = ()


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A running gang: where, since when and until when, and what moving it would lose.

    `end_s` is expected, None where no runtime is declared; there is always an `estimate`.
    `last_checkpoint_s` is its last checkpoint, or else its start. `movable` says that its owner
    allows moves. `surplus_pods` are members beyond its minimum, the first to give back first. A
    `terminating` gang is being evicted. `declared` is what it is planned as once it is preempted,
    if not as `gang`. Within `save_s` it saves its work once a stop is announced; None: it does not.
    """

    gang: Gang
    places: tuple[PodPlacement, ...]
    started_s: float
    end_s: float | None = None
    last_checkpoint_s: float = 0.0
    movable: bool = False
    constraints: Constraints = NO_CONSTRAINTS
    near_role: tuple[tuple[str, LevelRequest], ...] = ()
    priority: int = 0
    surplus_pods: tuple[PodName, ...] = ()
    estimate: Estimate | None = None
    terminating: bool = False
    queued_since_s: float = 0.0
    charge: Amounts = ()
    declared: Gang | None = None
    save_s: float | None = None

    if not TYPE_CHECKING:  # a type checker refuses the old names
        spare = RenamedAttribute("surplus_pods")
        lost_since_s = RenamedAttribute("last_checkpoint_s")
        leaving = RenamedAttribute("terminating")
        free_s = RenamedAttribute("expected_end_s")
        since_s = RenamedAttribute("queued_since_s")

    def lost_s(self, now_s: float) -> float:
        """Return for how many seconds its work is expected to be lost if it is stopped now.

        Of a gang that saves its work first, no more is lost than it may take to save.
        """
        lost_s = max(now_s - self.last_checkpoint_s, 0.0)
        return lost_s if self.save_s is None else min(lost_s, self.save_s)

    def expected_end_s(self, now_s: float) -> float:
        """Return when its capacity is expected to come free."""
        if self.estimate is None:
            return self.end_s if self.end_s is not None else float("inf")
        return now_s + self.estimate.left_s(now_s - self.started_s)


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """A start in the future: nodes for a gang from a moment on."""

    gang: GangId
    start_s: float
    nodes: tuple[tuple[PodName, NodeName], ...]


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Rules of queues beside quotas, for one planning cycle.

    `users` maps queue and user to what the user holds there. `spent` are GPU-seconds of budgets by
    queue, user ("" for all) and period. `recent_preemptions` are pairs of gangs: the first was
    preempted for the second a short time ago. `namespaces` maps each namespace with resource
    quotas to what is left of them; `uncreated` to what is assigned there to pods that do not exist
    yet, which no such quota counts. `protected` gangs have disruption budgets: they are preempted
    only where preempting others is not enough.
    """

    users: Mapping[tuple[str, str], Mapping[QuotaKey, int]] = field(default_factory=dict)
    spent: Mapping[tuple[str, str, float], float] = field(default_factory=dict)
    advance_reservations: tuple[AdvanceReservation, ...] = ()
    recent_preemptions: frozenset[tuple[GangId, GangId]] = frozenset()
    gpu_types: GpuTypes = field(default_factory=GpuTypes)
    namespaces: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    uncreated: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    protected: frozenset[GangId] = frozenset()


@dataclass(slots=True)
class SolverBudget:
    """Deterministic solver seconds that are left for one planning cycle."""

    left_s: float = 4.0


@dataclass(frozen=True, slots=True)
class DependentGang:
    """A gang that waits for other gangs, for forecasts: no plan contains it.

    `ends` are gangs that have to end first, `starts` gangs that have to start first. The limit of
    its series is in its declaration.
    """

    waiting: PendingGang
    ends: tuple[GangId, ...] = ()
    starts: tuple[GangId, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The cluster and the pending gangs at one moment.

    The cluster is a copy: planning may charge it, and `trial` takes such charges back.
    `driver_checks_unmodelled` says that kube-scheduler checks what the planner does not model
    before a pod is bound. All gangs planned on a snapshot share its `solver_budget`: once that is
    spent, counting alone decides. `backfill_reservations` are those of earlier cycles: their gangs
    start no later. `preemption_infeasible` are request and priority of gangs that no preemption
    could help a short while ago. `equivalence_classes` are gangs refused before; none of them has
    a backfill reservation. A cycle ends after `pods_max` pods: the other gangs are for a later
    one. From `number` the engine sees what a plan knew. `starting` gangs have their
    assignments and do not run yet. `dependents` wait for other gangs. Plans do not know the
    `node_supply`: forecasts and advice do. All computations on a
    snapshot share its `progress`.
    """

    cluster: Cluster
    pending: tuple[PendingGang, ...]
    usage: Usage = field(default_factory=lambda: Usage(QueueTree()))
    driver_checks_unmodelled: bool = True
    running: tuple[RunningGang, ...] = ()
    terminating: tuple[RunningGang, ...] = ()
    backfill_reservations: tuple[BackfillReservation, ...] = ()
    preemption_infeasible: frozenset[tuple[int, int]] = frozenset()
    solver_budget: SolverBudget = field(default_factory=SolverBudget)
    equivalence_classes: tuple[EquivalenceClassView, ...] = ()
    pods_max: int | None = None
    number: int = 0
    rules: QueueRules = field(default_factory=QueueRules)
    starting: tuple[RunningGang, ...] = ()
    progress: Progress = field(default_factory=Progress, compare=False)
    dependents: tuple[DependentGang, ...] = ()
    node_supply: NodeSupply = field(default_factory=NodeSupply)

    if not TYPE_CHECKING:  # a type checker refuses the old names
        beyond_is_judged = RenamedAttribute("driver_checks_unmodelled")
        coming = RenamedAttribute("starting")
        holders = RenamedAttribute("occupants")
        leaving = RenamedAttribute("terminating")
        lines = RenamedAttribute("equivalence_classes")
        promises = RenamedAttribute("backfill_reservations")
        solving = RenamedAttribute("solver_budget")
        starts = RenamedAttribute("pods_max")
        unhelped = RenamedAttribute("preemption_infeasible")
        waiting = RenamedAttribute("pending")

    @property
    def occupants(self) -> tuple[RunningGang, ...]:
        """Return the gangs that use capacity and may keep it: running and starting ones."""
        return (*self.running, *self.starting)

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """Try placements; leaving the block restores the usage."""
        trial = Trial(self.cluster)
        try:
            yield trial
        finally:
            trial.undo()

    @contextmanager
    def when_empty(self) -> Iterator[None]:
        """Look at the cluster as if nothing ran; leaving the block restores the usage."""
        with self.cluster.when_empty():
            yield


class Trial:
    """Pods that were added to a cluster, to be removed in one go."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._taken: list[tuple[int, PodRequirements, int, GangId | None, tuple[Devices, ...]]] = []

    if not TYPE_CHECKING:  # a type checker refuses the old names
        take = RenamedAttribute("add_pods")

    def add_pods(
        self,
        row: int,
        needs: PodRequirements,
        times: int = 1,
        holder: GangId | None = None,
        devices: Devices = (),
    ) -> tuple[Devices, ...]:
        """Add pods to a row until the trial ends; return the GPUs of each share."""
        chosen = self._cluster.add_pods(row, needs, times, holder, devices)
        self._taken.append((row, needs, times, holder, chosen))
        return chosen

    @contextmanager
    def released(self, places: list[tuple[GangId, PodPlacement]]) -> Iterator[None]:
        """Look at the cluster without some running pods; leaving the block charges them again."""
        cluster = self._cluster
        there = [(cluster.rows[p.node], g, p) for g, p in places if p.node in cluster.rows]
        for row, gang, place in there:
            cluster.remove_pods(row, place.needs, 1, gang, (place.devices,))
        try:
            yield
        finally:
            for row, gang, place in there:
                cluster.add_pods(row, place.needs, 1, gang, place.devices)

    def undo(self) -> None:
        """Remove all added pods, the last first."""
        while self._taken:
            self._cluster.remove_pods(*self._taken.pop())


if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {
            "Allowance": "gangsched.core.snapshot:SolverBudget",
            "Place": "gangsched.core.snapshot:PodPlacement",
            "Reserved": "gangsched.core.snapshot:BackfillReservation",
            "Rules": "gangsched.core.snapshot:QueueRules",
            "Running": "gangsched.core.snapshot:RunningGang",
        },
    )
