"""JSON of the Kubernetes API to facts. The hot path: only the fields a scheduler reads.

Whatever cannot be read raises `DecodeError` with one sentence; the caller reports it and goes on.
"""

import math
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from kubernetes.utils.quantity import parse_quantity
from pydantic import ValidationError

from gangsched.api import names
from gangsched.api.podgroup import CoschedulingSpec, PodGroupSpec, PodGroupStatus
from gangsched.config import one_sentence
from gangsched.core import facts as f
from gangsched.core.model import (
    Expression,
    Gang,
    GangId,
    HostPort,
    Node,
    NodeName,
    NodeTerm,
    PodName,
    PodNeeds,
    PodUid,
    Requests,
    Role,
    Taint,
    Toleration,
)


class DecodeError(Exception):
    """An object cannot be understood; the message names object, field and value."""


class _Struct(msgspec.Struct, rename="camel", omit_defaults=True):
    pass


class _Metadata(_Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


Amounts = dict[str, str | int | float]


class _Resources(_Struct):
    requests: Amounts = {}
    limits: Amounts = {}


class _Port(_Struct):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class _Container(_Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)
    ports: list[_Port] = []
    restart_policy: str = ""


class _Requirement(_Struct):
    key: str
    operator: str
    values: list[str] = []


class _SelectorTerm(_Struct):
    match_expressions: list[_Requirement] = []
    match_fields: list[_Requirement] = []


class _NodeSelector(_Struct):
    node_selector_terms: list[_SelectorTerm] = []


class _Preferred(_Struct):
    weight: int
    preference: _SelectorTerm


class _NodeAffinity(_Struct):
    required: _NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[_Preferred] = msgspec.field(
        default=[], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(_Struct):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class _Toleration(_Struct):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Gate(_Struct):
    name: str


class PodSpec(_Struct):
    """The part of a PodSpec that decides where a pod may go."""

    containers: list[_Container] = []
    init_containers: list[_Container] = []
    overhead: Amounts = {}
    resources: _Resources | None = None
    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: _Affinity | None = None
    tolerations: list[_Toleration] = []
    priority: int = 0
    scheduling_gates: list[_Gate] = []
    host_network: bool = False
    volumes: list[dict[str, Any]] = []
    topology_spread_constraints: list[dict[str, Any]] = []
    resource_claims: list[dict[str, Any]] = []


class _PodCondition(_Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _PodStatus(_Struct):
    phase: str = ""
    conditions: list[_PodCondition] = []


class Pod(_Struct):
    """A pod as a scheduler reads it."""

    metadata: _Metadata
    spec: PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Taint(_Struct):
    key: str
    effect: str
    value: str = ""


class _NodeSpec(_Struct):
    taints: list[_Taint] = []
    unschedulable: bool = False


class _NodeStatus(_Struct):
    allocatable: Amounts = {}


class _Node(_Struct):
    metadata: _Metadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _Group(_Struct):
    metadata: _Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class _PriorityClass(_Struct):
    metadata: _Metadata
    value: int = 0


_pod = msgspec.json.Decoder(Pod)
_node = msgspec.json.Decoder(_Node)
_group = msgspec.json.Decoder(_Group)
_priority_class = msgspec.json.Decoder(_PriorityClass)

_BEYOND_VOLUMES = {
    "persistentVolumeClaim": "PersistentVolumeClaim",
    "ephemeral": "ephemeral volume",
    "csi": "CSI volume",
}


# -- quantities ---------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def quantity(resource: str, value: str | float) -> int:
    """Return a quantity in the core's unit: thousandths for cpu, else whole units, rounded up.

    Raises:
        DecodeError: it is no quantity, or it is negative.

    """
    try:
        exact = parse_quantity(value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DecodeError(f"{resource}: {value!r} is no quantity such as 2, 500m or 4Gi") from error
    if exact < 0:
        raise DecodeError(f"{resource}: {value!r} is negative")
    return int(math.ceil(exact * 1000) if resource == "cpu" else math.ceil(exact))


def _amounts(values: Amounts) -> dict[str, int]:
    return {resource: quantity(resource, value) for resource, value in values.items()}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _largest(total: dict[str, int], other: dict[str, int]) -> None:
    for resource, amount in other.items():
        total[resource] = max(total.get(resource, 0), amount)


def _requested(container: _Container) -> dict[str, int]:
    # The API server defaults requests to limits; templates that never passed it need the same.
    return _amounts(container.resources.limits | container.resources.requests)


def requests(spec: PodSpec) -> Requests:
    """Return what a pod occupies: containers and sidecars together, or the largest init step.

    Follows k8s.io/component-helpers/resource.PodRequests (KEP-753 sidecars, KEP-2837 pod level).
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _requested(container))
    sidecars: dict[str, int] = {}
    initial: dict[str, int] = {}
    for container in spec.init_containers:
        step = _requested(container)
        if container.restart_policy == "Always":
            _add(total, step)
            _add(sidecars, step)
            step = dict(sidecars)
        else:
            _add(step, sidecars)
        _largest(initial, step)
    _largest(total, initial)
    if spec.resources is not None:
        total |= _amounts(spec.resources.requests)
    _add(total, _amounts(spec.overhead))
    return tuple(sorted((name, amount) for name, amount in total.items() if amount > 0))


# -- pods ---------------------------------------------------------------------------------------


def _expression(requirement: _Requirement) -> Expression:
    return Expression(requirement.key, requirement.operator, tuple(requirement.values))


def _term(term: _SelectorTerm) -> NodeTerm:
    return NodeTerm(
        tuple(map(_expression, term.match_expressions)), tuple(map(_expression, term.match_fields))
    )


def _beyond(spec: PodSpec) -> tuple[str, ...]:
    found = [
        f"{label} {volume.get('name', '')}"
        for volume in spec.volumes
        for key, label in _BEYOND_VOLUMES.items()
        if key in volume
    ]
    if spec.affinity is not None and spec.affinity.pod_affinity:
        found.append("pod affinity")
    if spec.affinity is not None and spec.affinity.pod_anti_affinity:
        found.append("pod anti-affinity")
    if spec.topology_spread_constraints:
        found.append("topology spread constraints")
    if spec.resource_claims:
        found.append("resource claims")
    return tuple(found)


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    return tuple(
        sorted(
            (port.protocol, port.host_ip or "0.0.0.0", port.host_port)
            for container in spec.containers
            for port in container.ports
            if port.host_port
        )
    )


def needs(spec: PodSpec) -> PodNeeds:
    """Return what a pod asks of its node."""
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    if spec.affinity is not None and spec.affinity.node_affinity is not None:
        affinity = spec.affinity.node_affinity
        if affinity.required is not None:
            required = tuple(map(_term, affinity.required.node_selector_terms))
        preferred = tuple((p.weight, _term(p.preference)) for p in affinity.preferred)
    return PodNeeds(
        requests=requests(spec),
        selector=tuple(
            Expression(key, "In", (value,)) for key, value in sorted(spec.node_selector.items())
        ),
        required=required,
        preferred=preferred,
        tolerations=tuple(
            Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in spec.tolerations
        ),
        host_ports=_host_ports(spec),
        beyond=_beyond(spec),
    )


def decode_pod(raw: bytes) -> Pod:
    """Read a pod.

    Raises:
        DecodeError: it is not understood.

    """
    try:
        return _pod.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"pod: {error}") from error


def pod_fact(pod: Pod, scheduler_name: str, known: PodNeeds | None = None) -> f.PodSeen:
    """Turn a pod into its fact; `known` saves reading needs that cannot have changed.

    Raises:
        DecodeError: a quantity is wrong.

    """
    metadata, spec = pod.metadata, pod.spec
    key = f"{metadata.namespace}/{metadata.name}"
    try:
        wants = known if known is not None else needs(spec)
    except DecodeError as error:
        raise DecodeError(f"pod {key}: {error}") from error
    ours = spec.scheduler_name == scheduler_name
    return f.PodSeen(
        uid=PodUid(metadata.uid),
        name=PodName(key),
        needs=wants,
        gang=gang_of(metadata) if ours else None,
        role=metadata.labels.get(names.ROLE_LABEL, ""),
        node=NodeName(spec.node_name) if spec.node_name else None,
        ended=pod.status.phase in ("Succeeded", "Failed"),
        failed=pod.status.phase == "Failed",
        terminating=metadata.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        priority=spec.priority,
        created_s=seconds(metadata.creation_timestamp),
    )


def gang_of(metadata: _Metadata) -> GangId:
    """Return the gang a pod belongs to: a group by label, else the pod by itself."""
    labels = metadata.labels
    if group := labels.get(names.POD_GROUP_LABEL):
        return GangId(f"{metadata.namespace}/{group}")
    if group := labels.get(names.COSCHEDULING_LABEL):
        return coscheduling_id(metadata.namespace, group)
    return GangId(f"{metadata.namespace}/pod:{metadata.name}")


def coscheduling_id(namespace: str, name: str) -> GangId:
    """Return the id of a scheduling.x-k8s.io group, apart from ours of the same name."""
    return GangId(f"{namespace}/scheduling.x-k8s.io:{name}")


def implicit_gang(pod: Pod) -> Gang | None:
    """Return the gang that a pod declares by itself: a label-only group, or a bare pod.

    Raises:
        DecodeError: its minimum is no number above zero.

    """
    metadata = pod.metadata
    labels = metadata.labels
    gang_id = gang_of(metadata)
    minimum = 1
    if names.POD_GROUP_LABEL in labels:
        text = labels.get(names.MIN_MEMBER_LABEL)
        if text is None:
            return None
        if not text.isdigit() or int(text) < 1:
            raise DecodeError(
                f"pod {metadata.namespace}/{metadata.name}: label {names.MIN_MEMBER_LABEL} is "
                f"{text!r}; it must be a whole number of at least 1"
            )
        minimum = int(text)
    elif names.COSCHEDULING_LABEL in labels:
        return None
    return Gang(
        gang_id,
        minimum,
        queue=labels.get(names.QUEUE_LABEL, "default"),
        # Every pod of the group must declare the same gang: nothing here may be the pod's own.
        implicit=True,
    )


def unschedulable_message(pod: Pod) -> str | None:
    """Return why kube-scheduler could not place a pod, if it said so."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message if condition.reason == "Unschedulable" else None
    return None


# -- nodes and groups ---------------------------------------------------------------------------


def node_fact(raw: bytes) -> f.NodeSeen:
    """Turn a node into its fact.

    Raises:
        DecodeError: it is not understood.

    """
    try:
        node = _node.decode(raw)
        allocatable = _amounts(node.status.allocatable)
    except msgspec.DecodeError as error:
        raise DecodeError(f"node: {error}") from error
    except DecodeError as error:
        raise DecodeError(f"node {node.metadata.name}: status.allocatable: {error}") from error
    return f.NodeSeen(
        Node(
            name=NodeName(node.metadata.name),
            allocatable=tuple(sorted(allocatable.items())),
            labels=node.metadata.labels,
            taints=tuple(Taint(t.key, t.value, t.effect) for t in node.spec.taints),
            unschedulable=node.spec.unschedulable,
        )
    )


def node_name(raw: bytes) -> NodeName:
    """Return the name of a node whatever else is wrong with it."""
    return NodeName(_node.decode(raw).metadata.name)


def priority_class(raw: bytes) -> tuple[str, int]:
    """Return a PriorityClass's name and value."""
    decoded = _priority_class.decode(raw)
    return decoded.metadata.name, decoded.value


def pod_group(raw: bytes, priorities: dict[str, int]) -> tuple[Gang, PodGroupStatus, str]:
    """Read a PodGroup of ours: the gang, its written status and its uid.

    Raises:
        DecodeError: it is not understood; `gang` of the error tells which group.

    """
    group = _decode_group(raw)
    key = f"{group.metadata.namespace}/{group.metadata.name}"
    try:
        spec = PodGroupSpec.model_validate(group.spec)
        roles = tuple(
            Role(
                role.name,
                role.count,
                role.count if role.minCount is None else role.minCount,
                None if role.template is None else _template_needs(role.name, role.template),
            )
            for role in spec.roles
        )
    except ValidationError as error:
        raise DecodeError(one_sentence(error, f"PodGroup {key}: spec")) from error
    except DecodeError as error:
        raise DecodeError(f"PodGroup {key}: {error}") from error
    status = _status(group.status)
    minimum = spec.minMember or sum(role.min_count for role in roles) or 1
    total = sum(role.count for role in roles)
    if roles and minimum > total:
        raise DecodeError(
            f"PodGroup {key}: spec.minMember is {minimum}, above the {total} pods of its roles"
        )
    priority = priorities.get(spec.priorityClassName)
    if spec.priorityClassName and priority is None:
        known = ", ".join(sorted(priorities)) or "none"
        raise DecodeError(
            f"PodGroup {key}: spec.priorityClassName {spec.priorityClassName!r} does not exist; "
            f"the classes are: {known}"
        )
    gang = Gang(
        GangId(key),
        minimum,
        roles,
        queue=spec.queue,
        priority=priority,
        created_s=seconds(group.metadata.creation_timestamp),
        expected_runtime_s=spec.expectedRuntimeSeconds,
        schedule_timeout_s=spec.scheduleTimeoutSeconds,
        started=status.phase == "Placed",
    )
    return gang, status, group.metadata.uid


def coscheduling_group(raw: bytes) -> tuple[Gang, str]:
    """Read a PodGroup of scheduling.x-k8s.io, and its uid.

    Raises:
        DecodeError: it is not understood.

    """
    group = _decode_group(raw)
    metadata = group.metadata
    try:
        spec = CoschedulingSpec.model_validate(group.spec)
    except ValidationError as error:
        subject = f"PodGroup.scheduling.x-k8s.io {metadata.namespace}/{metadata.name}: spec"
        raise DecodeError(one_sentence(error, subject)) from error
    return (
        Gang(
            coscheduling_id(metadata.namespace, metadata.name),
            spec.minMember,
            created_s=seconds(metadata.creation_timestamp),
            schedule_timeout_s=spec.scheduleTimeoutSeconds or 60.0,
        ),
        metadata.uid,
    )


def group_key(raw: bytes) -> tuple[str, str, str]:
    """Return namespace, name and uid of any object."""
    metadata = _decode_group(raw).metadata
    return metadata.namespace, metadata.name, metadata.uid


def _decode_group(raw: bytes) -> _Group:
    try:
        return _group.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"PodGroup: {error}") from error


def _status(values: dict[str, Any]) -> PodGroupStatus:
    try:
        return PodGroupStatus.model_validate(values)
    except ValidationError:
        return PodGroupStatus.model_validate(
            {}
        )  # ours alone: a foreign scribble is overwritten by the next write


def _template_needs(role: str, template: dict[str, Any]) -> PodNeeds:
    try:
        spec = msgspec.convert(template.get("spec", {}), PodSpec)
    except msgspec.ValidationError as error:
        raise DecodeError(f"spec.roles[{role}].template.spec: {error}") from error
    try:
        return needs(spec)
    except DecodeError as error:
        raise DecodeError(f"spec.roles[{role}].template.spec: {error}") from error


@lru_cache(maxsize=4096)
def seconds(timestamp: str) -> float:
    """Return an RFC 3339 timestamp as seconds since the epoch; 0 when there is none."""
    if not timestamp:
        return 0.0
    return datetime.fromisoformat(timestamp).timestamp()
