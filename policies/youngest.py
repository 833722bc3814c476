"""The youngest victims: lowest priority, then latest start, as in most schedulers."""

from dataclasses import dataclass

from gangsched.core.model.placement import Placement
from gangsched.core.policy import PreemptionRequest
from gangsched.core.preemption.victim_search import VictimSearch


@dataclass(frozen=True, slots=True)
class Youngest:
    """Kueue's order of candidates, for comparison; it ignores checkpoints and sizes."""

    def choose(self, request: PreemptionRequest) -> Placement | None:
        """Return a placement and the gangs that it evicts."""
        return VictimSearch(request, solve=False, youngest=True).cheapest()
