"""Releases a job's gang once another controller runs its kind, as a pure function.

    pending, or all pods ended -> the PodGroup is deleted
    running                    -> the gang's minimum shrinks to the pods that run

Running pods stay in their gang until they end. Nothing is planned for pods of the other controller:
they belong to the gang of their owner. A Job creates its pods from a template that names the
PodGroup, so the PodGroup of a pending JobSet stays: all its pods will belong to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import is_terminating
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """What to do with a PodGroup and its pods."""

    delete_group: bool = False
    delete_pods: tuple[Json, ...] = ()
    spec: Json | None = None
    """A merge patch of its spec."""


def release(kind: str, owner: str, group: Json, pods: Sequence[Json]) -> ReleasePlan:
    """Return how to release the gang of a job of some kind; `pods` are the gang's."""
    direct = kind in FRAMEWORKS
    phase = (group.get("status") or {}).get("phase") or ""
    if is_terminating(group) or phase == "Binding":
        return ReleasePlan()  # the gang will be placed, or torn down, soon
    if direct and group["metadata"]["name"] != owner:
        return ReleasePlan()  # the group is not from this controller
    # An unbound pod may be pinned to a node that gangsched chose; other schedulers ignore the pin.
    open_pods = (
        tuple(pod for pod in pods if not _is_bound(pod) and not is_terminating(pod))
        if direct
        else ()
    )
    running = sum(
        _is_bound(pod) and not is_terminating(pod) and not _has_ended(pod) for pod in pods
    )
    if phase == "Placed" and running:
        spec = group.get("spec") or {}
        fewer = int(spec.get("minMember") or running) > running
        relaxed = fewer or bool(spec.get("roles")) or not spec.get("minMember")
        wanted = min(running, int(spec.get("minMember") or running))
        change = {"minMember": wanted, "roles": None} if relaxed else None
        return ReleasePlan(delete_pods=open_pods, spec=change)
    return ReleasePlan(delete_group=direct, delete_pods=open_pods)


def _is_bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _has_ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED
