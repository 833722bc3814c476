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
    """Return the status function of a version; `condition` is its condition of a started group."""

    def written(progress: GangProgress) -> dict[str, Any]:
        before = _conditions(progress.before)
        conditions = [
            _scheduled(progress, condition, before.get(condition)),
            _disrupted(progress, before.get(_DISRUPTED)),
        ]
        return {"conditions": [condition for condition in conditions if condition]}

    return written


def _scheduled(progress: GangProgress, condition: str, before: Mapping[str, Any] | None) -> Any:
    """Return the condition of a started group; a true condition stays true for ever.

    A group without a planning attempt has no such condition.
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
    """Return the condition of a preempted group, which turns false when the group starts again."""
    if progress.reason == ReportReason.PREEMPTED:
        return _condition(progress, _DISRUPTED, "True", "PreemptionByScheduler", before)
    if before is not None and progress.state == State.PLACED:
        return _condition(progress, _DISRUPTED, "False", "Scheduled", before)
    return before


def _condition(
    progress: GangProgress, name: str, value: str, reason: str, before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a condition with the time of its last change."""
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
    """Return the conditions by type."""
    listed = status.get("conditions")
    conditions = listed if isinstance(listed, list) else []
    return {
        str(condition.get("type")): condition
        for condition in conditions
        if isinstance(condition, Mapping)
    }
