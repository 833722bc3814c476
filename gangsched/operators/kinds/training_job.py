"""Reads objects of kubeflow.org/v1 as jobs: defaults, aliases, validation."""

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from gangsched.api import dialects, keys, names
from gangsched.api.base import ApiModel
from gangsched.api.jobs.trainingjobs import (
    SPECS,
    ElasticPolicy,
    MPIJobSpec,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
)
from gangsched.api.podgroup import PodGroupSpec
from gangsched.api.topology import NearSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import PODS_OF_GANG
from gangsched.core.model.text import WHOLE_MAX, shown, whole
from gangsched.jobs.common.adoption import origin_of
from gangsched.jobs.common.model import (
    ROOT_SSH,
    V1,
    Elastic,
    GangPolicy,
    JobRole,
    Json,
    Mpi,
    PodView,
    RunLimits,
    TrainingJob,
)
from gangsched.jobs.kubeflow.framework import Framework
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.decoding.quantities import parse_time_annotation, parse_timestamp
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.template_schema import template_error, without_nulls

GANG_RESTARTS = "gangsched.io/gang-restarts"
"""Annotation of a job: how often to restart it as a whole when a member is lost."""

_DNS_LABEL = 63
_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


def parse(body: Json, scheduler: str, kind: str, aliases: Collection[str] = ()) -> TrainingJob:
    """Return the job of an object; `aliases` are other names that the scheduler serves.

    Raises:
        InvalidJobError: a field is wrong.

    """
    metadata = body["metadata"]
    subject = f"{kind} {metadata['namespace']}/{metadata['name']}"
    framework = FRAMEWORKS[kind]
    if framework.unsupported:
        known = ", ".join(
            framework.kind for framework in FRAMEWORKS.values() if not framework.unsupported
        )
        raise InvalidJobError(
            f"{subject}: {framework.unsupported}; kinds of jobs that run are: {known}"
        )
    try:
        spec: Any = SPECS[kind].model_validate(body.get("spec") or {})
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    version = version_of(body, framework.specs)
    roles = _roles(getattr(spec, framework.specs), framework, subject, version)
    _check_name(metadata["name"], roles, subject)
    own = _own(spec, roles, framework, subject, version)
    run = spec.runPolicy if isinstance(spec.runPolicy, RunPolicy) else RunPolicy()
    policy = run.schedulingPolicy
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    pod_labels = ((role.template.get("metadata") or {}).get("labels") for role in roles)
    admitted = dialects.admitted_elsewhere(*pod_labels)
    queue = dialects.queue_of(labels, annotations, admitted=admitted)
    job = TrainingJob(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        roles=roles,
        limits=RunLimits(
            clean_pods=run.cleanPodPolicy or getattr(spec, "cleanPodPolicy", None) or "",
            ttl_s=_first(run.ttlSecondsAfterFinished, spec.ttlSecondsAfterFinished),
            deadline_s=run.activeDeadlineSeconds,
            backoff_limit=run.backoffLimit,
            suspend=run.suspend,
        ),
        gang=GangPolicy(
            minimum=_minimum(policy, own.get("elastic"), roles, framework),
            queue=(policy.queue if policy else None) or queue or "default",
            priority_class=(policy.priorityClass if policy else None) or "",
            timeout_s=(policy.scheduleTimeoutSeconds if policy else None) or 60,
            gang_restarts=_gang_restarts(metadata, subject),
            extra_spec=gang_requests(metadata, subject, PodGroupSpec),
        ),
        scheduler=spec.schedulerName or scheduler,
        scheduler_names=frozenset({scheduler, *aliases}),
        **own,
        status=body.get("status") or {},
        unknown_keys=keys.unknown(labels, annotations),
    )

    if job.total > PODS_OF_GANG.most:
        raise InvalidJobError(
            f"{subject}: spec.{framework.specs} asks for {job.total} pods, and a job has at most "
            f"{PODS_OF_GANG.most}"
        )
    if wrong := framework.size_error(job):
        raise InvalidJobError(f"{subject}: spec.{framework.specs}: {job.total} pods: {wrong}")
    return job


def _minimum(
    policy: SchedulingPolicy | None,
    elastic: Elastic | None,
    roles: tuple[JobRole, ...],
    framework: Framework,
) -> int | None:
    """Return how many pods start together, or None for all pods.

    An elastic job starts with its smallest number of workers, unless its programs wait for all.
    """
    if policy is not None and policy.minAvailable is not None:
        return policy.minAvailable
    if elastic is None or any(framework.has_static_rendezvous(role.template) for role in roles):
        return None
    return elastic.minimum + sum(role.replicas for role in roles if role.type != "Worker")


