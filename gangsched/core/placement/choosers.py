"""Ways to share a number of pods out over bins: what most placers are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.pods import PodRequirements
from gangsched.core.renamed import renamed


@dataclass(frozen=True, slots=True)
class Bins:
    """Places for `wanted` pods of one kind (or whole slices of them).

    `room` and `preference` have one entry a bin. Bins are nodes, with slots `rows`, or
    domains of one level, and then `rows` is None.
    """

    cluster: Cluster
    needs: PodRequirements
    rows: Ints | None
    room: Ints
    preference: Ints
    wanted: int


BinChooser = Callable[[Bins], Ints]
"""Returns how many go to each bin: at most its `room`, `wanted` in all (they fit)."""


def fewest_bins(bins: Bins) -> Ints:
    """Use as few bins as possible: the largest first, the rest where it fits most tightly.

    With equal preferences no other choice uses fewer bins. Kueue calls this BestFit (KEP-2724).
    """
    room, preference, wanted = bins.room, bins.preference, bins.wanted
    candidates = np.flatnonzero(room)
    order = candidates[np.lexsort((candidates, -room[candidates], -preference[candidates]))]
    counts = np.zeros_like(room)
    filled = np.cumsum(room[order])
    last = int(np.searchsorted(filled, wanted))
    counts[order[:last]] = room[order[:last]]
    rest = wanted - (int(filled[last - 1]) if last else 0)
    tail = order[last:]
    best = preference[tail[0]]
    tight = tail[(room[tail] >= rest) & (preference[tail] == best)]
    counts[tight[np.argmin(room[tight])]] = rest
    return counts


def evenly(bins: Bins) -> Ints:
    """Keep the fullest bin as empty as possible; ties go to the emptier bin."""
    room, preference, wanted = bins.room, bins.preference, bins.wanted
    low, high = 0, int(room.max())
    while low < high:  # the smallest height at which the pods fit under the water line
        middle = (low + high) // 2
        if int(np.minimum(room, middle).sum()) >= wanted:
            high = middle
        else:
            low = middle + 1
    counts = np.minimum(room, low - 1)
    rest = wanted - int(counts.sum())
    top = np.flatnonzero(room >= low)
    order = top[np.lexsort((top, -room[top], -preference[top]))]
    counts[order[:rest]] += 1
    return counts


def first_fit(bins: Bins) -> Ints:
    """Fill bins in the order in which they became known (first fit)."""
    return in_order(bins, np.arange(len(bins.room)))


def tightest(bins: Bins) -> Ints:
    """Fill the bins with least capacity first (best fit, node by node)."""
    return in_order(bins, np.argsort(bins.room, kind="stable"))


def in_order(bins: Bins, order: Ints) -> Ints:
    """Fill bins one after the other in the order given."""
    counts = np.zeros_like(bins.room)
    before = np.concatenate([[0], np.cumsum(bins.room[order])[:-1]])
    counts[order] = np.clip(bins.wanted - before, 0, bins.room[order])
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
