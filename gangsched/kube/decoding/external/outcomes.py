"""How objects of other controllers ended, by their status. A malformed status says nothing."""

from collections.abc import Mapping
from typing import Any

from gangsched.core.model.dependencies import Outcome

_OUTCOMES = {
    "Complete": Outcome.SUCCEEDED,
    "Completed": Outcome.SUCCEEDED,
    "Succeeded": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
}
"""By the type of the condition: of Jobs, JobSets and training jobs."""


def job_outcome(status: Mapping[str, Any]) -> Outcome | None:
    """Return how an object ended by its conditions, or None before."""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("status") == "True":
            outcome = _OUTCOMES.get(str(condition.get("type")))
            if outcome is not None:
                return outcome
    return None


def ray_job_outcome(status: Mapping[str, Any]) -> Outcome | None:
    """Return how a RayJob ended. Its `jobStatus` is of one attempt, and it may have several."""
    match status.get("jobDeploymentStatus"), status.get("jobStatus"):
        case "Complete", "SUCCEEDED":
            return Outcome.SUCCEEDED
        case (("Complete" | "Failed"), _):
            return Outcome.FAILED
    return None