def _check_name(name: str, roles: tuple[JobRole, ...], subject: str) -> None:
    """Check that pods' names are valid DNS labels (RFC 1035): their Services have these names."""
    longest = max(len(f"-{role.type}-{role.replicas - 1}") for role in roles)
    most = _DNS_LABEL - longest
    if len(name) > most or not _NAME.fullmatch(name):
        raise InvalidJobError(
            f"{subject}: metadata.name is {name!r}; it must begin with a letter, have only lower "
            f"case letters, digits and '-', and at most {most} letters: the names of its pods' "
            f"Services contain it"
        )


def _own(
    spec: Any, roles: tuple[JobRole, ...], framework: Framework, subject: str, version: str
) -> dict[str, Any]:
    """Return the fields that only jobs of this kind have."""
    match framework.kind:
        case "PyTorchJob":
            processes = spec.nprocPerNode
            return {
                "nproc_per_node": None if processes is None else str(processes),
                "elastic": _elastic(spec.elasticPolicy, roles, framework, subject),
            }
        case "MPIJob":
            return {"mpi": _mpi(spec, roles, version)}
        case "PaddleJob":
            return {"elastic": _elastic(spec.elasticPolicy, roles, framework, subject)}
        case "TFJob":
            return {
                "all_workers": spec.successPolicy == "AllWorkers",
                "dynamic_workers": spec.enableDynamicWorker,
                "cluster_domain": os.environ.get("CUSTOM_CLUSTER_DOMAIN", ""),
            }
    return {}


