"""The choices a cluster may make differently, as Protocols of one method each.

A policy is one class in one file of `policies/`, named by an entry point. The planner checks
whatever a policy returns, so a wrong policy can waste a cycle but never over-commit a node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import Amounts, Queue
from gangsched.core.model.refusal import Refusal
from gangsched.core.quota.usage import Usage
from gangsched.core.renamed import RenamedAttribute, renamed
from gangsched.core.snapshot import RunningGang, Snapshot


class PolicyError(Exception):
    """Planning `gang` failed: a policy broke its contract, as `problem` says."""

    def __init__(self, gang: GangId, problem: str) -> None:
        super().__init__(f"{gang}: {problem}")
        self.gang = gang
        self.problem = problem


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as a sharing policy sees it, with what a gang at its head would add.

    `dominant_share` and `historical_gpu_s` (decayed past use) are over the weight of the queue.
    `exceeds_nominal` says that the queue would then borrow quota.
    """

    queue: Queue
    dominant_share: float
    historical_gpu_s: float
    exceeds_nominal: bool

    if not TYPE_CHECKING:  # a type checker refuses the old names
        beyond = RenamedAttribute("exceeds_nominal")
        decayed = RenamedAttribute("historical_gpu_s")
        share = RenamedAttribute("dominant_share")


class QueueOrder(Protocol):
    """Which gang is next inside a queue.

    With `orders_by_age`, of gangs with equal requests and priority the older always goes
    first: then a cycle need not ask for the key of each.
    """

    orders_by_age: ClassVar[bool]

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        """Return the sort key of a gang; the smallest goes first. Ties must not exist."""
        ...

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        """Return whether a gang may be planned together with a gang before it in the order.

        Among peers the set that uses most GPU-hours starts, in any order of arrival.
        """
        ...


class Sharing(Protocol):
    """Which queue is next, at each level of the tree."""

    def key(self, view: QueueView) -> tuple[float, ...]:
        """Return the sort key of a queue; the smallest goes first, then the smallest name."""
        ...


class Backfill(Protocol):
    """Which gangs may start while an earlier gang waits for capacity."""

    def allows_reservation(self, count: int) -> bool:
        """Return whether a gang that does not fit gets a reservation, after `count` others.

        Nothing that starts later may delay such a gang.
        """
        ...


class Placer(Protocol):
    """Where a gang goes."""

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Choose nodes for at least the gang's minimum, or return why there are none.

        The snapshot must be left unchanged (see `Snapshot.trial`).
        """
        ...


class PreemptionReason(StrEnum):
    """Why a gang may be preempted."""

    PRIORITY = "InQueuePriority"
    RECLAIM = "Reclaim"
    FAIR = "FairShare"
    OVERRUN = "Overrun"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A gang that may be preempted, on a ground."""

    running: RunningGang
    ground: PreemptionReason


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """A gang that does not fit, and those that may be preempted for it.

    `charge` is what it takes of its queue's quota. `usage` may be charged, and is to be left as
    it was.
    """

    waiting: PendingGang
    snapshot: Snapshot
    usage: Usage
    charge: Amounts
    candidates: tuple[Candidate, ...]
    placer: Placer
    now_s: float


class Preemptor(Protocol):
    """Which gangs to preempt for a gang that does not fit."""

    def choose(self, request: PreemptionRequest) -> Placement | None:
        """Return a placement with the victims in `evicts`, or None if preemption does not help."""
        ...


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of one planning cycle.

    Without `sharing` all queues are one line; without `backfill` any gang that fits passes;
    without `preemptor` no gang is preempted. `orders` are those that queues name for themselves.
    """

    order: QueueOrder
    placer: Placer
    sharing: "Sharing | None" = None
    backfill: "Backfill | None" = None
    preemptor: "Preemptor | None" = None
    orders: Mapping[str, QueueOrder] = field(default_factory=dict)


if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {
            "Eviction": "gangsched.core.model.placement:Eviction",
            "Ground": "gangsched.core.policy:PreemptionReason",
            "Proof": "gangsched.core.model.placement:Proof",
            "Repartition": "gangsched.core.model.placement:Repartition",
            "Request": "gangsched.core.policy:PreemptionRequest",
        },
    )
