"""What the pages show: frozen values, which `reading.py` builds and `rights.py` restricts."""

from dataclasses import dataclass, field

import msgspec

Domain = tuple[str, ...]


class Segment(msgspec.Struct, frozen=True):
    """The part of a node that one gang uses; "" for other pods, and for gangs of others."""

    gang: str
    queue: str
    units: float
    """GPUs, or the part of the cores of a node without GPUs."""


@dataclass(frozen=True, slots=True)
class MigCount:
    """The MIG instances of one profile on a node."""

    profile: str
    total: int
    used: int


@dataclass(frozen=True, slots=True)
class NodeTile:
    """One node. `domain` is its path in the default topology, as far as the path is known.

    `reserved_for` are the gangs with backfill reservations there, and `set_aside` the advance
    reservations that name it. A `name` of "" is that of a node that the viewer may not see.
    """

    name: str
    number: int
    domain: Domain
    gpus: int
    gpu_model: str
    cordoned: bool
    failing: bool
    stop_by_s: float | None
    segments: tuple[Segment, ...]
    mig: tuple[MigCount, ...] = ()
    reserved_for: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """Return how many units the node has: GPUs, or 1 for the cores of a node without."""
        return float(self.gpus or 1)

    @property
    def used(self) -> float:
        """Return how many units are used."""
        return sum(segment.units for segment in self.segments)


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One resource of a queue, with amounts as texts; `nominal` None sets no limit.

    `own_part` and `borrowed_part` are what is used of the larger of both, from 0 to 1.
    """

    resource: str
    nominal: str | None
    used: str
    borrowed: str
    own_part: float = 0.0
    borrowed_part: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue; `depth` counts its ancestors. `namespaces` None: all may use it."""

    name: str
    depth: int
    pending: int
    admitted: int
    quotas: tuple[QuotaRow, ...] = ()
    share: float | None = None
    notes: tuple[str, ...] = ()
    problem: str = ""
    namespaces: frozenset[str] | None = None


class Span(msgspec.Struct, frozen=True):
    """A moment in the future, and the range of eight of ten cases."""

    low_s: float
    median_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class StartRow:
    """When a pending gang is expected to start; without `span`: not within reach.

    `runtime_s` is how long it is then expected to run.
    """

    position: int
    source: str
    span: Span | None = None
    after: str = ""
    reserved_s: float | None = None
    runtime_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GangRow:
    """One gang. `reason` and `message` say why it waits; a gang that would start has neither."""

    id: str
    queue: str
    user: str
    state: str
    priority: int
    pods_min: int
    pods_bound: int
    pods: int
    gpus: float
    queued_since_s: float | None = None
    started_s: float | None = None
    end: Span | None = None
    start: StartRow | None = None
    reason: str = ""
    message: str = ""

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return self.id.partition("/")[0]

    @property
    def turn(self) -> tuple[float, float, str]:
        """Return what orders the pending gangs of a queue as they are planned."""
        position = self.start.position if self.start is not None else float("inf")
        return position, self.queued_since_s or 0.0, self.id

    @property
    def waits(self) -> bool:
        """Return whether it is neither running nor finished."""
        return self.state not in ("Placed", "Finished")


class RunSpan(msgspec.Struct, frozen=True):
    """A run of a gang that ended; a `gang` of "" is one that the viewer may not see."""

    gang: str
    queue: str
    gpus: float
    started_s: float
    ended_s: float
    outcome: str


class LogLine(msgspec.Struct, frozen=True):
    """Something that happened to a gang."""

    at_s: float
    text: str


class WindowRow(msgspec.Struct, frozen=True):
    """A time in which nodes are set aside by an advance reservation, or from which they stop.

    An `end_s` of None is not known. A `name` of "" is one that the viewer may not see.
    """

    name: str
    what: str
    start_s: float
    end_s: float | None
    nodes: int


class QueueSample(msgspec.Struct, frozen=True):
    """How much of its fair share a queue used at a moment, and how many of its gangs waited."""

    at_s: float
    share: float
    pending: int


class JournalMoment(msgspec.Struct, frozen=True):
    """Which moment of a journal is shown: its first and last, and the changes beside this one."""

    first_s: float
    last_s: float
    earlier_s: float | None
    later_s: float | None


class PodRow(msgspec.Struct, frozen=True):
    """One pod of a gang: its role, its node ("" for none), and its state."""

    name: str
    role: str
    node: str
    state: str


@dataclass(frozen=True, slots=True)
class PageModel:
    """The whole state at one moment.

    `version` grows with each model. `forecast_at_s` is the moment of the plan in it, with its
    reasons, and `starts_at_s` that of the forecast of starts, None before the first.
    `hidden_gangs` counts gangs that the viewer may not see, and
    `subject` names the cluster or file. `runs` are those that ended, the last ones last, and
    `samples` the past of each queue, as far as they are known. `moment` is set for a journal.
    `pools` are the names of those that can make more nodes.
    """

    version: int
    now_s: float
    subject: str
    live: bool
    levels: tuple[str, ...]
    nodes: tuple[NodeTile, ...]
    queues: tuple[QueueRow, ...]
    gangs: dict[str, GangRow] = field(default_factory=dict)
    forecast_at_s: float | None = None
    starts_at_s: float | None = None
    forecast_problem: str = ""
    hidden_gangs: int = 0
    runs: tuple[RunSpan, ...] = ()
    windows: tuple[WindowRow, ...] = ()
    samples: dict[str, tuple[QueueSample, ...]] = field(default_factory=dict)
    moment: JournalMoment | None = None
    pools: tuple[str, ...] = ()
