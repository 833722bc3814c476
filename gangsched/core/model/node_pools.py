"""Nodes that do not exist yet: pools that can make more, and what a purchase of them is."""

from bisect import bisect_right
from dataclasses import dataclass
from math import exp
from statistics import NormalDist

from gangsched.core.model.ids import GangId
from gangsched.core.model.nodes import Node

_NORMAL = NormalDist()

POOLS_MAX = 64
NODES_OF_POOL_MAX = 1000
"""Nodes that one purchase takes from one pool at most."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """Equal nodes that can be bought one by one.

    `template` is such a node; its name does not matter. `nodes_left` more may be made now. `price`
    is what one costs for an hour. The provider may take a `spot` node back. By experience
    half of the nodes are there `arrival_s` after they are bought; the logarithms of these times
    have the standard deviation `arrival_spread`. A pool that failed makes none before `retry_s`,
    and `nodes_later` more from then on.
    """

    name: str
    template: Node
    nodes_left: int
    price: float = 0.0
    spot: bool = False
    arrival_s: float = 0.0
    arrival_spread: float = 0.0
    nodes_later: int = 0
    retry_s: float = 0.0

    def arrival_of(self, count: int) -> float:
        """Return after how many seconds `count` nodes are all there: the median of the last."""
        if count < 1 or not self.arrival_spread:
            return self.arrival_s
        return self.arrival_s * exp(self.arrival_spread * _NORMAL.inv_cdf(0.5 ** (1 / count)))

    def count_within(self, limit_s: float) -> int:
        """Return how many nodes that are bought together are all there after `limit_s`."""
        return bisect_right(range(1, NODES_OF_POOL_MAX + 1), limit_s, key=self.arrival_of)


@dataclass(frozen=True, slots=True)
class Purchase:
    """Nodes for one whole gang: how many of each pool, the cheapest known."""

    nodes: tuple[tuple[str, int], ...]
    price: float
    """Of all nodes, for an hour."""
    arrival_s: float
    """When the last node is there."""
    proved: bool = True
    """Whether no cheaper purchase exists, by the counts that were tried."""


@dataclass(frozen=True, slots=True)
class ComingNodes:
    """Nodes that were bought for a gang and are not all there: how many of each pool."""

    gang: GangId
    nodes: tuple[tuple[str, int], ...]
    ready_s: float
    """When the last is expected."""


@dataclass(frozen=True, slots=True)
class NodeSupply:
    """The nodes that can be bought, and those that come.

    Queues have `spent` so much for an hour on nodes that are there or come. A gang lacks nodes for
    `after_s` before they are bought.
    """

    pools: tuple[NodePool, ...] = ()
    coming: tuple[ComingNodes, ...] = ()
    spent: tuple[tuple[str, float], ...] = ()
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NoPurchase:
    """Why no nodes can be bought for a gang."""

    why: str
