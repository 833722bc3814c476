"""A PyTorchJob object to the core's Job: defaults, aliases, and what is wrong in one sentence."""

from typing import Any

from pydantic import ValidationError

from gangsched.api import dialects, names
from gangsched.api.base import ApiModel
from gangsched.api.podgroup import PodGroupSpec
from gangsched.api.pytorchjob import ElasticPolicy, PyTorchJobSpec, RunPolicy
from gangsched.api.topology import NearSpec
from gangsched.config import one_sentence
from gangsched.core.jobs.model import (
    Elastic,
    GangPolicy,
    GroupView,
    Job,
    JobRole,
    Json,
    PodView,
    RunLimits,
)
from gangsched.core.jobs.pytorch import CONTAINER, PORT, PORT_NAME

GANG_RESTARTS = "gangsched.io/gang-restarts"
"""Annotation of a job: restart it as a whole, at most so often, when a member is lost."""

_TYPES = {"master": "Master", "worker": "Worker"}


class InvalidJobError(Exception):
    """The job cannot run as it is written; the message says what to change."""


def parse(body: Json, scheduler: str) -> Job:
    """Read a PyTorchJob.

    Raises:
        InvalidJobError: a field is wrong.

    """
    metadata = body["metadata"]
    subject = f"PyTorchJob {metadata['namespace']}/{metadata['name']}"
    try:
        spec = PyTorchJobSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    roles = _roles(spec, subject)
    run = spec.runPolicy if isinstance(spec.runPolicy, RunPolicy) else RunPolicy()
    policy = run.schedulingPolicy
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    queue = dialects.queue_of(labels, annotations)
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        roles=roles,
        limits=RunLimits(
            clean_pods=run.cleanPodPolicy or "None",
            ttl_s=_first(run.ttlSecondsAfterFinished, spec.ttlSecondsAfterFinished),
            deadline_s=run.activeDeadlineSeconds,
            backoff_limit=run.backoffLimit,
            suspend=run.suspend,
        ),
        gang=GangPolicy(
            minimum=policy.minAvailable if policy else None,
            queue=(policy.queue if policy else None) or queue or "default",
            priority_class=(policy.priorityClass if policy else None) or "",
            timeout_s=(policy.scheduleTimeoutSeconds if policy else None) or 60,
            gang_restarts=_gang_restarts(metadata, subject),
            asked=_asked(metadata, subject, PodGroupSpec),
            user=annotations.get(names.USER_ANNOTATION, ""),
        ),
        scheduler=spec.schedulerName or scheduler,
        nproc_per_node=None if spec.nprocPerNode is None else str(spec.nprocPerNode),
        elastic=_elastic(spec.elasticPolicy, roles, subject),
        status=body.get("status") or {},
    )


def _roles(spec: PyTorchJobSpec, subject: str) -> tuple[JobRole, ...]:
    found: dict[str, JobRole] = {}
    for key, replica in spec.pytorchReplicaSpecs.items():
        where = f"{subject}: spec.pytorchReplicaSpecs.{key}"
        kind = _TYPES.get(key.lower())
        if kind is None:
            raise InvalidJobError(f"{where}: {key!r} is no replica type; use Master or Worker")
        replicas = 1 if replica.replicas is None else replica.replicas
        if kind == "Master" and replicas != 1:
            raise InvalidJobError(f"{where}.replicas is {replicas}; a job has exactly 1 Master")
        if replicas < 1:
            raise InvalidJobError(f"{where}.replicas is {replicas}; it must be at least 1")
        template = replica.template or {}
        containers = (template.get("spec") or {}).get("containers") or []
        if not any(isinstance(c, dict) and c.get("name") == CONTAINER for c in containers):
            named = ", ".join(repr(c.get("name")) for c in containers) or "none"
            raise InvalidJobError(
                f"{where}.template.spec.containers: one must be named {CONTAINER!r}; "
                f"there are: {named}"
            )
        asked = _asked(template.get("metadata") or {}, f"{where}.template", RoleTopology)
        found[kind] = JobRole(
            kind,
            replicas,
            replica.restartPolicy or "OnFailure",
            template,
            asked.get("topology"),
        )
    if not found:
        raise InvalidJobError(f"{subject}: spec.pytorchReplicaSpecs needs a Master or a Worker")
    return tuple(found[kind] for kind in _TYPES.values() if kind in found)


def _elastic(
    policy: ElasticPolicy | None, roles: tuple[JobRole, ...], subject: str
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
    endpoint = f"{policy.rdzvHost or f'{name}-worker-0'}:{policy.rdzvPort or _port(worker)}"
    values: dict[str, Any] = {
        "PET_RDZV_BACKEND": policy.rdzvBackend,
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_RDZV_ID": policy.rdzvId,
        "PET_RDZV_CONF": ",".join(f"{c['key']}={c['value']}" for c in policy.rdzvConf or []),
        # torchrun reads it as a number: the empty string that operators used to write is an error.
        "PET_STANDALONE": "1" if policy.standalone else None,
        "PET_NPROC_PER_NODE": policy.nProcPerNode,
        "PET_MAX_RESTARTS": policy.maxRestarts,
    }
    return Elastic(
        least, most, {key: str(value) for key, value in values.items() if value not in (None, "")}
    )


def _port(role: JobRole) -> int:
    for container in role.template["spec"]["containers"]:
        for port in container.get("ports") or []:
            if port.get("name") == PORT_NAME:
                return int(port["containerPort"])
    return PORT


def _gang_restarts(metadata: Json, subject: str) -> int:
    text = (metadata.get("annotations") or {}).get(GANG_RESTARTS, "0")
    if not text.isdigit():
        raise InvalidJobError(
            f"{subject}: annotation {GANG_RESTARTS} is {text!r}; it must be a whole number"
        )
    return int(text)


class RoleTopology(ApiModel):
    """What a role's template can ask: how near its pods are."""

    topology: NearSpec | None = None


def _asked(metadata: dict[str, Any], subject: str, model: type[ApiModel]) -> Json:
    """Return what annotations ask, as fields of a PodGroup or of one of its roles."""
    try:
        keys = (metadata.get("labels") or {}) | (metadata.get("annotations") or {})
        asked = dialects.from_annotations(keys, subject)
        model.model_validate(asked)
    except dialects.DialectError as error:
        raise InvalidJobError(str(error)) from error
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: annotations")) from error
    return asked


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def pod_view(pod: Json) -> PodView:
    """Read what the reconcile needs of a pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    code, restarts = None, 0
    for container in status.get("containerStatuses") or []:
        restarts += container.get("restartCount", 0)
        if container["name"] == CONTAINER:
            for state in ("state", "lastState"):
                ended = (container.get(state) or {}).get("terminated")
                if ended and code is None:
                    code = ended.get("exitCode")
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        role=labels.get("training.kubeflow.org/replica-type", ""),
        phase=status.get("phase") or "",
        restarts=restarts,
        exit_code=code,
        reason=status.get("reason") or "",
        terminating=bool(metadata.get("deletionTimestamp")),
        disrupted=any(
            one.get("type") == "DisruptionTarget" and one.get("status") == "True"
            for one in status.get("conditions") or []
        ),
    )


def group_view(group: Json) -> GroupView:
    """Read what the reconcile needs of a PodGroup."""
    status = group.get("status") or {}
    return GroupView(
        uid=group["metadata"]["uid"],
        phase=status.get("phase") or "",
        message=status.get("message") or "",
        assignments={a["pod"]: a["node"] for a in status.get("assignments") or []},
        spec=group.get("spec") or {},
    )
