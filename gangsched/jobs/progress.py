"""The progress of a job of any kind, as its status shows it, for metrics.

    Suspended <-> Waiting -> Starting -> Running <-> Restarting -> an end

A tenant may write any status of its own jobs, so every field may be missing or malformed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gangsched.jobs.common.model import Json
from gangsched.jobs.common.times import parse_time


class JobState(StrEnum):
    """States of a job that has not ended."""

    SUSPENDED = "Suspended"
    WAITING = "Waiting"
    """Its gang is pending, and its status has the reason."""

    STARTING = "Starting"
    """Its gang does not wait, and none of its pods is ready yet."""

    RUNNING = "Running"
    RESTARTING = "Restarting"


class JobEnd(StrEnum):
    """How a job ended; the last three are ends of trials."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"
    EARLY_STOPPED = "EarlyStopped"
    METRICS_UNAVAILABLE = "MetricsUnavailable"


_ENDS = {end.value: end for end in JobEnd} | {
    "Complete": JobEnd.SUCCEEDED,
    "Completed": JobEnd.SUCCEEDED,
}
"""The ends by the types of conditions: of JobSets and TrainJobs, and of all other kinds."""

_RESTARTS = ("restarts", "gangRestarts")
"""Fields of statuses that count restarts: of JobSets, and of the kinds of kubeflow.org/v1."""


_LETTERS_OF_TIME = 40


@dataclass(frozen=True, slots=True)
class ObservedProgress:
    """The progress of one job; times are in seconds since the epoch.

    `since_s` is when the job came into its state, as far as the status has that time. `wanted_s`
    is when the job was created, or resumed last. `restart` names the last restart, or is empty.
    `is_new` says that no controller has written a status yet. `has_run` says that the job ran, or
    runs.
    """

    state: JobState
    end: JobEnd | None
    since_s: float
    wanted_s: float
    restart: str
    is_new: bool
    has_run: bool


def progress(body: Json) -> ObservedProgress:
    """Return the progress of a job."""
    status = _mapping(body.get("status"))
    conditions = {str(item.get("type")): item for item in _items(status.get("conditions"))}
    true = {kind: item for kind, item in conditions.items() if item.get("status") == "True"}
    end = next((end for kind, end in _ENDS.items() if kind in true), None)
    state, evidence = _state(status, conditions, true)
    created_s = time_of(_mapping(body.get("metadata")).get("creationTimestamp"), 0.0)
    resumed = conditions.get("Suspended")
    wanted_s = created_s
    if resumed is not None and "Suspended" not in true:
        wanted_s = time_of(resumed.get("lastTransitionTime"), created_s)
    restarting = str(true.get("Restarting", {}).get("lastTransitionTime") or "")
    counts = [_count(status.get(field)) for field in _RESTARTS]
    has_run = state in (JobState.RUNNING, JobState.RESTARTING) or "startTime" in status
    return ObservedProgress(
        state=state,
        end=end,
        since_s=time_of(evidence.get("lastTransitionTime"), wanted_s),
        wanted_s=wanted_s,
        restart=f"{restarting} {counts}" if restarting or any(counts) else "",
        is_new=not status,
        has_run=has_run or end is not None or bool(restarting) or any(counts),
    )


def _state(
    status: Mapping[str, Any], conditions: Mapping[str, Json], true: Mapping[str, Json]
) -> tuple[JobState, Json]:
    """Return the state, and the condition that shows it, or an empty one."""
    scheduled = conditions.get("Scheduled")
    if "Suspended" in true:
        return JobState.SUSPENDED, true["Suspended"]
    if scheduled is not None and scheduled.get("status") == "False":
        return JobState.WAITING, scheduled
    for state in (JobState.RESTARTING, JobState.RUNNING):
        if state in true:
            return state, true[state]
    if any(
        _count(counts.get("ready")) or _count(counts.get("succeeded"))
        for field in ("replicatedJobsStatus", "jobsStatus")
        for counts in _items(status.get(field))
    ):
        return JobState.RUNNING, scheduled or {}
    return JobState.STARTING, scheduled or {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> Iterator[Json]:
    """Yield the objects of a list."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def time_of(text: object, otherwise: float) -> float:
    """Return a timestamp as seconds; a missing or malformed one is `otherwise`."""
    try:
        time_s = parse_time(str(text)[:_LETTERS_OF_TIME])
    except ValueError:
        return otherwise
    return time_s if math.isfinite(time_s) else otherwise
