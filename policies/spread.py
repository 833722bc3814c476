"""Spread: as evenly as possible, so that a failed node costs a gang the fewest members."""

from dataclasses import dataclass

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import evenly
from gangsched.core.placement.fill import fill
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SpreadPlacer:
    """The fewest pods of the gang on the fullest node; ties go to the emptier node."""

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on many nodes."""
        return fill(waiting, snapshot, evenly)
