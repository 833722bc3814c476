"""Late pods: a controller creates them only once other pods of their gang run.

The followers of a LeaderWorkerSet are an example. Their nodes are reserved together with the nodes
of the first pods, and the gang starts without them. The name of such a pod is not known before the
pod exists. Until then, its member has a name that the scheduler makes up.
"""

from collections import Counter
from collections.abc import Iterable

from gangsched.core.engine.gangs.member import MemberState
from gangsched.core.engine.gangs.pod_templates import PodTemplates
from gangsched.core.facts import PodSeen
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, PodName

CHUNK = 100_000
"""The rank of a pod in a role of several Jobs is the index of its Job times this, plus its own."""


class LatePodPlaces:
    """Counts the members of one gang with late pods; `GangState` reports each change of a member.

    The constructor adds and removes members so that they match the declaration.
    """

    def __init__(
        self, gang: Gang, members: dict[PodName, MemberState], templates: PodTemplates
    ) -> None:
        self.to_come = 0
        """The number of late members that have a node reserved and no pod yet."""
        self._early: Counter[str] = Counter()
        self._vacant: dict[str, dict[PodName, None]] = {}
        self._ranked: dict[tuple[str, int], PodName] = {}
        arranged = _arranged(gang, list(members.values()))
        members.clear()
        needs = {role.name: templates.of(role) for role in gang.roles}
        for member in arranged:
            members[member.name] = member
            if member.late:
                member.template = needs.get(member.role, member.template)
                member.update_needs()
            self.count(member, 1)

    def count(self, member: MemberState, sign: int) -> None:
        """Count a member (sign 1), or stop counting it before it changes (sign -1)."""
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
        """Let a new pod fill a vacant member; return the old name of that member, or None."""
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
        """Return the vacant member that a new pod fills, or None for one of the first pods.

        The first pods of a role are those that exist before late pods can exist. A vacant member
        with the rank of the pod is preferred.
        """
        role = next((r for r in roles if r.late and r.name == fact.role), None)
        if fact.failed or fact.terminating:
            return None  # the pod that replaces it may fill one
        if role is None or self._early[role.name] < role.count - role.late:
            return None
        if fact.rank is not None and (role.name, fact.rank) in self._ranked:
            return self._ranked[role.name, fact.rank]
        return next(iter(self._vacant.get(role.name, ())), None)


def _there(member: MemberState) -> bool:
    """Return whether a member has a pod that does its work or has done it."""
    return member.pod is not None and not member.terminating and not member.failed


def _arranged(gang: Gang, members: Iterable[MemberState]) -> list[MemberState]:
    """Return the members of a gang with as many late members as it declares.

    Missing members are added. Members beyond the declared number are removed, unless they have a
    pod or a reserved node.
    """
    late = {role.name: role for role in gang.roles if role.late}
    late_members: dict[str, list[MemberState]] = {name: [] for name in late}
    early: Counter[str] = Counter()
    arranged = []
    for member in members:
        role = late.get(member.role)
        if role is None:
            if _empty(member):
                continue
            _is_early(member)
        elif not member.late and _there(member):
            # Pods may exist before their declaration: those beyond the first are late.
            early[role.name] += 1
            member.late = early[role.name] > role.count - role.late
        if role is not None and member.late:
            if len(late_members[role.name]) < role.late:
                late_members[role.name].append(member)
            elif _empty(member):
                continue
            elif member.pod is not None:
                _is_early(member)
        arranged.append(member)
    for role in late.values():
        known = late_members[role.name]
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
            arranged.append(member)
    return arranged


def _empty(member: MemberState) -> bool:
    return member.late and member.pod is None and member.stage is None


def _is_early(member: MemberState) -> None:
    """Make a member one of the first pods: its pod declares its requirements, not its role."""
    if member.late:
        member.late = member.planned_early = False
        member.template = None
        member.update_needs()


def _ranks(role: Role) -> Iterable[int]:
    """Yield the ranks of late pods in order: all, or all but the first of each Job."""
    first = role.count - role.late
    if not first or role.count % first:
        yield from range(first, role.count)
        yield from range(role.count, role.count + role.late)  # if first pods have high ranks
        return
    each = role.count // first
    for job in range(first):
        yield from range(job * CHUNK + 1, job * CHUNK + each)
    yield from range(first * CHUNK, first * CHUNK + role.late)


def _name(gang: GangId, role: Role, rank: int) -> PodName:
    return PodName(f"{gang}~{role.name}{rank}")
