"""The gang of a pod: the group that the pod names, else the gang of its owner.

| what the pod has | its gang |
|---|---|
| label gangsched.io/pod-group | our PodGroup; no object with gangsched.io/min-member |
| label scheduling.x-k8s.io/pod-group | scheduler-plugins' PodGroup |
| annotation scheduling.k8s.io/group-name, scheduling.volcano.sh/group-name | Volcano's |
| annotation or label pod-group-name | KAI's |
| spec.schedulingGroup.podGroupName | PodGroup of scheduling.k8s.io (from 1.36) |
| spec.workloadRef | a pod group of a Workload (1.35), one gang for each replica key |
| label kueue.x-k8s.io/pod-group-name and its total count | all pods with this label value |
| labels of a LeaderWorkerSet | a leader with its workers |
| label ray.io/cluster | the RayCluster |
| label jobset.sigs.k8s.io/jobset-name | the JobSet |
| labels of the MPI Operator's launcher | the MPIJob |
| owned by a Job, a StatefulSet or a job of kubeflow.org | all pods of the owner |

The owner's object may split or join these gangs (`external/owners.py`): a JobSet may start in
stages, and a RayJob has the pods of its cluster and of its submitter.
"""

from collections.abc import Mapping

from gangsched.api import names
from gangsched.api.dialects import admitted_elsewhere, queue_of
from gangsched.core.engine.gangs.late_pods import CHUNK
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.core.model.text import WHOLE_MAX, shown, whole
from gangsched.jobs.jobset.objects import FIRST_RANK
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import Pod
from gangsched.kube.decoding.start_conditions import annotated
from gangsched.kube.decoding.users import user_of

PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
KAI = "scheduling.run.ai"
UPSTREAM = "scheduling.k8s.io"
WORKLOAD = "workload"
JOB, STATEFUL, RAY, MPI = "job", "statefulset", "raycluster", "mpijob"
RAYJOB, JOBSET, LWS = "rayjob", "jobset", "lws"
TRAINING = {
    kind: kind.lower() for kind, framework in FRAMEWORKS.items() if not framework.unsupported
}
"""The kinds of training jobs, and how the ids of their gangs begin."""
GROUPS = frozenset({PLUGINS, VOLCANO, KAI, UPSTREAM, WORKLOAD})
"""Sources with pods that name the object of their gang."""

_VOLCANO_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_KAI_KEY = "pod-group-name"
_KUEUE, _KUEUE_COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
_LWS = "leaderworkerset.sigs.k8s.io"
_RAY = "ray.io/cluster"
_GRACE_MAX_S = 86_400
"""As in the field checkpointGraceSeconds of a PodGroup."""

_JOBSET = "jobset.sigs.k8s.io"
_TRAINING = "training.kubeflow.org"
_OWNERS = (
    {("batch/v1", "Job"): JOB, ("apps/v1", "StatefulSet"): STATEFUL}
    | {("kubeflow.org/v1", kind): source for kind, source in TRAINING.items()}
    | {("kubeflow.org/v2beta1", "MPIJob"): MPI}
)


def foreign_id(namespace: str, source: str, name: str) -> GangId:
    """Return the id of a gang of another API; it differs from our PodGroup of the same name."""
    return GangId(f"{namespace}/{source}:{name}")


def gang_of(pod: Pod) -> GangId:
    """Return the gang of a pod; a pod without a group or a known owner is a gang by itself."""
    metadata = pod.metadata
    if group := metadata.labels.get(names.POD_GROUP_LABEL):
        return GangId(f"{metadata.namespace}/{group}")
    source, name = _named_group(pod)
    return foreign_id(metadata.namespace, source, name)


def _named_group(pod: Pod) -> tuple[str, str]:
    """Return the source and the name of the group of a pod."""
    metadata = pod.metadata
    labels, annotations = metadata.labels, metadata.annotations
    if name := labels.get(names.COSCHEDULING_LABEL):
        return PLUGINS, name
    if annotations:
        for key in _VOLCANO_KEYS:
            if name := annotations.get(key):
                return VOLCANO, name
    if name := annotations.get(_KAI_KEY) or labels.get(_KAI_KEY):
        return KAI, name
    if pod.spec.scheduling_group is not None and pod.spec.scheduling_group.pod_group_name:
        return UPSTREAM, pod.spec.scheduling_group.pod_group_name
    if (named := pod.spec.workload_ref) is not None:
        parts = (named.name, named.pod_group, named.pod_group_replica_key)
        return WORKLOAD, "_".join(part for part in parts if part)
    if (name := labels.get(_KUEUE)) and _KUEUE_COUNT in annotations:
        return "kueue", name
    if name := leader_worker_gang(labels):
        return LWS, name
    if name := labels.get(_RAY):
        return RAY, name
    if name := labels.get(f"{_JOBSET}/jobset-name"):
        return JOBSET, name
    # The MPI Operator makes the launcher by a Job, so the Job owns that pod, not the MPIJob.
    by_mpi = labels.get(f"{_TRAINING}/operator-name") == "mpi-operator"
    if by_mpi and (name := labels.get(f"{_TRAINING}/job-name")):
        return MPI, name
    for owner in metadata.owner_references:
        source = _OWNERS.get((owner.api_version, owner.kind))
        if owner.controller and source is not None:
            return source, owner.name
    return "pod", metadata.name


