"""Orders: what the engine asks its driver to do. The outcome of each comes back as a fact."""

from dataclasses import dataclass
from enum import StrEnum

from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Layout
from gangsched.core.model.refusal import Refusal

Assignments = tuple[tuple[PodName, NodeName], ...]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Write the assignments of a gang to its status, so that they survive a restart."""

    gang: GangId
    assignments: Assignments


@dataclass(frozen=True, slots=True)
class Release:
    """Remove the assignments of a gang from its status."""

    gang: GangId


@dataclass(frozen=True, slots=True)
class RepartitionGpus:
    """Repartition idle GPUs of a node; `layouts` has the layout of each of its GPUs.

    Answered by NodeSeen with these layouts, or with `mig_failed`.
    """

    gang: GangId
    node: NodeName
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Bring the pod to the barrier: remove its gate, and let every other check run.

    Answered by Prepared or PrepareFailed.
    """

    gang: GangId
    uid: PodUid
    name: PodName
    node: NodeName
    gated: bool


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the pod. Answered by Bound or BindFailed, and only by a definite answer.

    `devices` are the GPUs it shares, and `minimum` how many members start together: the driver
    writes both on the pod, for the scheduler process after this one.
    """

    gang: GangId
    uid: PodUid
    name: PodName
    node: NodeName
    devices: tuple[int, ...] = ()
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class RejectPod:
    """Reject the pod at the barrier, with the reason. No fact answers this."""

    gang: GangId
    uid: PodUid
    name: PodName
    reason: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete the pod: its gang is torn down or preempted. Answered by PodGone."""

    gang: GangId
    uid: PodUid
    name: PodName
    reason: str
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """Report that a gang (or its surplus `pods`) is preempted for another; the evictions follow.

    `reason` is the rule that allows it; `is_mutual` says that each gang has preempted the other.
    """

    gang: GangId
    by: GangId
    pods: tuple[PodName, ...]
    reason: str
    lost_gpu_s: float
    is_mutual: bool = False


@dataclass(frozen=True, slots=True)
class AnnounceStop:
    """Announce on pods, and on the object of their gang, that the gang is stopped by `stop_by_s`.

    It may save its work before. Answered by PodSeen or GangSeen with a later checkpoint.
    """

    gang: GangId
    pods: tuple[tuple[PodUid, PodName], ...]
    since_s: float
    stop_by_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class WithdrawStop:
    """Take an announced stop back from pods and from the object of their gang: it runs on."""

    gang: GangId
    pods: tuple[tuple[PodUid, PodName], ...]
    reason: str


class DrainReason(StrEnum):
    """What an administrator declared that evicts a gang."""

    QUEUE = "QueueDrained"
    RESERVATION = "Reservation"
    NODE = "NodeStops"


@dataclass(frozen=True, slots=True)
class Drain:
    """Record that a gang is evicted for an administrator; the evictions follow.

    `of` names the queue that is drained, the advance reservation of its nodes, or its node that
    is announced to stop.
    """

    gang: GangId
    reason: DrainReason
    of: str
    lost_gpu_s: float


class ReportReason(StrEnum):
    """Reasons of reports on gangs that are not refused: statuses and Events show them."""

    PLACED = "Placed"
    RESERVED = "Reserved"
    PREEMPTED = "Preempted"
    BROKEN = "Broken"
    SHRUNK = "Shrunk"
    BELOW_MINIMUM = "BelowMinimum"
    OUTGROWN = "Outgrown"
    STOP_ANNOUNCED = "StopAnnounced"
    STOP_WITHDRAWN = "StopWithdrawn"
    INVALID = "Invalid"
    """Its object cannot be read: the driver reports that, not the engine."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the state of a gang to its user, with a reason and a sentence.

    `refusal` is the same as data, while the gang is refused; `proof` says how good its placement is
    proved to be. An `adopted` gang ran already, started by another scheduler or by an earlier
    process: it gets no Event. `queue` is charged for what the gang uses.
    """

    gang: GangId
    state: str
    reason: str
    message: str
    refusal: Refusal | None = None
    proof: str = ""
    adopted: bool = False
    queue: str = ""


Order = (
    Reserve
    | Release
    | RepartitionGpus
    | Prepare
    | Bind
    | RejectPod
    | Evict
    | Preempt
    | Drain
    | AnnounceStop
    | WithdrawStop
    | Report
)
