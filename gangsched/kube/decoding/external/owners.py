"""Objects of other controllers with pods that are a gang without a group: Jobs, JobSets, Ray jobs.

Training jobs are run by upstream's operators or by ours. Pods that our operators make name a
group. So an object of this module declares a gang only when one of its pods names our scheduler
without a group (`informers/external_owners.py`).

Some controllers make some pods only when other pods run: the followers of a leader, or a launcher
that waits for its workers. The gang counts all these pods, and starts with the pods that exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gangsched.core.bounds import ROLES
from gangsched.core.model.constraints import LevelRequest, SliceRequest
from gangsched.core.model.gangs import Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import PodRequirements, Toleration
from gangsched.jobs.jobset.objects import EXCLUSIVE
from gangsched.jobs.jobset.stages import (
    JobSetStage,
    parallel_pods,
    pods_at_a_time,
    pods_each,
    stages,
)
from gangsched.jobs.kubeflow.framework import Framework
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.decoding import native_groups
from gangsched.kube.decoding.external.groups import ExternalKind, Spec, Start, least
from gangsched.kube.decoding.external.outcomes import job_outcome, ray_job_outcome
from gangsched.kube.decoding.membership import (
    JOB,
    JOBSET,
    LWS,
    MPI,
    RAY,
    RAYJOB,
    STATEFUL,
    TRAINING,
)
from gangsched.kube.decoding.pod_limits import few
from gangsched.kube.decoding.podgroups import template_needs

_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
_BY_LABELS = "alpha.jobset.sigs.k8s.io/node-selector"
_GIVEN = tuple(
    Toleration(f"node.kubernetes.io/{state}", "Exists", "", "NoExecute")
    for state in ("not-ready", "unreachable")
)
_LWS_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"

Part = tuple[int, Any]
"""A number of pods and their template."""


def _together(parts: Iterable[Part], ours: frozenset[str]) -> int:
    """Return how many pods of some parts gangsched schedules.

    If a template names our scheduler, only the parts with such templates count. If no template
    does, the operator writes the scheduler name into all pods.
    """
    counted = [(count, _scheduler(template) in ours) for count, template in parts]
    named = [count for count, is_ours in counted if is_ours]
    return sum(named or [count for count, _ in counted])


def _scheduler(template: Any) -> str:
    return str(((template or {}).get("spec") or {}).get("schedulerName", ""))


def _job(spec: Spec, keys: Mapping[str, str], _: frozenset[str]) -> int:
    """Return how many pods of a Job start together; spec or Kueue's annotation may lower it."""
    fewer = keys.get(_MIN_PARALLELISM)
    return native_groups.least_of(spec, int(fewer) if fewer else parallel_pods(dict(spec)))


def _job_fields(spec: Spec, subject: str) -> dict[str, Any]:
    return native_groups.fields(native_groups.scheduling(spec), subject)


def _job_given(spec: Spec) -> dict[str, Any]:
    return native_groups.given(native_groups.scheduling(spec))


