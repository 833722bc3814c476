"""The condition Scheduled of a job, from its PodGroup, and an Event for each reason to wait.

    (none) -> Scheduled=False, while its gang waits -> Scheduled=True, once its gang is placed

A job has no such condition if its gang never waited, or if the job is suspended or over.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gangsched.core.bounds import MESSAGE_LETTERS
from gangsched.jobs.common.model import GroupView, JobEvent, Json
from gangsched.jobs.common.times import parse_time

KIND = "Scheduled"
REFRESH_S = 30.0
"""How long a message stays if only its numbers changed."""

_PLACED = ("Placed", "Finished")
_WAITS = ("Pending", "Gathering", "Broken")
_PASSING = ("", "Pending", "TooFewPods", "SchedulingGated", "Reserved")
"""Reasons that most gangs have only for a moment."""

_QUIET = ("BackingOff", "MakingRoom")
"""Reasons without a warning: the gang starts soon."""


@dataclass(frozen=True, slots=True)
class WaitReport:
    """The result of a report: an Event to write, and when to report again."""

    event: JobEvent | None = None
    requeue_in_s: float | None = None


def report(status: Json, groups: Iterable[GroupView], now_s: float, now: str) -> WaitReport:
    """Write into a job's status why its first waiting gang waits.

    The condition comes first in the list: clients show the last condition as the job's state.
    """
    known = _condition(status)
    groups = list(groups)
    gang = next((group for group in groups if _has_reason(group)), None)
    if gang is None:
        placed = bool(groups) and all(group.phase in _PLACED for group in groups)
        if known is not None and not groups:
            clear(status)
        elif known is not None and placed and known["status"] != "True":
            _put(status, "True", "Placed", _cut(groups[0].message), now)
        return WaitReport()
    message = _cut(gang.message)
    if known is not None and known["status"] == "False":
        if (known["reason"], known["message"]) == (gang.reason, message):
            return WaitReport()
        updated_s = parse_time(str(known.get("lastUpdateTime") or "1970-01-01T00:00:00Z"))
        if known["reason"] == gang.reason and now_s - updated_s < REFRESH_S:
            return WaitReport(requeue_in_s=updated_s + REFRESH_S - now_s)
    since = _put(status, "False", gang.reason, message, now)
    if gang.reason in _QUIET or (known is not None and known["reason"] == gang.reason):
        return WaitReport()
    once = f"{KIND} since {since}: {gang.reason}"
    return WaitReport(JobEvent("Warning", gang.reason, message, once))


def clear(status: Json) -> None:
    """Remove the condition, because the job does not wait for its gang."""
    if _condition(status) is None:
        return
    status["conditions"] = [item for item in status["conditions"] if item["type"] != KIND]
    if not status["conditions"]:
        del status["conditions"]


def parse_group_view(group: Json) -> GroupView:
    """Return the fields of a PodGroup that jobs need."""
    status = group.get("status") or {}
    conditions = status.get("conditions") or []
    return GroupView(
        uid=group["metadata"].get("uid") or "",
        phase=status.get("phase") or "",
        message=status.get("message") or "",
        assignments={a["pod"]: a["node"] for a in status.get("assignments") or []},
        spec=group.get("spec") or {},
        reason=next((c.get("reason") or "" for c in conditions if c.get("type") == KIND), ""),
    )


def part_view(job: Json) -> GroupView | None:
    """Return the state of a part that has this condition itself, if the part waits."""
    known = _condition(job.get("status") or {})
    if known is None or known["status"] != "False":
        return None
    message, reason = known.get("message") or "", known.get("reason") or ""
    return GroupView("", "Pending", message, reason=reason)


def _has_reason(group: GroupView) -> bool:
    reason = group.reason
    plain = reason.isascii() and reason.isalnum() and reason[0].isalpha()
    return group.phase in _WAITS and plain and reason not in _PASSING


def _put(status: Json, value: str, reason: str, message: str, now: str) -> str:
    """Set the condition; return the time of its last change."""
    known = _condition(status)
    since = known["lastTransitionTime"] if known is not None and known["status"] == value else now
    new = {
        "type": KIND,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    others = [item for item in status.get("conditions") or [] if item["type"] != KIND]
    if any("lastUpdateTime" in item for item in others):
        new["lastUpdateTime"] = now
    status["conditions"] = [new, *others]
    return str(since)


def _condition(status: Json) -> Json | None:
    return next((item for item in status.get("conditions") or [] if item["type"] == KIND), None)


def _cut(message: str) -> str:
    return message[: MESSAGE_LETTERS.most]
