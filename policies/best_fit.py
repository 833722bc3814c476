"""Best fit: the node that has the least left afterwards, as in bin packing."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import Bins, cpu_and_gpus, in_order, tightest
from gangsched.core.placement.fill import fill
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class BestFit:
    """Least free CPU and GPUs after placing, as shares of the largest node with equal weights.

    This is BestFit of the FGD paper's artifact. A node that takes a pod becomes even tighter.
    Filling nodes in the order of their scores therefore equals a new choice for every pod.
    """

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on the tightest nodes."""
        return fill(waiting, snapshot, _choose)


def _choose(bins: Bins) -> Ints:
    if bins.rows is None:  # domains: the tightest first
        return tightest(bins)
    columns, largest = cpu_and_gpus(bins.cluster)
    left = (bins.cluster.free()[bins.rows][:, columns] / largest).sum(axis=1)
    return in_order(bins, np.argsort(left, kind="stable"))
