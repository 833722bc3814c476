"""Decode the JSON of pods to facts: the hot path of the watch.

A field that cannot be read raises `DecodeError` with one sentence. The caller reports the error
and continues with other pods.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

import msgspec

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.core.bounds import AMOUNT, PODS_OF_GANG, SHARED_GPUS
from gangsched.core.model.constraints import NO_CONSTRAINTS
from gangsched.core.model.ids import NodeName, PodName, PodUid
from gangsched.core.model.pods import (
    Expression,
    HostPort,
    NodeTerm,
    PodRequirements,
    Requests,
    Toleration,
)
from gangsched.core.model.text import shown, whole
from gangsched.kube.decoding.claims import Claims, both, claimed
from gangsched.kube.decoding.constraints import pod_constraints, share
from gangsched.kube.decoding.membership import foreign_id, gang_of, minimum_of, rank_of, role_of
from gangsched.kube.decoding.native_groups import NEVER
from gangsched.kube.decoding.pod_limits import check, check_lengths
from gangsched.kube.decoding.quantities import (
    DecodeError,
    at_most,
    parse_amounts,
    parse_time_annotation,
    parse_timestamp,
)
from gangsched.kube.decoding.schemas import (
    Amounts,
    BareSpec,
    Container,
    Pod,
    PodSpec,
    PodStatus,
    Requirement,
    SelectorTerm,
    bare_pod_decoder,
    pod_decoder,
)

_NOTHING: Mapping[str, str] = {}

_BEYOND_NAMED = 8
"""Constraints and volumes that a refusal names at most."""


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = min(total.get(resource, 0) + amount, AMOUNT.most)


def _largest(total: dict[str, int], other: dict[str, int]) -> None:
    for resource, amount in other.items():
        total[resource] = max(total.get(resource, 0), amount)


Read = Callable[[Amounts], dict[str, int]]


def _requested(container: Container, read: Read) -> dict[str, int]:
    # The API server defaults requests to limits. Templates of groups never passed that default.
    return read(container.resources.limits | container.resources.requests)


def _held(container: Container, status: PodStatus, read: Read) -> dict[str, int]:
    """Return the resources that a container occupies; during a resize, the maximum of both sizes.

    If the node lacks capacity for the larger size, only the present size counts (KEP-1287).
    """
    requested, wanted = _requested(container, read), container.resources.requests
    statuses = (*status.container_statuses, *status.init_container_statuses)
    actual = next((known for known in statuses if known.name == container.name), None)
    if actual is None or actual.resources is None:
        return requested
    if actual.resources.requests == actual.allocated_resources == wanted:
        return requested  # no resize is in progress: the usual case
    has = read(actual.resources.requests)
    _largest(has, read(actual.allocated_resources))
    if not _infeasible(status):
        _largest(has, requested)
    return has


def _infeasible(status: PodStatus) -> bool:
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in status.conditions
    )


_NO_STATUS = PodStatus()
_encode = msgspec.json.Encoder().encode


def pod_requests(
    spec: PodSpec | BareSpec, status: PodStatus = _NO_STATUS, read: Read = parse_amounts
) -> Requests:
    """Return the resources of a pod: containers and sidecars, or the largest init step.

    Follows k8s.io/component-helpers/resource.PodRequests (KEP-753 sidecars, KEP-2837 pod level,
    KEP-1287 resizing in place). `read` turns quantities into numbers.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _held(container, status, read))
    sidecars: dict[str, int] = {}
    initial: dict[str, int] = {}
    for container in spec.init_containers:
        sidecar = container.restart_policy == "Always"
        step = _held(container, status, read) if sidecar else _requested(container, read)
        if sidecar:
            _add(total, step)
            _add(sidecars, step)
            step = dict(sidecars)
        else:
            _add(step, sidecars)
        _largest(initial, step)
    _largest(total, initial)
    if spec.resources is not None:
        total |= read(spec.resources.requests)
    _add(total, read(spec.overhead))
    return tuple(sorted((name, amount) for name, amount in total.items() if amount > 0))


# -- pods ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _toleration(key: str, operator: str, value: str, effect: str) -> Toleration:
    return Toleration(key, operator or "Equal", value, effect)


@lru_cache(maxsize=4096)
def _shared(requirements: PodRequirements) -> PodRequirements:
    """Return one object for all equal requirements: tens of thousands of pods share them."""
    return requirements


def _expression(requirement: Requirement) -> Expression:
    return Expression(requirement.key, requirement.operator, tuple(requirement.values))