def version_of(body: Json, specs: str) -> str:
    """Return the API version in which a job was written; the API server serves it in any version.

    managedFields has it: the version of the manager that first wrote `specs`, the replica specs.
    """
    writers = [
        entry
        for entry in body["metadata"].get("managedFields") or []
        if f"f:{specs}" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    first: Json = min(writers, key=lambda entry: entry.get("time") or "", default={})
    return str(first.get("apiVersion") or body.get("apiVersion") or "")


def _mpi(spec: MPIJobSpec, roles: tuple[JobRole, ...], version: str) -> Mpi:
    launcher = next(role for role in roles if role.type == "Launcher")
    # In v1, a launcher works itself if it requests a device.
    containers = launcher.template["spec"]["containers"]
    devices = any(
        name.startswith("nvidia.com/")
        for container in containers
        for name in (container.get("resources") or {}).get("limits") or {}
    )
    return Mpi(
        version=version,
        slots=spec.slotsPerWorker or 1,
        launcher_works=devices if version == V1 else bool(spec.runLauncherAsWorker),
        waits=version != V1 and spec.launcherCreationPolicy == "WaitForWorkersReady",
        implementation=spec.mpiImplementation or "OpenMPI",
        ssh_mount=spec.sshAuthMountPath or ROOT_SSH,
        container=spec.mainContainer or "",
    )


def _roles(
    specs: Mapping[str, ReplicaSpec], framework: Framework, subject: str, version: str
) -> tuple[JobRole, ...]:
    name = subject.rsplit("/", 1)[1]
    types = {name.lower(): name for name in framework.roles}
    by_type: dict[str, JobRole] = {}
    for key, replica in specs.items():
        where = f"{subject}: spec.{framework.specs}.{key[:_DNS_LABEL]}"
        kind = types.get(key.lower())
        if kind is None:
            allowed = " or ".join(framework.roles)
            raise InvalidJobError(f"{where}: {shown(key)} is not a replica type; use {allowed}")
        if kind in by_type:
            raise InvalidJobError(f"{where}: there are two roles {kind}; remove one")
        replicas = 1 if replica.replicas is None else replica.replicas
        if kind in framework.single and replicas != 1:
            raise InvalidJobError(f"{where}.replicas is {replicas}; a job has exactly 1 {kind}")
        if replicas < 1:
            raise InvalidJobError(f"{where}.replicas is {replicas}; it must be at least 1")
        template = replica.template or {}
        if wrong := template_error(template):
            raise InvalidJobError(f"{where}.template.{wrong}")
        template = without_nulls(template)
        wrong = framework.container_error(template)
        if wrong:
            raise InvalidJobError(f"{where}.template.spec.containers: {wrong}")
        fields = gang_requests(template.get("metadata") or {}, f"{where}.template", RoleTopology)
        by_type[kind] = JobRole(
            kind,
            replicas,
            replica.restartPolicy or framework.restart_of(kind, version),
            template,
            fields.get("topology"),
            framework.fixed_pod_name(name, kind),
        )
    wrong = framework.roles_error(by_type)
    if wrong:
        raise InvalidJobError(f"{subject}: spec.{framework.specs} {wrong}")
    return tuple(by_type[kind] for kind in framework.roles if kind in by_type)


def _elastic(
    policy: ElasticPolicy | None, roles: tuple[JobRole, ...], framework: Framework, subject: str
) -> Elastic | None:
    if policy is None:
        return None
    worker = next((role for role in roles if role.type == "Worker"), None)
    if worker is None:
        raise InvalidJobError(f"{subject}: spec.elasticPolicy needs a Worker replica spec")
    least = _first(policy.minReplicas, policy.maxReplicas, worker.replicas) or 1
    most = _first(policy.maxReplicas, policy.minReplicas, worker.replicas) or 1
    if least > most:
        raise InvalidJobError(
            f"{subject}: spec.elasticPolicy.minReplicas is {least}, above maxReplicas {most}"
        )
    name = subject.rsplit("/", 1)[1]
    endpoint = (
        f"{policy.rdzvHost or f'{name}-worker-0'}:{policy.rdzvPort or framework.port_of(worker)}"
    )
    values: dict[str, Any] = {
        "PET_RDZV_BACKEND": policy.rdzvBackend,
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_RDZV_ID": policy.rdzvId,
        "PET_RDZV_CONF": ",".join(f"{c.key}={c.value}" for c in policy.rdzvConf or []),
        # torchrun reads a number: the empty string of earlier operators is an error.
        "PET_STANDALONE": "1" if policy.standalone else None,
        "PET_NPROC_PER_NODE": policy.nProcPerNode,
        "PET_MAX_RESTARTS": policy.maxRestarts,
    }
    given = {key: str(value) for key, value in values.items() if value not in (None, "")}
    return Elastic(least, most, given, tuple(policy.metrics or ()))


def _gang_restarts(metadata: Json, subject: str) -> int:
    text = (metadata.get("annotations") or {}).get(GANG_RESTARTS, "0")
    number = whole(text)
    if number is None:
        raise InvalidJobError(
            f"{subject}: annotation {GANG_RESTARTS} is {shown(text)}; it must be a whole number "
            f"up to {WHOLE_MAX}"
        )
    return number


class RoleTopology(ApiModel):
    """The topology that a role's template can request."""

    topology: NearSpec | None = None


def gang_requests(metadata: dict[str, Any], subject: str, model: type[ApiModel]) -> Json:
    """Return the requests of annotations as fields of a PodGroup or of one of its roles."""
    try:
        keys = (metadata.get("labels") or {}) | (metadata.get("annotations") or {})
        fields = dialects.from_annotations(keys, subject)
        model.model_validate(fields)
    except dialects.DialectError as error:
        raise InvalidJobError(str(error)) from error
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: annotations")) from error
    return fields


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def parse_pod_view(pod: Json, container: str) -> PodView:
    """Return the fields of a pod that the reconcile needs."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    code, restarts, ended_s = None, 0, 0.0
    for container_status in status.get("containerStatuses") or []:
        restarts += container_status.get("restartCount", 0)
        if container_status["name"] == container:
            for state in ("state", "lastState"):
                ended = (container_status.get(state) or {}).get("terminated")
                if ended and code is None:
                    code = ended.get("exitCode")
                    ended_s = parse_timestamp(ended.get("finishedAt") or "")
    conditions = status.get("conditions") or []
    true = {item.get("type"): item for item in conditions if item.get("status") == "True"}
    disruption = true.get("DisruptionTarget")
    announced = disruption is not None and disruption.get("reason") == names.STOP_ANNOUNCED
    saved_s = parse_time_annotation(metadata.get("annotations") or {}, names.CHECKPOINT_ANNOTATION)
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        role=labels.get("training.kubeflow.org/replica-type", ""),
        phase=status.get("phase") or "",
        restarts=restarts,
        exit_code=code,
        reason=status.get("reason") or "",
        terminating=bool(metadata.get("deletionTimestamp")),
        ready="Ready" in true,
        stopping=pod["spec"].get("activeDeadlineSeconds") == 1,
        origin=origin_of(pod),
        cut_short=bool(metadata.get("deletionTimestamp"))
        and ended_s >= _deletion_requested_s(metadata),
        disrupted=disruption is not None and not announced,
        announced=announced,
        answered=announced and saved_s is not None and saved_s >= _since_s(disruption),
    )


def _since_s(condition: Json | None) -> float:
    """Return when a condition became true, in whole seconds."""
    return parse_time_annotation(condition or {}, "lastTransitionTime") or 0.0


def _deletion_requested_s(metadata: Json) -> float:
    """Return when a pod's deletion was requested: its timestamp is the end of the grace period."""
    grace_s = float(metadata.get("deletionGracePeriodSeconds", 0))
    return parse_timestamp(metadata["deletionTimestamp"]) - grace_s
