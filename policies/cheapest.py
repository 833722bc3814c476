"""The cheapest victims: least GPU time lost, fewest gangs, chosen together with the place."""

from dataclasses import dataclass

from gangsched.core.model.placement import Placement
from gangsched.core.policy import PreemptionRequest
from gangsched.core.preemption.victim_options import PreemptionCost
from gangsched.core.preemption.victim_search import VictimSearch


@dataclass(frozen=True, slots=True)
class Cheapest:
    """Stops what costs least; see `core/preemption/victim_search.py`.

    `restart_s` are seconds of all its GPUs that a stopped gang loses by starting again, `gang`
    GPU-seconds for each gang that is stopped, and `fairness` how much cheaper it is to stop gangs
    of the queue furthest beyond its share. `solve` lets CP-SAT improve on what counting found.
    """

    restart_s: float = 60.0
    gang: float = 60.0
    fairness: float = 0.5
    solve: bool = True

    def choose(self, request: PreemptionRequest) -> Placement | None:
        """Return a placement and whom it evicts."""
        prices = PreemptionCost(self.restart_s, self.gang, self.fairness)
        return VictimSearch(request, prices, solve=self.solve).cheapest()
