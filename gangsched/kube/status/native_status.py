"""The conditions that kube-scheduler writes on Kubernetes' own PodGroups (scheduling.k8s.io)."""

from collections.abc import Callable, Mapping
from typing import Any

from gangsched.core.engine.gangs.member import State
from gangsched.core.model.refusal import Reason
from gangsched.core.orders import ReportReason
from gangsched.kube.status.gang_progress import GangProgress

_ERRORS = frozenset({ReportReason.INVALID, Reason.PLAN_FAILED})
_DISRUPTED = "DisruptionTarget"


def native_status(condition: str) -> Callable[[GangProgress], dict[str, Any]]:
    """Return how a group's status is written, by the name of the condition that it started."""

    def written(progress: GangProgress) -> dict[str, Any]:
        before = _conditions(progress.before)
        conditions = [
            _scheduled(progress, condition, before.get(condition)),
            _disrupted(progress, before.get(_DISRUPTED)),
        ]
        return {"conditions": [condition for condition in conditions if condition]}

    return written


def _scheduled(progress: GangProgress, condition: str, before: Mapping[str, Any] | None) -> Any:
    """Return the condition that a group started: once true it stays so, whatever comes.

    A group that was not tried yet has none.
    """
    if before is not None and before.get("status") == "True":
        return before
    if progress.state == State.PLACED:
        return _condition(progress, condition, "True", "Scheduled", before)
    if progress.reason in _ERRORS:
        return _condition(progress, condition, "False", "SchedulerError", before)
    if progress.refused:
        return _condition(progress, condition, "False", "Unschedulable", before)
    return before


def _disrupted(progress: GangProgress, before: Mapping[str, Any] | None) -> Any:
    """Return the condition that a group is stopped for another, until it starts again."""
    if progress.reason == ReportReason.PREEMPTED:
        return _condition(progress, _DISRUPTED, "True", "PreemptionByScheduler", before)
    if before is not None and progress.state == State.PLACED:
        return _condition(progress, _DISRUPTED, "False", "Scheduled", before)
    return before


def _condition(
    progress: GangProgress, name: str, value: str, reason: str, before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a condition; its time is that at which its status changed."""
    same = before is not None and before.get("status") == value
    since = before.get("lastTransitionTime") if same and before is not None else None
    return {
        "type": name,
        "status": value,
        "reason": reason,
        "message": progress.message,
        "lastTransitionTime": since or progress.now,
    }


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return conditions by their types."""
    listed = status.get("conditions")
    conditions = listed if isinstance(listed, list) else []
    return {
        str(condition.get("type")): condition
        for condition in conditions
        if isinstance(condition, Mapping)
    }
