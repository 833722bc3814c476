"""Looks for the cheapest nodes for one gang, within all limits, for a limited time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gangsched.autoscaling_config import KarpenterPool
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.node_pools import NodePool, NoPurchase, Purchase
from gangsched.core.placement.purchases import cheapest_purchase
from gangsched.core.progress import Progress, StoppedError
from gangsched.core.quota.spending import spending_refusal
from gangsched.core.snapshot import Snapshot
from gangsched.kube.provisioning.karpenter.objects import NodePoolState
from gangsched.kube.provisioning.karpenter.pools import within_limits
from gangsched.kube.provisioning.passes import stopped_after

_SEARCH_S = 10.0


async def search_nodes(
    pending: PendingGang,
    snapshot: Snapshot,
    pools: Sequence[NodePool],
    settings: Mapping[str, KarpenterPool],
    states: Mapping[str, NodePoolState],
    now_s: float,
) -> Purchase | NoPurchase:
    """Look for nodes in a thread; a purchase without nodes says that the gang fits already."""
    progress = Progress(pending.gang.id)
    snapshot = replace(snapshot, progress=progress)
    pools = [pool for pool in pools if pool.nodes_left > 0]
    try:
        with stopped_after(progress, _SEARCH_S):
            while pools:
                found = await asyncio.to_thread(cheapest_purchase, pending, snapshot, pools, now_s)
                if not isinstance(found, Purchase):
                    return found
                if within_limits(found.nodes, settings, states):
                    return _within_budget(pending, snapshot, found)
                dearest = max(dict(found.nodes), key=lambda name: settings[name].price)
                pools = [pool for pool in pools if pool.name != dearest]
    except StoppedError:
        return NoPurchase(f"the search for its nodes took more than {_SEARCH_S:g} s")
    return NoPurchase("no pool may make more nodes for it")


def _within_budget(
    pending: PendingGang, snapshot: Snapshot, found: Purchase
) -> Purchase | NoPurchase:
    spent, tree = dict(snapshot.node_supply.spent), snapshot.usage.tree
    why = spending_refusal(pending.gang.queue, found.price, spent, tree)
    return NoPurchase(why) if why else found
