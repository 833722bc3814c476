"""The record of one gang's status: the state to write, and the last written state."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gangsched.api import keys
from gangsched.api.timestamps import rfc3339
from gangsched.core.model.ids import NodeName, PodName
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.orders import ReportReason
from gangsched.core.planning.forecast import Prediction
from gangsched.kube.decoding.native_groups import VERSIONS
from gangsched.kube.decoding.quantities import parse_timestamp
from gangsched.kube.status.gang_progress import GangProgress
from gangsched.kube.status.other_schedulers import REASON as NOT_SERVED

WARNINGS = frozenset(
    {
        ReportReason.BROKEN,
        ReportReason.BELOW_MINIMUM,
        ReportReason.INVALID,
        ReportReason.PREEMPTED,
        ReportReason.SHRUNK,
        ReportReason.STOP_ANNOUNCED,
        Reason.GIVEN_UP,
        Reason.PLAN_FAILED,
        keys.REASON,
        NOT_SERVED,
    }
) | {
    reason.value
    for reason in (
        Reason.NOT_ADMITTED,
        Reason.UNKNOWN_QUEUE,
        Reason.QUEUE_INVALID,
        Reason.MISCONFIGURED,
        Reason.NOT_PERMITTED,
        Reason.NO_GROUP,
        Reason.UNSATISFIABLE,
        Reason.TOO_LARGE,
        Reason.LARGER_THAN_QUOTA,
        Reason.BEYOND_PLANNER,
    )
}
"""Problems that a user has to solve; a gang that only waits gets a Normal Event."""

_REFUSALS = frozenset({"Unschedulable", "UnschedulableOnNodePool", *VERSIONS.values()})
"""Conditions of Volcano, KAI and Kubernetes with our message and with their reason."""

_HINTS = 4
_UNKNOWN = "unknown"
"""An earlier process announced a stop on the object of the gang."""

_TIMES = frozenset({"lastTransitionTime", "transitionID"})


@dataclass(slots=True)
class StatusRecord:
    """The state of one gang's status.

    `stored` is the status of an earlier process. `before` is the last written status, of any
    process. The reason in `last_event` is empty if the stored condition has the reason of another
    scheduler.
    """

    state: str = ""
    reason: str = ""
    message: str = ""
    queue: str = ""
    assignments: tuple[tuple[PodName, NodeName], ...] = ()
    proof: str = ""
    refusal: Refusal | None = None
    since: str = ""
    scheduled: str = ""
    events: list[tuple[str, str]] = field(default_factory=list)
    last_event: tuple[str, str] | None = None
    start: dict[str, Any] | None = None
    expected_s: float | None = None
    earliest_s: float | None = None
    latest_s: float | None = None
    reserved_s: float | None = None
    changed: bool = False
    writing: bool = False
    last_state: tuple[str, bool] = ("", False)
    written: Mapping[str, Any] | None = None
    stored: Mapping[str, Any] | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    hints: frozenset[str] = frozenset()
    stop: dict[str, Any] | None = None
    stop_at: str | None = None
    written_stop_at: str | None = None

    def hint(self, reason: str, message: str) -> bool:
        """Add an Event with a hint; return whether it is new. A gang gets at most four hints."""
        if message in self.hints or len(self.hints) >= _HINTS:
            return False
        self.hints |= {message}
        self.events.append((reason, message))
        return True

    def progress(self, minimum: int, pods: tuple[int, int, int], now: str) -> GangProgress:
        """Return the progress of the gang, for the writers of other schedulers' statuses."""
        return GangProgress(
            self.state,
            self.reason,
            self.message,
            self.since,
            self.refusal is not None,
            minimum,
            pods,
            self.before,
            now,
        )

    def is_repeat(self, reason: str, message: str) -> bool:
        """Return whether a reason and message equal those of the last Event."""
        last = self.events[-1] if self.events else self.last_event
        return last is not None and last[0] in ("", reason) and last[1] == message

    def is_significant(
        self, prediction: Prediction, reserved_s: float | None, now_s: float
    ) -> bool:
        """Return whether a prediction differs enough from the written one to be worth a write.

        The ends of its range may differ by a third of the wait, because the earliest start moves
        with the clock.
        """
        if self.start is None or self.start.get("position") != prediction.position:
            return True
        moments = ((self.expected_s, prediction.start_s), (self.reserved_s, reserved_s))
        if any(_moved(said_s, found_s, now_s) for said_s, found_s in moments):
            return True
        latest_s = prediction.high_s if prediction.high_s is not None else prediction.start_s
        ends = (
            (
                self.earliest_s,
                prediction.low_s if prediction.low_s is not None else prediction.start_s,
                prediction.start_s,
            ),
            (self.latest_s, latest_s, latest_s),
        )
        for written_s, found_s, until_s in ends:
            said_s = written_s if written_s is not None else self.expected_s
            if said_s is None or found_s is None or until_s is None:
                if said_s != found_s:
                    return True
            elif abs(found_s - said_s) > max(5.0, (until_s - now_s) / 3):
                return True
        return False

    def restore_assignments(self, namespace: str) -> None:
        """Restore the assignments and proof, which only the process that placed the gang knew."""
        if self.stored is not None:
            self.proof = self.stored.get("proof") or ""
            self.assignments = tuple(
                (PodName(f"{namespace}/{assignment['pod']}"), NodeName(assignment["node"]))
                for assignment in self.stored.get("assignments") or ()
            )

    def matches(self, status: Mapping[str, Any]) -> bool:
        """Return whether the object has a status already; a first call compares the stored one."""
        if self.written is None and self.stored is not None and same(self.stored, status):
            self.written = status
        self.stored = None
        return self.written == status


