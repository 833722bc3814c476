"""FGD: each pod where it adds least fragmentation (Weng et al., USENIX ATC'23)."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import GPU, PodNeeds
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import Bins, fewest_bins
from gangsched.core.placement.fill import fill
from gangsched.core.placement.fragmentation import Floats, Typical, growth, workload
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Fgd:
    """Fragmentation gradient descent.

    `typical` is the usual workload; left empty, it is read off what runs and waits: the shapes of
    all pods in the snapshot, each with its share. `leftover_milli` prefers tight nodes: it is what
    free CPU and GPUs, each as a share of the largest node's, count beside growth. What is the same
    to `grain_milli` thousandths of a GPU goes to the node known first. 100 and 100 hand out more
    GPUs than plain descent on the traces of the paper; docs/benchmarks.md has the table.
    """

    typical: tuple[Typical, ...] = ()
    leftover_milli: float = 0.0
    grain_milli: float = 1.0

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place each pod on the node whose fragmentation grows least."""
        typical = self.typical or workload(waiting, snapshot)

        def choose(bins: Bins) -> Ints:
            return (
                fewest_bins(bins) if bins.rows is None else self._descend(bins, snapshot, typical)
            )

        return fill(waiting, snapshot, choose)

    def _descend(self, bins: Bins, snapshot: Snapshot, typical: tuple[Typical, ...]) -> Ints:
        rows = bins.rows
        assert rows is not None, "bins are nodes"  # noqa: S101
        counts = np.zeros_like(bins.room)
        price = np.where(bins.room > 0, self._prices(bins, rows, typical), np.inf)
        if bins.wanted == 1:
            counts[int(np.argmin(price))] = 1  # ties go to the node that became known first
            return counts
        with snapshot.trial() as trial:
            for _ in range(bins.wanted):
                at = int(np.argmin(price))
                counts[at] += 1
                trial.take(int(rows[at]), bins.needs)
                full = counts[at] == bins.room[at]
                price[at] = np.inf if full else self._prices(bins, rows[at : at + 1], typical)[0]
        return counts

    def _prices(self, bins: Bins, rows: Ints, typical: tuple[Typical, ...]) -> Floats:
        """Return what one more pod costs on each row."""
        cluster = bins.cluster
        if self.typical:  # it stays, and so do most nodes from one pod to the next
            price = growing(cluster, bins.needs, self.typical)[rows]
        else:
            price = growth(cluster, rows, bins.needs, typical)[0]
        if self.leftover_milli:
            columns = [cluster.resources.index(name) for name in ("cpu", GPU)]
            largest = np.maximum(cluster.allocatable[:, columns].max(axis=0), 1)
            free = cluster.allocatable[rows][:, columns] - cluster.used[rows][:, columns]
            price = price + self.leftover_milli * (free / largest).mean(axis=1)
        return np.round(price / self.grain_milli)


def growing(cluster: Cluster, needs: PodNeeds, typical: tuple[Typical, ...]) -> Floats:
    """Return how much F of each slot grows by one such pod; what did not change is remembered."""
    every = np.arange(len(cluster.names))
    return cluster.usage_cached(
        ("growth", needs, typical), lambda rows: growth(cluster, every[rows], needs, typical)[0]
    )
