"""The youngest victims: lowest priority, then the latest to start; what most schedulers do."""

from dataclasses import dataclass

from gangsched.core.model.placement import Placement
from gangsched.core.policy import PreemptionRequest
from gangsched.core.preemption.victim_search import VictimSearch


@dataclass(frozen=True, slots=True)
class Youngest:
    """Kueue's order of candidates, for comparison: it looks at no checkpoint and no size."""

    def choose(self, request: PreemptionRequest) -> Placement | None:
        """Return a placement and whom it evicts."""
        return VictimSearch(request, solve=False, youngest=True).cheapest()
