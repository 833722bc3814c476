"""Topology: close together, with the fewest domains at every level, and the tightest that fit."""

from dataclasses import dataclass

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import fewest_bins
from gangsched.core.placement.fill import fill
from gangsched.core.placement.tree_fill import FillStrategy
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class TopologyPlacer:
    """Goes down the tree level by level, using few domains at each (Kueue's BestFit, KEP-2724)."""

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on few domains of each level."""
        return fill(waiting, snapshot, FillStrategy(fewest_bins, descend=True))
