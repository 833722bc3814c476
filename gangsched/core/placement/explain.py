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
    wanted = _by_needs(minimum)
    for needs, (roles, count) in wanted.items():
        if not capacity_when_empty(cluster, needs).any():
            return _no_node(waiting, cluster, roles, needs, count)
    for needs, (roles, count) in wanted.items():
        ever = int(capacity_when_empty(cluster, needs).sum())
        if ever < count:
            return Refusal(
                waiting.gang.id,
                Reason.TOO_LARGE,
                f"{_who(roles)} {plural(count, 'pod')} of {describe(needs)} at once, and "
                f"the whole cluster holds {ever} even when empty.",
                role=roles[0],
                wanted=count,
                possible=ever,
            )
    for needs, (roles, count) in wanted.items():
        room = int(capacity(cluster, needs, waiting.avoid).sum())
        if room < count:
            return _no_room(waiting, cluster, roles, needs, count, room)
    total = sum(count for _, count in wanted.values())
    apart = waiting.most_per_node
    learnt = "" if apart is None else f" with at most {apart} on one node, as refusals demand"
    return Refusal(
        waiting.gang.id,
        Reason.NO_ROOM,
        f"each kind of pod fits alone, but no place was found for all {total} pods "
        f"together{learnt}.",
        wanted=total,
        proved=False,
    )


Roles = tuple[str, ...]


def _by_needs(minimum: dict[tuple[str, PodNeeds], int]) -> dict[PodNeeds, tuple[Roles, int]]:
    """Count pods of equal needs together, whatever their roles: they compete for one room."""
    found: dict[PodNeeds, tuple[Roles, int]] = {}
    for (role, needs), count in minimum.items():
        if count > 0:
            roles, total = found.get(needs, ((), 0))
            found[needs] = ((*roles, role), total + count)
    return found


def describe(needs: PodNeeds) -> str:
    """Write what one pod asks, rarest resource first."""
    order = sorted(needs.requests, key=lambda item: (item[0] in ("cpu", "memory"), item[0]))
    return ", ".join(amount(name, quantity) for name, quantity in order) or "no resources"


def _who(roles: Roles) -> str:
    """Write who needs something, verb included: `role A needs`, `roles A and B need`."""
    named = [role for role in roles if role]
    if not named:
        return "the gang needs"
    return f"role {named[0]} needs" if len(named) == 1 else f"roles {' and '.join(named)} need"


def _no_node(
    waiting: Waiting, cluster: Cluster, roles: Roles, needs: PodNeeds, count: int
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
        f"{_who(roles).rsplit(' ', 1)[0]}: {sentence}",
        role=roles[0],
        wanted=count,
        near_miss=miss,
    )


def _no_room(
    waiting: Waiting, cluster: Cluster, roles: Roles, needs: PodNeeds, count: int, room: int
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
        f"{_who(roles)} {plural(count, 'pod')} of {describe(needs)} at once, and there is "
        f"room for {room} now.{closest}",
        role=roles[0],
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
