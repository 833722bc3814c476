"""The pods of a gang to place, by pod class, with the maximum and the minimum of each.

Pods of one class have equal requirements and constraints, whatever their roles. They are counted
together.
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
    """Pods with equal requirements, in rank order; at least `pods_min` must be placed.

    `allowed` restricts late members to the domain where others of their slice run. `split` says
    that the pods that must be placed do not make whole slices.
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
        """Return how many pods can be placed at most, in whole slices."""
        unit = self.rules.unit(0)
        return len(self.members) // unit * unit


def pod_classes(
    waiting: PendingGang, scope: ResolvedConstraints, cluster: Cluster
) -> list[PodClass]:
    """Return the members to place by pod class, with the minimum of each class."""
    late = _domains_of_late_members(waiting, scope, cluster)
    kinds: dict[object, PodClass] = {}
    seen: dict[
        tuple[str, int], PodClass
    ] = {}  # requirements are shared objects: their ids are quick keys
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
    classes = list(kinds.values())
    for kind in classes:
        kind.members.sort(key=lambda member: member.rank)
    _share_minimum(waiting, classes)
    return classes


def _class_sharing_slices(
    kinds: Iterable[PodClass], member: Member, rules: PodConstraints
) -> PodClass | None:
    """Return the class that shares slices with a member although their requirements differ.

    The API server adds tolerations to pods, and webhooks may add an affinity. Members without a
    pod have neither, and belong to the same slices nevertheless.
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


def _common_needs(first: PodRequirements, second: PodRequirements) -> PodRequirements | None:
    """Return requirements for two pods that differ in tolerations or unmodelled constraints.

    Return None if they differ in more.
    """
    tolerations = tuple(each for each in first.tolerations if each in second.tolerations)
    beyond = tuple(dict.fromkeys((*first.unmodelled_constraints, *second.unmodelled_constraints)))
    both = replace(first, tolerations=tolerations, unmodelled_constraints=beyond)
    same = replace(second, tolerations=tolerations, unmodelled_constraints=beyond) == both
    return both if same else None


def _share_minimum(waiting: PendingGang, kinds: list[PodClass]) -> None:
    """Divide the minimum of the gang among its classes."""
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
    """Return the members to place if only `count` are: the minimum of each role comes first."""
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
"""Level and code of each domain that a member must be in."""


def _domains_of_late_members(
    waiting: PendingGang, scope: ResolvedConstraints, cluster: Cluster
) -> dict[int, _Domains]:
    """Return, by rank, the domains of late members: those where others of their slice run."""
    domains_by_rank: dict[int, _Domains] = {}
    if not waiting.placed_members:
        return domains_by_rank
    ranks = _slice_ranks(waiting, scope)
    places: dict[
        tuple[int, str, int], int
    ] = {}  # the row of the first member of each slice that runs
    for size in {size for member in waiting.members for _, size in _slices(scope, member)}:
        for placed in waiting.placed_members:
            row = cluster.rows.get(placed.node)
            if row is not None:
                pool, rank = ranks[placed.rank]
                places.setdefault((size, pool, rank // size), row)
    for member in waiting.members:
        pool, rank = ranks[member.rank]
        domains = []
        for level, size in _slices(scope, member):
            row = places.get((size, pool, rank // size))
            if row is not None:
                domains.append((level, int(scope.codes(level, len(cluster.names))[row])))
        if domains:
            domains_by_rank[member.rank] = tuple(domains)
    return domains_by_rank


def _slices(scope: ResolvedConstraints, member: Member) -> tuple[tuple[int, int], ...]:
    return scope.of_role(member.role).slices


def _inside(domains: _Domains, scope: ResolvedConstraints, cluster: Cluster) -> Mask:
    """Return the slots that are in all of these domains."""
    slots = len(cluster.names)
    mask = np.ones(slots, dtype=np.bool_)
    for level, code in domains:
        mask &= scope.codes(level, slots) == code
    return mask


def _slice_ranks(waiting: PendingGang, scope: ResolvedConstraints) -> dict[int, tuple[str, int]]:
    """Return the pool of each rank (a role, or all that share slices), and its index there."""
    ranks = [(member.rank, member.role) for member in waiting.members]
    ranks += [(placed.rank, placed.role) for placed in waiting.placed_members]
    next_of: dict[str, int] = {}
    slice_ranks: dict[int, tuple[str, int]] = {}
    for rank, role in sorted(ranks):
        pool = role if role in scope.roles else ""
        slice_ranks[rank] = pool, next_of.get(pool, 0)
        next_of[pool] = next_of.get(pool, 0) + 1
    return slice_ranks


def placed_members_mask(
    waiting: PendingGang, scope: ResolvedConstraints, cluster: Cluster, kind: PodClass | None
) -> Mask | None:
    """Return the required domain that running members fix, for the gang or for one class."""
    rules = scope.rules if kind is None else kind.rules
    if rules.required is None:
        return None
    codes = scope.codes(rules.required, len(cluster.names))
    for placed in waiting.placed_members:
        row = cluster.rows.get(placed.node)
        if row is None or codes[row] == UNKNOWN:
            continue
        if kind is None or placed.role in kind.roles:
            return np.asarray(codes == codes[row])
    return None
