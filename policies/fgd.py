"""FGD: each pod where it adds least fragmentation (Weng et al., USENIX ATC'23)."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster import Cluster
from gangsched.core.model import PodNeeds, Waiting
from gangsched.core.nodes import Ints
from gangsched.core.placement.choosers import Bins, fewest
from gangsched.core.placement.fill import fill
from gangsched.core.placement.fragmentation import Floats, Typical, growth, workload
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Fgd:
    """Fragmentation gradient descent.

    `typical` is the usual workload; left empty, it is read off what runs and waits: the shapes of
    all pods in the snapshot, each with its share.
    """

    typical: tuple[Typical, ...] = ()

    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        """Place each pod on the node whose fragmentation grows least."""
        typical = self.typical or workload(waiting, snapshot)

        def choose(bins: Bins) -> Ints:
            if bins.rows is None:
                return fewest(bins)
            return _descend(bins, self._grows(bins, typical), snapshot, typical)

        return fill(waiting, snapshot, choose)

    def _grows(self, bins: Bins, typical: tuple[Typical, ...]) -> Floats:
        """Return how much fragmentation grows on each bin that has room."""
        assert bins.rows is not None, "bins are nodes"  # noqa: S101
        if self.typical:  # it stays, and so do most nodes from one pod to the next
            grows = growing(bins.cluster, bins.needs, self.typical)[bins.rows]
        else:
            grows = growth(bins.cluster, bins.rows, bins.needs, typical)[0]
        return np.where(bins.room > 0, grows, np.inf)


def growing(cluster: Cluster, needs: PodNeeds, typical: tuple[Typical, ...]) -> Floats:
    """Return how much F of each slot grows by one such pod; what did not change is remembered."""
    every = np.arange(len(cluster.names))
    return cluster.known(
        ("growth", needs, typical), lambda rows: growth(cluster, every[rows], needs, typical)[0]
    )


def _descend(bins: Bins, grows: Floats, snapshot: Snapshot, typical: tuple[Typical, ...]) -> Ints:
    assert bins.rows is not None, "bins are nodes"  # noqa: S101
    counts = np.zeros_like(bins.room)
    if bins.wanted == 1:
        counts[int(np.argmin(grows))] = 1  # ties go to the node that became known first
        return counts
    with snapshot.trial() as trial:
        for _ in range(bins.wanted):
            at = int(np.argmin(grows))
            counts[at] += 1
            row = bins.rows[at : at + 1]
            trial.take(int(row[0]), bins.needs)
            if counts[at] == bins.room[at]:
                grows[at] = np.inf
            else:
                grows[at] = growth(bins.cluster, row, bins.needs, typical)[0][0]
    return counts
