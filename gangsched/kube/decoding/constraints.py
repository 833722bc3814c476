"""Topology constraints of specs and annotations, as values of the core."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gangsched.api import dialects
from gangsched.api.podgroup import PodGroupSpec
from gangsched.api.topology import NearSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import SHARED_GPUS
from gangsched.core.model.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    LevelRequest,
    SliceRequest,
    Spread,
)
from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import GpuShare
from gangsched.core.model.text import WHOLE_MAX, shown, whole
from gangsched.kube.decoding.quantities import DecodeError

_FRACTION = "gpu-fraction"
_MEMORY = "gpu-memory"
_DEVICES = "gpu-fraction-num-devices"
"""KAI's annotations for a part of a GPU."""


def near(spec: NearSpec | None) -> LevelRequest:
    """Return the topology request of a spec."""
    if spec is None:
        return LevelRequest()
    slices = tuple(SliceRequest(slice_spec.level, slice_spec.size) for slice_spec in spec.slices)
    return LevelRequest(spec.required, spec.preferred, slices)


def constraints(spec: PodGroupSpec) -> Constraints:
    """Return the constraints of a whole group."""
    topology = spec.topology
    own = Constraints(
        gpu_types=tuple(spec.gpuKinds), avoid=tuple(NodeName(name) for name in spec.avoidNodes)
    )
    if topology is None:
        return own
    return Constraints(
        topology=topology.name,
        near=near(topology),
        fabric=topology.requiredFabric or topology.preferredFabric,
        fabric_required=topology.requiredFabric is not None,
        spread=tuple(
            Spread(spread_spec.level, spread_spec.maxPods) for spread_spec in topology.spread
        ),
        exclusive=topology.exclusive,
        gpu_types=own.gpu_types,
        avoid=own.avoid,
    )


def merged(spec: Mapping[str, Any], annotations: Mapping[str, str], subject: str) -> dict[str, Any]:
    """Return the spec of a group, completed by the fields that its annotations set.

    Raises:
        DecodeError: an annotation is malformed, or contradicts the spec.

    """
    try:
        return dialects.merge(spec, dialects.from_annotations(annotations, subject), subject)
    except dialects.DialectError as error:
        raise DecodeError(str(error)) from error


def role_near(role: NearSpec | None, annotations: Mapping[str, str], subject: str) -> LevelRequest:
    """Return the topology request of a role, from its spec and its template's annotations.

    Raises:
        DecodeError: an annotation is malformed, or contradicts the spec.

    """
    if dialects.KEYS.isdisjoint(annotations):
        return near(role)
    spec = {"topology": {} if role is None else role.model_dump()}
    with_annotations = merged(spec, annotations, subject)
    try:
        return near(NearSpec.model_validate(with_annotations["topology"]))
    except ValidationError as error:
        raise DecodeError(one_sentence(error, f"{subject}: topology")) from error


def pod_constraints(annotations: Mapping[str, str], subject: str) -> Constraints:
    """Return the constraints of a gang that the annotations of its pods set.

    Raises:
        DecodeError: an annotation is malformed, or two dialects contradict each other.

    """
    if dialects.KEYS.isdisjoint(annotations):
        return NO_CONSTRAINTS
    annotated = merged({}, annotations, subject)
    if not annotated:
        return NO_CONSTRAINTS
    try:
        return constraints(PodGroupSpec.model_validate(annotated))
    except ValidationError as error:
        raise DecodeError(one_sentence(error, subject)) from error


def share(annotations: Mapping[str, str]) -> GpuShare | None:
    """Return the part of a GPU that a pod requests with KAI's annotations, or None.

    Raises:
        DecodeError: a value is malformed.

    """
    fraction, memory = annotations.get(_FRACTION), annotations.get(_MEMORY)
    if fraction is None and memory is None:
        return None
    if fraction is not None and memory is not None:
        raise DecodeError(f"annotations {_FRACTION} and {_MEMORY} exclude each other")
    devices = _positive(annotations, _DEVICES, "1", SHARED_GPUS.most)
    if memory is not None:
        return GpuShare(memory_mib=_positive(annotations, _MEMORY), devices=devices)
    try:
        part = float(fraction or "")
    except ValueError:
        part = 0.0
    milli = round(part * 1000) if 0 < part < 1 else 0
    if not 0 < milli < 1000:
        raise DecodeError(
            f"annotation {_FRACTION} is {shown(fraction)}; it must be above 0 and below 1"
        )
    return GpuShare(milli=milli, devices=devices)


def _positive(
    annotations: Mapping[str, str], key: str, default: str = "", most: int = WHOLE_MAX
) -> int:
    text = annotations.get(key, default)
    number = whole(text, most)
    if not number:
        raise DecodeError(
            f"annotation {key} is {shown(text)}; it must be a whole number from 1 to {most}"
        )
    return number
