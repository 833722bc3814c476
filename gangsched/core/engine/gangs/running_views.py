"""The parts of a gang that take nodes, as planners see them."""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import MemberState, State
from gangsched.core.model.ids import PodName
from gangsched.core.snapshot import PodPlacement, RunningGang


def running_view(gang: GangState) -> RunningGang:
    """Return the gang as it runs, without the members that are evicted."""
    return _view(gang, lambda member: member.bound_node is not None and not member.evicted)


def starting_view(gang: GangState) -> RunningGang | None:
    """Return the part that takes nodes and does not count as running yet, or None.

    Those are members with an assignment, and bound members of a gang that is not placed.
    """
    early = gang.state is not State.PLACED
    members = gang.members
    if gang.spec is None or not (members.in_progress() or (early and members.bound_count())):
        return None

    def starts(member: MemberState) -> bool:
        return member.stage is not None or (early and member.runs and not member.evicted)

    return replace(_view(gang, starts), surplus_pods=())


def evicted_view(gang: GangState) -> RunningGang | None:
    """Return the part of the gang that is evicted and still takes nodes, or None.

    Of a gang with an announced stop, that is the whole gang.
    """
    stops = gang.run.stop is not None
    if gang.spec is None or not any(m.runs and (stops or m.evicted) for m in gang.members.values()):
        return None
    evicted = _view(gang, lambda m: m.bound_node is not None and (stops or m.evicted))
    return replace(evicted, terminating=True, surplus_pods=())


def terminating_view(gang: GangState) -> RunningGang | None:
    """Return the part that terminates, whatever deleted its pods, or None.

    Of a gang with an announced stop, that is the whole gang.
    """
    stops, members = gang.run.stop is not None, gang.members.values()
    if gang.spec is None or not any(m.runs and (stops or m.terminating) for m in members):
        return None
    return _view(gang, lambda m: m.bound_node is not None and (stops or m.terminating))


def _view(gang: GangState, wanted: Callable[[MemberState], bool]) -> RunningGang:
    assert gang.spec is not None, "only declared gangs run as gangs"  # noqa: S101
    starts = [m.started_s for m in gang.members.values() if m.runs and m.started_s is not None]
    placed = gang.state is State.PLACED
    began_s = gang.run.placed_s if placed else gang.reservation.reserved_s
    started_s = min(starts, default=began_s or 0.0)
    constraints, near_role = gang.constraints_by_role()
    ranks = gang.members.ranks(gang.spec)
    runtime_s = gang.spec.expected_runtime_s
    members = [
        m
        for m in sorted(gang.members.values(), key=lambda m: ranks[m.name])
        if not m.ended and wanted(m)
    ]
    return RunningGang(
        gang=gang.spec,
        places=tuple(
            PodPlacement(m.name, m.role, node, m.needs, m.devices)
            for m in members
            if (node := m.bound_node or m.assigned_node) is not None
        ),
        constraints=constraints,
        near_role=near_role,
        started_s=started_s,
        end_s=None if runtime_s is None else started_s + runtime_s,
        # A gang that too few members stay of has lost its work: a leader that died may have
        # evicted the others, and the present leader ends that gang.
        last_checkpoint_s=inf if _ends(gang) else max(started_s, gang.last_saved_s() or 0.0),
        movable=gang.spec.movable,
        priority=gang.priority(),
        surplus_pods=_surplus(gang, members),
        queued_since_s=gang.waits_since_s(),
        declared=gang.declaration,
    )


def _ends(gang: GangState) -> bool:
    """Return whether too few members stay for the gang to continue."""
    if gang.state is not State.PLACED:
        return False
    stay = sum(1 for m in gang.members.values() if m.runs and not m.terminating)
    return stay + gang.members.ended_count() < gang.minimum()


def _surplus(gang: GangState, members: list[MemberState]) -> tuple[PodName, ...]:
    """Return the members beyond the minimum, highest rank first."""
    spec = gang.spec
    assert spec is not None, "only declared gangs run as gangs"  # noqa: S101
    if spec.inseparable:
        return ()
    left = len(members) + gang.members.ended_count() - gang.minimum()
    roles = {role.name: role.min_count for role in spec.roles}
    have = gang.members.settled_by_role()
    surplus: list[PodName] = []
    for member in reversed(members):
        if left <= 0:
            break
        if member.role in roles and have[member.role] <= roles[member.role]:
            continue
        if member.role in roles:
            have[member.role] -= 1
        left -= 1
        surplus.append(member.name)
    return tuple(surplus)
