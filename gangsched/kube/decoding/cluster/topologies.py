"""Decode the JSON of Topologies and PriorityClasses to values of the core."""

import msgspec
from pydantic import ValidationError

from gangsched.api.topology import TopologySpec
from gangsched.config import one_sentence
from gangsched.core.model.topology import Topology
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import GroupObject, priority_class_decoder


def topology(group: GroupObject) -> Topology:
    """Return a Topology.

    Raises:
        DecodeError: the Topology is malformed.

    """
    try:
        spec = TopologySpec.model_validate(group.spec)
    except ValidationError as error:
        raise DecodeError(one_sentence(error, f"Topology {group.metadata.name}: spec")) from error
    return spec.topology(group.metadata.name)


def priority_class(raw: bytes) -> tuple[str, int, bool]:
    """Return the name and value of a PriorityClass, and whether it is the default class.

    Raises:
        DecodeError: the PriorityClass is malformed.

    """
    try:
        decoded = priority_class_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"PriorityClass: {error}") from error
    return decoded.metadata.name, decoded.value, decoded.global_default
