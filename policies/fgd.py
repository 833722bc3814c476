"""FGD: each pod goes where it adds the least fragmentation (Weng et al., USENIX ATC'23)."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import Bins, cpu_and_gpus, fewest_bins
from gangsched.core.placement.fill import fill
from gangsched.core.placement.fragmentation import Floats, TypicalPod, growth, workload
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Fgd:
    """Fragmentation gradient descent.

    `typical` is the usual workload. If empty, it is computed from the snapshot: the requirements of
    all pods, each with its share. `leftover_milli` prefers tight nodes: it is the weight of free
    CPU and GPUs, as shares of the largest node, beside growth. Costs are rounded to `grain_milli`
    thousandths of a GPU; of equal nodes, the first is taken. With 100 and 100, more GPUs are
    allocated than by plain descent on the traces of the paper (table in docs/benchmarks.md).
    """

    typical: tuple[TypicalPod, ...] = ()
    leftover_milli: float = 0.0
    grain_milli: float = 1.0

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place each pod on the node where fragmentation grows least."""
        typical = self.typical or workload(waiting, snapshot)

        def choose(bins: Bins) -> Ints:
            return (
                fewest_bins(bins) if bins.rows is None else self._descend(bins, snapshot, typical)
            )

        return fill(waiting, snapshot, choose)

    def _descend(self, bins: Bins, snapshot: Snapshot, typical: tuple[TypicalPod, ...]) -> Ints:
        rows = bins.rows
        assert rows is not None, "bins are nodes"  # noqa: S101
        counts = np.zeros_like(bins.capacity)
        price = np.where(bins.capacity > 0, self._prices(bins, rows, typical), np.inf)
        if bins.wanted == 1:
            counts[int(np.argmin(price))] = 1  # ties go to the node that became known first
            return counts
        with snapshot.trial() as trial:
            for _ in range(bins.wanted):
                at = int(np.argmin(price))
                counts[at] += 1
                trial.add_pods(int(rows[at]), bins.needs)
                full = counts[at] == bins.capacity[at]
                price[at] = np.inf if full else self._prices(bins, rows[at : at + 1], typical)[0]
        return counts

    def _prices(self, bins: Bins, rows: Ints, typical: tuple[TypicalPod, ...]) -> Floats:
        """Return the cost of one more pod on each row."""
        cluster = bins.cluster
        if self.typical:  # a fixed workload: the growth of unchanged nodes is cached
            price = growing(cluster, bins.needs, self.typical)[rows]
        else:
            price = growth(cluster, rows, bins.needs, typical)[0]
        if self.leftover_milli:
            columns, largest = cpu_and_gpus(cluster)
            free = cluster.allocatable[rows][:, columns] - cluster.used[rows][:, columns]
            price = price + self.leftover_milli * (free / largest).mean(axis=1)
        return np.round(price / self.grain_milli)


def growing(cluster: Cluster, needs: PodRequirements, typical: tuple[TypicalPod, ...]) -> Floats:
    """Return the growth of each node's fragmentation by one pod, cached for unchanged nodes."""
    every = np.arange(len(cluster.names))
    return cluster.usage_cached(
        ("growth", needs, typical), lambda rows: growth(cluster, every[rows], needs, typical)[0]
    )
