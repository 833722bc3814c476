"""Jobs with pods of another controller: these pods keep their gang until they are gone.

The Training Operator's pods are the gang of their owner, or of another scheduler's PodGroup that
they name. A PodGroup of gangsched would reserve nodes for pods that never come, because running
pods do not name it. A pod that is recreated meanwhile names the same gang as the others.
"""

from collections.abc import Iterable

from gangsched.jobs.common.model import GROUP_LABEL, Json, PodView, TrainingJob

_NAMES_A_GANG = (
    "scheduling.x-k8s.io/pod-group",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
)
"""Labels and annotations by which a pod names a PodGroup of another scheduler."""


def origin_of(pod: Json) -> Json | None:
    """Return how a pod names its gang and scheduler; None if it names a PodGroup of gangsched."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if GROUP_LABEL in labels:
        return None
    return {
        "scheduler": pod["spec"].get("schedulerName") or "",
        "labels": {key: labels[key] for key in _NAMES_A_GANG if key in labels},
        "annotations": {key: annotations[key] for key in _NAMES_A_GANG if key in annotations},
    }


def adopted_origin(job: TrainingJob, pods: Iterable[PodView]) -> Json | None:
    """Return how a job's pods of another controller name their gang, if there are any.

    Roles with a template that names another scheduler do not count: their pods never have a group.
    """
    roles = {role.type.lower() for role in job.roles if job.is_placed_here(role)}
    return next((pod.origin for pod in pods if pod.origin is not None and pod.role in roles), None)


def join_gang(pod: Json, origin: Json) -> Json:
    """Return a pod that names the gang and the scheduler of another controller's pods."""
    metadata, spec = pod["metadata"], pod["spec"]
    for key in ("labels", "annotations"):
        if origin[key]:
            metadata[key] = (metadata.get(key) or {}) | origin[key]
    if origin["scheduler"]:
        spec["schedulerName"] = origin["scheduler"]
    return pod
