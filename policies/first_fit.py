"""First fit: the first node in the list that has room. The yardstick of every other policy."""

from dataclasses import dataclass

from gangsched.core.model import Waiting
from gangsched.core.placement.choosers import first
from gangsched.core.placement.fill import fill
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Nodes in the order they became known."""

    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on the first nodes that fit."""
        return fill(waiting, snapshot, first)
