"""The status of Topologies: how many nodes have their place, and what is wrong with the others."""

import asyncio
import logging
from typing import Any

from gangsched.api import names
from gangsched.core.cluster import Cluster
from gangsched.core.topology import Tree
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Conflict, KubeError, NotFound
from gangsched.kube.stamps import stamp

log = logging.getLogger(__name__)

_EVERY_S = 2.0
_NAMED = 20


class TopologyStatusWriter:
    """Writes a status when it changed; a whole cluster that starts costs a few writes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._written: dict[str, dict[str, Any]] = {}
        self._problems: dict[str, str] = {}
        self._uids: dict[str, str] = {}

    def seen(self, name: str, uid: str, problem: str | None) -> None:
        """Learn that a Topology exists, and what is wrong with it."""
        if self._uids.get(name) != uid:
            self._uids[name] = uid
            self._written.pop(name, None)  # of another that had its name
        if problem is None:
            self._problems.pop(name, None)
        else:
            self._problems[name] = problem

    def forget(self, name: str) -> None:
        """Forget a Topology that was deleted."""
        for known in (self._uids, self._problems, self._written):
            known.pop(name, None)

    async def run(self, cluster: Cluster) -> None:
        """Write until cancelled."""
        while True:
            for name in list(self._uids):
                if name not in self._uids:
                    continue  # deleted while another was written
                status = self._status(name, cluster)
                if self._written.get(name) != status:
                    await self._write(name, status)
            await asyncio.sleep(_EVERY_S)

    def _status(self, name: str, cluster: Cluster) -> dict[str, Any]:
        tree = cluster.trees.get(name)
        status = describe(tree, cluster) if tree is not None else {}
        if name in self._problems:
            status["message"] = self._problems[name]
        return status

    async def _write(self, name: str, status: dict[str, Any]) -> None:
        path = f"/apis/{names.GROUP}/{names.VERSION}/topologies/{name}/status"
        ready = status.get("misplacedCount") == 0 and name not in self._problems
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "EveryNodePlaced" if ready else "NodesMisplaced",
            "message": status.get("message", ""),
            "lastTransitionTime": stamp(),
        }
        if name in self._problems:
            condition["reason"] = "Invalid"
        uid, told = self._uids[name], {**status, "conditions": [condition]}
        try:
            await self._client.patch(path, {"metadata": {"uid": uid}, "status": told})
        except (NotFound, Conflict):
            return  # it was deleted, as its watch is about to tell
        except KubeError as error:
            log.warning("status of Topology %s: %s", name, error)
            return
        if self._uids.get(name) == uid:
            self._written[name] = status


def describe(tree: Tree, cluster: Cluster) -> dict[str, Any]:
    """Return the status of a Topology as its CRD has it."""
    placed, misplaced = 0, []
    for name, row in sorted(cluster.rows.items()):
        problem = tree.lacking(row)
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
