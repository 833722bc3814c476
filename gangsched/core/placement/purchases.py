"""The cheapest nodes with which a whole gang fits, out of pools that can make more.

CP-SAT chooses counts by a relaxation: each pool takes as many pods of a class as its nodes take
alone, and sums of resources hold. The planner then fills the cluster with these nodes added. If
the gang does not fit, no smaller purchase does either, so the program excludes them all and is
solved again. The first purchase that fits is the cheapest (logic-based Benders decomposition,
J. Hooker and G. Ottosson, Mathematical Programming 96, 2003).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from gangsched.core.cluster.node_filters import PRODUCT
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import NodeName
from gangsched.core.model.node_pools import (
    NODES_OF_POOL_MAX,
    POOLS_MAX,
    ComingNodes,
    NodePool,
    NoPurchase,
    Purchase,
)
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.refusal import Remedy, plural
from gangsched.core.placement.fill import is_feasible
from gangsched.core.placement.optimal.cpsat import SolverStatus, solve
from gangsched.core.placement.optimal.linear import Linear
from gangsched.core.quota.charges import split_required_optional
from gangsched.core.snapshot import Snapshot

_TRIES_MAX = 64
_BUDGET = 0.5
"""Deterministic seconds for one program."""
_PRICE_UNIT = 1e-4
_NODES_MAX = 4000
"""Nodes of all pools that are tried together."""

Counts = dict[str, int]


def cheapest_purchase(
    waiting: PendingGang, snapshot: Snapshot, pools: Sequence[NodePool], now_s: float
) -> Purchase | NoPurchase:
    """Return the nodes to buy so that a gang fits beside what runs: the lowest price first.

    Of purchases with one price the one with fewer nodes is taken. The gang's `price_max` bounds
    the price. Nodes that are there before the gang has waited for its `wait_max_s` are preferred;
    if none are, the nodes are bought that are there first. Whether quota allows the gang is not
    asked here.

    Raises:
        StoppedError: the watcher of the snapshot's progress ended it.

    """
    if is_feasible(waiting, snapshot):
        return Purchase((), 0.0, 0.0)
    usable = [pool for pool in pools[:POOLS_MAX] if pool.nodes_left > 0]
    usable = [pool for pool in usable if not pool.spot or may_use_spot(waiting)]
    if not usable:
        return NoPurchase("no pool may make more nodes for it")
    found, left_s = _cheapest_of_types(waiting, snapshot, usable), wait_left_s(waiting, now_s)
    if left_s is None or isinstance(found, NoPurchase) or found.arrival_s <= left_s:
        return found
    in_time = [
        replace(pool, nodes_left=min(pool.nodes_left, pool.count_within(left_s))) for pool in usable
    ]
    sooner = _cheapest_of_types(waiting, snapshot, in_time)
    return sooner if isinstance(sooner, Purchase) else _first_there(waiting, snapshot, usable)


def wait_left_s(waiting: PendingGang, now_s: float) -> float | None:
    """Return for how long a gang may still wait, at least 0; None if it sets no limit."""
    if waiting.gang.wait_max_s is None:
        return None
    return max(0.0, waiting.queued_since_s + waiting.gang.wait_max_s - now_s)


def _first_there(
    waiting: PendingGang, snapshot: Snapshot, pools: Sequence[NodePool]
) -> Purchase | NoPurchase:
    """Return the cheapest purchase from as few of the quickest pools as suffice."""
    quickest = sorted(pools, key=lambda pool: (pool.arrival_s, pool.price, pool.name))
    arrivals_s = sorted({pool.arrival_s for pool in pools})
    found = _cheapest_of_types(waiting, snapshot, quickest)
    low, high = 0, len(arrivals_s) - 1  # the pools up to `high` suffice, those before `low` do not
    while low < high:
        middle = (low + high) // 2
        some = [pool for pool in quickest if pool.arrival_s <= arrivals_s[middle]]
        tried = _cheapest_of_types(waiting, snapshot, some)
        if isinstance(tried, Purchase):
            found, high = tried, middle
        else:
            low = middle + 1
    return found


def _cheapest_of_types(
    waiting: PendingGang, snapshot: Snapshot, pools: Sequence[NodePool]
) -> Purchase | NoPurchase:
    """Return the cheapest purchase for the GPU types that a gang accepts."""
    found = [_cheapest_of_type(one, snapshot, pools) for one in _one_gpu_type(waiting)]
    bought = [one for one in found if isinstance(one, Purchase)]
    if not bought:
        return found[0]
    return min(bought, key=lambda one: (one.price, sum(count for _, count in one.nodes)))


def _one_gpu_type(waiting: PendingGang) -> Iterator[PendingGang]:
    """Yield the gang for each GPU type that it accepts: all its pods get GPUs of one type."""
    if len(waiting.constraints.gpu_types) < 2:
        yield waiting
        return
    for kind in waiting.constraints.gpu_types:
        constraints = replace(waiting.constraints, gpu_types=(kind,))
        yield replace(waiting, constraints=constraints, request_fingerprint=0)


def _cheapest_of_type(
    waiting: PendingGang, snapshot: Snapshot, pools: Sequence[NodePool]
) -> Purchase | NoPurchase:
    usable = [pool for pool in pools if _has_type(pool, waiting.constraints.gpu_types)]
    search = _Search(waiting, snapshot, usable)
    most = search.most()
    if not any(most.values()):
        return NoPurchase("no pool makes nodes that take its pods")
    found = search.cheapest(most) if search.may_suffice(most) else None
    if found is None:
        return NoPurchase(f"all {plural(sum(most.values()), 'node')} that its pools may make "
                          f"would not suffice, with its constraints")  # fmt: skip
    counts, proved = found
    price, price_max = search.price(counts), waiting.gang.price_max
    if price_max is not None and price > price_max:
        return NoPurchase(f"its nodes would cost {price:,.2f} $/h, and {price_max:g} are allowed")
    by_name = {pool.name: pool for pool in usable}
    return Purchase(
        tuple(sorted((name, count) for name, count in counts.items() if count)),
        price,
        max((by_name[name].arrival_of(n) for name, n in counts.items() if n), default=0.0),
        proved,
    )


def with_purchase(snapshot: Snapshot, pools: Sequence[NodePool], purchase: Purchase) -> Snapshot:
    """Return the snapshot as it would be with the nodes of a purchase."""
    return replace(snapshot, cluster=_with_nodes(snapshot.cluster, pools, dict(purchase.nodes)))


def may_use_spot(waiting: PendingGang) -> bool:
    """Return whether a job says that it can be stopped: with consent, or because it is elastic."""
    gang = waiting.gang
    elastic = waiting.members_min < len(waiting.members)
    return gang.preemptible and (gang.checkpoint_grace_s is not None or elastic)


def purchase_remedy(purchase: Purchase) -> Remedy:
    """Return a purchase as a remedy: `4 more nodes of pool p5: about 6 min, 393 $/h`."""
    counts = _listed(purchase.nodes, "more ")
    after = f"about {ceil(purchase.arrival_s / 60)} min, " if purchase.arrival_s > 0 else ""
    price = f"{purchase.price:,.0f}" if purchase.price >= 100 else f"{purchase.price:.4g}"
    return Remedy("pool", f"{counts}: {after}{price} $/h")


def coming_remedy(coming: ComingNodes) -> Remedy:
    """Return nodes that come as a remedy: `4 nodes of pool p5, bought for it, are there`."""
    return Remedy("pool", f"{_listed(coming.nodes)}, bought for it, are there", coming.ready_s)


def _listed(nodes: Iterable[tuple[str, int]], more: str = "") -> str:
    return " and ".join(
        f"{count} {more}{'node' if count == 1 else 'nodes'} of pool {name}" for name, count in nodes
    )


def _has_type(pool: NodePool, types: tuple[str, ...]) -> bool:
    product = pool.template.labels.get(PRODUCT, "").lower()
    return not types or any(one.lower() in product for one in types)


@dataclass(slots=True)
class _Search:
    """Looks for counts of nodes; all counts are by the name of the pool."""

    waiting: PendingGang
    snapshot: Snapshot
    pools: Sequence[NodePool]

    def most(self) -> Counts:
        """Return how many nodes of each pool the gang can use at most."""
        wanted, takes = self._wanted(), self._takes()
        most: Counts = {}
        left = _NODES_MAX
        for pool in sorted(self.pools, key=lambda pool: (pool.price, pool.name)):
            useful = sum(
                ceil(count / takes[pool.name][needs])
                for needs, count in wanted.items()
                if takes[pool.name][needs]
            )
            most[pool.name] = min(pool.nodes_left, NODES_OF_POOL_MAX, useful, left)
            left -= most[pool.name]
        return most

    def may_suffice(self, counts: Mapping[str, int]) -> bool:
        """Return whether there are enough places for the pods of each class alone."""
        takes, cluster = self._takes(), self.snapshot.cluster
        return all(
            int(cluster.capacity(needs).sum())
            + sum(takes[name][needs] * number for name, number in counts.items())
            >= count
            for needs, count in self._wanted().items()
        )

    def fits(self, counts: Mapping[str, int]) -> bool:
        """Return whether the planner places the gang with these nodes added."""
        self.snapshot.progress.check()
        cluster = _with_nodes(self.snapshot.cluster, self.pools, counts)
        return is_feasible(self.waiting, replace(self.snapshot, cluster=cluster))

    def price(self, counts: Mapping[str, int]) -> float:
        """Return what nodes cost for an hour."""
        return sum(pool.price * counts.get(pool.name, 0) for pool in self.pools)

    def cheapest(self, most: Counts) -> tuple[Counts, bool] | None:
        """Return the cheapest counts up to `most`, and whether that is proved; None: none suffice.

        The relaxation is mostly right at once. So `most` is tried only if it is not.
        """
        program, variables = self._program(most)
        for _ in range(_TRIES_MAX):
            self.snapshot.progress.check()
            solved = solve(program, None, _BUDGET)
            if not solved.values:
                break  # the relaxation has nothing left, or no time
            counts = {name: solved.values[variable] for name, variable in variables.items()}
            if self.fits(counts):
                return counts, solved.outcome is SolverStatus.OPTIMAL
            if not _exclude(program, variables, counts, most):
                break
        return (self._reduced(most), False) if self.fits(most) else None

    def _reduced(self, most: Counts) -> Counts:
        """Return counts from which no pool can be reduced, the dearest pools first."""
        counts = dict(most)
        for pool in sorted(self.pools, key=lambda pool: (-pool.price, pool.name)):
            low, high = -1, counts[pool.name]  # `low` nodes are too few, `high` are enough
            while low + 1 < high:
                middle = (low + high) // 2
                if self.fits({**counts, pool.name: middle}):
                    high = middle
                else:
                    low = middle
            counts[pool.name] = high
        return counts

    # -- the relaxation -----------------------------------------------------------------------

    def _program(self, most: Counts) -> tuple[Linear, dict[str, int]]:
        """Return the program, and the variable that counts the nodes of each pool."""
        program = Linear()
        wanted, takes = self._wanted(), self._takes()
        cluster = self.snapshot.cluster
        nodes = {pool.name: program.variable(0, most[pool.name]) for pool in self.pools}
        there: dict[PodRequirements, int] = {}
        placed: dict[tuple[str, PodRequirements], int] = {}
        for needs, count in wanted.items():
            free = int(cluster.capacity(needs).sum())
            there[needs] = program.variable(0, min(free, count))
            terms = [(there[needs], 1)]
            for pool in self.pools:
                variable = placed[pool.name, needs] = program.variable(0, count)
                terms.append((variable, 1))
                each = takes[pool.name][needs]
                program.add([(variable, 1), (nodes[pool.name], -each)], None, 0)
            program.add(terms, count, None)
        for pool in self.pools if len(wanted) > 1 else ():
            for name, amount in pool.template.allocatable:
                shares = [
                    (placed[pool.name, needs], dict(needs.requests).get(name, 0))
                    for needs in wanted
                ]
                used = [(variable, quantity) for variable, quantity in shares if quantity]
                if used:
                    program.add([*used, (nodes[pool.name], -amount)], None, 0)
        prices = [(nodes[pool.name], round(pool.price / _PRICE_UNIT)) for pool in self.pools]
        program.objectives = [prices, [(variable, 1) for variable in nodes.values()]]
        program.objectives.append([(nodes[pool.name], at) for at, pool in enumerate(self.pools, 1)])
        return program, nodes

    def _wanted(self) -> Counter[PodRequirements]:
        """Return how many pods of each class have to start."""
        return Counter(member.needs for member in split_required_optional(self.waiting)[0])

    def _takes(self) -> dict[str, dict[PodRequirements, int]]:
        """Return how many pods of each class one empty node of each pool takes."""
        cluster, wanted = self.snapshot.cluster.copy(), self._wanted()
        empty = {pool.name: add_virtual_nodes(cluster, pool, 1)[0] for pool in self.pools}
        return {
            name: {needs: int(cluster.capacity(needs)[cluster.rows[node]]) for needs in wanted}
            for name, node in empty.items()
        }


def add_virtual_nodes(cluster: Cluster, pool: NodePool, count: int) -> list[NodeName]:
    """Add empty nodes of a pool to a cluster; return their names, which no other node has."""
    names = (_name(pool.name, number) for number in itertools.count())
    added = list(itertools.islice((name for name in names if name not in cluster.rows), count))
    for name in added:
        labels = {**pool.template.labels, "kubernetes.io/hostname": name}
        cluster.put_node(replace(pool.template, name=name, labels=labels))
    return added


def _with_nodes(cluster: Cluster, pools: Sequence[NodePool], counts: Mapping[str, int]) -> Cluster:
    cluster = cluster.copy()
    for pool in pools:
        add_virtual_nodes(cluster, pool, counts.get(pool.name, 0))
    return cluster


def _exclude(program: Linear, variables: Mapping[str, int], counts: Counts, most: Counts) -> bool:
    """Demand more nodes of some pool than `counts`; return False if no pool has more."""
    more = []
    for name, variable in variables.items():
        if counts[name] < most[name]:
            chosen = program.variable(0, 1)
            program.add([(variable, 1), (chosen, -counts[name] - 1)], 0, None)
            more.append((chosen, 1))
    if more:
        program.add(more, 1, None)
    return bool(more)


def _name(pool: str, number: int) -> NodeName:
    """Return the name of a node that does not exist; names of nodes have no slash."""
    return NodeName(f"{pool}/{number}")
