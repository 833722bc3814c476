"""Turning a misfit into its reason: what is short, by how much, and which node came closest."""

import numpy as np

from gangsched.core.cluster import Cluster
from gangsched.core.model import PODS, PodNeeds, Waiting
from gangsched.core.placement.capacity import capacity, capacity_when_empty
from gangsched.core.refusal import NearMiss, Reason, Refusal, amount, plural


def explain(
    waiting: Waiting, cluster: Cluster, minimum: dict[tuple[str, PodNeeds], int]
) -> Refusal:
    """Say why the smallest gang that may start does not fit, worst obstacle first.

    A kind that no node could ever take comes first, then one that the empty cluster cannot
    hold, then one that lacks free room now.
    """
    wanted = {kind: count for kind, count in minimum.items() if count > 0}
    for (role, needs), count in wanted.items():
        if not capacity_when_empty(cluster, needs).any():
            return _no_node(waiting, cluster, role, needs, count)
    for (role, needs), count in wanted.items():
        ever = int(capacity_when_empty(cluster, needs).sum())
        if ever < count:
            return Refusal(
                waiting.gang.id,
                Reason.TOO_LARGE,
                f"{_who(role)} needs {plural(count, 'pod')} of {describe(needs)} at once, and the "
                f"whole cluster holds {ever} even when empty.",
                role=role,
                wanted=count,
                possible=ever,
            )
    for (role, needs), count in wanted.items():
        room = int(capacity(cluster, needs, waiting.avoid).sum())
        if room < count:
            return _no_room(waiting, cluster, role, needs, count, room)
    total = sum(wanted.values())
    return Refusal(
        waiting.gang.id,
        Reason.NO_ROOM,
        f"each role fits alone, but no place was found for all {total} pods together.",
        wanted=total,
        proved=False,
    )


def describe(needs: PodNeeds) -> str:
    """Write what one pod asks, rarest resource first."""
    order = sorted(needs.requests, key=lambda item: (item[0] in ("cpu", "memory"), item[0]))
    return ", ".join(amount(name, quantity) for name, quantity in order) or "no resources"


def _who(role: str) -> str:
    return f"role {role}" if role else "the gang"


def _no_node(
    waiting: Waiting, cluster: Cluster, role: str, needs: PodNeeds, count: int
) -> Refusal:
    eligible = cluster.eligible(needs)
    nodes = int(cluster.live.sum())
    if not nodes:
        sentence, miss = "the cluster has no nodes.", None
    elif not eligible.any():
        sentence, miss = (
            f"none of {plural(nodes, 'node')} passes its nodeSelector, affinity and tolerations.",
            None,
        )
    else:
        miss = nearest(cluster, needs, empty=True)
        lacks = " and ".join(amount(name, quantity) for name, quantity in miss.lacks)
        sentence = (
            f"no node is large enough for one pod of {describe(needs)}; "
            f"the closest, {miss.node}, lacks {lacks}."
        )
    return Refusal(
        waiting.gang.id,
        Reason.UNSATISFIABLE,
        f"{_who(role)}: {sentence}",
        role=role,
        wanted=count,
        near_miss=miss,
    )


def _no_room(
    waiting: Waiting, cluster: Cluster, role: str, needs: PodNeeds, count: int, room: int
) -> Refusal:
    miss = None
    closest = ""
    if room == 0:
        miss = nearest(cluster, needs, empty=False)
        lacks = " and ".join(amount(name, quantity) for name, quantity in miss.lacks)
        closest = f" The closest node, {miss.node}, lacks {lacks}." if lacks else ""
    return Refusal(
        waiting.gang.id,
        Reason.NO_ROOM,
        f"{_who(role)} needs {plural(count, 'pod')} of {describe(needs)} at once, and there is "
        f"room for {room} now.{closest}",
        role=role,
        wanted=count,
        possible=room,
        near_miss=miss,
    )


def nearest(cluster: Cluster, needs: PodNeeds, *, empty: bool) -> NearMiss:
    """Return the eligible node that lacks the smallest share of one pod's requests."""
    vector = cluster.vector(needs)
    room = cluster.allocatable if empty else cluster.free()
    lacking = np.maximum(vector - np.maximum(room, 0), 0)
    share = (lacking / np.maximum(vector, 1)).sum(axis=1)
    share[~cluster.eligible(needs)] = np.inf
    row = int(np.argmin(share))
    lacks = tuple(
        (cluster.resources[column], int(lacking[row, column]))
        for column in np.flatnonzero(lacking[row])
    )
    named = tuple(("pod slots" if name == PODS else name, quantity) for name, quantity in lacks)
    return NearMiss(cluster.names[row], named)
