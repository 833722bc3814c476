"""A pending gang as planners see it."""

from collections.abc import Callable

from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.model.gangs import Gang, Member, PendingGang, PlacedMember
from gangsched.core.model.queues import Queue


def pending_view(gang: GangState, complete: Callable[[PendingGang], PendingGang]) -> PendingGang:
    """Return a gang as a planner sees it; `complete` adds what follows from its queue.

    `Engine.pending` calls this: no planner sees a pending gang without the addition.
    """
    spec = gang.spec
    assert spec is not None, "only declared gangs are planned"  # noqa: S101
    members = gang.unassigned_members()
    settled = gang.members.bound_count() + gang.members.ended_count()
    minimum = max(gang.minimum() - settled, 0)
    done = gang.members.settled_by_role()
    role_minimum = tuple(
        (role.name, max(role.min_count - done[role.name], 0)) for role in spec.roles
    )
    placed = gang.state is State.PLACED
    if placed:  # the gang runs: each late member may come alone
        minimum, role_minimum = 1, ()
    below_minimum = placed and gang.is_below_minimum()
    ranks = gang.members.ranks(spec)
    constraints, near_role = gang.constraints_by_role()
    view = PendingGang(
        gang=spec,
        version=gang.version,
        members=tuple(Member(m.name, m.role, m.needs, ranks[m.name]) for m in members),
        constraints=constraints,
        near_role=near_role,
        placed_members=tuple(
            PlacedMember(m.role, ranks[m.name], node)
            for m in gang.members.values()
            if (node := m.assigned_node or (m.bound_node if m.runs else None)) is not None
        ),
        members_min=min(max(minimum, 1), len(members)),
        role_members_min=role_minimum,
        priority=gang.priority(),
        queued_since_s=gang.waits_since_s(),
        excluded_nodes=tuple(gang.retry.excluded_nodes),
        pods_per_node_max=gang.retry.pods_per_node_max,
        is_refill=below_minimum,
        is_scale_up=placed and not below_minimum,
        attained_s=gang.attained_service_s,
        preempts=spec.preempts and gang.pod_defaults.preempts,
    )
    return complete(view)


def priority_in(queue: Queue | None, gang: Gang, given: int) -> int:
    """Return a gang's priority in a queue: its own or its pods', else the queue's default."""
    if gang.priority is None and not given and queue is not None:
        return queue.default_priority or 0
    return given
