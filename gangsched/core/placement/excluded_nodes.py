"""Describes nodes with capacity that a pod may not use: taints, nodeSelector, affinity."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.pods import PodRequirements, Toleration
from gangsched.core.model.refusal import plural

_NAMED = 3
_ANY = Toleration(key="", operator="Exists", value="", effect="")


def describe_excluded(
    cluster: Cluster, needs: PodRequirements, capacity_of: Callable[[PodRequirements], Ints]
) -> str:
    """Write how many nodes have capacity that the pods may not use, and why; "" if none.

    `capacity_of` returns how many such pods each node takes.
    """
    barred = cluster.live & ~cluster.eligible(needs)
    if not barred.any():
        return ""
    anywhere = replace(needs, selector=(), required=(), tolerations=(_ANY,))
    barred &= capacity_of(anywhere) > 0
    if not barred.any():
        return ""
    tolerant = cluster.eligible(replace(needs, selector=(), required=()))
    named = cluster.eligible(replace(needs, required=(), tolerations=(_ANY,)))
    causes = _tainted(cluster, needs, np.flatnonzero(barred & ~tolerant))
    for mask, what in (
        (barred & tolerant & ~named, "not the labels of its nodeSelector"),
        (barred & tolerant & named, "not what its node affinity requires"),
    ):
        if mask.any():
            causes.append(f"{_have(int(mask.sum()))} {what}")
    return "; ".join(causes)


def _tainted(cluster: Cluster, needs: PodRequirements, rows: Ints) -> list[str]:
    """Count nodes by the first taint that keeps the pods away."""
    counts: dict[str, int] = {}
    for row in rows:
        node = cluster.nodes[int(row)]
        taints = node.taints if node is not None else ()
        keys = (
            taint.key
            for taint in taints
            if taint.effect != "PreferNoSchedule"
            and not any(toleration.tolerates(taint) for toleration in needs.tolerations)
        )
        key = next(keys, "node.kubernetes.io/unschedulable")
        counts[key] = counts.get(key, 0) + 1
    often = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    causes = [
        f"{_have(count)} the taint {key}, which no pod of the gang tolerates"
        for key, count in often[:_NAMED]
    ]
    rest = sum(count for _, count in often[_NAMED:])
    return (
        [*causes, f"{_have(rest)} other taints that no pod of the gang tolerates"]
        if rest
        else causes
    )


def _have(count: int) -> str:
    return f"{plural(count, 'node')} {'has' if count == 1 else 'have'} capacity but"
