"""Where the pods of one gang go, and what has to happen before."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.nodes import Layout
from gangsched.core.model.pods import Requests
from gangsched.core.renamed import RenamedAttribute


class Proof(StrEnum):
    """How good an answer is known to be."""

    PROVED = "proved"
    GAP = "gap"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Repartition:
    """Idle GPUs of a node to repartition: the layout that every GPU of the node shall have.

    `held` are the resources of the GPUs that change, as the node offers them until it happens;
    `gained` is what it will offer beyond the present.
    """

    node: NodeName
    layouts: tuple[Layout, ...]
    held: Requests
    gained: Requests


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the members of one gang go.

    `devices` names GPUs for members that share one, where the policy cares which.
    `evicts` are gangs to preempt first: the capacity they free belongs to this gang.
    `spent` are the deterministic seconds a solver took; zero means that counting alone decided.
    `repartitions` must have happened before the members on those nodes can be bound. `proof` says
    whether no better placement exists by the placer's objectives; with GAP, `cost` is what was
    reached and `bound` what no placement can be below.
    """

    nodes: tuple[tuple[PodName, NodeName], ...]
    devices: tuple[tuple[PodName, tuple[int, ...]], ...] = ()
    repartitions: tuple[Repartition, ...] = ()
    evicts: tuple["Eviction", ...] = ()
    gpu_type: str = ""
    proof: Proof = Proof.UNKNOWN
    cost: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()
    spent: float = 0.0

    if not TYPE_CHECKING:  # a type checker refuses the old names
        gpu_kind = RenamedAttribute("gpu_type")


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running gang to stop, or the surplus members it shall give back (`pods`)."""

    gang: GangId
    pods: tuple[PodName, ...] = ()
    reason: str = ""
