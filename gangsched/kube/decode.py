"""JSON of pods to facts, the hot path of the watch.

Whatever cannot be read raises `DecodeError` with one sentence; the caller reports it and goes on.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.core.jobs.jobset_parts import FIRST_RANK
from gangsched.core.model import (
    NO_CONSTRAINTS,
    Expression,
    HostPort,
    NodeName,
    NodeTerm,
    PodName,
    PodNeeds,
    PodUid,
    Requests,
    Toleration,
)
from gangsched.core.numbers import whole
from gangsched.core.shown import shown
from gangsched.kube.constraints import of_pod, share
from gangsched.kube.membership import gang_of
from gangsched.kube.quantities import DecodeError, amounts, seconds
from gangsched.kube.structs import (
    Container,
    Pod,
    PodSpec,
    Requirement,
    SelectorTerm,
    pod_decoder,
)

_NOTHING: Mapping[str, str] = {}

_BEYOND_VOLUMES = {
    "persistentVolumeClaim": "PersistentVolumeClaim",
    "ephemeral": "ephemeral volume",
    "csi": "CSI volume",
}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _largest(total: dict[str, int], other: dict[str, int]) -> None:
    for resource, amount in other.items():
        total[resource] = max(total.get(resource, 0), amount)


def _requested(container: Container) -> dict[str, int]:
    # The API server defaults requests to limits; templates that never passed it need the same.
    return amounts(container.resources.limits | container.resources.requests)


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
        total |= amounts(spec.resources.requests)
    _add(total, amounts(spec.overhead))
    return tuple(sorted((name, amount) for name, amount in total.items() if amount > 0))


# -- pods ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _toleration(key: str, operator: str, value: str, effect: str) -> Toleration:
    return Toleration(key, operator or "Equal", value, effect)


@lru_cache(maxsize=4096)
def _shared(asked: PodNeeds) -> PodNeeds:
    """Return one object for all who ask the same: tens of thousands do."""
    return asked


def _expression(requirement: Requirement) -> Expression:
    return Expression(requirement.key, requirement.operator, tuple(requirement.values))


def _term(term: SelectorTerm) -> NodeTerm:
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
    """Return the ports of its node a pod takes.

    In the node's own network that is every port it names: the API server writes that into pods,
    and of a template, before there is one, it is true as well.
    """
    taken = (
        (
            port.protocol,
            port.host_ip or "0.0.0.0",
            port.host_port or (port.container_port if spec.host_network else 0),
        )
        for container in spec.containers
        for port in container.ports
    )
    return tuple(sorted(one for one in taken if one[2]))


def needs(spec: PodSpec, annotations: Mapping[str, str] = _NOTHING) -> PodNeeds:
    """Return what a pod asks of its node.

    Raises:
        DecodeError: a quantity or an annotation about GPUs is wrong.

    """
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    if spec.affinity is not None and spec.affinity.node_affinity is not None:
        affinity = spec.affinity.node_affinity
        if affinity.required is not None:
            required = tuple(map(_term, affinity.required.node_selector_terms))
        preferred = tuple((p.weight, _term(p.preference)) for p in affinity.preferred)
    asked = PodNeeds(
        requests=requests(spec),
        selector=tuple(
            Expression(key, "In", (value,)) for key, value in sorted(spec.node_selector.items())
        ),
        required=required,
        preferred=preferred,
        tolerations=tuple(
            _toleration(t.key, t.operator, t.value, t.effect) for t in spec.tolerations
        ),
        host_ports=_host_ports(spec),
        beyond=_beyond(spec),
        share=share(annotations),
    )
    return _shared(asked)


def decode_pod(raw: bytes) -> Pod:
    """Read a pod.

    Raises:
        DecodeError: it is not understood.

    """
    try:
        return pod_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"pod: {error}") from error


def pod_fact(pod: Pod, schedulers: frozenset[str], known: PodNeeds | None = None) -> f.PodSeen:
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
    ours = spec.scheduler_name in schedulers
    gates = [gate.name for gate in spec.scheduling_gates]
    asked, invalid = NO_CONSTRAINTS, ""
    devices: tuple[int, ...] = ()
    if metadata.annotations:
        # A pod with a wrong annotation takes room all the same: it must not be overlooked.
        try:
            devices = _devices(metadata.annotations)
            if known is None:
                wants = needs(spec, metadata.annotations)
            if ours:
                asked = of_pod(metadata.annotations, f"pod {key}")
        except DecodeError as error:
            invalid = str(error) if str(error).startswith("pod ") else f"pod {key}: {error}"
    return f.PodSeen(
        uid=PodUid(metadata.uid),
        name=PodName(key),
        needs=wants,
        gang=gang_of(pod) if ours else None,
        role=metadata.labels.get(names.ROLE_LABEL, ""),
        node=NodeName(spec.node_name) if spec.node_name else None,
        ended=pod.status.phase in ("Succeeded", "Failed"),
        failed=pod.status.phase == "Failed",
        terminating=metadata.deletion_timestamp is not None,
        gated=names.GATE in gates,
        held_by=next((gate for gate in gates if gate != names.GATE), ""),
        priority=spec.priority,
        created_s=seconds(metadata.creation_timestamp),
        rank=_rank(metadata.labels),
        constraints=asked,
        devices=devices,
        started_s=seconds(pod.status.start_time) or None,
        ready=_ready(pod),
        invalid=invalid if ours else "",
    )


def _ready(pod: Pod) -> bool:
    """Tell whether a pod says that it is ready."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def _rank(labels: Mapping[str, str]) -> int | None:
    """Return a pod's index in its role where its controller labels it."""
    for key in names.INDEX_LABELS:
        index = whole(labels.get(key, ""))
        if index is not None:
            return index + (whole(labels.get(FIRST_RANK, "")) or 0)
    return None


def _devices(annotations: Mapping[str, str]) -> tuple[int, ...]:
    text = annotations.get(names.DEVICES_ANNOTATION)
    if text is None:
        return ()
    found = tuple(index for part in text.split(",") if (index := whole(part)) is not None)
    if len(found) <= text.count(","):
        raise DecodeError(
            f"annotation {names.DEVICES_ANNOTATION} is {shown(text)}; it must be GPU indices"
        )
    return found


def unschedulable_message(pod: Pod) -> str | None:
    """Return why kube-scheduler could not place a pod, if it said so."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message if condition.reason == "Unschedulable" else None
    return None
