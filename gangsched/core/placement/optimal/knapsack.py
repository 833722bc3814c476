"""Chooses the fewest hosts of one domain, with the least free resources on them: exactly.

A small knapsack: choose `hosts` nodes of the domain so that their capacity reaches `wanted`, and
the sum of their free resources is least. Greedy placement takes the largest nodes, and may use a
large free node although two smaller ones would do.
"""

import numpy as np

from gangsched.core.cluster.node_table import Ints

_WORK_MAX = 4_000_000
"""Steps (nodes x hosts x pods) up to which this is quicker than asking a solver."""

_NONE = np.iinfo(np.int64).max // 4


def _useful(capacity: Ints, free: Ints, hosts: int) -> Ints:
    """Return the nodes of a best choice: of equal capacity, the `hosts` with least free."""
    nodes = np.flatnonzero(capacity)
    order = nodes[np.lexsort((nodes, free[nodes], capacity[nodes]))]
    _, first = np.unique(capacity[order], return_index=True)
    place = np.arange(len(order)) - np.repeat(first, np.diff([*first, len(order)]))
    return order[place < hosts]


def tightest_counts(capacity: Ints, free: Ints, wanted: int, hosts: int) -> Ints | None:
    """Return pods per node, shape as `capacity`; None if the problem is too large for this.

    `hosts` must be the least number of nodes with enough `capacity` for `wanted`.
    """
    nodes = _useful(capacity, free, hosts)
    if len(nodes) * hosts * wanted > _WORK_MAX:
        return None
    least = np.full((hosts + 1, wanted + 1), _NONE, dtype=np.int64)
    least[0, 0] = 0
    came = np.full((len(nodes), hosts + 1, wanted + 1), -1, dtype=np.int32)
    row = np.arange(hosts)
    for index, node in enumerate(nodes):
        size = min(int(capacity[node]), wanted)
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
    counts = np.zeros_like(capacity)
    left, at = hosts, wanted
    for index in range(len(nodes) - 1, -1, -1):
        before = int(came[index, left, at])
        if before >= 0:
            counts[nodes[index]] = capacity[nodes[index]]
            left, at = left - 1, before
    surplus = int(counts.sum()) - wanted
    for node in np.flatnonzero(counts):  # remove the pods beyond `wanted`
        less = min(surplus, int(counts[node]) - 1)
        counts[node] -= less
        surplus -= less
    return counts
