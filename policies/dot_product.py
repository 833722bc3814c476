"""Dot product: the node with the free vector least aligned with the pod's (Tetris's opposite).

The form of the FGD paper's artifact: score 1 - mean(free * requested / largest squared).
"""

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
class DotProduct:
    """Smallest product of free and requested amounts, CPU and GPUs with equal weights."""

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on the nodes with the smallest product."""
        return fill(waiting, snapshot, _choose)


def _choose(bins: Bins) -> Ints:
    if bins.rows is None:  # domains: the tightest first
        return tightest(bins)
    cluster = bins.cluster
    columns, largest = cpu_and_gpus(cluster)
    product = (
        cluster.free()[bins.rows][:, columns]
        * cluster.request_vector(bins.needs)[columns]
        / largest.astype(np.float64) ** 2
    ).sum(axis=1)
    return in_order(bins, np.argsort(product, kind="stable"))
