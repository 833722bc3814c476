"""Decode the JSON of nodes to facts."""

import re

import msgspec

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.core.bounds import RESOURCES_OF_NODE
from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import Taint
from gangsched.core.model.text import whole
from gangsched.kube.decoding.cluster import mig_labels
from gangsched.kube.decoding.pod_limits import few
from gangsched.kube.decoding.quantities import DecodeError, parse_amounts, parse_time_annotation
from gangsched.kube.decoding.schemas import any_decoder, node_decoder

_PRICE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def node_fact(raw: bytes) -> f.NodeSeen:
    """Return the fact of a node.

    Raises:
        DecodeError: the node is malformed.

    """
    try:
        node = node_decoder.decode(raw)
        allocatable = parse_amounts(node.status.allocatable)
        few(len(allocatable), RESOURCES_OF_NODE)
    except msgspec.DecodeError as error:
        raise DecodeError(f"node: {error}") from error
    except DecodeError as error:
        raise DecodeError(f"node {node.metadata.name}: status.allocatable: {error}") from error
    labels, annotations = node.metadata.labels, node.metadata.annotations
    stop_by_s = parse_time_annotation(annotations, names.STOP_ANNOTATION)
    memory = labels.get("nvidia.com/gpu.memory", "")
    return f.NodeSeen(
        Node(
            name=NodeName(node.metadata.name),
            allocatable=tuple(sorted(allocatable.items())),
            labels=labels,
            taints=tuple(Taint(t.key, t.value, t.effect) for t in node.spec.taints),
            # No gang starts on a node that is about to stop.
            unschedulable=node.spec.unschedulable or stop_by_s is not None,
            stop_by_s=stop_by_s,
            gpu_model=labels.get("nvidia.com/gpu.product", ""),
            gpu_memory_mib=whole(memory) or 0,
            layouts=mig_labels.node_layouts(labels, annotations, allocatable),
            mig_failed=mig_labels.failed(labels),
            price=_price(annotations.get(names.PRICE_ANNOTATION, "")),
        )
    )


def _price(text: str) -> float | None:
    """Return the price of a node; a text that is no price counts as none."""
    return float(text) if _PRICE.fullmatch(text) else None


def node_name(raw: bytes) -> NodeName:
    """Return the name of a node, which may be malformed otherwise."""
    return NodeName(any_decoder.decode(raw).metadata.name)
