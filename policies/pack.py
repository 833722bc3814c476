"""Pack: as few nodes as possible, so that large holes stay whole for large gangs."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster import Cluster, Ints
from gangsched.core.model import PodNeeds, Waiting
from gangsched.core.placement.fill import fill
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Pack:
    """Largest capacity first; the rest goes where it fits most tightly.

    For pods of one kind this uses the smallest possible number of nodes.
    """

    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on few nodes."""
        return fill(waiting, snapshot, _choose)


def _choose(cluster: Cluster, needs: PodNeeds, room: Ints, preference: Ints, wanted: int) -> Ints:
    del cluster, needs
    counts = np.zeros_like(room)
    candidates = np.flatnonzero(room)
    slots = np.arange(len(room))
    order = candidates[np.lexsort((slots[candidates], -room[candidates], -preference[candidates]))]
    filled = np.cumsum(room[order])
    last = int(np.searchsorted(filled, wanted))
    counts[order[:last]] = room[order[:last]]
    rest = wanted - (int(filled[last - 1]) if last else 0)
    tail = order[last:]
    best = preference[tail[0]]
    tight = tail[(room[tail] >= rest) & (preference[tail] == best)]
    counts[tight[np.argmin(room[tight])]] = rest
    return counts