def _stateful(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    """Return the pods that start together: 1 if the controller creates pods one after another."""
    together = spec.get("podManagementPolicy") == "Parallel"
    return int(spec.get("replicas", 1)) if together else 1


def _ray(spec: Spec, _: Mapping[str, str], ours: frozenset[str]) -> int:
    """Return the pods of a RayCluster: the head, and the minimum of each worker group."""
    parts: list[Part] = [(1, (spec.get("headGroupSpec") or {}).get("template"))]
    for group in spec.get("workerGroupSpecs") or []:
        scales = bool(spec.get("enableInTreeAutoscaling"))
        count = _ray_replicas(group, scales=scales) * int(group.get("numOfHosts") or 1)
        parts.append((count, group.get("template")))
    return _together(parts, ours)


def _ray_replicas(group: Mapping[str, Any], *, scales: bool) -> int:
    """Return how many replicas of a worker group KubeRay creates at least.

    Source: ray-project/kuberay, utils.GetWorkerGroupDesiredReplicas. With autoscaling, the replicas
    change later.
    """
    if group.get("suspend"):
        return 0
    least = int(group.get("minReplicas") or 0)
    wanted = least if scales else max(int(group.get("replicas") or 0), least)
    most = group.get("maxReplicas")
    return wanted if most is None else min(wanted, int(most))


def _ray_job(spec: Spec, keys: Mapping[str, str], ours: frozenset[str]) -> tuple[Start]:
    """Return the gang of a RayJob: its cluster, and the submitter that waits for the cluster."""
    cluster = spec.get("rayClusterSpec")
    submitter = spec.get("submitterPodTemplate")
    submits = spec.get("submissionMode", "K8sJobMode") == "K8sJobMode"
    whole = _ray(cluster, keys, ours) if cluster else 0
    if not submits or _scheduler(submitter) not in ours:
        return (Start(whole),)
    return (_followed(whole + 1, whole + 1, 1 if whole else 0, submitter),)


def _followed(minimum: int, count: int, late: int, template: Any) -> Start:
    """Return one gang; the controller makes the last `late` of its pods from a template."""
    if not late:
        return Start(minimum)
    return Start(minimum, (Role("", count, 0, _needs("", template), late=late),))


def _needs(role: str, template: Any) -> PodRequirements:
    """Return the requirements of a template's pods, with the tolerations of the API server.

    The API server adds two tolerations to every pod (plugin DefaultTolerationSeconds). Without them
    late pods would be another pod class than the pods that exist.
    """
    needs = template_needs(role, template or {}, None)
    given = tuple(
        toleration
        for toleration in _GIVEN
        if not any(
            own.key in ("", toleration.key) and own.effect in ("", toleration.effect)
            for own in needs.tolerations
        )
    )
    return replace(needs, tolerations=(*needs.tolerations, *given)) if given else needs


def _training(
    framework: Framework, spec: Spec, _: Mapping[str, str], ours: frozenset[str]
) -> tuple[Start]:
    """Return the gang of a training job: all replicas, or the minimum of its policies.

    The operator may make the launcher only when the workers run.
    """
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    elastic = spec.get("elasticPolicy") or {}
    parts: list[Part] = []
    late: Any = None
    whole, waits = 0, False
    for role, replicas in (spec.get(framework.specs) or {}).items():
        count, template = replicas.get("replicas"), replicas.get("template")
        count = 1 if count is None else int(count)
        least = elastic.get("minReplicas") if role == "Worker" else None
        if least and not framework.has_static_rendezvous(template or {}):
            count = min(count, int(least))
        parts.append((count, template))
        whole += count
        if role == "Launcher" and spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
            late, waits = template, True
    minimum = int(policy.get("minAvailable") or 0) or _together(parts, ours)
    follows = waits and _together(parts, ours) == whole > 1
    return (_followed(minimum, whole, 1 if follows else 0, late),)


def _leader_workers(spec: Spec, keys: Mapping[str, str], ours: frozenset[str]) -> tuple[Start]:
    """Return the gang of one group of a LeaderWorkerSet.

    Its controller may make workers only when their leader runs, or has its node.
    """
    template = spec.get("leaderWorkerTemplate") or {}
    size = int(template.get("size") or 1)
    worker = template.get("workerTemplate")
    parts = [(1, template.get("leaderTemplate") or worker), (size - 1, worker)]
    minimum = _together(parts, ours)
    level = keys.get(_LWS_EXCLUSIVE)
    waits = spec.get("startupPolicy") == "LeaderReady" or level
    start = _followed(minimum, size, size - 1 if waits and minimum == size else 0, worker)
    if level:
        start = replace(start, asked={"topology": {"required": level, "exclusive": level}})
    return (start,)


def _job_set(spec: Spec, keys: Mapping[str, str], ours: frozenset[str]) -> list[Start]:
    """Return a gang for each stage of a JobSet: the replicated jobs that run at the same time."""
    few(len(spec["replicatedJobs"]), ROLES)  # before `stages` sorts them
    return [_stage(stage, keys, ours) for stage in stages("", dict(spec))]


def _stage(stage: JobSetStage, keys: Mapping[str, str], ours: frozenset[str]) -> Start:
    named = [job for job in stage.jobs if _scheduler(_job_template(job)) in ours]
    jobs = named or list(stage.jobs)
    staged = any(job["name"] in stage.early for job in jobs)
    roles, levels = [], []
    for job in jobs:
        level, count = _level(job, keys), pods_at_a_time(job)
        late = 0
        if staged and job["name"] not in stage.early:
            late = count
        elif level:  # the pods of a Job follow its first one into its domain
            late = count - int(job.get("replicas", 1))
        near = (
            LevelRequest(slices=(SliceRequest(level, pods_each(job)),)) if level else LevelRequest()
        )
        needs = _needs(job["name"], _job_template(job)) if late else None
        roles.append(Role(job["name"], count, 0, needs, near, late=max(late, 0)))
        levels += [(level, pods_each(job))] if level else []
    constraints: dict[str, Any] = {}
    if levels:
        level, most = min(levels)[0], max(size for _, size in levels)
        constraints = {
            "topology": {"exclusive": level, "spread": [{"level": level, "maxPods": most}]}
        }
    return Start(
        sum(map(pods_at_a_time, jobs)),
        tuple(roles),
        stage.group.removeprefix("-"),
        frozenset(job["name"] for job in stage.jobs),
        constraints,
    )


def _job_template(job: Mapping[str, Any]) -> Any:
    return (job["template"].get("spec") or {}).get("template")


def _level(job: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    """Return the node label with domains that each take one Job of a JobSet, or an empty string.

    With the strategy of node selectors an administrator labelled nodes for the Jobs, and no pod
    waits for another.
    """
    if _BY_LABELS in keys:
        return ""
    own = (job["template"].get("metadata") or {}).get("annotations") or {}
    return str(own.get(EXCLUSIVE) or keys.get(EXCLUSIVE) or "")


def _one_template(spec: Spec) -> list[Any]:
    return [spec.get("template")]


def _job_set_templates(spec: Spec) -> list[Any]:
    return [_job_template(job) for job in spec.get("replicatedJobs") or []]


def _leader_worker_templates(spec: Spec) -> list[Any]:
    template = spec.get("leaderWorkerTemplate") or {}
    return [template.get("leaderTemplate"), template.get("workerTemplate")]


def _ray_job_templates(spec: Spec) -> list[Any]:
    return [*_ray_templates(spec.get("rayClusterSpec") or {}), spec.get("submitterPodTemplate")]


def _ray_templates(spec: Spec) -> list[Any]:
    groups = [spec.get("headGroupSpec") or {}, *(spec.get("workerGroupSpecs") or [])]
    return [group.get("template") for group in groups]


def _training_templates(framework: Framework, spec: Spec) -> list[Any]:
    return [
        replica_spec.get("template") for replica_spec in (spec.get(framework.specs) or {}).values()
    ]


def _training_fields(spec: Spec, _: str) -> dict[str, Any]:
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    fields = {
        "queue": policy.get("queue"),
        "priorityClassName": policy.get("priorityClass"),
        "scheduleTimeoutSeconds": policy.get("scheduleTimeoutSeconds"),
    }
    return {key: value for key, value in fields.items() if value}


def _without_stage(gang: GangId) -> GangId:
    """Return the first gang of a JobSet; its name has no dot."""
    return GangId(gang.partition(".")[0])


def _without_index(gang: GangId) -> GangId:
    """Return the LeaderWorkerSet of a group; the id of its gang ends with the group's index."""
    return GangId(gang.rpartition("-")[0])


def _of_kubeflow() -> Iterable[ExternalKind]:
    for kind, framework in FRAMEWORKS.items():
        if framework.unsupported:
            continue
        versions = ("v1", "v2beta1") if TRAINING[kind] == MPI else ("v1",)
        for version in versions:  # the MPI Operator's, beside the Training Operator's
            yield ExternalKind(
                TRAINING[kind],
                f"kubeflow.org/{version}",
                kind,
                framework.plural,
                partial(_training, framework),
                _training_fields,
                templates=partial(_training_templates, framework),
                outcome=job_outcome,
            )


OWNERS: tuple[ExternalKind, ...] = (
    ExternalKind(
        JOB,
        "batch/v1",
        "Job",
        "jobs",
        least(_job),
        _job_fields,
        templates=_one_template,
        given=_job_given,
        outcome=job_outcome,
    ),
    ExternalKind(
        STATEFUL,
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        least(_stateful),
        templates=_one_template,
    ),
    ExternalKind(
        RAY, "ray.io/v1", "RayCluster", "rayclusters", least(_ray), templates=_ray_templates
    ),
    ExternalKind(
        RAYJOB,
        "ray.io/v1",
        "RayJob",
        "rayjobs",
        _ray_job,
        templates=_ray_job_templates,
        outcome=ray_job_outcome,
    ),
    ExternalKind(
        JOBSET,
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "jobsets",
        _job_set,
        templates=_job_set_templates,
        home=_without_stage,
        outcome=job_outcome,
        reads=frozenset({EXCLUSIVE}),
    ),
    ExternalKind(
        LWS,
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        "leaderworkersets",
        _leader_workers,
        templates=_leader_worker_templates,
        home=_without_index,
        copies=True,
    ),
    *_of_kubeflow(),
)
