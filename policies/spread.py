"""Spread: as evenly as possible, so that one lost node costs a gang the fewest members."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster import Cluster, Ints
from gangsched.core.model import PodNeeds, Waiting
from gangsched.core.placement.fill import fill
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Spread:
    """The fewest pods of the gang on the fullest node; ties go to the emptier node."""

    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on many nodes."""
        return fill(waiting, snapshot, _choose)


def _choose(cluster: Cluster, needs: PodNeeds, room: Ints, preference: Ints, wanted: int) -> Ints:
    del cluster, needs
    low, high = 0, int(room.max())
    while low < high:  # the smallest height at which the gang fits under the water line
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
