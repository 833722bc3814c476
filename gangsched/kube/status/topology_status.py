"""The status of Topologies: the number of placed nodes, and the problems of other nodes."""

import asyncio
from typing import Any

from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import TopologyTree
from gangsched.kube.client.client import KubeClient
from gangsched.kube.status.config_status import ConfigCondition, ConfigStatusWriter

_EVERY_S = 2.0
_NAMED = 20


class TopologyStatusWriter:
    """Writes the status of Topologies every two seconds, if it changed."""

    def __init__(self, client: KubeClient) -> None:
        self.topologies = ConfigStatusWriter(client, "Topology", "topologies")

    async def run(self, cluster: Cluster) -> None:
        """Write until cancelled."""
        while True:
            for name in self.topologies:
                tree = cluster.trees.get(name)
                status = describe(tree, cluster) if tree is not None else {}
                await self.topologies.write(name, status, self._ready(name, status))
            await asyncio.sleep(_EVERY_S)

    def _ready(self, name: str, status: dict[str, Any]) -> ConfigCondition:
        problem = self.topologies.problems.get(name)
        if problem is not None:
            return ConfigCondition(holds=False, reason="Invalid", message=problem)
        ready = status.get("misplacedCount") == 0
        reason = "EveryNodePlaced" if ready else "NodesMisplaced"
        return ConfigCondition(ready, reason, status.get("message", ""))


def describe(tree: TopologyTree, cluster: Cluster) -> dict[str, Any]:
    """Return the status of a Topology in the form of its CRD."""
    placed, misplaced = 0, []
    for name, row in sorted(cluster.rows.items()):
        problem = tree.label_problem(row)
        if problem is None:
            placed += 1
        else:
            misplaced.append({"node": name, "problem": problem})
    domains = [len({int(code) for code in codes[cluster.live]} - {-1}) for codes in tree.codes]
    levels = tree.topology.levels
    counts = ", ".join(f"{n} {level.name}" for n, level in zip(domains, levels, strict=True))
    message = f"{placed} of {placed + len(misplaced)} nodes have their place: {counts}."
    empty = [level for n, level in zip(domains, levels, strict=True) if not n]
    if empty:
        named = ", ".join(f"{level.name} ({level.label})" for level in empty)
        message += f" No node has the label of level {named}."
    return {
        "nodes": placed,
        "misplacedCount": len(misplaced),
        "message": message,
        "levels": [
            {"name": level.name, "domains": n} for n, level in zip(domains, levels, strict=True)
        ],
        "misplaced": misplaced[:_NAMED],
    }
