"""Ways to distribute pods over bins (nodes or domains), from which most placers are made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.renamed import RenamedAttribute, renamed


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins over which `wanted` pods of one class, or slices of them, are distributed.

    A bin is a node, in the slot of `rows`, or a domain of one topology level; then `rows` is None.
    `capacity` has the number of pods (or slices) that each bin takes, and `preference` the weight
    of its preferred node affinity.
    """

    if not TYPE_CHECKING:  # a type checker refuses the old names
        room = RenamedAttribute("capacity")

    cluster: Cluster
    needs: PodRequirements
    rows: Ints | None
    capacity: Ints
    preference: Ints
    wanted: int


BinChooser = Callable[[Bins], Ints]
"""Returns how many pods go to each bin: at most its `capacity`, and `wanted` in all.

The bins together always have enough capacity."""


def fewest_bins(bins: Bins) -> Ints:
    """Use as few bins as possible: the largest first, then the tightest bin for the rest.

    With equal preferences no other choice uses fewer bins. Kueue calls this BestFit (KEP-2724).
    """
    capacity, preference, wanted = bins.capacity, bins.preference, bins.wanted
    candidates = np.flatnonzero(capacity)
    order = candidates[np.lexsort((candidates, -capacity[candidates], -preference[candidates]))]
    counts = np.zeros_like(capacity)
    filled = np.cumsum(capacity[order])
    last = int(np.searchsorted(filled, wanted))
    counts[order[:last]] = capacity[order[:last]]
    rest = wanted - (int(filled[last - 1]) if last else 0)
    tail = order[last:]
    best = preference[tail[0]]
    tight = tail[(capacity[tail] >= rest) & (preference[tail] == best)]
    counts[tight[np.argmin(capacity[tight])]] = rest
    return counts


def evenly(bins: Bins) -> Ints:
    """Keep the fullest bin as empty as possible; ties go to the emptier bin."""
    capacity, preference, wanted = bins.capacity, bins.preference, bins.wanted
    low, high = 0, int(capacity.max())
    while low < high:  # the smallest limit for each bin at which all pods fit
        middle = (low + high) // 2
        if int(np.minimum(capacity, middle).sum()) >= wanted:
            high = middle
        else:
            low = middle + 1
    counts = np.minimum(capacity, low - 1)
    rest = wanted - int(counts.sum())
    top = np.flatnonzero(capacity >= low)
    order = top[np.lexsort((top, -capacity[top], -preference[top]))]
    counts[order[:rest]] += 1
    return counts


def first_fit(bins: Bins) -> Ints:
    """Fill bins in the order in which they became known (first fit)."""
    return in_order(bins, np.arange(len(bins.capacity)))


def tightest(bins: Bins) -> Ints:
    """Fill the bins with least capacity first (best fit, node by node)."""
    return in_order(bins, np.argsort(bins.capacity, kind="stable"))


def cpu_and_gpus(cluster: Cluster) -> tuple[list[int], Ints]:
    """Return the columns of CPU and GPUs, and the amounts of the largest node in them."""
    columns = [cluster.resources.index(name) for name in ("cpu", GPU)]
    return columns, np.maximum(cluster.allocatable[:, columns].max(axis=0), 1)


def in_order(bins: Bins, order: Ints) -> Ints:
    """Fill bins one after the other in the order given."""
    counts = np.zeros_like(bins.capacity)
    before = np.concatenate([[0], np.cumsum(bins.capacity[order])[:-1]])
    counts[order] = np.clip(bins.wanted - before, 0, bins.capacity[order])
    return counts


if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {
            "Chooser": "gangsched.core.placement.choosers:BinChooser",
            "even": "gangsched.core.placement.choosers:evenly",
            "fewest": "gangsched.core.placement.choosers:fewest_bins",
            "first": "gangsched.core.placement.choosers:first_fit",
        },
    )
