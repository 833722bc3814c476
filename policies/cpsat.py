"""Cpsat: the best placement, with a proof; by counting, and by CP-SAT where needed."""

from dataclasses import dataclass

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.fragmentation import TypicalPod, workload
from gangsched.core.placement.objectives import DEFAULT, PlacementObjective
from gangsched.core.placement.optimal.optimise import SolverOptions, optimise
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Cpsat:
    """Minimises the objectives in order, and reports whether the result is proved.

    `budget` is the deterministic time of CP-SAT for one gang in seconds. Gangs of more than
    `solved_pods` pods are placed by counting.
    """

    objectives: tuple[PlacementObjective, ...] = DEFAULT
    budget: float = 1.0
    solved_pods: int = 512

    def place(self, waiting: PendingGang, snapshot: Snapshot) -> Placement | Refusal:
        """Place the gang as well as possible within the budget."""
        typical: tuple[TypicalPod, ...] = ()
        if PlacementObjective.FRAGMENTATION in self.objectives:
            typical = workload(waiting, snapshot)
        options = SolverOptions(self.objectives, self.budget, self.solved_pods, typical)
        return optimise(waiting, snapshot, options)
