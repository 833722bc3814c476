"""FGD: each pod where it adds least fragmentation (Weng et al., USENIX ATC'23)."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.model import Waiting
from gangsched.core.nodes import Ints
from gangsched.core.placement.choosers import Bins, fewest
from gangsched.core.placement.fill import fill
from gangsched.core.placement.fragmentation import Typical, growth, workload
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
            return fewest(bins) if bins.rows is None else _descend(bins, snapshot, typical)

        return fill(waiting, snapshot, choose)


def _descend(bins: Bins, snapshot: Snapshot, typical: tuple[Typical, ...]) -> Ints:
    cluster, rows = bins.cluster, bins.rows
    assert rows is not None, "bins are nodes"  # noqa: S101
    counts = np.zeros_like(bins.room)
    grows = np.where(bins.room > 0, growth(cluster, rows, bins.needs, typical)[0], np.inf)
    with snapshot.trial() as trial:
        for _ in range(bins.wanted):
            at = int(np.argmin(grows))  # ties go to the node that became known first
            counts[at] += 1
            trial.take(int(rows[at]), bins.needs)
            if counts[at] == bins.room[at]:
                grows[at] = np.inf
            else:
                grows[at] = growth(cluster, rows[at : at + 1], bins.needs, typical)[0][0]
    return counts
