"""A frozen view to plan on, with what-if: `with snapshot.trial():` undoes usage on exit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gangsched.core.cluster import Cluster
from gangsched.core.devices import Devices
from gangsched.core.model import (
    NO_CONSTRAINTS,
    Constraints,
    Gang,
    GangId,
    Near,
    NodeName,
    PodName,
    PodNeeds,
    Waiting,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one member of a running gang is."""

    name: PodName
    role: str
    node: NodeName
    needs: PodNeeds
    devices: Devices = ()


@dataclass(frozen=True, slots=True)
class Running:
    """A gang that runs: where, since when and until when, and what moving it would lose.

    `end_s` is expected, None where nobody said.
    `lost_since_s` is its last checkpoint or its start. `movable` tells that its owner allows it.
    """

    gang: Gang
    places: tuple[Place, ...]
    started_s: float
    end_s: float | None = None
    lost_since_s: float = 0.0
    movable: bool = False
    constraints: Constraints = NO_CONSTRAINTS
    near_role: tuple[tuple[str, Near], ...] = ()


@dataclass(slots=True)
class Allowance:
    """Deterministic seconds of solving that are left for one planning cycle."""

    left: float = 4.0


@dataclass(frozen=True)
class Snapshot:
    """The cluster and the waiting gangs at one moment.

    The cluster is a copy: planning may charge it, and `trial` takes such charges back.
    `beyond_is_judged` tells that somebody checks what the planner does not model before a pod
    is bound (kube-scheduler, when it stands between plan and binding). `solving` is shared by all
    gangs planned on it: once it is spent, counting alone decides.
    """

    cluster: Cluster
    waiting: tuple[Waiting, ...]
    queues: frozenset[str]
    beyond_is_judged: bool = True
    running: tuple[Running, ...] = ()
    solving: Allowance = field(default_factory=Allowance)
    room: int = 0

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """Try placements out; leaving the block restores the usage as it was."""
        trial = Trial(self.cluster)
        try:
            yield trial
        finally:
            trial.undo()

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Look at the cluster as if nothing ran; leaving the block restores the usage."""
        with self.cluster.emptied():
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
        chosen = self._cluster.take(row, needs, times, holder, devices)
        self._taken.append((row, needs, times, holder, chosen))
        return chosen

    def undo(self) -> None:
        """Give everything back, last first."""
        while self._taken:
            self._cluster.give(*self._taken.pop())
