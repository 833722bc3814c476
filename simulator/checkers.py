"""Invariants judged from the world's own truth, never from what the engine believes."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangsched.core.model import Gang, GangId, NodeName, PodName, PodNeeds


class ViolationError(AssertionError):
    """An invariant does not hold; the message says which, when and for whom."""


@dataclass(frozen=True, slots=True)
class Running:
    """A pod that is bound in the world."""

    name: PodName
    gang: GangId
    node: NodeName
    needs: PodNeeds


def check_no_overcommit(
    allocatable: Mapping[NodeName, Mapping[str, int]], running: list[Running], now_s: float
) -> None:
    """No node holds more than it has, in any resource.

    Raises:
        ViolationError: a node is over-committed.

    """
    used: dict[NodeName, dict[str, int]] = {}
    for pod in running:
        taken = used.setdefault(pod.node, {})
        for resource, quantity in (*pod.needs.requests, ("pods", 1)):
            taken[resource] = taken.get(resource, 0) + quantity
    for node, taken in used.items():
        has = allocatable.get(node)
        if has is None:
            continue  # the node is gone and its pods with it
        for resource, quantity in taken.items():
            if quantity > has.get(resource, 0):
                raise ViolationError(
                    f"t={now_s:.3f} {node} holds {quantity} {resource} of {has.get(resource, 0)}"
                )


def check_all_or_none(
    gangs: Mapping[GangId, Gang],
    running: list[Running],
    ended: Mapping[GangId, int],
    partial_since_s: dict[GangId, float],
    now_s: float,
    grace_s: float,
) -> None:
    """No gang runs below its minimum for longer than its timeout and a grace period.

    `partial_since_s` is this checker's memory between calls.

    Raises:
        ViolationError: a partial gang outlived its deadline.

    """
    count: dict[GangId, int] = {}
    for pod in running:
        count[pod.gang] = count.get(pod.gang, 0) + 1
    for gang_id, gang in gangs.items():
        bound = count.get(gang_id, 0)
        if bound == 0 or bound + ended.get(gang_id, 0) >= gang.min_member:
            partial_since_s.pop(gang_id, None)
            continue
        since_s = partial_since_s.setdefault(gang_id, now_s)
        if now_s - since_s > gang.schedule_timeout_s + grace_s:
            raise ViolationError(
                f"t={now_s:.3f} {gang_id} has run {bound} of at least {gang.min_member} members "
                f"since t={since_s:.3f}"
            )
