"""First fit: the first node with free capacity. The baseline of every other policy."""

from dataclasses import dataclass

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.choosers import first_fit
from gangsched.core.placement.fill import fill
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Nodes in the order they became known."""

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on the first nodes that fit."""
        return fill(waiting, snapshot, first_fit)
