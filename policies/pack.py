"""Pack: as few nodes as possible, so that whole nodes stay free for large gangs."""

from dataclasses import dataclass

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import fewest_bins
from gangsched.core.placement.fill import fill
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Pack:
    """The node with the most free capacity first; the remaining pods go to the tightest node.

    For pods of one class this uses the smallest possible number of nodes.
    """

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on few nodes."""
        return fill(waiting, snapshot, fewest_bins)
