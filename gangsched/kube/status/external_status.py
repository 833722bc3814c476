"""The statuses of other schedulers' groups, by kind.

Each status is the one that the kind's own controller would write, because operators wait for it.
For example, operators for Volcano create no pod before a group is Inqueue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gangsched.core.engine.gangs.member import State
from gangsched.kube.decoding.external.groups import ExternalKind
from gangsched.kube.decoding.membership import KAI, PLUGINS, UPSTREAM, VOLCANO
from gangsched.kube.decoding.native_groups import VERSIONS
from gangsched.kube.status.gang_progress import GangProgress
from gangsched.kube.status.native_status import native_status


@dataclass(frozen=True, slots=True)
class ExternalStatus:
    """Returns the status of one kind; if it is `merged`, conditions of other writers stay."""

    body: Callable[[GangProgress], dict[str, Any]]
    merged: bool = False


def _counts(progress: GangProgress) -> dict[str, int]:
    return dict(zip(("running", "succeeded", "failed"), progress.pods, strict=True))


def _volcano_status(progress: GangProgress) -> dict[str, Any]:
    """Pending -> Inqueue (pods may be created) -> Running -> Completed."""
    running, succeeded, _ = progress.pods
    phase = "Inqueue"
    if progress.state == State.PLACED:
        phase = "Completed" if progress.done else "Running"
        if not progress.done and running + succeeded < progress.minimum:
            phase = "Unknown"
    condition = {"status": "True", "transitionID": progress.since, "message": progress.message}
    condition["lastTransitionTime"] = progress.since
    if progress.refused:
        condition |= {"type": "Unschedulable", "reason": "NotEnoughResources"}
    elif progress.state == State.PLACED:
        condition |= {"type": "Scheduled", "reason": "tasks in gang are ready to be scheduled"}
    else:
        return {"phase": phase, **_counts(progress)}
    return {"phase": phase, "conditions": [condition], **_counts(progress)}


def _plugin_status(progress: GangProgress) -> dict[str, Any]:
    """Pending -> Scheduling -> Scheduled -> Running -> Finished | Failed."""
    running, succeeded, failed = progress.pods
    phase = "Scheduling" if progress.refused or progress.state == "Pending" else "Pending"
    if progress.state in (State.RESERVED, State.BINDING):
        phase = "Scheduled"
    if progress.state == State.PLACED:
        phase = "Running" if running + succeeded >= progress.minimum else "Scheduled"
    if progress.state == State.PLACED and progress.done:
        phase = "Failed" if failed else "Finished"
    return {"phase": phase, **_counts(progress)}


def _kai_status(progress: GangProgress) -> dict[str, Any]:
    phase = "Running" if progress.state == State.PLACED else "Pending"
    status: dict[str, Any] = {"phase": phase, **_counts(progress), "schedulingConditions": []}
    if progress.refused:
        status["schedulingConditions"] = [
            {
                "type": "UnschedulableOnNodePool",
                "status": "True",
                "nodePool": "default",
                "reason": progress.reason,
                "message": progress.message,
                "transitionID": progress.since,
                "lastTransitionTime": progress.since,
            }
        ]
    return status


WRITERS: dict[tuple[str, str], ExternalStatus] = {
    (f"{PLUGINS}/v1alpha1", "PodGroup"): ExternalStatus(_plugin_status),
    (f"{VOLCANO}/v1beta1", "PodGroup"): ExternalStatus(_volcano_status),
    (f"{KAI}/v2alpha2", "PodGroup"): ExternalStatus(_kai_status),
    **{
        (f"{UPSTREAM}/{version}", "PodGroup"): ExternalStatus(native_status(condition), merged=True)
        for version, condition in VERSIONS.items()
    },
}
"""The kinds with a status that gangsched writes, by apiVersion and kind."""


def status_of(kind: ExternalKind) -> ExternalStatus | None:
    """Return the status writer of a kind, or None if only the kind's own controller writes it."""
    return WRITERS.get((kind.api_version, kind.kind))
