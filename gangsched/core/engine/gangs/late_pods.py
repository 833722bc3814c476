"""Places of pods that are made only once the others of their gang run: followers of a leader.

Room for them is reserved together with the room for the others, and the gang starts without them.
No name of such a pod is known before it exists, so its place bears a name of ours until then.
"""

from collections import Counter
from collections.abc import Iterable

from gangsched.core.engine.gangs.member import MemberState
from gangsched.core.engine.gangs.pod_templates import PodTemplates
from gangsched.core.facts import PodSeen
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, PodName

CHUNK = 100_000
"""Ranks of a role whose pods are made by several Jobs: that of the Job times this, plus its own."""


class LatePodPlaces:
    """Counts of the members of one gang that has late pods; the record tells of each change.

    Making it brings the members in line with the declaration.
    """

    def __init__(
        self, gang: Gang, members: dict[PodName, MemberState], templates: PodTemplates
    ) -> None:
        self.to_come = 0
        """How many late places have room reserved and no pod yet."""
        self._early: Counter[str] = Counter()
        self._vacant: dict[str, dict[PodName, None]] = {}
        self._ranked: dict[tuple[str, int], PodName] = {}
        found = _arranged(gang, list(members.values()))
        members.clear()
        needs = {role.name: templates.of(role) for role in gang.roles}
        for member in found:
            members[member.name] = member
            if member.late:
                member.template = needs.get(member.role, member.template)
                member.update_needs()
            self.count(member, 1)

    def count(self, member: MemberState, sign: int) -> None:
        """Count a member in (1), or out (-1) before it changes."""
        self.to_come += sign * member.awaits_late_pod
        if not member.late:
            self._early[member.role] += sign * _there(member)
            return
        if member.pod is not None or member.ended:
            return
        vacant = self._vacant.setdefault(member.role, {})
        if sign > 0:
            vacant[member.name] = None
            if member.rank is not None:
                self._ranked[member.role, member.rank] = member.name
        else:
            vacant.pop(member.name, None)
            if member.rank is not None:
                self._ranked.pop((member.role, member.rank), None)

    def fill(
        self, members: dict[PodName, MemberState], fact: PodSeen, roles: Iterable[Role]
    ) -> PodName | None:
        """Give a vacant place the name of a new pod; return the place's name before, or None."""
        before = None if fact.name in members else self._place_for(fact, roles)
        if before is None:
            return None
        member = members.pop(before)
        self.count(member, -1)
        member.name, member.rank = fact.name, fact.rank
        self.count(member, 1)
        members[fact.name] = member
        return before

    def _place_for(self, fact: PodSeen, roles: Iterable[Role]) -> PodName | None:
        """Return the vacant place that a new pod fills; None where the pod is one of the first.

        The first pods of a role are those that exist before the others can. Of vacant places that
        of the pod's own rank is preferred.
        """
        role = next((one for one in roles if one.late and one.name == fact.role), None)
        if fact.failed or fact.terminating:
            return None  # its successor may fill a place
        if role is None or self._early[role.name] < role.count - role.late:
            return None
        if fact.rank is not None and (role.name, fact.rank) in self._ranked:
            return self._ranked[role.name, fact.rank]
        return next(iter(self._vacant.get(role.name, ())), None)


def _there(member: MemberState) -> bool:
    """Tell whether a pod exists that does the work of its place or has done it."""
    return member.pod is not None and not member.terminating and not member.failed


def _arranged(gang: Gang, members: Iterable[MemberState]) -> list[MemberState]:
    """Return the members of a gang with as many late ones as its declaration says.

    New places are added; places beyond the declared number go, unless they have a pod or room.
    """
    late = {role.name: role for role in gang.roles if role.late}
    seats: dict[str, list[MemberState]] = {name: [] for name in late}
    early: Counter[str] = Counter()
    found = []
    for member in members:
        role = late.get(member.role)
        if role is None:
            if _empty(member):
                continue
            _is_early(member)
        elif not member.late and _there(member):
            # Of pods that were there before the declaration, those beyond the first come late.
            early[role.name] += 1
            member.late = early[role.name] > role.count - role.late
        if role is not None and member.late:
            if len(seats[role.name]) < role.late:
                seats[role.name].append(member)
            elif _empty(member):
                continue
            elif member.pod is not None:
                _is_early(member)
        found.append(member)
    for role in late.values():
        known = seats[role.name]
        taken = {member.rank for member in known}
        names = {member.name for member in known}
        ranks = (rank for rank in _ranks(role) if rank not in taken)
        for rank in ranks:
            if len(known) >= role.late:
                break
            name = _name(gang.id, role, rank)
            if name in names or role.needs is None:
                continue
            member = MemberState(
                name, role.name, role.needs, late=True, planned_early=True, rank=rank
            )
            known.append(member)
            found.append(member)
    return found


def _empty(member: MemberState) -> bool:
    return member.late and member.pod is None and member.stage is None


def _is_early(member: MemberState) -> None:
    """Let a member with a pod be one of the first, of whom no role tells what they ask for."""
    if member.late:
        member.late = member.planned_early = False
        member.template = None
        member.update_needs()


def _ranks(role: Role) -> Iterable[int]:
    """Yield the ranks of late pods, in order: all, or all but the first one of each Job."""
    first = role.count - role.late
    if not first or role.count % first:
        yield from range(first, role.count)
        yield from range(role.count, role.count + role.late)  # of first pods with high ranks
        return
    each = role.count // first
    for job in range(first):
        yield from range(job * CHUNK + 1, job * CHUNK + each)
    yield from range(first * CHUNK, first * CHUNK + role.late)


def _name(gang: GangId, role: Role, rank: int) -> PodName:
    return PodName(f"{gang}~{role.name}{rank}")
