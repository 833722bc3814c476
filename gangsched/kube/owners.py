"""Objects of others whose pods are a gang without a group: Jobs, training jobs, RayClusters.

Upstream's operators run training jobs where they are installed; so do ours, whose pods name a
group. So an object here stands for a gang once one of its pods names us (`foreign_seen.py`).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from gangsched.core.jobs.framework import Framework
from gangsched.core.jobs.kinds import FRAMEWORKS
from gangsched.core.jobs.stages import parallel_pods
from gangsched.kube.foreign import Kind, Spec
from gangsched.kube.membership import JOB, MPI, RAY, STATEFUL, TRAINING

_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"

Part = tuple[int, Any]
"""How many pods, and their template."""


def _together(parts: Iterable[Part], ours: frozenset[str]) -> int:
    """Return how many pods of some parts are scheduled here.

    Those are the parts whose templates name us. Where none does, the operator writes our name into
    all pods.
    """
    counted = [(count, _scheduler(template) in ours) for count, template in parts]
    named = [count for count, is_ours in counted if is_ours]
    return sum(named or [count for count, _ in counted])


def _scheduler(template: Any) -> str:
    return str(((template or {}).get("spec") or {}).get("schedulerName", ""))


def _job(spec: Spec, keys: Mapping[str, str], _: frozenset[str]) -> int:
    """A Job's pods start together; a peer's annotation lets it begin with fewer."""
    if keys.get(_MIN_PARALLELISM):
        return int(keys[_MIN_PARALLELISM])
    return parallel_pods(dict(spec))


def _stateful(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    """Pods that are created one after another cannot wait for each other."""
    together = spec.get("podManagementPolicy") == "Parallel"
    return int(spec.get("replicas", 1)) if together else 1


def _ray(spec: Spec, _: Mapping[str, str], ours: frozenset[str]) -> int:
    """The head, and so many workers as each group has at least."""
    parts: list[Part] = [(1, (spec.get("headGroupSpec") or {}).get("template"))]
    for group in spec.get("workerGroupSpecs") or []:
        least = "minReplicas" if spec.get("enableInTreeAutoscaling") else "replicas"
        count = int(group.get(least) or 0) * int(group.get("numOfHosts") or 1)
        parts.append((count, group.get("template")))
    return _together(parts, ours)


def _training(framework: Framework, spec: Spec, _: Mapping[str, str], ours: frozenset[str]) -> int:
    """All replicas, or as few as the job's policies say.

    A launcher that is made only once its workers run cannot start with them.
    """
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    if policy.get("minAvailable"):
        return int(policy["minAvailable"])
    elastic = spec.get("elasticPolicy") or {}
    late = "Launcher" if spec.get("launcherCreationPolicy") == "WaitForWorkersReady" else ""
    parts: list[Part] = []
    for role, replicas in (spec.get(framework.specs) or {}).items():
        count, template = replicas.get("replicas"), replicas.get("template")
        count = 1 if count is None else int(count)
        least = elastic.get("minReplicas") if role == "Worker" else None
        if least and not framework.waits_for_all(template or {}):
            count = min(count, int(least))
        if role != late:
            parts.append((count, template))
    return _together(parts, ours)


def _one_template(spec: Spec) -> list[Any]:
    return [spec.get("template")]


def _ray_templates(spec: Spec) -> list[Any]:
    groups = [spec.get("headGroupSpec") or {}, *(spec.get("workerGroupSpecs") or [])]
    return [group.get("template") for group in groups]


def _training_templates(framework: Framework, spec: Spec) -> list[Any]:
    return [one.get("template") for one in (spec.get(framework.specs) or {}).values()]


def _training_fields(spec: Spec, _: str) -> dict[str, Any]:
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    fields = {
        "queue": policy.get("queue"),
        "priorityClassName": policy.get("priorityClass"),
        "scheduleTimeoutSeconds": policy.get("scheduleTimeoutSeconds"),
    }
    return {key: value for key, value in fields.items() if value}


def _of_kubeflow() -> Iterable[Kind]:
    for kind, framework in FRAMEWORKS.items():
        if framework.unsupported:
            continue
        versions = ("v1", "v2beta1") if TRAINING[kind] == MPI else ("v1",)
        for version in versions:  # the MPI Operator's, beside the Training Operator's
            yield Kind(
                TRAINING[kind],
                f"kubeflow.org/{version}",
                kind,
                framework.plural,
                partial(_training, framework),
                _training_fields,
                templates=partial(_training_templates, framework),
            )


OWNERS: tuple[Kind, ...] = (
    Kind(JOB, "batch/v1", "Job", "jobs", _job, templates=_one_template),
    Kind(STATEFUL, "apps/v1", "StatefulSet", "statefulsets", _stateful, templates=_one_template),
    Kind(RAY, "ray.io/v1", "RayCluster", "rayclusters", _ray, templates=_ray_templates),
    *_of_kubeflow(),
)
