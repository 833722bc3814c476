"""Random: any node that fits, one pod at a time. A lower bound for other policies."""

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import Bins
from gangsched.core.placement.fill import fill
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RandomFit:
    """Uniform over feasible nodes; seeded by the gang's name, so that a run can be repeated."""

    seed: int = 0

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on random nodes."""
        rng = np.random.default_rng((self.seed, crc32(waiting.gang.id.encode())))

        def choose(bins: Bins) -> Ints:
            counts = np.zeros_like(bins.capacity)
            open_bins = list(np.flatnonzero(bins.capacity))
            for _ in range(bins.wanted):
                at = int(rng.integers(len(open_bins)))
                counts[open_bins[at]] += 1
                if counts[open_bins[at]] == bins.capacity[open_bins[at]]:
                    open_bins[at] = open_bins[-1]
                    open_bins.pop()
            return counts

        return fill(waiting, snapshot, choose)
