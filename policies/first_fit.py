"""First fit: the first node in the list that has room. The yardstick of every other policy."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster import Ints
from gangsched.core.model import Waiting
from gangsched.core.placement.choosers import Bins, in_order
from gangsched.core.placement.fill import fill
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Nodes in the order they became known."""

    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang on the first nodes that fit."""
        return fill(waiting, snapshot, _choose)


def _choose(bins: Bins) -> Ints:
    return in_order(bins, np.arange(len(bins.room)))
