"""A frozen view to plan on, with what-if: `with snapshot.trial():` undoes usage on exit."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.constraints import NO_CONSTRAINTS, Constraints, Near
from gangsched.core.model.gangs import EquivalenceClassView, Gang, PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.pods import PodNeeds
from gangsched.core.model.queues import Amounts, Booking, GpuTypes, QuotaKey
from gangsched.core.model.runtime import Estimate
from gangsched.core.progress import Progress
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.usage import Usage
from gangsched.core.renamed import renamed


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where one member of a running gang is."""

    name: PodName
    role: str
    node: NodeName
    needs: PodNeeds
    devices: Devices = ()


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A gang that runs: where, since when and until when, and what moving it would lose.

    `end_s` is expected, None where nobody said; `estimate` always says something.
    `lost_since_s` is its last checkpoint or its start. `movable` tells that its owner allows it.
    `spare` are members beyond its minimum, the first to give back first. `leaving` gangs have
    been told to stop. `declared` is what it is planned as once it is stopped, if not as `gang`.
    """

    gang: Gang
    places: tuple[PodPlacement, ...]
    started_s: float
    end_s: float | None = None
    lost_since_s: float = 0.0
    movable: bool = False
    constraints: Constraints = NO_CONSTRAINTS
    near_role: tuple[tuple[str, Near], ...] = ()
    priority: int = 0
    spare: tuple[PodName, ...] = ()
    estimate: Estimate | None = None
    leaving: bool = False
    since_s: float = 0.0
    charge: Amounts = ()
    declared: Gang | None = None

    def free_s(self, now_s: float) -> float:
        """Return when its room is believed to come free."""
        if self.estimate is None:
            return self.end_s if self.end_s is not None else float("inf")
        return now_s + self.estimate.left_s(now_s - self.started_s)


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """Room kept for a gang from a moment on."""

    gang: GangId
    start_s: float
    nodes: tuple[tuple[PodName, NodeName], ...]


@dataclass(frozen=True, slots=True)
class QueueRules:
    """What queues say beside quotas, for one planning cycle.

    `users` maps queue and user to what the user holds there; `spent` are GPU-seconds of budgets
    by queue, user ("" for all) and period. `stopped` are pairs of gangs, the first of which was
    stopped for the second a short time ago. `namespaces` maps those that have quotas on what pods
    ask for to what is left of each, and `unborn` to what room is reserved for whose pods do not
    exist yet: no quota counts that. `protected` are gangs that disruption budgets protect: they
    are stopped where stopping others is not enough.
    """

    users: Mapping[tuple[str, str], Mapping[QuotaKey, int]] = field(default_factory=dict)
    spent: Mapping[tuple[str, str, float], float] = field(default_factory=dict)
    bookings: tuple[Booking, ...] = ()
    stopped: frozenset[tuple[GangId, GangId]] = frozenset()
    kinds: GpuTypes = field(default_factory=GpuTypes)
    namespaces: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    unborn: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    protected: frozenset[GangId] = frozenset()


@dataclass(slots=True)
class SolverBudget:
    """Deterministic seconds of solving that are left for one planning cycle."""

    left: float = 4.0


@dataclass(frozen=True)
class Snapshot:
    """The cluster and the waiting gangs at one moment.

    The cluster is a copy: planning may charge it, and `trial` takes such charges back.
    `beyond_is_judged` tells that somebody checks what the planner does not model before a pod
    is bound (kube-scheduler, when it stands between plan and binding). `solving` is shared by all
    gangs planned on it: once it is spent, counting alone decides. `promises` is room that was kept
    before: whoever has it starts no later. `unhelped` are shapes and priorities of gangs for which
    nobody could be stopped a short while ago. `lines` are gangs that were refused before, by what
    they have in common; nobody with a promise is among them. After `starts` pods nobody else is
    looked at: the others are for a later cycle. `number` tells the engine what a plan knew.
    `coming` take room already and do not run yet. `progress` is shared by all that is computed on
    it, and tells how far that has come.
    """

    cluster: Cluster
    waiting: tuple[PendingGang, ...]
    usage: Usage = field(default_factory=lambda: Usage(QueueTree()))
    beyond_is_judged: bool = True
    running: tuple[RunningGang, ...] = ()
    leaving: tuple[RunningGang, ...] = ()
    promises: tuple[BackfillReservation, ...] = ()
    unhelped: frozenset[tuple[int, int]] = frozenset()
    solving: SolverBudget = field(default_factory=SolverBudget)
    lines: tuple[EquivalenceClassView, ...] = ()
    starts: int | None = None
    number: int = 0
    rules: QueueRules = field(default_factory=QueueRules)
    coming: tuple[RunningGang, ...] = ()
    progress: Progress = field(default_factory=Progress, compare=False)

    @property
    def holders(self) -> tuple[RunningGang, ...]:
        """Return all who take room and may keep it: those who run, and those who will."""
        return (*self.running, *self.coming)

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """Try placements out; leaving the block restores the usage as it was."""
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
    """A list of charges that can be taken back in one go."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._taken: list[tuple[int, PodNeeds, int, GangId | None, tuple[Devices, ...]]] = []

    def take(
        self,
        row: int,
        needs: PodNeeds,
        times: int = 1,
        holder: GangId | None = None,
        devices: Devices = (),
    ) -> tuple[Devices, ...]:
        """Charge the row, to be undone at the end of the trial; return the GPUs of each share."""
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
        """Give everything back, last first."""
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