def from_stored(stored: Mapping[str, Any]) -> StatusRecord:
    """Return the record of an earlier process from the status that it wrote."""
    record = StatusRecord(stored=stored, before=stored)
    conditions = stored.get("conditions") or stored.get("schedulingConditions") or ()
    for condition in (item for item in conditions if isinstance(item, dict)):
        if condition.get("type") == "DisruptionTarget":
            record.written_stop_at = _UNKNOWN
            continue
        record.since = condition.get("lastTransitionTime", "")
        if condition.get("type") == "Scheduled" and "phase" in stored:
            record.scheduled = condition.get("status", "")
            record.reason, record.message = (
                condition.get("reason", ""),
                condition.get("message", ""),
            )
            record.last_event = record.reason, record.message
        elif condition.get("type") in _REFUSALS:
            record.last_event = "", condition.get("message", "")
    start = stored.get("start")
    if isinstance(start, dict):
        with contextlib.suppress(TypeError, ValueError):  # malformed by another writer
            record.start, record.expected_s = (
                start,
                parse_timestamp(start.get("expected") or "") or None,
            )
            record.earliest_s = parse_timestamp(start.get("earliest") or "") or None
            record.latest_s = parse_timestamp(start.get("latest") or "") or None
            record.reserved_s = parse_timestamp(start.get("reserved") or "") or None
    return record


def _moved(said_s: float | None, found_s: float | None, now_s: float) -> bool:
    if said_s is None or found_s is None:
        return said_s != found_s
    return abs(found_s - said_s) > max(5.0, 0.1 * (found_s - now_s))


def same(stored: Any, wanted: Any) -> bool:
    """Return whether merging a status into the stored one would change only times.

    A missing stored field equals an empty one.
    """
    if isinstance(wanted, Mapping) and isinstance(stored, Mapping):
        return all(
            name in _TIMES or same(stored.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(stored, list):
        return len(stored) == len(wanted) and all(map(same, stored, wanted))
    return bool(stored == wanted) or (stored is None and not wanted)


def redacted_refusal(refusal: Refusal, redact: Callable[[str], str]) -> Refusal:
    """Return a refusal with redacted remedies."""
    remedies = (replace(remedy, message=redact(remedy.message)) for remedy in refusal.remedies)
    return replace(refusal, remedies=tuple(remedies))


def remedies(refusal: Refusal) -> str:
    """Return sentences about the remedies, to append to the message of the refusal."""
    changes = [remedy.message for remedy in refusal.remedies if remedy.kind not in ("wait", "move")]
    sentences = f" It would start now with {'; or '.join(changes)}." if changes else ""
    for remedy in refusal.remedies:
        if remedy.kind == "wait":
            when = f" (expected at {rfc3339(remedy.at_s)})" if remedy.at_s is not None else ""
            sentences += f" It starts by itself when {remedy.message}{when}."
        elif remedy.kind == "move":
            sentences += f" It would start after {remedy.message}."
    return sentences


def as_data(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal in the form of the PodGroup's status."""
    miss = refusal.near_miss
    return {
        "reason": refusal.reason.value,
        "role": refusal.role,
        "wanted": refusal.wanted,
        "possible": refusal.possible,
        "proved": refusal.proved,
        "nearestNode": miss.node if miss is not None else "",
        "lacks": dict(miss.lacks) if miss is not None else {},
        "remedies": [
            {"kind": remedy.kind, "message": remedy.message}
            | ({"at": rfc3339(remedy.at_s)} if remedy.at_s is not None else {})
            for remedy in refusal.remedies
        ],
    }