def _term(term: SelectorTerm) -> NodeTerm:
    return NodeTerm(
        tuple(map(_expression, term.match_expressions)), tuple(map(_expression, term.match_fields))
    )


def _beyond(spec: PodSpec, constraints: list[str]) -> tuple[str, ...]:
    if spec.affinity is not None and spec.affinity.pod_affinity:
        constraints.append("pod affinity")
    if spec.affinity is not None and spec.affinity.pod_anti_affinity:
        constraints.append("pod anti-affinity")
    if spec.topology_spread_constraints:
        constraints.append("topology spread constraints")
    if spec.resource_claims:
        constraints.append("resource claims")
    return tuple(constraints[:_BEYOND_NAMED])


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the ports of its node that a pod occupies.

    With hostNetwork every container port is a host port. The API server writes this default into
    pods; templates have it only here.
    """
    sidecars = (
        container for container in spec.init_containers if container.restart_policy == "Always"
    )
    taken = (
        (
            port.protocol,
            port.host_ip or "0.0.0.0",
            port.host_port or (port.container_port if spec.host_network else 0),
        )
        for container in (*spec.containers, *sidecars)
        for port in container.ports
    )
    return tuple(sorted(host_port for host_port in taken if host_port[2]))


def needs(
    spec: PodSpec,
    annotations: Mapping[str, str] = _NOTHING,
    status: PodStatus = _NO_STATUS,
    claims: Claims | None = None,
) -> PodRequirements:
    """Return the requirements of a pod on its node, including those of its volumes (`claims`).

    Raises:
        DecodeError: a quantity or an annotation about GPUs is malformed, or exceeds a bound.

    """
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    if spec.affinity is not None and spec.affinity.node_affinity is not None:
        affinity = spec.affinity.node_affinity
        if affinity.required is not None:
            required = tuple(map(_term, affinity.required.node_selector_terms))
        preferred = tuple((p.weight, _term(p.preference)) for p in affinity.preferred)
    allowed, beyond = claimed(spec, claims)
    for terms in allowed:
        required = both(required, terms)
    for t in spec.tolerations:
        check_lengths((t.key, t.operator, t.value, t.effect))  # before `_toleration` caches it
    requirements = PodRequirements(
        requests=pod_requests(spec, status),
        selector=tuple(
            Expression(key, "In", (value,)) for key, value in sorted(spec.node_selector.items())
        ),
        required=required,
        preferred=preferred,
        tolerations=tuple(
            _toleration(t.key, t.operator, t.value, t.effect) for t in spec.tolerations
        ),
        host_ports=_host_ports(spec),
        unmodelled_constraints=_beyond(spec, beyond),
        share=share(annotations),
    )
    check(requirements)
    return _shared(requirements)


def decode_pod(raw: bytes) -> Pod:
    """Read a pod.

    Raises:
        DecodeError: the pod is malformed.

    """
    try:
        return pod_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"pod: {error}") from error


def stamp(pod: Pod) -> tuple[int, int] | None:
    """Return a value that changes if the resources of a bound pod change; None if it is unbound."""
    if not pod.spec.node_name:
        return None
    status = pod.status
    sizes = (status.container_statuses, status.init_container_statuses, _infeasible(status))
    return pod.metadata.generation, hash(_encode(sizes))


def pod_fact(
    pod: Pod,
    schedulers: frozenset[str],
    known: PodRequirements | None = None,
    claims: Claims | None = None,
) -> f.PodSeen:
    """Return the fact of a pod; `known` are its requirements if they cannot have changed.

    A malformed pod uses its node too, so its problem is a field of the fact.
    """
    metadata, spec = pod.metadata, pod.spec
    key = f"{metadata.namespace}/{metadata.name}"
    ours = spec.scheduler_name in schedulers
    gates = [gate.name for gate in spec.scheduling_gates]
    # Only our schedulers count shared GPUs by annotations; other schedulers count them elsewhere.
    annotations = metadata.annotations if ours else _NOTHING
    wants, invalid = (known, "") if known is not None else _takes(pod, annotations, claims)
    constraints = NO_CONSTRAINTS
    devices: tuple[int, ...] = ()
    try:
        if ours:
            minimum_of(pod)
        if annotations:
            devices = _devices(annotations)
            constraints = pod_constraints(annotations, f"pod {key}")
    except DecodeError as error:
        invalid = invalid or str(error)
    if invalid and not invalid.startswith("pod "):
        invalid = f"pod {key}: {invalid}"
    return f.PodSeen(
        uid=PodUid(metadata.uid),
        name=PodName(key),
        needs=wants,
        gang=gang_of(pod) if ours else None,
        role=role_of(pod),
        node=NodeName(spec.node_name) if spec.node_name else None,
        ended=pod.status.phase in ("Succeeded", "Failed"),
        failed=pod.status.phase == "Failed",
        terminating=metadata.deletion_timestamp is not None,
        gated=names.GATE in gates,
        gated_by=next((gate for gate in gates if gate != names.GATE), ""),
        priority=spec.priority,
        created_s=parse_timestamp(metadata.creation_timestamp),
        rank=rank_of(pod),
        constraints=constraints,
        devices=devices,
        started_s=parse_timestamp(pod.status.start_time) or None,
        ready=_ready(pod),
        invalid=invalid if ours else "",
        minimum=_started_with(annotations) if spec.node_name else 0,
        preempts=spec.preemption_policy != NEVER,
        checkpoint_s=parse_time_annotation(annotations, names.CHECKPOINT_ANNOTATION),
        stop_by_s=parse_time_annotation(annotations, names.STOP_ANNOTATION),
    )


def _takes(
    pod: Pod, annotations: Mapping[str, str], claims: Claims | None = None
) -> tuple[PodRequirements, str]:
    """Return the requirements of a pod, and the problem of its spec or an empty string."""
    if pod.spec.node_name and not _written_by_our_binding(annotations):
        annotations = _NOTHING
    try:
        return needs(pod.spec, annotations, pod.status, claims), ""
    except DecodeError as error:
        problem = str(error)
    part = None
    with suppress(DecodeError):
        part = share(annotations)
    amounts_now = pod_requests(pod.spec, pod.status, at_most)
    return PodRequirements(amounts_now, host_ports=_host_ports(pod.spec), share=part), problem


def _written_by_our_binding(annotations: Mapping[str, str]) -> bool:
    """Return whether our binding can have written the GPU indices of a bound pod.

    Our binding writes one index for each part of a GPU. Another binder writes none, and its pod
    has no part of a GPU.
    """
    part, indices = None, annotations.get(names.DEVICES_ANNOTATION)
    with suppress(DecodeError):
        part = share(annotations)
    return indices is not None and (part is None or indices.count(",") + 1 == part.devices)


def bare_fact(raw: bytes, schedulers: frozenset[str]) -> f.PodSeen:
    """Return the fact of a malformed pod: the pod uses its node, and is no member of a gang.

    Raises:
        msgspec.DecodeError: the name, node or containers cannot be read either.

    """
    pod = bare_pod_decoder.decode(raw)
    metadata, spec = pod.metadata, pod.spec
    alone = foreign_id(metadata.namespace, "pod", metadata.name)
    return f.PodSeen(
        uid=PodUid(metadata.uid),
        name=PodName(f"{metadata.namespace}/{metadata.name}"),
        needs=PodRequirements(pod_requests(spec, read=at_most)),
        gang=alone if spec.scheduler_name in schedulers else None,
        node=NodeName(spec.node_name) if spec.node_name else None,
        ended=pod.status.phase in ("Succeeded", "Failed"),
        failed=pod.status.phase == "Failed",
    )


def _ready(pod: Pod) -> bool:
    """Return whether a pod has the condition Ready."""
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in pod.status.conditions
    )


def _started_with(annotations: Mapping[str, str]) -> int:
    """Return the minimum of the gang that our binding wrote on a pod, or 0."""
    return whole(annotations.get(names.MINIMUM_ANNOTATION, ""), PODS_OF_GANG.most) or 0


def _devices(annotations: Mapping[str, str]) -> tuple[int, ...]:
    text = annotations.get(names.DEVICES_ANNOTATION)
    if text is None:
        return ()
    most = SHARED_GPUS.most
    parts = text.split(",", most)
    indices = [index for part in parts if (index := whole(part, most - 1)) is not None]
    if len(indices) < len(parts) or len(indices) > most:
        raise DecodeError(
            f"annotation {names.DEVICES_ANNOTATION} is {shown(text)}; it must be GPU indices, each "
            f"below {most}"
        )
    return tuple(indices)


def unschedulable_message(pod: Pod) -> str | None:
    """Return the message of kube-scheduler's refusal of a pod, or None without a refusal."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message if condition.reason == "Unschedulable" else None
    return None
