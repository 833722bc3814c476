"""The choices a cluster may make differently, as Protocols of one method each.

A policy is one class in one file of `policies/`, named by an entry point. The planner checks
whatever a policy returns, so a wrong policy can waste a cycle but never over-commit a node.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gangsched.core.model import GangId, Layout, NodeName, PodName, Requests, Waiting
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


class Proof(StrEnum):
    """How good an answer is known to be."""

    PROVED = "proved"
    GAP = "gap"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Repartition:
    """Idle GPUs of a node to be cut anew: the layout every GPU of the node shall have.

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
    `evicts` are gangs to stop first: the room they free belongs to this one.
    `spent` are the deterministic seconds a solver took; zero means that counting alone decided.
    `repartitions` must have happened before the members on those nodes can be bound. `proof` says
    whether no better placement exists by the placer's objectives; with GAP, `cost` is what was
    reached and `bound` what no placement can be below.
    """

    nodes: tuple[tuple[PodName, NodeName], ...]
    devices: tuple[tuple[PodName, tuple[int, ...]], ...] = ()
    repartitions: tuple[Repartition, ...] = ()
    evicts: tuple[GangId, ...] = ()
    gpu_kind: str = ""
    proof: Proof = Proof.UNKNOWN
    cost: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()
    spent: float = 0.0


class QueueOrder(Protocol):
    """Who is next."""

    def key(self, waiting: Waiting, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key of a gang; the smallest goes first. Ties must not exist."""
        ...

    def peers(self, first: Waiting, other: Waiting) -> bool:
        """Tell whether a gang may be looked at together with one before it in the order.

        Among peers the set that uses most GPU-hours starts, whoever of them came first.
        """
        ...


class Placer(Protocol):
    """Where a gang goes."""

    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        """Choose nodes for at least the gang's minimum, or say why there are none.

        The snapshot must be left as it was found (see `Snapshot.trial`).
        """
        ...


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of one planning cycle."""

    order: QueueOrder
    placer: Placer
