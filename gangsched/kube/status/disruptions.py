"""The condition DisruptionTarget of pods and PodGroups that are to be stopped."""

from typing import Any

from gangsched.api import names
from gangsched.api.timestamps import rfc3339


def disruption_target(since_s: float, message: str) -> dict[str, Any]:
    """Return the condition of an announced stop."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": names.STOP_ANNOUNCED,
        "message": message,
        "lastTransitionTime": rfc3339(since_s),
    }


def no_disruption(message: str) -> dict[str, Any]:
    """Return the condition of a stop that is withdrawn or over."""
    return {
        "type": "DisruptionTarget",
        "status": "False",
        "reason": "StopWithdrawn",
        "message": message,
        "lastTransitionTime": rfc3339(),
    }
