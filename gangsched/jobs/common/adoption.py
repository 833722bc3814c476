"""Jobs whose pods another controller made: they keep the gang that they have until they are gone.

The Training Operator's pods are the gang of their owner, or of a peer's PodGroup that they name. A
PodGroup of ours would reserve nodes for pods that never come, since running pods do not name it. A
pod that has to be recreated meanwhile joins them: it names the same gang.
"""

from collections.abc import Iterable

from gangsched.jobs.common.model import GROUP_LABEL, Job, Json, PodView

_NAMES_A_GANG = (
    "scheduling.x-k8s.io/pod-group",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
)
"""Labels and annotations by which a pod names a PodGroup of a peer."""


def origin_of(pod: Json) -> Json | None:
    """Return how a pod names its gang and its scheduler; None where that is a PodGroup of ours."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if GROUP_LABEL in labels:
        return None
    return {
        "scheduler": pod["spec"].get("schedulerName") or "",
        "labels": {key: labels[key] for key in _NAMES_A_GANG if key in labels},
        "annotations": {key: annotations[key] for key in _NAMES_A_GANG if key in annotations},
    }


def adopted_origin(job: Job, pods: Iterable[PodView]) -> Json | None:
    """Return how the pods are scheduled that another controller made of a job, if there are any.

    Pods of a role whose template names another scheduler are made without a group by us, too.
    """
    ours = {role.type.lower() for role in job.roles if job.is_placed_here(role)}
    return next((pod.origin for pod in pods if pod.origin is not None and pod.role in ours), None)


def join_gang(pod: Json, origin: Json) -> Json:
    """Return a pod that is scheduled as those are that another controller made."""
    metadata, spec = pod["metadata"], pod["spec"]
    for key in ("labels", "annotations"):
        if origin[key]:
            metadata[key] = (metadata.get(key) or {}) | origin[key]
    if origin["scheduler"]:
        spec["schedulerName"] = origin["scheduler"]
    return pod
