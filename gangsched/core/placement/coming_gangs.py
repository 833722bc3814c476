"""What is left for other gangs once gangs with nodes to come are placed.

A gang with nodes to come often counts on free nodes too. Another gang that lacks nodes must not
count on the same ones, or it would lack nodes again.
"""

from collections.abc import Iterable, Sequence

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.node_pools import NodePool
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.fill import fill
from gangsched.core.placement.purchases import add_virtual_nodes
from gangsched.core.placement.tree_fill import TOPOLOGY_FILL
from gangsched.core.snapshot import RunningGang, Snapshot
from gangsched.core.what_if import WhatIf, places_of

Nodes = tuple[tuple[str, int], ...]
"""How many nodes of each pool."""


class ComingGangs:
    """Places gangs on the nodes that come for them and on free ones, on a copy of a snapshot."""

    def __init__(self, snapshot: Snapshot, pools: Sequence[NodePool]) -> None:
        self._what_if = WhatIf(snapshot)
        self._pools = {pool.name: pool for pool in pools}

    def add(self, pending: PendingGang, nodes: Nodes) -> None:
        """Place one gang, with nodes that come for it; a gang that does not fit takes nothing."""
        cluster = self._what_if.cluster
        added = [
            node
            for name, count in nodes
            if name in self._pools
            for node in add_virtual_nodes(cluster, self._pools[name], count)
        ]
        placed = fill(pending, self._what_if.snapshot(), TOPOLOGY_FILL)
        if isinstance(placed, Refusal):
            for node in added:
                cluster.remove_node(node)
            return
        self._what_if.hold(
            RunningGang(
                pending.gang, places_of(pending, placed), 0.0, constraints=pending.constraints
            )
        )

    def snapshot(self) -> Snapshot:
        """Return what is left beside the gangs that were added."""
        return self._what_if.snapshot()


def beside_coming_gangs(
    snapshot: Snapshot, pools: Sequence[NodePool], coming: Iterable[tuple[PendingGang, Nodes]]
) -> Snapshot:
    """Return what is left beside gangs with nodes that come for them."""
    left = ComingGangs(snapshot, pools)
    for pending, nodes in coming:
        left.add(pending, nodes)
    return left.snapshot()
