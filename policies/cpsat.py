"""Cpsat: the best placement there is, with a proof; counting first, CP-SAT where it must."""

from dataclasses import dataclass, field

from gangsched.core.model import Waiting
from gangsched.core.placement.optimise import Options, optimise
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Cpsat:
    """Minimises the objectives in order, and says whether the result is proved."""

    options: Options = field(default_factory=Options)

    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang as well as the budget allows."""
        return optimise(waiting, snapshot, self.options)