def leader_worker_gang(labels: Mapping[str, str]) -> str:
    """Return the name of the LeaderWorkerSet's group that labels name, or an empty string."""
    name = labels.get(f"{_LWS}/name")
    return f"{name}-{labels.get(f'{_LWS}/group-index', '0')}" if name else ""


def role_of(pod: Pod) -> str:
    """Return the role of a pod: its role label, else the replicated job of its JobSet."""
    labels = pod.metadata.labels
    if names.ROLE_LABEL in labels:
        return labels[names.ROLE_LABEL]
    return labels.get(f"{_JOBSET}/replicatedjob-name", "") if _of_jobset(pod) else ""


def rank_of(pod: Pod) -> int | None:
    """Return the index of a pod in its role, or None if no label has it."""
    labels = pod.metadata.labels
    for key in names.INDEX_LABELS:
        index = whole(labels.get(key, ""))
        if index is None:
            continue
        first = whole(labels.get(FIRST_RANK, "")) or 0
        if _of_jobset(pod):
            first = CHUNK * (whole(labels.get(f"{_JOBSET}/job-index", ""), CHUNK) or 0)
        return index + first
    return None


def _of_jobset(pod: Pod) -> bool:
    """Return whether a pod belongs to the gang of its JobSet, and names no other group."""
    labels = pod.metadata.labels
    if f"{_JOBSET}/jobset-name" not in labels or names.POD_GROUP_LABEL in labels:
        return False
    return _named_group(pod)[0] == JOBSET


def implicit_gang(pod: Pod) -> Gang | None:
    """Return the gang that a pod declares by itself; None where an object declares it.

    If the minimum is no number, the pods of the gang report that and are not planned.
    """
    try:
        minimum = minimum_of(pod)
    except DecodeError:
        minimum = 1
    if minimum is None:
        return None
    metadata = pod.metadata
    try:
        dependencies, series = annotated(metadata.annotations, "")
    except DecodeError:  # the pods report it and are not planned
        dependencies, series = (), None
    return Gang(
        gang_of(pod),
        minimum,
        queue=queue_of(
            metadata.labels,
            metadata.annotations,
            admitted=admitted_elsewhere(metadata.labels),
        )
        or DEFAULT_QUEUE,
        # Every pod of the group must declare the same gang. The informer of pods keeps the user of
        # the first pod, so another user cannot change it.
        user=user_of(metadata.annotations, metadata.namespace),
        implicit=True,
        checkpoint_grace_s=grace_of(metadata.annotations),
        dependencies=dependencies,
        series=series,
    )


def grace_of(annotations: Mapping[str, str]) -> float | None:
    """Return how long pods without a group ask to save their work; None where they do not."""
    return whole(annotations.get(names.GRACE_ANNOTATION, ""), _GRACE_MAX_S) or None


def minimum_of(pod: Pod) -> int | None:
    """Return the minimum of its gang that a pod declares, or None if an object declares it.

    Raises:
        DecodeError: the minimum is no number above zero.

    """
    metadata = pod.metadata
    labels, annotations = metadata.labels, metadata.annotations
    if names.POD_GROUP_LABEL in labels:
        text = labels.get(names.MIN_MEMBER_LABEL)
        return _count(pod, f"label {names.MIN_MEMBER_LABEL}", text) if text is not None else None
    source, _ = _named_group(pod)
    match source:
        case "pod":
            return 1
        case "kueue":
            return _count(pod, f"annotation {_KUEUE_COUNT}", annotations[_KUEUE_COUNT])
        case "lws":
            return _count(pod, f"annotation {_LWS}/size", annotations.get(f"{_LWS}/size", "1"))
    return None


def _count(pod: Pod, where: str, text: str) -> int:
    number = whole(text)
    if not number:
        raise DecodeError(
            f"pod {pod.metadata.namespace}/{pod.metadata.name}: {where} is {shown(text)}; it must "
            f"be a whole number from 1 to {WHOLE_MAX}"
        )
    return number
