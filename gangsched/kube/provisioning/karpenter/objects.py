"""NodePools and NodeClaims of karpenter.sh/v1: what is read of them.

Source: kubernetes-sigs/karpenter v1.15, pkg/apis/v1. Karpenter deletes a NodeClaim that cannot be
launched; the others get the conditions Launched, Registered (its node exists) and Initialized.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.text import shown
from gangsched.kube.decoding.quantities import at_most
from gangsched.kube.decoding.schemas import Metadata
from gangsched.kube.provisioning.wire import ListMetadata, ObjectCondition, seconds_of

API = "/apis/karpenter.sh/v1"
NODE_POOL_LABEL = "karpenter.sh/nodepool"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
_NAME = re.compile(r"(gangsched-[0-9a-f]{20})-([1-9][0-9]{0,5})-([0-9]{1,4})")
_NODES = re.compile(r"([a-z0-9][-a-z0-9]{0,62})=([1-9][0-9]{0,3})")

Nodes = tuple[tuple[str, int], ...]
"""How many nodes of each pool of the settings."""


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A NodeClaim of ours: the node of one index of a purchase.

    A purchase is known by the `base` of its gang's demand and the number of its `attempt`, and each
    of its claims says which `nodes` it has in all. `node` is set once Karpenter registered it, at
    `ready_s`. `message` is why it is not launched yet.
    """

    name: str
    uid: str
    gang: GangId
    base: str
    attempt: int
    index: int
    nodes: Nodes
    created_s: float
    node: NodeName | None = None
    ready_s: float = 0.0
    deleting: bool = False
    message: str = ""

    @property
    def purchase(self) -> tuple[str, int]:
        """Return what identifies its purchase."""
        return self.base, self.attempt

    @property
    def pool(self) -> str:
        """Return the pool of its node."""
        return pool_of(self.nodes, self.index)


@dataclass(frozen=True, slots=True)
class NodePoolState:
    """A NodePool: its template, and how much its nodes may have in all (`limits`), and have."""

    name: str
    template: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0
    ready: bool = True


def pool_of(nodes: Nodes, index: int) -> str:
    """Return the pool of the node with an index; the pools follow each other."""
    for pool, count in nodes:
        if index < count:
            return pool
        index -= count
    return ""


def written_purchase(nodes: Nodes) -> str:
    """Return nodes as an annotation has them: `p5=4,a100=1`."""
    return ",".join(f"{pool}={count}" for pool, count in nodes)


def read_purchase(text: str) -> Nodes | None:
    """Return the nodes of an annotation, or None if it has another form."""
    found = [_NODES.fullmatch(part) for part in text.split(",")[:64]]
    if any(match is None for match in found):
        return None
    return tuple((match[1], int(match[2])) for match in found if match is not None)


def claim_name(base: str, attempt: int, index: int) -> str:
    """Return the name of a claim, which follows from its purchase: none is created twice."""
    return f"{base}-{attempt}-{index}"


# -- decoding ---------------------------------------------------------------------------------


class _Resources(msgspec.Struct):
    requests: dict[str, Any] = {}


class _ClaimSpec(msgspec.Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _ClaimStatus(msgspec.Struct, rename="camel"):
    node_name: str = ""
    conditions: list[ObjectCondition] = []
    capacity: dict[str, Any] = {}


class _Claim(msgspec.Struct):
    metadata: Metadata
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


class _Template(msgspec.Struct):
    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}


class _PoolSpec(msgspec.Struct):
    template: _Template = msgspec.field(default_factory=_Template)
    limits: dict[str, Any] = {}


class _PoolStatus(msgspec.Struct):
    conditions: list[ObjectCondition] = []


class _Pool(msgspec.Struct):
    metadata: Metadata
    spec: _PoolSpec = msgspec.field(default_factory=_PoolSpec)
    status: _PoolStatus = msgspec.field(default_factory=_PoolStatus)


class _Claims(msgspec.Struct):
    items: list[_Claim]
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


class _Pools(msgspec.Struct):
    items: list[_Pool]


_claims = msgspec.json.Decoder(_Claims)
_pools = msgspec.json.Decoder(_Pools)


@dataclass(slots=True)
class ClaimPage:
    """Claims of ours, and what all claims of a NodePool have, ours and others."""

    ours: list[NodeClaim] = field(default_factory=list)
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def add_claims(content: bytes, page: ClaimPage) -> str:
    """Add the claims of a list to a page; return where the list continues."""
    decoded = _claims.decode(content)
    for item in decoded.items:
        pool = item.metadata.labels.get(NODE_POOL_LABEL, "")
        used = page.used.setdefault(pool, {})
        for name, amount in _amounts({**item.spec.resources.requests, **item.status.capacity}):
            used[name] = used.get(name, 0) + amount
        page.counts[pool] = page.counts.get(pool, 0) + 1
        claim = _claim(item)
        if claim is not None:
            page.ours.append(claim)
    return decoded.metadata.continue_


def _claim(item: _Claim) -> NodeClaim | None:
    """Return a claim of ours, or None; NodeClaims have no namespace, so no tenant writes them."""
    metadata = item.metadata
    match = _NAME.fullmatch(metadata.name)
    nodes = read_purchase(metadata.annotations.get(names.PURCHASE_ANNOTATION, ""))
    if match is None or nodes is None or names.PROVISIONING_LABEL not in metadata.labels:
        return None
    conditions = {one.type: one for one in item.status.conditions}
    registered = conditions.get("Registered", ObjectCondition())
    launched = conditions.get("Launched", ObjectCondition())
    ready = registered.status == "True" and bool(item.status.node_name)
    return NodeClaim(
        metadata.name,
        metadata.uid,
        GangId(metadata.annotations.get(names.PROVISIONED_GANG_ANNOTATION, "")),
        match[1],
        int(match[2]),
        int(match[3]),
        nodes,
        seconds_of(metadata.creation_timestamp),
        NodeName(item.status.node_name) if ready else None,
        seconds_of(registered.last_transition_time) if ready else 0.0,
        metadata.deletion_timestamp is not None,
        shown(launched.message) if launched.status != "True" and launched.message else "",
    )


def decode_pools(content: bytes, claims: ClaimPage) -> dict[str, NodePoolState]:
    """Return the NodePools of a list by name, with what their claims have."""
    found = {}
    for item in _pools.decode(content).items:
        name, template = item.metadata.name, item.spec.template
        false = {one.type for one in item.status.conditions if one.status == "False"}
        found[name] = NodePoolState(
            name,
            template.spec,
            _texts(template.metadata.get("labels")),
            _texts(template.metadata.get("annotations")),
            dict(_amounts(item.spec.limits)),
            claims.used.get(name, {}),
            claims.counts.get(name, 0),
            "Ready" not in false and item.metadata.deletion_timestamp is None,
        )
    return found


def _texts(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _amounts(resources: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return amounts in the core's units; a malformed amount counts as the largest."""
    return list(at_most({name: str(amount) for name, amount in resources.items()}).items())
