"""What one pod needs of a node: resources, ports, a share of a GPU, and which nodes suit it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangsched.core.renamed import RenamedAttribute, renamed

Requests = tuple[tuple[str, int], ...]
"""Resource name and amount, sorted by name, amounts above zero."""


HostPort = tuple[str, str, int]
"""Protocol, host IP ("0.0.0.0" for any) and port."""


PODS = "pods"
"""Every pod takes one of this resource, which is how a node's pod count is kept."""


GPU = "nvidia.com/gpu"
"""Whole GPUs. A shared GPU counts as one taken, whichever pods share it."""


MILLI = 1000
"""Thousandths of one GPU."""


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
        """Return whether this toleration covers the taint (core/v1 Toleration.ToleratesTaint)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A part of each of `devices` GPUs: thousandths, or memory (MiB) where that is what was asked.

    These are KAI's gpu-fraction, gpu-memory and gpu-fraction-num-devices.
    """

    milli: int = 0
    memory_mib: int = 0
    devices: int = 1


@dataclass(frozen=True, eq=False)
class PodRequirements:
    """What one pod asks of the node that takes it.

    `required` holds alternatives: one term must match (empty: any node). `selector` must hold in
    any case. `beyond` names what the pod asks that the planner does not model (pod affinity ...):
    kube-scheduler's own filters judge it; what is only not known yet says why in brackets.
    """

    requests: Requests = ()
    selector: tuple[Expression, ...] = ()
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    unmodelled_constraints: tuple[str, ...] = ()
    share: GpuShare | None = None
    _key: tuple[object, ...] = field(default=(), init=False, repr=False)
    _hash: int = field(default=0, init=False, repr=False)

    if not TYPE_CHECKING:  # a type checker refuses the old names
        beyond = RenamedAttribute("unmodelled_constraints")

    def __post_init__(self) -> None:
        # Needs are dictionary keys on the hot path: hash once, not at every look-up.
        key = (
            self.requests,
            self.selector,
            self.required,
            self.preferred,
            self.tolerations,
            self.host_ports,
            self.unmodelled_constraints,
            self.share,
        )
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash(key))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PodRequirements) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash


if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {"PodNeeds": f"{__name__}:PodRequirements", "Share": f"{__name__}:GpuShare"},
    )
