"""A node as the scheduler sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import Requests, Taint

Layout = tuple[tuple[str, int], ...]
"""The MIG instances one GPU is cut into: profile and count, sorted; empty for a whole GPU."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it.

    `gpu_model` is the product its labels name. `layouts` holds one entry a GPU where the node's
    MIG configuration is known, and is empty where it is not: such a node is counts alone, and its
    GPUs are never repartitioned. At `stop_by_s` the node is expected to stop: for maintenance, or
    because its provider takes it back. It costs `price` for an hour, if that is known.
    """

    name: NodeName
    allocatable: Requests
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    layouts: tuple[Layout, ...] = ()
    mig_failed: bool = False
    stop_by_s: float | None = None
    price: float | None = None
