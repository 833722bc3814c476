"""Remembers the cheapest nodes for gangs: many gangs request the same while the same is free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.node_pools import NodePool, NoPurchase, Purchase
from gangsched.core.placement.purchases import (
    cheapest_purchase,
    may_use_spot,
    wait_left_s,
)
from gangsched.core.snapshot import Snapshot

_KEPT = 1000

_Request = tuple[int | GangId, float | None, bool, tuple[int, ...] | None, tuple[int, ...]]
_Left = Mapping[str, int]


@dataclass(slots=True)
class KnownPurchases:
    """Answers of `cheapest_purchase`, for as long as pools have no more nodes left than then.

    After `searches_max` searches only known answers are given.
    """

    searches_max: int | None = None
    _searches: int = 0
    _found: dict[_Request, tuple[Purchase | NoPurchase, _Left]] = field(default_factory=dict)

    def cheapest(
        self, pending: PendingGang, snapshot: Snapshot, pools: Sequence[NodePool], now_s: float
    ) -> Purchase | NoPurchase:
        """Return nodes to buy for a gang; a purchase without nodes says that it fits already."""
        left = {pool.name: pool.nodes_left for pool in pools}
        request = _request(pending, snapshot, pools, now_s)
        known = self._found.get(request)
        if known is not None and _holds(*known, left):
            return known[0]
        if self.searches_max is not None and self._searches >= self.searches_max:
            return NoPurchase("too many different gangs lack nodes")
        self._searches += 1
        if len(self._found) >= _KEPT:
            self._found.clear()
        found = cheapest_purchase(pending, snapshot, pools, now_s)
        self._found[request] = found, left
        return found


def _request(
    pending: PendingGang, snapshot: Snapshot, pools: Sequence[NodePool], now_s: float
) -> _Request:
    """Return what an answer depends on, beside how many nodes pools have left."""
    left_s = wait_left_s(pending, now_s)
    in_time = None if left_s is None else tuple(pool.count_within(left_s) for pool in pools)
    free = tuple(_free(snapshot.cluster.capacity(one)) for one in pending.pod_classes)
    return (
        pending.request_fingerprint or pending.gang.id,
        pending.gang.price_max,
        may_use_spot(pending),
        in_time,
        free,
    )


def _free(capacity: Ints) -> int:
    """Return a number for the rows that take pods; rows of nodes that left do not matter."""
    rows = np.flatnonzero(capacity)
    return hash((rows.tobytes(), capacity[rows].tobytes()))


def _holds(found: Purchase | NoPurchase, then: _Left, now: _Left) -> bool:
    """Return whether an answer is still right: no pool has more, and enough is left."""
    if any(count > then.get(name, 0) for name, count in now.items()):
        return False
    if isinstance(found, NoPurchase):
        return True
    return all(now.get(name, 0) >= count for name, count in found.nodes)
