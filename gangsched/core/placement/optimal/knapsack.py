"""The fewest hosts of one domain, and among those the least that was free: exact, by counting.

A small knapsack: choose `hosts` of the domain's nodes so that their room reaches `wanted` and the
sum of what was free on them is least. Greedy filling takes the largest nodes and may open a large
hole where two smaller ones would have done.
"""

import numpy as np

from gangsched.core.cluster.node_table import Ints

_WORK_MAX = 4_000_000
"""Steps (nodes x hosts x pods) up to which this is quicker than asking a solver."""

_NONE = np.iinfo(np.int64).max // 4


def _useful(room: Ints, free: Ints, hosts: int) -> Ints:
    """Of nodes with equal capacity only the `hosts` with least free can be in a best choice."""
    nodes = np.flatnonzero(room)
    order = nodes[np.lexsort((nodes, free[nodes], room[nodes]))]
    _, first = np.unique(room[order], return_index=True)
    place = np.arange(len(order)) - np.repeat(first, np.diff([*first, len(order)]))
    return order[place < hosts]


def tightest(room: Ints, free: Ints, wanted: int, hosts: int) -> Ints | None:
    """Return pods per node, shape as `room`; None where the problem is too large for this.

    `hosts` must be the least number of nodes with enough `room` for `wanted`.
    """
    nodes = _useful(room, free, hosts)
    if len(nodes) * hosts * wanted > _WORK_MAX:
        return None
    least = np.full((hosts + 1, wanted + 1), _NONE, dtype=np.int64)
    least[0, 0] = 0
    came = np.full((len(nodes), hosts + 1, wanted + 1), -1, dtype=np.int32)
    row = np.arange(hosts)
    for index, node in enumerate(nodes):
        size = min(int(room[node]), wanted)
        grown = np.full_like(least, _NONE)
        source = np.broadcast_to(np.arange(wanted + 1) - size, least.shape).copy()
        grown[1:, size:] = least[:-1, : wanted + 1 - size]
        # Whatever reaches beyond `wanted` counts as `wanted`.
        above = least[:-1, wanted - size :]
        best = above.argmin(axis=1)
        grown[1:, wanted] = above[row, best]
        source[1:, wanted] = best + wanted - size
        grown = np.where(grown < _NONE, grown + free[node], _NONE)
        better = grown < least
        came[index][better] = source[better]
        least = np.where(better, grown, least)
    if least[hosts, wanted] >= _NONE:
        return None
    counts = np.zeros_like(room)
    left, at = hosts, wanted
    for index in range(len(nodes) - 1, -1, -1):
        before = int(came[index, left, at])
        if before >= 0:
            counts[nodes[index]] = room[nodes[index]]
            left, at = left - 1, before
    surplus = int(counts.sum()) - wanted
    for node in np.flatnonzero(counts):  # the last pods that are not wanted
        less = min(surplus, int(counts[node]) - 1)
        counts[node] -= less
        surplus -= less
    return counts
