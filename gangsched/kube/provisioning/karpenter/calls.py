"""Calls to the API server about NodeClaims, NodePools and the taint of their nodes."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.api.timestamps import rfc3339
from gangsched.core.model.ids import NodeName
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, NotFound
from gangsched.kube.provisioning.karpenter.objects import (
    API,
    DO_NOT_DISRUPT,
    ClaimPage,
    NodeClaim,
    NodePoolState,
    add_claims,
    decode_pools,
)
from gangsched.kube.provisioning.karpenter.pools import CLOSED

log = logging.getLogger(__name__)

_PAGE = 500
_CLAIMS = f"{API}/nodeclaims"


class NodeCalls:
    """Reads and changes what one cluster has of Karpenter."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def read(self) -> tuple[ClaimPage, dict[str, NodePoolState]]:
        """Return all NodeClaims and NodePools.

        Raises:
            NotFound: the cluster has no such kinds.

        """
        page, more = ClaimPage(), ""
        while True:  # a claim that is not read would count as given up
            params = {"limit": str(_PAGE), **({"continue": more} if more else {})}
            more = add_claims(await self._client.get(_CLAIMS, **params), page)
            if not more:
                break
        return page, decode_pools(await self._client.get(f"{API}/nodepools"), page)

    async def create(self, body: Mapping[str, Any]) -> None:
        """Create a claim; an earlier call may have created it."""
        try:
            await self._client.create(_CLAIMS, body)
        except Conflict:
            return

    async def _has_pods(self, node: NodeName) -> bool:
        """Return whether a node has pods other than those that each node has."""
        params = {"fieldSelector": f"spec.nodeName={node}", "limit": str(_PAGE)}
        listed = msgspec.json.decode(await self._client.get("/api/v1/pods", **params))
        return any(
            pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            and not any(
                owner.get("kind") in ("DaemonSet", "Node")
                for owner in pod["metadata"].get("ownerReferences") or ()
            )
            for pod in listed["items"]
        )

    async def set_closed(self, name: NodeName, *, closed: bool) -> None:
        """Let pods use a node, or let none use it and Karpenter remove it."""
        found = await self._client.get("/api/v1/nodes", fieldSelector=f"metadata.name={name}")
        for node in msgspec.json.decode(found)["items"]:
            await self._patch_taints(f"/api/v1/nodes/{name}", node, closed=closed)

    async def announce_stop(self, name: NodeName, at_s: float) -> None:
        """Say on a node that it is about to stop: its gangs save their work and leave it."""
        body = {"metadata": {"annotations": {names.STOP_ANNOTATION: rfc3339(at_s)}}}
        await self._client.patch(f"/api/v1/nodes/{name}", body)

    async def _patch_taints(self, path: str, node: dict[str, Any], *, closed: bool) -> None:
        before = (node.get("spec") or {}).get("taints") or []
        after = [taint for taint in before if taint.get("key") != names.CLOSED_TAINT]
        if closed:
            after.append(CLOSED)
        metadata: dict[str, Any] = {"resourceVersion": node["metadata"]["resourceVersion"]}
        metadata["annotations"] = {DO_NOT_DISRUPT: None if closed else "true"}
        await self._client.patch(path, {"metadata": metadata, "spec": {"taints": after}})

    async def delete(self, claim: NodeClaim) -> None:
        """Delete a claim by its uid; Karpenter removes its node.

        A node with pods of others is left to Karpenter, which may disrupt a closed node.
        """
        if claim.node is not None and await self._has_pods(claim.node):
            return
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": claim.uid}}
        try:
            await self._client.delete(f"{_CLAIMS}/{claim.name}", body)
        except (NotFound, Conflict):
            return
        log.info("node %s of %s is given back", claim.node or claim.name, claim.gang)
