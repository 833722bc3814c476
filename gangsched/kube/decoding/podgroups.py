"""Decode the JSON of our PodGroups to gangs."""

from typing import Any

import msgspec
from pydantic import ValidationError

from gangsched.api import dialects
from gangsched.api.podgroup import PodGroupSpec, PodGroupStatus, RoleSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import PODS_OF_GANG
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, PodName
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.core.model.text import shown
from gangsched.kube.decoding import constraints, start_conditions
from gangsched.kube.decoding.claims import Claims
from gangsched.kube.decoding.pod_limits import few
from gangsched.kube.decoding.pods import needs
from gangsched.kube.decoding.quantities import DecodeError, UnknownClassError, parse_timestamp
from gangsched.kube.decoding.schemas import (
    GroupObject,
    PodSpec,
    TemplateMetadata,
)
from gangsched.kube.decoding.users import user_of


def pod_group(
    group: GroupObject,
    priorities: dict[str, int],
    default: int | None = None,
    claims: Claims | None = None,
) -> tuple[Gang, PodGroupStatus, str]:
    """Return the gang of one of our PodGroups, its stored status and its uid.

    `default` is the value of the default PriorityClass, or None if the cluster has no default.

    Raises:
        DecodeError: the PodGroup is malformed.

    """
    key = f"{group.metadata.namespace}/{group.metadata.name}"
    try:
        subject = f"PodGroup {key}"
        with_annotations = constraints.merged(group.spec, group.metadata.annotations, subject)
        spec = PodGroupSpec.model_validate(with_annotations)
        roles = tuple(_role(role, group.metadata.namespace, subject, claims) for role in spec.roles)
        dependencies = start_conditions.dependencies(spec, group.metadata.name)
    except ValidationError as error:
        raise DecodeError(one_sentence(error, f"PodGroup {key}: spec")) from error
    except DecodeError as error:
        if str(error).startswith("PodGroup "):
            raise
        raise DecodeError(f"PodGroup {key}: {error}") from error
    try:
        checkpoint_s = parse_timestamp(spec.checkpointAt or "") or None
    except ValueError as error:
        raise DecodeError(
            f"PodGroup {key}: spec.checkpointAt: {shown(spec.checkpointAt)} is no RFC 3339 time"
        ) from error
    status = _status(group.status)
    minimum = spec.minMember or sum(role.min_count for role in roles) or 1
    total = sum(role.count for role in roles)
    few(total, PODS_OF_GANG, f"PodGroup {key}: spec.roles: ")
    if roles and minimum > total:
        raise DecodeError(
            f"PodGroup {key}: spec.minMember is {minimum}, above the {total} pods of its roles"
        )
    priority = _priority(spec, priorities, default, group)
    gang = Gang(
        GangId(key),
        minimum,
        roles,
        queue=_queue(group, spec),
        priority=priority,
        created_s=parse_timestamp(group.metadata.creation_timestamp),
        expected_runtime_s=spec.expectedRuntimeSeconds,
        schedule_timeout_s=spec.scheduleTimeoutSeconds,
        started=status.phase == "Placed",
        constraints=constraints.constraints(spec),
        checkpoint_s=checkpoint_s,
        movable=spec.movable,
        min_runtime_s=spec.minRuntimeSeconds,
        user=user_of(group.metadata.annotations, group.metadata.namespace),
        preemptible=spec.preemptible,
        ready_timeout_s=spec.readyTimeoutSeconds,
        max_runtime_s=spec.maxRuntimeSeconds,
        checkpoint_grace_s=spec.checkpointGraceSeconds,
        charged=status.queue,
        dependencies=dependencies,
        series=start_conditions.series(spec),
        price_max=spec.maxPricePerHour,
        wait_max_s=spec.maxWaitSeconds,
    )
    return gang, status, group.metadata.uid


def _role(role: RoleSpec, namespace: str, subject: str, claims: Claims | None) -> Role:
    return Role(
        role.name,
        role.count,
        role.count if role.minCount is None else role.minCount,
        None if role.template is None else template_needs(role.name, role.template, claims),
        constraints.role_near(
            role.topology,
            _annotations(role.name, role.template or {}),
            f"{subject}: spec.roles[{role.name}].template",
        ),
        PodName(f"{namespace}/{role.podName}") if role.podName else None,
    )


def _priority(
    spec: PodGroupSpec, priorities: dict[str, int], default: int | None, group: GroupObject
) -> int | None:
    """Return the priority of the group's PriorityClass, else the highest of its templates.

    Return None if neither the group nor a template names a class: then the pods' priority counts.
    """
    key = f"{group.metadata.namespace}/{group.metadata.name}"
    if spec.priorityClassName:
        where = f"PodGroup {key}: spec.priorityClassName"
        for owner in group.metadata.owner_references:
            if owner.controller and owner.api_version.startswith("kubeflow.org/"):
                job = f"{owner.kind} {group.metadata.namespace}/{owner.name}"
                # The job controller copied the class from the field that the user wrote.
                where = f"{job}: spec.runPolicy.schedulingPolicy.priorityClass"
        return _value(spec.priorityClassName, where, priorities)
    templates = [(role.name, role.template) for role in spec.roles if role.template is not None]
    classes = [
        (role, (template.get("spec") or {}).get("priorityClassName"))
        for role, template in templates
    ]
    if default is None and not any(name for _, name in classes):
        return None
    values = [
        _value(
            name, f"PodGroup {key}: spec.roles[{role}].template.spec.priorityClassName", priorities
        )
        if name
        else default or 0
        for role, name in classes
    ]
    return max(values, default=None)


def _value(name: str, where: str, priorities: dict[str, int]) -> int:
    if name not in priorities:
        raise UnknownClassError(where, name, priorities)
    return priorities[name]


def _queue(group: GroupObject, spec: PodGroupSpec) -> str:
    """Return the queue of a group: the queue of its spec, else the queue of its labels."""
    if "queue" in group.spec and spec.queue != DEFAULT_QUEUE:
        return spec.queue
    metadata = group.metadata
    return dialects.queue_of(metadata.labels, metadata.annotations) or spec.queue


def _status(values: dict[str, Any]) -> PodGroupStatus:
    try:
        return PodGroupStatus.model_validate(values)
    except ValidationError:
        # Only gangsched writes the status, and the next write replaces a malformed one.
        return PodGroupStatus.model_validate({})


def template_needs(role: str, template: dict[str, Any], claims: Claims | None) -> PodRequirements:
    """Return the requirements of a pod that a role's template makes.

    Raises:
        DecodeError: the template is malformed.

    """
    try:
        spec = msgspec.convert(template.get("spec", {}), PodSpec)
    except msgspec.ValidationError as error:
        raise DecodeError(f"spec.roles[{role}].template.spec: {error}") from error
    annotations = _annotations(role, template)
    try:
        return needs(spec, annotations, claims=claims)
    except DecodeError as error:
        raise DecodeError(f"spec.roles[{role}].template.spec: {error}") from error


def _annotations(role: str, template: dict[str, Any]) -> dict[str, str]:
    try:
        metadata = msgspec.convert(template.get("metadata") or {}, TemplateMetadata)
    except msgspec.ValidationError as error:
        raise DecodeError(f"spec.roles[{role}].template.metadata: {error}") from error
    return metadata.annotations or {}
