"""Nodes that come, are bought and are given back while a forecast runs forward.

Gangs that lack nodes buy as the drivers of autoscalers do: in the order of the queue, as far as
quotas and pools allow, the cheapest nodes for a whole gang.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.node_pools import ComingNodes, NodePool, Purchase
from gangsched.core.model.refusal import LACKS_NODES
from gangsched.core.placement.coming_gangs import ComingGangs
from gangsched.core.placement.known_purchases import KnownPurchases
from gangsched.core.placement.purchases import add_virtual_nodes, may_use_spot
from gangsched.core.planning.admission import charge_if_allowed
from gangsched.core.planning.cycle import Refused
from gangsched.core.quota.spending import spending_refusal
from gangsched.core.snapshot import Snapshot

SEARCHES_MAX = 64
"""Searches for the cheapest nodes in all runs of one forecast; each takes some milliseconds."""
_PURCHASES_OF_GANG = 3
"""A gang may lack nodes again, because another gang uses nodes that it counted on."""

_OVERDUE_S = 60.0
"""Nodes that are overdue are expected after that time."""

_Spent = defaultdict[str, float]


class NodeArrivals:
    """The nodes of one run forward."""

    def __init__(self, snapshot: Snapshot, known: KnownPurchases, now_s: float) -> None:
        supply = snapshot.node_supply
        self._tree, self._spent = snapshot.usage.tree, _Spent(float, dict(supply.spent))
        self._queues = {one.gang.id: one.gang.queue for one in snapshot.pending}
        self._pools: Mapping[str, NodePool] = {pool.name: pool for pool in supply.pools}
        self._left = {pool.name: pool.nodes_left for pool in supply.pools}
        self._retried = [pool for pool in supply.pools if pool.nodes_later]
        self._coming = [
            one if one.ready_s > now_s else replace(one, ready_s=now_s + _OVERDUE_S)
            for one in supply.coming
        ]
        self._after_s, self._known = supply.after_s, known
        self._bought: Counter[GangId] = Counter()
        self._there: dict[NodeName, tuple[str, GangId]] = {}
        """The pool of each node that came, and the gang that it was bought for."""

    def next_s(self) -> float | None:
        """Return when the next nodes are there, or a pool that failed is tried again."""
        times_s = [*(one.ready_s for one in self._coming), *(one.retry_s for one in self._retried)]
        return min(times_s, default=None)

    def arrive(self, cluster: Cluster, at_s: float) -> None:
        """Add the nodes that are there by now, and try pools again."""
        for pool in [pool for pool in self._retried if pool.retry_s <= at_s]:
            self._retried.remove(pool)
            self._left[pool.name] += pool.nodes_later
        for one in [one for one in self._coming if one.ready_s <= at_s]:
            self._coming.remove(one)
            for name, count in one.nodes:
                if name in self._pools:
                    added = add_virtual_nodes(cluster, self._pools[name], count)
                    self._there |= dict.fromkeys(added, (name, one.gang))

    def buy(self, refused: Iterable[Refused], snapshot: Snapshot, at_s: float) -> None:
        """Buy nodes for gangs that lack nodes, in their order, as far as their quotas allow.

        `snapshot` is what is there after the starts of a plan that refused them.
        """
        if not any(self._left.values()):
            return
        left = ComingGangs(snapshot, tuple(self._pools.values()))
        in_vain: set[tuple[int, float | None, bool]] = set()  # a wait limit refuses no purchase
        for pending in self._with_quota(refused, snapshot, left):
            gang, queue = pending.gang, pending.gang.queue
            request = pending.request_fingerprint, gang.price_max, may_use_spot(pending)
            if request in in_vain:
                continue
            pools = tuple(
                replace(pool, nodes_left=self._left[name]) for name, pool in self._pools.items()
            )
            purchase = self._known.cheapest(pending, left.snapshot(), pools, at_s)
            if not isinstance(purchase, Purchase) or not purchase.nodes:
                if pending.request_fingerprint:
                    in_vain.add(request)
            elif not spending_refusal(queue, purchase.price, self._spent, self._tree):
                self._take(pending, purchase, at_s)
                left.add(pending, purchase.nodes)

    def _with_quota(
        self, refused: Iterable[Refused], snapshot: Snapshot, left: ComingGangs
    ) -> Iterator[PendingGang]:
        """Yield the gangs that lack nodes and have quota beside those before them.

        Gangs with nodes to come are charged first, and placed in `left`.
        """
        usage, types = snapshot.usage.copy(), snapshot.rules.gpu_types
        coming = {one.gang: one.nodes for one in self._coming}
        for pending in snapshot.pending:
            nodes = coming.get(pending.gang.id)
            if nodes is not None and charge_if_allowed(pending, usage, types):
                left.add(pending, nodes)
        for pending, refusal in refused:
            gang = pending.gang.id
            if gang in coming or refusal.reason not in LACKS_NODES:
                continue
            if self._bought[gang] >= _PURCHASES_OF_GANG:
                continue
            if charge_if_allowed(pending, usage, types):
                yield pending

    def _take(self, pending: PendingGang, purchase: Purchase, at_s: float) -> None:
        gang, queue = pending.gang.id, pending.gang.queue
        self._queues[gang] = queue
        self._spent[queue] += purchase.price
        self._bought[gang] += 1
        for name, count in purchase.nodes:
            self._left[name] -= count
        ready_s = at_s + self._after_s + purchase.arrival_s
        self._coming.append(ComingNodes(gang, purchase.nodes, ready_s))

    def give_back(self, cluster: Cluster, waiting: Collection[GangId]) -> None:
        """Remove nodes without gangs, unless the gang that they were bought for still waits."""
        for node, (pool, gang) in list(self._there.items()):
            if gang not in waiting and not cluster.gangs_by_row.get(cluster.rows[node]):
                cluster.remove_node(node)
                del self._there[node]
                self._left[pool] += 1
                self._spent[self._queues.get(gang, "")] -= self._pools[pool].price
