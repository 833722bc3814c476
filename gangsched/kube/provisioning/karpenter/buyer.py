"""Buys nodes from Karpenter for gangs that lack nodes, and gives them back.

Each pass compares the NodeClaims that exist with the gangs. What was bought, for which gang, is in
the claims, so a process that starts continues where an earlier process stopped. Only the memory of
failures is lost with the process.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gangsched.api import names
from gangsched.autoscaling_config import KarpenterConfig
from gangsched.core.engine.view import EngineView
from gangsched.core.facts import NodeSupplySeen
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.node_pools import ComingNodes, NodePool, NodeSupply, NoPurchase
from gangsched.core.placement.coming_gangs import beside_coming_gangs
from gangsched.core.placement.purchases import purchase_remedy
from gangsched.core.policy import Placer
from gangsched.core.snapshot import Snapshot
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Invalid
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.provisioning.arrival_times import ArrivalTimes
from gangsched.kube.provisioning.demand import GangDemand, GangDemands
from gangsched.kube.provisioning.karpenter.calls import NodeCalls
from gangsched.kube.provisioning.karpenter.decide import (
    NodeState,
    PurchaseKey,
    PurchaseState,
    PurchaseView,
    purchases,
    steps,
)
from gangsched.kube.provisioning.karpenter.failures import PoolFailures
from gangsched.kube.provisioning.karpenter.moving import GangMoves
from gangsched.kube.provisioning.karpenter.objects import (
    NodeClaim,
    NodePoolState,
    Nodes,
)
from gangsched.kube.provisioning.karpenter.pools import (
    claim_body,
    core_pools,
)
from gangsched.kube.provisioning.karpenter.search import search_nodes
from gangsched.kube.provisioning.karpenter.spending import spent_by_queue
from gangsched.kube.provisioning.karpenter.turns import NamespaceTurns
from gangsched.kube.provisioning.passes import Hint, guarded, in_parallel, repeat_passes

log = logging.getLogger(__name__)

_SEARCHES = 4
"""Gangs that a pass looks for nodes for, each of another namespace."""
_PAUSE_S = 10.0
"""Seconds after which a gang is looked at again for which no nodes could be bought."""
_SETTLE_S = 10.0
"""Seconds that the planner has to place a gang on nodes that were opened."""


class Buyer:
    """Creates and deletes the NodeClaims of one scheduler."""

    def __init__(
        self,
        client: KubeClient,
        view: EngineView,
        config: KarpenterConfig,
        placer: Placer,
        hint: Hint,
        observe: Callable[[NodeSupplySeen], None],
        now_s: Callable[[], float],
    ) -> None:
        self._observe = observe
        self._calls, self._view, self._config = NodeCalls(client), view, config
        self._hint, self._now_s = hint, now_s
        self._moves = GangMoves(self._calls, view, placer, config, hint)
        self._settings = {pool.name: pool for pool in config.pools}
        self._demands = GangDemands(
            view, config.after_s, config.purchases_max, config.namespace_max
        )
        self._created: set[PurchaseKey] = set()
        self._coming: dict[PurchaseKey, PurchaseView] = {}
        """The purchases with nodes to come when the last pass ended."""
        self._arrived: set[PurchaseKey] = set()
        """The purchases with nodes that are all there, as far as an Event says so."""
        self._turns = NamespaceTurns()
        self._opened: dict[PurchaseKey, float] = {}
        """Since when all nodes of a purchase are open."""
        self._failures = PoolFailures(config.retry_s)
        self._attempts: dict[str, int] = {}
        self._refused: dict[GangId, tuple[str, str]] = {}
        self._idle_since: dict[NodeName, float] = {}
        self._supply = NodeSupply()
        self._arrivals = ArrivalTimes()
        self._came: set[str] = set()
        """Claims with nodes that are there, as of the last pass."""

    async def run(self) -> None:
        """Repeat passes until cancelled."""
        await repeat_passes(self._step_or_report, "NodeClaim and NodePool of karpenter.sh/v1")

    async def _step_or_report(self) -> None:
        try:
            await self.step()
        except DecodeError as error:
            log.warning("karpenter: %s", error)

    async def step(self) -> None:
        """Compare claims with gangs once, and change what differs.

        Raises:
            NotFound: the cluster has no such kind.
            DecodeError: an amount of a pool is malformed.

        """
        page, states = await self._calls.read()
        now_s = self._now_s()
        existing = purchases(page.ours, self._created, self._config, now_s)
        keys = {one.key for one in existing}
        self._created &= keys
        self._arrived &= keys
        self._note_failures(existing, now_s)
        self._note_supply(states, existing, page.ours, now_s)
        demands = self._demands.wants({one.gang for one in existing}, now_s)
        wanted = {want.gang: want.base for want in demands}
        nodes = self._nodes(page.ours, now_s)
        todo = steps(existing, wanted, nodes, self._config, now_s)
        for one in existing:
            self._report(one)
        whole = {one.key for one in existing if one.state is PurchaseState.COMING}
        for one, index in todo.create:
            created = self._create(one.gang, one.key, index, one.nodes, states)
            if not await guarded(f"nodes of Karpenter for {one.gang}", created):
                whole.discard(one.key)
        self._created |= whole  # what was missing of them was created just now
        await in_parallel(partial(self._set_closed, closed=False), todo.open)
        await in_parallel(partial(self._set_closed, closed=True), todo.close)
        await in_parallel(self._delete, todo.delete)
        self._coming = {one.key: one for one in existing if one.state is PurchaseState.COMING}
        gone = {claim.purchase for claim in todo.delete}
        self._coming = {key: one for key, one in self._coming.items() if key not in gone}
        await self._buy(demands, existing, nodes, states, now_s)
        if not self._coming:
            await self._moves.step(page.ours, now_s)

    # -- what is there ------------------------------------------------------------------------

    def _pools(
        self, states: Mapping[str, NodePoolState], claims: Sequence[NodeClaim], now_s: float
    ) -> tuple[NodePool, ...]:
        """Return what pools can make, with the arrival times that were seen."""
        there = {claim.name: claim for claim in claims if claim.node is not None}
        for name in there.keys() - self._came:
            claim = there[name]
            self._arrivals.add(claim.pool, claim.ready_s - claim.created_s)
        self._came = set(there)
        retries_s = self._failures.retries_s(now_s)
        return tuple(core_pools(self._config.pools, states, claims, self._arrivals, retries_s))

    def _note_supply(
        self,
        states: Mapping[str, NodePoolState],
        existing: Sequence[PurchaseView],
        claims: Sequence[NodeClaim],
        now_s: float,
    ) -> None:
        """Let forecasts and advice know what can be bought now, and what comes."""
        pools = self._pools(states, claims, now_s)
        by_name = {pool.name: pool for pool in pools}

        def arrival_s(nodes: Nodes) -> float:
            known = ((by_name[name], count) for name, count in nodes if name in by_name)
            return max((pool.arrival_of(count) for pool, count in known), default=0.0)

        coming = tuple(
            ComingNodes(one.gang, one.nodes, one.since_s + arrival_s(one.nodes))
            for one in existing
            if one.state is PurchaseState.COMING
        )
        spent = spent_by_queue(claims, self._view, self._settings)
        supply = NodeSupply(pools, coming, tuple(sorted(spent.items())), self._config.after_s)
        if supply != self._supply:
            self._supply = supply
            self._observe(NodeSupplySeen(supply))

    def _nodes(self, claims: Sequence[NodeClaim], now_s: float) -> dict[NodeName, NodeState]:
        """Return what the cluster shows of the nodes of claims."""
        cluster, found = self._view.cluster, {}
        idle: dict[NodeName, float] = {}
        for claim in claims:
            row = cluster.rows.get(claim.node) if claim.node is not None else None
            if claim.node is None or row is None:
                continue
            node = cluster.nodes[row]
            taints = node.taints if node is not None else ()
            if not cluster.gangs_by_row.get(row):
                idle[claim.node] = self._idle_since.get(claim.node, now_s)
            closed = any(taint.key == names.CLOSED_TAINT for taint in taints)
            found[claim.node] = NodeState(closed, idle.get(claim.node))
        self._idle_since = idle
        return found

    def _note_failures(self, existing: Sequence[PurchaseView], now_s: float) -> None:
        """Leave out pools that did not make their nodes, each time for longer."""
        states = {one.key: one for one in existing}
        for key, before in self._coming.items():
            one = states.get(key)
            if one is None:
                blame = frozenset(pool for pool, _ in before.nodes)
                why = f"Karpenter gave up all {sum(n for _, n in before.nodes)} nodes"
            elif one.state in (PurchaseState.FAILED, PurchaseState.ENDING):
                blame, why = one.blame, one.why
            else:
                continue
            for pool in blame:
                self._failures.add(pool, now_s)
            pools = ", ".join(sorted(blame))
            log.warning("nodes of %s for %s did not come: %s", pools, before.gang, why)
            message = f"Nodes of pool {pools} did not come: {why}. All are given back."
            self._hint(before.gang, message, "NodesNotProvisioned")

    def _report(self, one: PurchaseView) -> None:
        """Write an Event once all nodes of a purchase are there."""
        if one.state is not PurchaseState.ARRIVED or one.key in self._arrived:
            return
        self._arrived.add(one.key)
        for pool, _ in one.nodes:
            self._failures.forget(pool)
        if one.key in self._coming:
            count = sum(count for _, count in one.nodes)
            self._hint(one.gang, f"All {count} nodes are there.", "NodesProvisioned")

    # -- purchases ----------------------------------------------------------------------------

    async def _buy(
        self,
        demands: Sequence[GangDemand],
        existing: Sequence[PurchaseView],
        nodes: Mapping[NodeName, NodeState],
        states: Mapping[str, NodePoolState],
        now_s: float,
    ) -> None:
        """Buy nodes for the first gangs that lack nodes and have quota for them."""
        coming = [one for one in existing if one.state is PurchaseState.COMING]
        served = self._settling(existing, nodes, now_s) | {one.gang: one.nodes for one in coming}
        current = {want.base for want in demands}
        self._attempts = {base: n for base, n in self._attempts.items() if base in current}
        self._refused = {gang: at for gang, at in self._refused.items() if gang in self._view.gangs}
        lacking = []
        for want in self._demands.may_buy(demands, served.keys(), (one.gang for one in coming)):
            if self._attempts.get(want.base or "", 0) >= self._config.attempts:
                self._refuse(
                    want, f"{self._config.attempts} purchases brought no nodes it could use", now_s
                )
                continue
            lacking.append(want)
        if not lacking:
            return
        counted = [
            (want.pending, served[want.gang])
            for want in demands
            if want.pending is not None and want.gang in served
        ]
        snapshot = self._view.snapshot_all(now_s)
        snapshot = await asyncio.to_thread(
            beside_coming_gangs, snapshot, self._supply.pools, counted
        )
        for want in self._turns.take(lacking, _SEARCHES):
            found = self._buy_for(want, snapshot, existing, states, now_s)
            if await guarded(f"nodes of Karpenter for {want.gang}", found):
                return  # the next pass counts what this purchase takes of the limits

    def _settling(
        self,
        existing: Sequence[PurchaseView],
        nodes: Mapping[NodeName, NodeState],
        now_s: float,
    ) -> dict[GangId, Nodes]:
        """Return the gangs with nodes that the planner had no time to use, and the closed ones."""
        opened: dict[PurchaseKey, float] = {}
        settling: dict[GangId, Nodes] = {}
        for one in existing:
            if one.state is not PurchaseState.ARRIVED:
                continue
            there = [(claim.pool, nodes.get(claim.node)) for claim in one.claims.values()
                     if claim.node is not None]  # fmt: skip
            closed = Counter(pool for pool, node in there if node is None or node.closed)
            if closed:
                settling[one.gang] = tuple(closed.items())
                continue
            opened[one.key] = self._opened.get(one.key, now_s)
            if now_s - opened[one.key] < max(self._config.after_s, _SETTLE_S):
                settling[one.gang] = ()
        self._opened = opened
        return settling

    async def _buy_for(
        self,
        want: GangDemand,
        snapshot: Snapshot,
        existing: Sequence[PurchaseView],
        states: Mapping[str, NodePoolState],
        now_s: float,
    ) -> bool:
        """Buy the cheapest nodes for one gang; return whether that was begun."""
        if want.base is None or want.pending is None:
            return False
        purchase = await search_nodes(
            want.pending, snapshot, self._supply.pools, self._settings, states, now_s
        )
        if isinstance(purchase, NoPurchase):
            self._refuse(want, purchase.why, now_s)
            return False
        if not purchase.nodes:  # it fits already, and waits for its turn
            return False
        self._refused.pop(want.gang, None)
        numbers = [one.attempt for one in existing if one.base == want.base]
        attempt = max([self._attempts.get(want.base, 0), *numbers]) + 1
        self._attempts[want.base] = self._attempts.get(want.base, 0) + 1
        key, total = (want.base, attempt), sum(count for _, count in purchase.nodes)
        self._hint(want.gang, f"Buying {purchase_remedy(purchase).message}.", "NodesRequested")
        log.info("nodes are bought for %s: %s", want.gang, purchase.nodes)
        create = partial(self._create, want.gang, key, nodes=purchase.nodes, states=states)
        if await create(0) and all(await in_parallel(create, range(1, total))):
            self._created.add(key)  # the first alone: what the API refuses, it refuses for each
        self._coming[key] = PurchaseView(
            want.gang, *key, purchase.nodes, {}, PurchaseState.COMING, now_s
        )
        return True

    def _refuse(self, want: GangDemand, why: str, now_s: float) -> None:
        """Report once why no nodes are bought for a gang, and let others have their turn."""
        self._demands.pause(want.gang, now_s + _PAUSE_S)
        if self._refused.get(want.gang) != (want.base, why):
            self._refused[want.gang] = (want.base or "", why)
            log.info("no nodes are bought for %s: %s", want.gang, why)
            self._hint(want.gang, f"No nodes are bought: {why}.", "NodesNotRequested")

    # -- changes ------------------------------------------------------------------------------

    async def _set_closed(self, name: NodeName, *, closed: bool) -> None:
        await guarded(f"node {name}", self._calls.set_closed(name, closed=closed))

    async def _delete(self, claim: NodeClaim) -> None:
        await guarded(f"nodes of Karpenter for {claim.gang}", self._calls.delete(claim))

    async def _create(
        self,
        gang: GangId,
        key: PurchaseKey,
        index: int,
        nodes: Nodes,
        states: Mapping[str, NodePoolState],
    ) -> bool:
        """Create one claim, unless an earlier call did; return whether it exists."""
        try:
            body = claim_body(gang, *key, index, nodes, self._settings, states)
            await self._calls.create(body)
        except KeyError:
            log.warning("the pool of a node for %s is gone", gang)
        except Invalid as error:
            log.warning("a node for %s: %s", gang, error)
            self._hint(
                gang, f"Karpenter's API refuses a node: {str(error)[:300]}", "NodesNotRequested"
            )
        else:
            return True
        return False
