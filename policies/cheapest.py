"""The cheapest victims: least lost GPU time, fewest gangs, chosen together with the placement."""

from dataclasses import dataclass

from gangsched.core.model.placement import Placement
from gangsched.core.policy import PreemptionRequest
from gangsched.core.preemption.victim_options import PreemptionCost
from gangsched.core.preemption.victim_search import VictimSearch


@dataclass(frozen=True, slots=True)
class Cheapest:
    """Preempts the cheapest gangs; see `core/preemption/victim_search.py`.

    A preempted gang costs its lost work, `restart_s` seconds of all its GPUs, and `gang`
    GPU-seconds. `fairness` is the discount for gangs of the queue that is furthest above its share.
    With `solve`, CP-SAT improves the result of counting.
    """

    restart_s: float = 60.0
    gang: float = 60.0
    fairness: float = 0.5
    solve: bool = True

    def choose(self, request: PreemptionRequest) -> Placement | None:
        """Return a placement and the gangs that it evicts."""
        prices = PreemptionCost(self.restart_s, self.gang, self.fairness)
        return VictimSearch(request, prices, solve=self.solve).cheapest()
