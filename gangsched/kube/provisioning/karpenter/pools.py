"""Pools of the settings as the core sees them, and the NodeClaims that make their nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.autoscaling_config import KarpenterPool
from gangsched.core.model.ids import GangId
from gangsched.core.model.node_pools import NodePool
from gangsched.kube.decoding.cluster.nodes import node_fact
from gangsched.kube.decoding.quantities import parse_amounts
from gangsched.kube.provisioning.arrival_times import ArrivalTimes
from gangsched.kube.provisioning.karpenter.objects import (
    API,
    DO_NOT_DISRUPT,
    NODE_POOL_LABEL,
    NodeClaim,
    NodePoolState,
    Nodes,
    claim_name,
    pool_of,
    written_purchase,
)

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
ZONE = "topology.kubernetes.io/zone"
CLOSED = {"key": names.CLOSED_TAINT, "effect": "NoSchedule"}


def core_pools(
    pools: Sequence[KarpenterPool],
    states: Mapping[str, NodePoolState],
    claims: Sequence[NodeClaim],
    arrivals: ArrivalTimes,
    retries_s: Mapping[str, float],
) -> list[NodePool]:
    """Return the pools with as many nodes left as their NodePools allow.

    Pools in `retries_s` failed, and are left out until then.

    Raises:
        DecodeError: an amount in the settings or a NodePool is malformed.

    """
    found = []
    for pool in pools:
        state = states.get(pool.node_pool)
        if state is None or not state.ready:
            continue
        own = sum(claim.pool == pool.name for claim in claims)
        left = min(pool.nodes_max - own, nodes_left(pool, state))
        template = node_fact(msgspec.json.encode(_node(pool, state))).node
        arrival_s, spread = arrivals.learnt(pool.name, pool.arrival_s)
        one = NodePool(pool.name, template, max(left, 0), pool.price, pool.spot, arrival_s, spread)
        found.append(paused(one, retries_s.get(pool.name)))
    return found


def paused(pool: NodePool, retry_s: float | None) -> NodePool:
    """Return a pool without nodes until it is tried again; None: it did not fail."""
    if retry_s is None:
        return pool
    return replace(pool, nodes_left=0, nodes_later=pool.nodes_left, retry_s=retry_s)


def nodes_left(pool: KarpenterPool, state: NodePoolState) -> int:
    """Return how many more nodes of a pool the limits of its NodePool allow."""
    amounts = parse_amounts(dict(pool.resources))
    left = 1000
    for name, limit in state.limits.items():
        if name == "nodes":
            left = min(left, limit - state.nodes)
        elif amounts.get(name):
            left = min(left, (limit - state.used.get(name, 0)) // amounts[name])
    return left


def within_limits(
    nodes: Nodes, pools: Mapping[str, KarpenterPool], states: Mapping[str, NodePoolState]
) -> bool:
    """Return whether nodes of several pools keep the limits of NodePools that they share."""
    for state in states.values():
        more: dict[str, int] = {}
        for name, count in nodes:
            if pools[name].node_pool == state.name:
                more["nodes"] = more.get("nodes", 0) + count
                for resource, amount in parse_amounts(dict(pools[name].resources)).items():
                    more[resource] = more.get(resource, 0) + count * amount
        used = {**state.used, "nodes": state.nodes}
        if any(more.get(key, 0) + used.get(key, 0) > limit
               for key, limit in state.limits.items() if more.get(key)):  # fmt: skip
            return False
    return True


def claim_body(
    gang: GangId,
    base: str,
    attempt: int,
    index: int,
    nodes: Nodes,
    pools: Mapping[str, KarpenterPool],
    states: Mapping[str, NodePoolState],
) -> dict[str, Any]:
    """Return the NodeClaim of one node of a purchase: the template of its NodePool, made exact.

    Raises:
        KeyError: the settings or the cluster no longer have its pool.

    """
    pool = pools[pool_of(nodes, index)]
    state = states[pool.node_pool]
    template = state.template
    exact = {INSTANCE_TYPE: pool.instance_type, CAPACITY_TYPE: _capacity_type(pool)}
    if pool.zone is not None:
        exact[ZONE] = pool.zone
    kept = [one for one in template.get("requirements") or () if one.get("key") not in exact]
    fields = ("nodeClassRef", "taints", "expireAfter", "terminationGracePeriod")
    spec: dict[str, Any] = {name: template[name] for name in fields if name in template}
    spec["startupTaints"] = [*(template.get("startupTaints") or ()), CLOSED]
    spec["requirements"] = [
        *kept,
        *({"key": key, "operator": "In", "values": [value]} for key, value in exact.items()),
    ]
    spec["resources"] = {"requests": dict(pool.resources)}
    return {
        "apiVersion": API.removeprefix("/apis/"),
        "kind": "NodeClaim",
        "metadata": {
            "name": claim_name(base, attempt, index),
            "labels": {
                **state.labels,
                **pool.labels,
                NODE_POOL_LABEL: pool.node_pool,
                names.PROVISIONING_LABEL: "true",
            },
            "annotations": {
                **state.annotations,
                DO_NOT_DISRUPT: "true",
                names.PROVISIONED_GANG_ANNOTATION: gang,
                names.PURCHASE_ANNOTATION: written_purchase(nodes),
                names.PRICE_ANNOTATION: f"{pool.price:f}",
            },
        },
        "spec": spec,
    }


def _capacity_type(pool: KarpenterPool) -> str:
    return "spot" if pool.spot else "on-demand"


def _node(pool: KarpenterPool, state: NodePoolState) -> dict[str, Any]:
    """Return a node of a pool as the API server would have it."""
    labels = {
        **state.labels,
        **pool.labels,
        NODE_POOL_LABEL: pool.node_pool,
        INSTANCE_TYPE: pool.instance_type,
        CAPACITY_TYPE: _capacity_type(pool),
        "kubernetes.io/os": "linux",
        names.PROVISIONING_LABEL: "true",
    }
    if pool.zone is not None:
        labels[ZONE] = pool.zone
    for one in state.template.get("requirements") or ():
        values = list(one.get("values") or [])
        if one.get("operator") == "In" and len(values) == 1 and isinstance(one.get("key"), str):
            labels.setdefault(one["key"], str(values[0]))
    return {
        "metadata": {
            "name": pool.name,
            "labels": labels,
            "annotations": {names.PRICE_ANNOTATION: f"{pool.price:f}"},
        },
        "spec": {"taints": state.template.get("taints") or []},
        "status": {"allocatable": {"pods": "110", **pool.resources}},
    }
