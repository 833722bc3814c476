"""The nouns of the core: nodes, gangs, roles and what one pod needs of a node.

Everything here is frozen and compares by value. Quantities are integers in the smallest unit a
scheduler has to distinguish: CPU in thousandths of a core, memory and storage in bytes, pods and
extended resources (GPUs, HCAs, MIG slices) in pieces.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangsched.core.model.constraints import NO_CONSTRAINTS, Constraints, LevelRequest
from gangsched.core.model.dependencies import Dependency, Series
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.pods import PodRequirements, Requests
from gangsched.core.model.runtime import RUNTIME_DEFAULT_S, Estimate
from gangsched.core.renamed import RenamedAttribute


@dataclass(frozen=True, slots=True)
class Role:
    """A part of a gang with equal pods (Master, Worker, launcher).

    With `needs` the role is planned before its pods exist, and they will be named
    `<group>-<role>-<index>`, or `pod` where there is one; without, its pods are those that carry
    its name. `late` of its pods are made only once all others of the gang run, by whatever names:
    capacity for them, by `needs`, is reserved with that of the others.
    """

    name: str
    count: int
    min_count: int
    needs: PodRequirements | None = None
    near: LevelRequest = LevelRequest()
    pod: PodName | None = None
    late: int = 0


UNKNOWN_USER = "(unknown)"
"""The user of gangs without a known user: they share one account."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together or not at all.

    `user` submitted it, if known. `preemptible` gangs may be preempted for others, `inseparable`
    ones only whole. No gang is preempted for a gang that does not `preempt`.
    `ready_timeout_s` bounds the time from the last binding until all pods are ready,
    `max_runtime_s` the run. `implicit` gangs are read off their pods (a label, a bare pod) and
    vanish with the last of them. `priority` None means: that of its pods. `started` means that
    the gang was placed whole before this process began; `charged` is the queue charged then.
    `checkpoint_s` is when its work was last saved. With `checkpoint_grace_s` it saves its work when
    a stop is announced, within so many seconds (not part of its checksum). `movable` gangs may be
    moved to other nodes, once they ran for `min_runtime_s`. It is planned once its `dependencies`
    hold and its `series` has a free place (neither is part of its checksum). Nodes that are bought
    for it may cost `price_max` for an hour, and nodes are preferred that are there before it
    waited for `wait_max_s`.
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
    constraints: Constraints = NO_CONSTRAINTS
    checkpoint_s: float | None = None
    movable: bool = False
    min_runtime_s: float = 0.0
    user: str = ""
    preemptible: bool = True
    inseparable: bool = False
    preempts: bool = True
    ready_timeout_s: float | None = None
    max_runtime_s: float | None = None
    charged: str = field(default="", compare=False)
    checkpoint_grace_s: float | None = field(default=None, repr=False)
    dependencies: tuple[Dependency, ...] = field(default=(), repr=False)
    series: Series | None = field(default=None, repr=False)
    price_max: float | None = field(default=None, repr=False)
    wait_max_s: float | None = field(default=None, repr=False)

    @property
    def account(self) -> tuple[str, str]:
        """Return the queue and the user that are charged for it."""
        return self.queue, self.user or UNKNOWN_USER

    @property
    def planned_before_creation(self) -> bool:
        """True when the roles say what each pod needs, so that no pod has to exist to plan."""
        roles = self.roles
        return bool(roles) and all(role.needs is not None and not role.late for role in roles)

    @property
    def late(self) -> int:
        """Return how many of its pods are made only once the others run."""
        return sum(role.late for role in self.roles)

    def member_names(self, role: Role) -> tuple[PodName, ...]:
        """Return the pod names of a role that is planned before creation, in rank order."""
        if role.pod is not None:
            return (role.pod,)
        stem = f"{self.id}-{role.name.lower()}"
        return tuple(PodName(f"{stem}-{index}") for index in range(role.count))


@dataclass(frozen=True, slots=True)
class Member:
    """One place of a gang that still wants a node.

    `rank` counts the gang's members in rank order, those that have a node included.
    """

    name: PodName
    role: str
    needs: PodRequirements
    rank: int = 0


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member that has its node: what is added later must keep the constraints with it."""

    role: str
    rank: int
    node: NodeName


@dataclass(frozen=True, slots=True)
class PendingGang:
    """A gang with members to place, as planners and policies see it.

    `members_min` of `members` must be placed together (and `role_members_min` of each role), or
    none. `version` says whether the gang changed since the snapshot. `excluded_nodes` and
    `pods_per_node_max` follow from nodes that refused its pods. `constraints` and `near_role` come
    from the declaration, or else from the pods; `placed_members` have a node already.

    An `is_refill` gang runs and lacks required members; an `is_scale_up` gang runs and could have
    more. `attained_s` is its run time before it was preempted. `charge` is what its minimum charges
    to its queue (`queues.Amounts`; empty: not computed), `unborn` what its pods that do not exist
    yet request. Gangs of one `request_fingerprint` request the same (0: not computed).
    `pod_classes` are the requirements that differ among its members (empty: not computed).
    `estimate` is its expected run time. No gang is preempted for one that does not `preempt`.
    """

    if not TYPE_CHECKING:  # a type checker refuses the old names
        minimum = RenamedAttribute("members_min")
        role_minimum = RenamedAttribute("role_members_min")
        since_s = RenamedAttribute("queued_since_s")
        avoid = RenamedAttribute("excluded_nodes")
        most_per_node = RenamedAttribute("pods_per_node_max")
        seated = RenamedAttribute("placed_members")
        repair = RenamedAttribute("is_refill")
        surplus = RenamedAttribute("is_scale_up")
        shape = RenamedAttribute("request_fingerprint")
        kinds = RenamedAttribute("pod_classes")
        alike = RenamedAttribute("equivalence_key")

    gang: Gang
    version: int
    members: tuple[Member, ...]
    members_min: int
    role_members_min: tuple[tuple[str, int], ...]
    priority: int
    queued_since_s: float
    excluded_nodes: tuple[NodeName, ...] = ()
    pods_per_node_max: int | None = None
    constraints: Constraints = NO_CONSTRAINTS
    near_role: tuple[tuple[str, LevelRequest], ...] = ()
    placed_members: tuple[PlacedMember, ...] = ()
    is_refill: bool = False
    is_scale_up: bool = False
    attained_s: float = 0.0
    charge: tuple[tuple[tuple[str, str], int], ...] = ()
    request_fingerprint: int = 0
    pod_classes: tuple[PodRequirements, ...] = ()
    estimate: Estimate | None = None
    unborn: Requests = ()
    preempts: bool = True

    @property
    def equivalence_key(self) -> tuple[int, int]:
        """Return what gangs have in common that are planned as one: request and priority."""
        return self.request_fingerprint, self.priority


def runtime_s(waiting: PendingGang) -> float:
    """Return how long a gang is expected to run."""
    if waiting.estimate is not None:
        return waiting.estimate.runtime_s
    return waiting.gang.expected_runtime_s or RUNTIME_DEFAULT_S


@dataclass(frozen=True, slots=True)
class EquivalenceClassView:
    """Waiting gangs of one shape and priority, the oldest first.

    None of them is expected to run for less than `shortest_s`.
    """

    gangs: tuple[PendingGang, ...]
    shortest_s: float
