"""Compares the scheduler's state with the real pods."""

import logging
from collections.abc import Iterator

from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import NodeName
from simulator.hostile.declared import LIMIT_NODES
from simulator.hostile.objects import NAMESPACE, VICTIM
from simulator.hostile.templates import GPU, NODES
from simulator.hostile.truth import ALLOCATABLE, Truth

_MILLI = "gpu-milli"
_SHOWN = 300


class Complaints(logging.Handler):
    """Collects the errors that the scheduler logs."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._violations = violations

    def emit(self, record: logging.LogRecord) -> None:
        """Record an error as a violation."""
        error = repr(record.exc_info[1])[:_SHOWN] if record.exc_info else ""
        self._violations.append(f"the scheduler logs: {record.getMessage()[:_SHOWN]} {error}")


def beyond_limit(truth: Truth, pod: str) -> Iterator[str]:
    """Yield what the hostile tenant uses above the limit of its queue, after a binding."""
    if not pod.startswith(NAMESPACE):
        return
    held = truth.held(NAMESPACE, by_us=True)
    limits = {key: limit * LIMIT_NODES for key, limit in ALLOCATABLE.items()}
    limits[_MILLI] = limits[GPU] * 1000
    for key, limit in limits.items():
        if held.get(key, 0) > limit:
            yield (
                f"binding {pod}: namespace {NAMESPACE} holds {held[key]} of {key}; its queue may "
                f"have {limits}"
            )


def impossible(view: EngineView) -> Iterator[str]:
    """Yield negative amounts of used resources."""
    used = view.cluster.used
    if (used < 0).any():
        yield f"the usage of a node is negative: {used.min()}"


def audit(view: EngineView, truth: Truth) -> Iterator[str]:
    """Yield wrong usage of queues and nodes, while no gang of the victim is starting or ending."""
    for namespace in (VICTIM, NAMESPACE):
        charged = view.ledger.usage.used(namespace, (GPU, ""))
        held = truth.held(namespace, by_us=True)[_MILLI]
        if charged < held or (namespace == VICTIM and charged != held):
            yield f"queue {namespace} is charged {charged} thousandths of GPUs and holds {held}"
    cluster = view.cluster
    for node in NODES:
        row, real = cluster.rows[NodeName(node)], truth.used(node)
        for key in ALLOCATABLE:
            counted = int(cluster.used[row, cluster.resources.index(key)])
            if counted < real.get(key, 0):
                yield f"the usage of {node} is {counted} of {key}, and its pods use {real[key]}"


def left(view: EngineView) -> Iterator[str]:
    """Yield what is left in the engine after all objects of both tenants were deleted."""
    if gangs := [str(gang) for gang in view.gangs]:
        yield f"gangs are left after all objects were deleted: {gangs[:3]}"
    cluster = view.cluster
    for node in NODES:
        row = cluster.rows[NodeName(node)]
        columns = zip(cluster.resources, cluster.used[row], strict=True)
        if taken := {name: int(amount) for name, amount in columns if amount}:
            yield f"the usage of {node} is {taken}, and it has no pods"
    for queue in (VICTIM, NAMESPACE):
        if charged := view.ledger.usage.used(queue, (GPU, "")):
            yield f"queue {queue} is charged {charged}, and has no pods"
    if exclusive := list(cluster.exclusive_domains):
        yield f"domains are exclusive to deleted gangs: {exclusive[:3]}"
