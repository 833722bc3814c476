"""Holds what the scheduler believes against what there really is."""

import logging
from collections.abc import Iterator

from gangsched.core.engine.engine import Engine
from gangsched.core.model.ids import NodeName
from simulator.hostile.declared import LIMIT_NODES
from simulator.hostile.objects import NAMESPACE, VICTIM
from simulator.hostile.templates import GPU, NODES
from simulator.hostile.truth import ROOM, Truth

_MILLI = "gpu-milli"
_SHOWN = 300


class Complaints(logging.Handler):
    """Hears what the scheduler logs as a failure of its own."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a failure."""
        error = repr(record.exc_info[1])[:_SHOWN] if record.exc_info else ""
        self._said.append(f"the scheduler says: {record.getMessage()[:_SHOWN]} {error}")


def beyond_limit(truth: Truth, pod: str) -> Iterator[str]:
    """Yield what the hostile tenant has beyond the limit of his queue, once a pod was bound."""
    if not pod.startswith(NAMESPACE):
        return
    held = truth.held(NAMESPACE, by_us=True)
    limit = {key: most * LIMIT_NODES for key, most in ROOM.items()}
    limit[_MILLI] = limit[GPU] * 1000
    for key, most in limit.items():
        if held.get(key, 0) > most:
            yield (
                f"binding {pod}: namespace {NAMESPACE} holds {held[key]} of {key}; its queue may "
                f"have {most}"
            )


def impossible(engine: Engine) -> Iterator[str]:
    """Yield what nobody can have taken."""
    used = engine.cluster.used
    if (used < 0).any():
        yield f"less than nothing is believed to be taken: {used.min()}"


def audit(engine: Engine, truth: Truth) -> Iterator[str]:
    """Yield where the books are wrong, while nothing of the victim's is under way."""
    for namespace in (VICTIM, NAMESPACE):
        charged = engine.ledger.usage.used(namespace, (GPU, ""))
        held = truth.held(namespace, by_us=True)[_MILLI]
        if charged < held or (namespace == VICTIM and charged != held):
            yield f"queue {namespace} is charged {charged} thousandths of GPUs and holds {held}"
    cluster = engine.cluster
    for node in NODES:
        row, real = cluster.rows[NodeName(node)], truth.used(node)
        for key in ROOM:
            known = int(cluster.used[row, cluster.resources.index(key)])
            if known < real.get(key, 0):
                yield f"{node} is believed to have {known} of {key} taken, and has {real[key]}"


def left(engine: Engine) -> Iterator[str]:
    """Yield what is still known of tenants that have left."""
    if gangs := [str(gang) for gang in engine.gangs]:
        yield f"gangs are left after all was deleted: {gangs[:3]}"
    cluster = engine.cluster
    for node in NODES:
        row = cluster.rows[NodeName(node)]
        columns = zip(cluster.resources, cluster.used[row], strict=True)
        if taken := {name: int(amount) for name, amount in columns if amount}:
            yield f"{node} is believed to have {taken} taken, and is empty"
    for queue in (VICTIM, NAMESPACE):
        if charged := engine.ledger.usage.used(queue, (GPU, "")):
            yield f"queue {queue} is charged {charged}, and nobody is there"
    if exclusive := list(cluster.exclusive_domains):
        yield f"domains are kept for nobody: {exclusive[:3]}"
