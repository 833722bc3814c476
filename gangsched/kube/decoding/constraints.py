"""What specs and annotations ask of the topology, as the core's constraints."""

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
    """Return how near pods are to be."""
    if spec is None:
        return LevelRequest()
    slices = tuple(SliceRequest(one.level, one.size) for one in spec.slices)
    return LevelRequest(spec.required, spec.preferred, slices)


def constraints(spec: PodGroupSpec) -> Constraints:
    """Return what a group asks of the topology as a whole."""
    asked = spec.topology
    own = Constraints(
        gpu_types=tuple(spec.gpuKinds), avoid=tuple(NodeName(name) for name in spec.avoidNodes)
    )
    if asked is None:
        return own
    return Constraints(
        topology=asked.name,
        near=near(asked),
        fabric=asked.requiredFabric or asked.preferredFabric,
        fabric_required=asked.requiredFabric is not None,
        spread=tuple(Spread(one.level, one.maxPods) for one in asked.spread),
        exclusive=asked.exclusive,
        gpu_types=own.gpu_types,
        avoid=own.avoid,
    )


def merged(spec: Mapping[str, Any], annotations: Mapping[str, str], subject: str) -> dict[str, Any]:
    """Return a group's spec with what its annotations ask added.

    Raises:
        DecodeError: an annotation is wrong, or disagrees with the spec.

    """
    try:
        return dialects.merge(spec, dialects.from_annotations(annotations, subject), subject)
    except dialects.DialectError as error:
        raise DecodeError(str(error)) from error


def role_near(role: NearSpec | None, annotations: Mapping[str, str], subject: str) -> LevelRequest:
    """Return how near the pods of a role are to be, by its spec and its template's annotations.

    Raises:
        DecodeError: an annotation is wrong, or disagrees with the spec.

    """
    if dialects.KEYS.isdisjoint(annotations):
        return near(role)
    spec = {"topology": {} if role is None else role.model_dump()}
    asked = merged(spec, annotations, subject)
    try:
        return near(NearSpec.model_validate(asked["topology"]))
    except ValidationError as error:
        raise DecodeError(one_sentence(error, f"{subject}: topology")) from error


def of_pod(annotations: Mapping[str, str], subject: str) -> Constraints:
    """Return what a pod's annotations ask of its gang.

    Raises:
        DecodeError: an annotation is wrong, or two dialects disagree.

    """
    if dialects.KEYS.isdisjoint(annotations):
        return NO_CONSTRAINTS
    asked = merged({}, annotations, subject)
    if not asked:
        return NO_CONSTRAINTS
    try:
        return constraints(PodGroupSpec.model_validate(asked))
    except ValidationError as error:
        raise DecodeError(one_sentence(error, subject)) from error


def share(annotations: Mapping[str, str]) -> GpuShare | None:
    """Return the part of a GPU a pod asks for with KAI's annotations, or None.

    Raises:
        DecodeError: a value is wrong.

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
