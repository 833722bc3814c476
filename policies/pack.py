"""Pack: as few nodes as possible, so that large holes stay whole for large gangs."""

from dataclasses import dataclass

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import fewest_bins
from gangsched.core.placement.fill import fill
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Pack:
    """The node with most room first; the rest goes where it fits most tightly.

    For pods of one kind this uses the smallest possible number of nodes.
    """

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on few nodes."""
        return fill(waiting, snapshot, fewest_bins)
