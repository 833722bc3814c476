"""What a gang wants to have placed: its pods by kind, the most and the least of each.

Pods of one kind have equal needs and equal rules, whatever their roles, and are counted together.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gangsched.core.cluster.node_table import Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.model.gangs import Member, PendingGang
from gangsched.core.model.pods import PodRequirements
from gangsched.core.placement.constraints import PodConstraints, ResolvedConstraints


@dataclass(eq=False, slots=True)
class PodClass:
    """Equal pods, in rank order; `least` of them must be placed.

    `only` restricts a few late members to the domain of those that run already. `split` means that
    whole slices cannot be made of as many as must be placed.
    """

    needs: PodRequirements
    rules: PodConstraints
    members: list[Member]
    pods_min: int = 0
    allowed: Mask | None = None
    split: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the names of the roles its pods have."""
        return tuple(dict.fromkeys(member.role for member in self.members))

    @property
    def pods_max(self) -> int:
        """Return how many of them can be placed at all: whole slices."""
        unit = self.rules.unit(0)
        return len(self.members) // unit * unit


def pod_classes(
    waiting: PendingGang, scope: ResolvedConstraints, cluster: Cluster
) -> list[PodClass]:
    """Return the gang's open places by kind, with the least of each."""
    late = _domains_of_late_members(waiting, scope, cluster)
    kinds: dict[object, PodClass] = {}
    seen: dict[tuple[str, int], PodClass] = {}  # needs are shared objects: their ids are quick keys
    for member in waiting.members:
        if late and member.rank in late:
            rules = PodConstraints(scope.of_role(member.role).required)
            key = member.role, member.needs, late[member.rank]
            if key not in kinds:
                only = _inside(late[member.rank], scope, cluster)
                kinds[key] = PodClass(member.needs, rules, [], allowed=only)
            kinds[key].members.append(member)
            continue
        quick = member.role, id(member.needs)
        kind = seen.get(quick)
        if kind is None:
            rules = scope.of_role(member.role)
            kind = _class_sharing_slices(kinds.values(), member, rules)
            if kind is None:
                kind = kinds.setdefault((member.needs, rules), PodClass(member.needs, rules, []))
            seen[quick] = kind
        kind.members.append(member)
    found = list(kinds.values())
    for kind in found:
        kind.members.sort(key=lambda member: member.rank)
    _share_minimum(waiting, found)
    return found


def _class_sharing_slices(
    kinds: Iterable[PodClass], member: Member, rules: PodConstraints
) -> PodClass | None:
    """Return the kind that shares slices with a member though their needs differ a little.

    The API server adds tolerations to pods, and webhooks an affinity to some of them: places of
    their role that have no pod yet have neither, and are of the same slices nevertheless.
    """
    if not rules.slices:
        return None
    for kind in kinds:
        if kind.allowed is None and kind.rules == rules and member.role in kind.roles:
            both = _common_needs(kind.needs, member.needs)
            if both is not None:
                kind.needs = both
                return kind
    return None


def _common_needs(one: PodRequirements, other: PodRequirements) -> PodRequirements | None:
    """Return needs that suit two pods which differ in what they tolerate, or what is not modelled.

    None where they differ in more.
    """
    tolerations = tuple(each for each in one.tolerations if each in other.tolerations)
    beyond = tuple(dict.fromkeys((*one.unmodelled_constraints, *other.unmodelled_constraints)))
    both = replace(one, tolerations=tolerations, unmodelled_constraints=beyond)
    same = replace(other, tolerations=tolerations, unmodelled_constraints=beyond) == both
    return both if same else None


