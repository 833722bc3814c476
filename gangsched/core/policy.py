"""The choices a cluster may make differently, as Protocols of one method each.

A policy is one class in one file of `policies/`, named by an entry point. The planner checks
whatever a policy returns, so a wrong policy can waste a cycle but never over-commit a node.
"""

from dataclasses import dataclass
from typing import Protocol

from gangsched.core.model import NodeName, PodName, Waiting
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the members of one gang go."""

    nodes: tuple[tuple[PodName, NodeName], ...]


class QueueOrder(Protocol):
    """Who is next."""

    def key(self, waiting: Waiting, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key of a gang; the smallest goes first. Ties must not exist."""
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
