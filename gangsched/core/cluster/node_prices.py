"""What pods cost for an hour: of each node with a price they pay for the share that they use."""

from collections import defaultdict
from collections.abc import Iterable

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodRequirements


def price_of_pods(
    pods: Iterable[tuple[NodeName, PodRequirements]], cluster: Cluster
) -> float | None:
    """Return what pods cost for an hour, on nodes with a price; None if no node has one."""
    shares: defaultdict[NodeName, float] = defaultdict(float)
    prices: dict[NodeName, float] = {}
    for name, needs in pods:
        node = node_with_price(name, cluster)
        if node is not None and node.price is not None:
            prices[name] = node.price
            shares[name] += _share(needs, node)
    if not prices:
        return None
    return sum(price * min(shares[name], 1.0) for name, price in prices.items())


def node_with_price(name: NodeName, cluster: Cluster) -> Node | None:
    """Return a node, if it is there and has a price."""
    row = cluster.rows.get(name)
    node = cluster.nodes[row] if row is not None else None
    return node if node is not None and node.price is not None else None


def _share(needs: PodRequirements, node: Node) -> float:
    """Return the largest share of a resource of the node that a pod uses."""
    there = dict(node.allocatable)
    shares = [amount / there[name] for name, amount in needs.requests if there.get(name)]
    return max(shares, default=0.0)