def _share_minimum(waiting: PendingGang, kinds: list[PodClass]) -> None:
    """Decide how many of each kind make the smallest gang that may start."""
    left = waiting.members_min
    roles = [Counter(member.role for member in kind.members) for kind in kinds]
    for role, minimum in waiting.role_members_min:
        wanted = minimum
        for kind, there in zip(kinds, roles, strict=True):
            take = min(wanted, there[role])
            kind.pods_min += take
            wanted -= take
            left -= take
    for kind in kinds:
        more = min(max(left, 0), len(kind.members) - kind.pods_min)
        kind.pods_min += more
        left -= more
        unit = kind.rules.unit(0)
        least = -(-kind.pods_min // unit) * unit
        kind.split = least > kind.pods_max
        kind.pods_min = min(least, kind.pods_max)


def select_members(kind: PodClass, count: int, waiting: PendingGang) -> list[Member]:
    """Return which members are placed when only `count` are: each role's minimum comes first."""
    if count >= len(kind.members):
        return kind.members
    minimum = dict(waiting.role_members_min)
    picked: list[Member] = []
    rest: list[Member] = []
    for member in kind.members:
        if minimum.get(member.role, 0) > 0:
            minimum[member.role] -= 1
            picked.append(member)
        else:
            rest.append(member)
    picked = picked[:count] + rest[: max(count - len(picked), 0)]
    return sorted(picked, key=lambda member: member.rank)


_Domains = tuple[tuple[int, int], ...]
"""Level and code of each domain that something must be in."""


def _domains_of_late_members(
    waiting: PendingGang, scope: ResolvedConstraints, cluster: Cluster
) -> dict[int, _Domains]:
    """Return, by rank, where a late member must go because others of its slice run there."""
    found: dict[int, _Domains] = {}
    if not waiting.placed_members:
        return found
    ranks = _slice_ranks(waiting, scope)
    places: dict[tuple[int, str, int], int] = {}  # where a slice runs: the row of its first member
    for size in {size for member in waiting.members for _, size in _slices(scope, member)}:
        for seat in waiting.placed_members:
            row = cluster.rows.get(seat.node)
            if row is not None:
                pool, rank = ranks[seat.rank]
                places.setdefault((size, pool, rank // size), row)
    for member in waiting.members:
        pool, rank = ranks[member.rank]
        domains = []
        for level, size in _slices(scope, member):
            row = places.get((size, pool, rank // size))
            if row is not None:
                domains.append((level, int(scope.codes(level, len(cluster.names))[row])))
        if domains:
            found[member.rank] = tuple(domains)
    return found


def _slices(scope: ResolvedConstraints, member: Member) -> tuple[tuple[int, int], ...]:
    return scope.of_role(member.role).slices


def _inside(domains: _Domains, scope: ResolvedConstraints, cluster: Cluster) -> Mask:
    """Return which slots are in all of some domains."""
    slots = len(cluster.names)
    mask = np.ones(slots, dtype=np.bool_)
    for level, code in domains:
        mask &= scope.codes(level, slots) == code
    return mask


def _slice_ranks(waiting: PendingGang, scope: ResolvedConstraints) -> dict[int, tuple[str, int]]:
    """Return for each rank of the gang its pool (a role, or all that share slices) and place."""
    everyone = [(member.rank, member.role) for member in waiting.members]
    everyone += [(seat.rank, seat.role) for seat in waiting.placed_members]
    next_of: dict[str, int] = {}
    found: dict[int, tuple[str, int]] = {}
    for rank, role in sorted(everyone):
        pool = role if role in scope.roles else ""
        found[rank] = pool, next_of.get(pool, 0)
        next_of[pool] = next_of.get(pool, 0) + 1
    return found


def placed_members_mask(
    waiting: PendingGang, scope: ResolvedConstraints, cluster: Cluster, kind: PodClass | None
) -> Mask | None:
    """Return the required domain that running members fix, for the gang or for one kind."""
    rules = scope.rules if kind is None else kind.rules
    if rules.required is None:
        return None
    codes = scope.codes(rules.required, len(cluster.names))
    for seat in waiting.placed_members:
        row = cluster.rows.get(seat.node)
        if row is None or codes[row] == UNKNOWN:
            continue
        if kind is None or seat.role in kind.roles:
            return np.asarray(codes == codes[row])
    return None
