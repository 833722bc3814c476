"""Pools of nodes in virtual time: what gangs lack is bought, comes, and is given back.

Gangs buy by the functions of the live driver (`gangsched/kube/provisioning`): those that lack nodes
and have quota, the cheapest nodes for a whole gang, all or none. A node is paid from its purchase
until it is given back. Boot times, shortages and nodes that a provider takes back come from the
seed.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gangsched.core import facts as f
from gangsched.core.engine.gangs.member import State
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.node_pools import (
    ComingNodes,
    NodePool,
    NodeSupply,
    NoPurchase,
    Purchase,
)
from gangsched.core.model.nodes import Node
from gangsched.core.model.refusal import LACKS_NODES
from gangsched.core.placement.coming_gangs import beside_coming_gangs
from gangsched.core.placement.known_purchases import KnownPurchases
from gangsched.core.quota.spending import spending_refusal
from gangsched.core.snapshot import Snapshot
from gangsched.kube.provisioning.arrival_times import ArrivalTimes
from gangsched.kube.provisioning.demand import GangDemand, GangDemands
from gangsched.kube.provisioning.karpenter.failures import PoolFailures
from gangsched.kube.provisioning.karpenter.pools import paused
from simulator.invariants.placement_checks import ViolationError
from simulator.scenarios.scenario import BuyingSpec, PoolSpec
from simulator.virtual.job_run import JobRun

_PASS_S = 2.0
"""Time between two looks at the gangs, as in the live driver."""
_NOTICE_S = 10.0
"""How soon a provider says that it has no more nodes."""
_LOOK_AGAIN_S = 3600.0
_TOP_UP_S = 60.0
_SEARCHES_MAX = 64


@dataclass(frozen=True, slots=True)
class SimulatedPool:
    """A pool, and all nodes that it can make; only those that were bought exist."""

    spec: PoolSpec
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class PoolFigures:
    """What a pool made; times are node-seconds, from the purchase of a node to its end."""

    bought_s: float = 0.0
    wasted_s: float = 0.0
    """Of nodes that no gang used."""
    nodes: int = 0
    nodes_max: int = 0
    """Nodes at the same time at most."""
    failures: int = 0
    reclaimed: int = 0
    cost_by_queue: dict[str, float] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """Return what its nodes cost, in $."""
        return sum(self.cost_by_queue.values())


@dataclass(slots=True)
class _BoughtNode:
    node: Node
    pool: str
    gang: GangId
    queue: str
    since_s: float
    boot_s: float
    there: bool = False
    used: bool = False
    idle_since_s: float | None = None


@dataclass(slots=True)
class _Coming:
    gang: GangId
    purchase: Purchase
    nodes: list[_BoughtNode]
    ready_s: float
    """When they are expected; what they really take is not known before."""


class NodeMarket:
    """The pools of one run."""

    def __init__(
        self, job_run: JobRun, pools: Sequence[SimulatedPool], buying: BuyingSpec, seed: int
    ) -> None:
        self._run, self._buying = job_run, buying
        self._pools = {pool.spec.name: pool.spec for pool in pools}
        self._free = {pool.spec.name: list(reversed(pool.nodes)) for pool in pools}
        self._templates = {pool.spec.name: pool.nodes[0] for pool in pools if pool.nodes}
        self._rng = random.Random(f"pools {seed}")  # noqa: S311 -- no secret
        self._demands = self._new_demands()
        self._failures, self._arrivals = PoolFailures(buying.retry), ArrivalTimes()
        self._short: set[str] = set()
        self._coming: dict[GangId, _Coming] = {}
        self._there: dict[NodeName, _BoughtNode] = {}
        self._settles: dict[GangId, float] = {}
        """Until when the nodes of a gang wait for its start."""
        self._attempts: dict[str, int] = {}
        self._known = KnownPurchases()
        self._lacking: set[GangId] = set()
        self._pass_at_s: float | None = None
        self.figures = {name: PoolFigures() for name in self._pools}
        self.history: list[tuple[float, dict[str, int]]] = []
        """How many nodes of each pool there were, after each change."""
        for pool in pools:
            if pool.spec.shortage_mtbf is not None:
                self._shortage_comes(pool.spec, pool.spec.shortage_mtbf)

    def _new_demands(self) -> GangDemands:
        self._view, at_once = self._run.engine.view, self._buying.purchases_max
        return GangDemands(self._view, self._buying.after, at_once, at_once)

    # -- what the run shows -------------------------------------------------------------------

    def planned(self) -> None:
        """Take note of a plan: it may have refused gangs."""
        if self._pass_at_s is None and any(self._free.values()):
            self._look_at(self._run.now_s + _PASS_S)

    def observe(self, fact: f.Fact) -> None:
        """Take a fact that the engine is about to observe."""
        match fact:
            case f.PodSeen(node=name, gang=gang) if name is not None:
                if name in self._there:
                    bought = self._there[name]
                    bought.used, bought.idle_since_s = True, None
                if gang is not None and gang in self._coming:
                    self._cancel_soon(gang)
            case f.GangGone(gang) if gang in self._coming:
                self._cancel_soon(gang)
            case f.PodGone(uid):
                pod = self._run.engine.view.pod(uid)
                if pod is not None and pod.node in self._there:
                    self._perhaps_idle(pod.node)
            case _:
                pass

    def close(self) -> None:
        """Count the nodes that are still there up to now."""
        for coming in self._coming.values():
            for bought in coming.nodes:
                self._count(bought)
        for bought in self._there.values():
            self._count(bought)
        self._coming.clear()
        self._there.clear()

    # -- purchases ----------------------------------------------------------------------------

    def _look_at(self, at_s: float) -> None:
        if self._pass_at_s is None or at_s < self._pass_at_s:
            self._pass_at_s = at_s
            self._run.at(at_s, self._look)

    def _look(self) -> None:
        """Buy for the gangs that lack nodes, as far as pools and quotas allow."""
        now_s, view = self._run.now_s, self._run.engine.view
        if self._pass_at_s is None or now_s < self._pass_at_s:
            return  # an earlier look took its place
        if self._view is not view:  # the scheduler was restarted
            self._demands, self._lacking = self._new_demands(), set()
        self._pass_at_s = None
        self._settles = {gang: at_s for gang, at_s in self._settles.items() if at_s > now_s}
        served = {*self._coming, *self._settles}
        demands = self._demands.wants(served, now_s)
        current = {want.base for want in demands}
        self._attempts = {base: n for base, n in self._attempts.items() if base in current}
        lacking = {gang for gang, why in view.refusals.items() if why.reason in LACKS_NODES}
        if lacking - self._lacking:  # those are due later
            self._look_at(now_s + self._buying.after)
        self._lacking = lacking
        searched = self._demands.may_buy(demands, served, self._coming)
        if not searched:
            return
        nodes = {gang: one.purchase.nodes for gang, one in self._coming.items()}
        counted = [
            (want.pending, nodes.get(want.gang, ()))
            for want in demands
            if want.pending is not None and want.gang in served
        ]
        snapshot = beside_coming_gangs(view.snapshot_all(now_s), self._core_pools(), counted)
        for want in searched[:_SEARCHES_MAX]:
            found = self._search(want, snapshot)
            if isinstance(found, Purchase) and found.nodes:
                self._buy(want, found)
                self._look_at(now_s + _PASS_S)  # which counts what this purchase takes
                return

    def _search(self, want: GangDemand, snapshot: Snapshot) -> Purchase | NoPurchase:
        pending = want.pending
        if pending is None or self._attempts.get(want.base or "", 0) >= self._buying.attempts:
            return NoPurchase("its purchases brought no nodes that it could use")
        found = self._known.cheapest(pending, snapshot, self._core_pools(), self._run.now_s)
        if isinstance(found, Purchase):
            spent, tree = self._spent(), snapshot.usage.tree
            why = spending_refusal(pending.gang.queue, found.price, spent, tree)
            return NoPurchase(why) if why else found
        return found

    def _buy(self, want: GangDemand, purchase: Purchase) -> None:
        """Launch all nodes of a purchase; a pool that is short of nodes fails it soon."""
        assert want.pending is not None, "it was searched for"  # noqa: S101
        now_s, gang, queue = self._run.now_s, want.gang, want.pending.gang.queue
        base = want.base or ""
        self._attempts[base] = self._attempts.get(base, 0) + 1
        coming = _Coming(gang, purchase, [], now_s + purchase.arrival_s)
        short = sorted(name for name, _ in purchase.nodes if name in self._short)
        for name, count in purchase.nodes:
            spec, figures = self._pools[name], self.figures[name]
            for _ in range(count):
                node = self._free[name].pop()
                boot_s = spec.boot * math.exp(self._rng.gauss(0.0, spec.boot_spread))
                coming.nodes.append(_BoughtNode(node, name, gang, queue, now_s, boot_s))
                figures.nodes += 1
        self._coming[gang] = coming
        last_s = max(one.boot_s for one in coming.nodes)
        if short:
            self._run.at(now_s + _NOTICE_S, lambda: self._fail(coming, short))
        elif last_s > self._buying.late:
            late = sorted({one.pool for one in coming.nodes if one.boot_s > self._buying.late})
            self._run.at(now_s + self._buying.late, lambda: self._fail(coming, late))
        else:
            self._run.at(now_s + last_s, lambda: self._arrive(coming))
        self._changed()

    def _cancel_soon(self, gang: GangId) -> None:
        self._run.at(self._run.now_s, lambda: self._cancel(gang))

    def _cancel(self, gang: GangId) -> None:
        """Give nodes back that still come for a gang that runs elsewhere or is gone."""
        state = self._run.engine.view.gangs.get(gang)
        coming = self._coming.get(gang)
        if coming is None or (state is not None and state.state is not State.PLACED):
            return
        del self._coming[gang]
        for bought in coming.nodes:
            self._end(bought)
        self._changed()

    def _fail(self, coming: _Coming, pools: Sequence[str]) -> None:
        """Give all nodes of a purchase back, and leave the pools out that did not make theirs."""
        now_s, gang = self._run.now_s, coming.gang
        if self._coming.get(gang) is not coming:
            return
        del self._coming[gang]
        for name in pools:
            self._failures.add(name, now_s)
            self.figures[name].failures += 1
            self._look_at_later(name)
        for bought in coming.nodes:
            self._end(bought)
        self._changed()

    def _look_at_later(self, pool: str) -> None:
        """Look at the gangs again once a pool is no longer left out."""
        after_s = self._buying.retry
        while self._failures.leaves_out(pool, self._run.now_s + after_s):
            after_s *= 2
        self._run.at(self._run.now_s + after_s, self.planned)

    def _arrive(self, coming: _Coming) -> None:
        """Open all nodes of a purchase together."""
        now_s, gang = self._run.now_s, coming.gang
        if self._coming.get(gang) is not coming:
            return
        del self._coming[gang]
        self._settles[gang] = now_s + max(self._buying.after, _NOTICE_S)
        self._run.at(self._settles[gang], self.planned)  # it may lack more nodes
        for bought in coming.nodes:
            bought.there, bought.idle_since_s = True, now_s
            self._arrivals.add(bought.pool, bought.boot_s)
            name, spec = bought.node.name, self._pools[bought.pool]
            self._failures.forget(bought.pool)
            self._there[name] = bought
            self._run.node_returns(bought.node)
            wait_s = self._buying.reserved
            self._run.at(now_s + wait_s, lambda one=bought: self._perhaps_give_back(one))  # type: ignore[misc]
            if spec.spot and spec.reclaim_mtbf is not None:
                after_s = self._rng.expovariate(1 / spec.reclaim_mtbf)
                self._run.at(now_s + after_s, lambda one=bought: self._reclaim(one))  # type: ignore[misc]
        self._changed()

    # -- the end of nodes ---------------------------------------------------------------------

    def _perhaps_idle(self, name: NodeName) -> None:
        """Look at a node that lost a pod, after the time for which idle nodes are kept."""
        bought = self._there[name]
        bought.idle_since_s = self._run.now_s
        self._run.at(self._run.now_s + self._buying.idle, lambda: self._perhaps_give_back(bought))

    def _perhaps_give_back(self, bought: _BoughtNode) -> None:
        """Give a node back that no gang has used for long enough."""
        name, now_s = bought.node.name, self._run.now_s
        if self._there.get(name) is not bought:
            return
        cluster = self._run.engine.view.cluster
        row = cluster.rows.get(name)
        if row is not None and cluster.gangs_by_row.get(row):
            bought.used = True
            if bought.idle_since_s is not None:  # it is assigned, and may lose its gang silently
                self._run.at(now_s + _LOOK_AGAIN_S, lambda: self._perhaps_give_back(bought))
            return
        if bought.idle_since_s is None or now_s - bought.idle_since_s < self._buying.idle:
            return
        if bought.gang in self._coming and not bought.used:  # it waits for further nodes
            self._run.at(now_s + _TOP_UP_S, lambda: self._perhaps_give_back(bought))
            return
        del self._there[name]
        self._run.node_fails(name)
        self._end(bought)
        self._changed()

    def _reclaim(self, bought: _BoughtNode) -> None:
        """Let the provider take a node back, with the pods on it."""
        if self._there.get(bought.node.name) is bought:
            del self._there[bought.node.name]
            self.figures[bought.pool].reclaimed += 1
            self._run.node_fails(bought.node.name)
            self._end(bought)
            self._changed()

    def _end(self, bought: _BoughtNode) -> None:
        """Pay for a node; its place in the pool is free again."""
        self._count(bought)
        self._free[bought.pool].append(bought.node)
        self._look_at(self._run.now_s + _PASS_S)

    def _count(self, bought: _BoughtNode) -> None:
        figures, spec = self.figures[bought.pool], self._pools[bought.pool]
        passed_s = self._run.now_s - bought.since_s
        figures.bought_s += passed_s
        figures.wasted_s += 0.0 if bought.used else passed_s
        costs = figures.cost_by_queue
        costs[bought.queue] = costs.get(bought.queue, 0.0) + spec.price * passed_s / 3600

    # -- shortages ----------------------------------------------------------------------------

    def _shortage_comes(self, spec: PoolSpec, mtbf_s: float) -> None:
        def begin() -> None:
            self._short.add(spec.name)
            over_s = self._rng.expovariate(1 / spec.shortage_repair)
            self._run.at(self._run.now_s + over_s, end)

        def end() -> None:
            self._short.discard(spec.name)
            self._shortage_comes(spec, mtbf_s)

        self._run.at(self._run.now_s + self._rng.expovariate(1 / mtbf_s), begin)

    # -- views --------------------------------------------------------------------------------

    def _core_pools(self) -> tuple[NodePool, ...]:
        """Return the pools as the core sees them; those that failed are left out for a while."""
        retries_s = self._failures.retries_s(self._run.now_s)
        found = []
        for name, template in self._templates.items():
            spec, left = self._pools[name], len(self._free[name])
            arrival_s, spread = self._arrivals.learnt(name, spec.boot)
            pool = NodePool(name, template, left, spec.price, spec.spot, arrival_s, spread)
            found.append(paused(pool, retries_s.get(name)))
        return tuple(found)

    def _spent(self) -> dict[str, float]:
        """Return what the present nodes cost for an hour, by queue."""
        spent: dict[str, float] = {}
        for bought in self._present():
            spent[bought.queue] = spent.get(bought.queue, 0.0) + self._pools[bought.pool].price
        return spent

    def _present(self) -> Iterator[_BoughtNode]:
        for coming in self._coming.values():
            yield from coming.nodes
        yield from self._there.values()

    def _changed(self) -> None:
        """Let the engine know what can be bought, and keep how many nodes there are."""
        counts = dict.fromkeys(self._pools, 0)
        for bought in self._present():
            counts[bought.pool] += 1
        for name, count in counts.items():
            self.figures[name].nodes_max = max(self.figures[name].nodes_max, count)
            if count > self._pools[name].nodes:
                raise ViolationError(f"pool {name} has {count} nodes of {self._pools[name].nodes}")
        self.history.append((self._run.now_s, counts))
        coming = tuple(
            ComingNodes(gang, one.purchase.nodes, one.ready_s) for gang, one in self._coming.items()
        )
        spent = tuple(sorted(self._spent().items()))
        supply = NodeSupply(self._core_pools(), coming, spent, self._buying.after)
        self._run.observe(f.NodeSupplySeen(supply))
