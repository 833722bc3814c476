"""Facts: what happened in the cluster, one frozen record for each kind of event.

Facts may come late, twice or out of order; the engine folds each in constant time.
"""

from dataclasses import dataclass

from gangsched.core.model.constraints import NO_CONSTRAINTS, Constraints
from gangsched.core.model.dependencies import Outcome
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.node_pools import NodeSupply
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodRequirements, Requests
from gangsched.core.model.queues import AdvanceReservation, Queue, QuotaKey
from gangsched.core.model.topology import Topology


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node exists, with these properties now."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node no longer exists."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """A topology was declared or changed."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyGone:
    """A topology's declaration was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A queue was declared or changed."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueGone:
    """A queue's declaration was deleted; gangs may still name it."""

    name: str


@dataclass(frozen=True, slots=True)
class AdvanceReservationSeen:
    """An advance reservation was declared or changed."""

    booking: AdvanceReservation


@dataclass(frozen=True, slots=True)
class AdvanceReservationGone:
    """An advance reservation was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NamespaceQuotaSeen:
    """A namespace's quota on what its pods ask for, and how much of it is left."""

    namespace: str
    name: str
    left: Requests


@dataclass(frozen=True, slots=True)
class NamespaceQuotaGone:
    """A namespace's quota was deleted."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class BudgetsSeen:
    """PodDisruptionBudgets as they are now protect these gangs, and no others."""

    gangs: tuple[GangId, ...]


@dataclass(frozen=True, slots=True)
class NodeSupplySeen:
    """These nodes can be bought now, and these come; no others."""

    supply: NodeSupply


@dataclass(frozen=True, slots=True)
class UsageRestored:
    """GPU time that an earlier process had counted for a queue, or for one user of it (restart).

    `spent` are (period, number of the period, GPU-seconds).
    """

    queue: str
    user: str
    at_s: float
    historical_gpu_s: float
    spent: tuple[tuple[float, int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class GangSeen:
    """A group was declared or changed its declaration."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class GangGone:
    """A group's declaration was deleted; its pods may still exist."""

    id: GangId


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The object that declares a gang says that it ended for good, and how."""

    gang: GangId
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod exists. `gang` is None if another scheduler runs it and it only uses its node.

    `rank` is its index in its role if a label says so, `constraints` what its annotations request
    for its gang, and `devices` the GPUs that it shares. `minimum` is how many members started
    together when it was bound, 0 if unknown. `invalid` says what is wrong with its request: the pod
    uses its node like any other, but its gang is not planned. `ready` is its condition Ready.
    `gated` says whether it has our scheduling gate, and `gated_by` names another gate that has to
    be removed before the pod may be placed. `ended` is true once its containers have ended for good
    (phase Succeeded or Failed); with `failed` its work was not done. No gang is preempted for a pod
    that does not `preempt`. `checkpoint_s` is when it says that its gang's work was last saved, and
    `stop_by_s` the deadline of the stop that was announced on it, perhaps by an earlier process.
    """

    uid: PodUid
    name: PodName
    needs: PodRequirements
    gang: GangId | None = None
    role: str = ""
    node: NodeName | None = None
    ended: bool = False
    failed: bool = False
    terminating: bool = False
    gated: bool = False
    gated_by: str = ""
    priority: int = 0
    created_s: float = 0.0
    rank: int | None = None
    constraints: Constraints = NO_CONSTRAINTS
    devices: tuple[int, ...] = ()
    started_s: float | None = None
    invalid: str = ""
    ready: bool = True
    minimum: int = 0
    preempts: bool = True
    checkpoint_s: float | None = None
    stop_by_s: float | None = None


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod no longer exists."""

    uid: PodUid


@dataclass(frozen=True, slots=True)
class AssignmentsRestored:
    """The assignments of a gang that an earlier process wrote to its status (restart)."""

    gang: GangId
    assignments: tuple[tuple[PodName, NodeName], ...]


@dataclass(frozen=True, slots=True)
class HistoryRestored:
    """What an earlier process knew of a gang and no other object stores (restart).

    Times are seconds on the clock of facts. `created_s` is when the gang was created: a new gang of
    the same name has no history. `declared` is a checksum of its declaration: a gang that
    failed with `failure_message` is tried again once that changes. `reserved_start_s` and
    `reserved_nodes` are its backfill reservation. It was in back-off until `backoff_until_s`, and
    excluded the nodes of `excluded_nodes`, each until a time. `admitted` is the quota that it had
    at once since it started; the pods of `vacated` places ran and are gone. `places` are assigned
    to it, beside the assignments in its status; with `waits_for_capacity` gangs there still
    terminated. Its stop was announced at `stop_since_s`, with the deadline `stop_by_s`, for the
    gang, queue, reservation or node `stop_for`, and for the reason `stop_cause`.
    """

    gang: GangId
    created_s: float
    declared: int = 0
    attempts: int = 0
    no_shows: int = 0
    unready_tries: int = 0
    attained_service_s: float = 0.0
    backoff_until_s: float | None = None
    excluded_nodes: tuple[tuple[NodeName, float], ...] = ()
    pods_per_node_max: int | None = None
    pods_per_node_until_s: float | None = None
    failure_message: str = ""
    admitted: tuple[tuple[QuotaKey, int], ...] = ()
    vacated: tuple[PodName, ...] = ()
    places: tuple[tuple[PodName, NodeName], ...] = ()
    waits_for_capacity: bool = False
    reserved_start_s: float | None = None
    reserved_nodes: tuple[tuple[PodName, NodeName], ...] = ()
    stop_since_s: float | None = None
    stop_by_s: float | None = None
    stop_for: str = ""
    stop_cause: str = ""


@dataclass(frozen=True, slots=True)
class PreemptionRestored:
    """An earlier process preempted one gang for another (restart)."""

    victim: GangId
    by: GangId
    at_s: float


@dataclass(frozen=True, slots=True)
class EndRestored:
    """An earlier process observed how a gang ended (restart)."""

    gang: GangId
    outcome: Outcome
    at_s: float


StoredFact = HistoryRestored | PreemptionRestored | EndRestored
"""What one process stores for the next, because no other object has it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Phase one: the pod passed every check before binding and waits at the barrier."""

    uid: PodUid
    node: NodeName


@dataclass(frozen=True, slots=True)
class PrepareFailed:
    """Phase one: the pod cannot go to the node; `reason` is the sentence of the checker.

    `fits` is how many pods of its gang the node could take, if the checker knows that.
    """

    uid: PodUid
    node: NodeName
    reason: str
    fits: int | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """Phase two: the API server accepted the binding; the watch confirms it later."""

    uid: PodUid
    node: NodeName


@dataclass(frozen=True, slots=True)
class BindFailed:
    """Phase two: the API refused the binding for good; the pod is not bound."""

    uid: PodUid
    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """No plan could be made because of this gang: a policy broke its contract for it, or is slow.

    It is planned again after a back-off that doubles; with `until_s` not before that time, unless
    the gang changes.
    """

    gang: GangId
    problem: str
    until_s: float | None = None


Fact = (
    NodeSeen
    | NodeGone
    | TopologySeen
    | TopologyGone
    | QueueSeen
    | QueueGone
    | AdvanceReservationSeen
    | AdvanceReservationGone
    | NamespaceQuotaSeen
    | NamespaceQuotaGone
    | BudgetsSeen
    | NodeSupplySeen
    | UsageRestored
    | GangSeen
    | GangGone
    | JobEnded
    | PodSeen
    | PodGone
    | AssignmentsRestored
    | HistoryRestored
    | PreemptionRestored
    | EndRestored
    | Prepared
    | PrepareFailed
    | Bound
    | BindFailed
    | PlanFailed
)
