"""The nouns of the core: nodes, gangs, roles and what one pod needs of a node.

Everything here is frozen and compares by value. Quantities are integers in the smallest unit a
scheduler has to tell apart: CPU in thousandths of a core, memory and storage in bytes, pods and
extended resources (GPUs, HCAs, MIG slices) in pieces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

GangId = NewType("GangId", str)
"""`namespace/name` of the group; a pod on its own is the gang `namespace/pod:name`."""
PodName = NewType("PodName", str)
"""`namespace/name`. The identity of a member: a recreated pod is the same member."""
PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)

Requests = tuple[tuple[str, int], ...]
"""Resource name and amount, sorted by name, amounts above zero."""

HostPort = tuple[str, str, int]
"""Protocol, host IP ("0.0.0.0" for any) and port."""

PODS = "pods"
"""Every pod takes one of this resource, which is how a node's pod count is kept."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One label condition with the operators of NodeSelectorRequirement.

    `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Conditions that must all hold: on labels, and on the node's name (matchFields)."""

    labels: tuple[Expression, ...] = ()
    names: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; empty key, value or effect match as the Kubernetes API defines."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether this toleration covers the taint (core/v1 Toleration.ToleratesTaint)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, eq=False)
class PodNeeds:
    """What one pod asks of the node that takes it.

    `required` holds alternatives: one term must match (empty: any node). `selector` must hold in
    any case. `beyond` names what the pod asks that the planner does not model (volumes, pod
    affinity, topology spread, resource claims); kube-scheduler's own filters judge those.
    """

    requests: Requests = ()
    selector: tuple[Expression, ...] = ()
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    beyond: tuple[str, ...] = ()
    _key: tuple[object, ...] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Needs are dictionary keys on the hot path: hash once, not at every look-up.
        key = (
            self.requests,
            self.selector,
            self.required,
            self.preferred,
            self.tolerations,
            self.host_ports,
            self.beyond,
        )
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash(key))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PodNeeds) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it."""

    name: NodeName
    allocatable: Requests
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """A part of a gang whose pods are alike (Master, Worker, launcher).

    With `needs` the role is planned before its pods exist, and they will be named
    `<group>-<role>-<index>`; without, its pods are those that carry its name.
    """

    name: str
    count: int
    min_count: int
    needs: PodNeeds | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together or not at all.

    `implicit` gangs are read off their pods (a label, a bare pod) and vanish with the last of
    them. `priority` None means: that of its pods. `started` tells that the gang was placed whole
    before this process began.
    """

    id: GangId
    min_member: int
    roles: tuple[Role, ...] = ()
    queue: str = "default"
    priority: int | None = None
    created_s: float = 0.0
    expected_runtime_s: float | None = None
    schedule_timeout_s: float = 60.0
    implicit: bool = False
    started: bool = False

    @property
    def planned_before_creation(self) -> bool:
        """True when the roles say what each pod needs, so that no pod has to exist to plan."""
        return bool(self.roles) and all(role.needs is not None for role in self.roles)

    def member_names(self, role: Role) -> tuple[PodName, ...]:
        """Return the pod names of a role that is planned before creation, in rank order."""
        stem = f"{self.id}-{role.name.lower()}"
        return tuple(PodName(f"{stem}-{index}") for index in range(role.count))


@dataclass(frozen=True, slots=True)
class Member:
    """One place of a gang that still wants a node."""

    name: PodName
    role: str
    needs: PodNeeds


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gang with members to place, as a planner sees it.

    `minimum` of `members` must be placed together (and `role_minimum` of each role), or none.
    `version` lets the engine tell whether the gang changed since the snapshot. `avoid` and
    `most_per_node` are what refusals of its members have taught.
    """

    gang: Gang
    version: int
    members: tuple[Member, ...]
    minimum: int
    role_minimum: tuple[tuple[str, int], ...]
    priority: int
    since_s: float
    avoid: tuple[NodeName, ...] = ()
    most_per_node: int | None = None
