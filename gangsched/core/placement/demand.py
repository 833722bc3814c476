"""What a gang wants to have placed: its pods by kind, the most and the least of each.

Pods of one kind have equal needs and equal rules, whatever their roles, and are counted together.
"""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster import Cluster
from gangsched.core.model import Member, PodNeeds, Waiting
from gangsched.core.nodes import Mask
from gangsched.core.placement.scope import Rules, Scope
from gangsched.core.topology import UNKNOWN


@dataclass(eq=False, slots=True)
class Kind:
    """Pods that are alike, in rank order; `least` of them must be placed.

    `only` restricts a few late members to the domain of those that run already. `split` tells that
    whole slices cannot be made of as many as must be placed.
    """

    needs: PodNeeds
    rules: Rules
    members: list[Member]
    least: int = 0
    only: Mask | None = None
    split: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the names of the roles its pods have."""
        return tuple(dict.fromkeys(member.role for member in self.members))

    @property
    def most(self) -> int:
        """Return how many of them can be placed at all: whole slices."""
        unit = self.rules.unit(0)
        return len(self.members) // unit * unit


def kinds_of(waiting: Waiting, scope: Scope, cluster: Cluster) -> list[Kind]:
    """Return the gang's open places by kind, with the least of each."""
    late = _late_in_their_slice(waiting, scope, cluster)
    kinds: dict[object, Kind] = {}
    seen: dict[tuple[str, int], Kind] = {}  # needs are shared objects: their ids are quick keys
    for member in waiting.members:
        if late and member.rank in late:
            rules = Rules(scope.of_role(member.role).required)
            only = late[member.rank]
            kinds[member.rank] = Kind(member.needs, rules, [member], only=only)
            continue
        quick = member.role, id(member.needs)
        kind = seen.get(quick)
        if kind is None:
            rules = scope.of_role(member.role)
            kind = kinds.setdefault((member.needs, rules), Kind(member.needs, rules, []))
            seen[quick] = kind
        kind.members.append(member)
    found = list(kinds.values())
    for kind in found:
        kind.members.sort(key=lambda member: member.rank)
    _share_minimum(waiting, found)
    return found


def _share_minimum(waiting: Waiting, kinds: list[Kind]) -> None:
    """Decide how many of each kind make the smallest gang that may start."""
    left = waiting.minimum
    for role, minimum in waiting.role_minimum:
        wanted = minimum
        for kind in kinds:
            there = sum(1 for member in kind.members if member.role == role)
            take = min(wanted, there)
            kind.least += take
            wanted -= take
            left -= take
    for kind in kinds:
        more = min(max(left, 0), len(kind.members) - kind.least)
        kind.least += more
        left -= more
        unit = kind.rules.unit(0)
        least = -(-kind.least // unit) * unit
        kind.split = least > kind.most
        kind.least = min(least, kind.most)


def chosen(kind: Kind, count: int, waiting: Waiting) -> list[Member]:
    """Return which members are placed when only `count` are: each role's minimum comes first."""
    if count >= len(kind.members):
        return kind.members
    minimum = dict(waiting.role_minimum)
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


def _late_in_their_slice(waiting: Waiting, scope: Scope, cluster: Cluster) -> dict[int, Mask]:
    """Return, by rank, where a late member must go because others of its slice run there."""
    found: dict[int, Mask] = {}
    if not waiting.seated:
        return found
    slots = len(cluster.names)
    ranks = _slice_ranks(waiting, scope)
    for member in waiting.members:
        mask: Mask | None = None
        for level, size in scope.of_role(member.role).slices:
            group = ranks[member.rank][0], ranks[member.rank][1] // size
            for seat in waiting.seated:
                row = cluster.rows.get(seat.node)
                pool, rank = ranks[seat.rank]
                if row is None or (pool, rank // size) != group:
                    continue
                codes = scope.codes(level, slots)
                same = codes == codes[row]
                mask = same if mask is None else mask & same
                break
        if mask is not None:
            found[member.rank] = np.asarray(mask)
    return found


def _slice_ranks(waiting: Waiting, scope: Scope) -> dict[int, tuple[str, int]]:
    """Return for each rank of the gang its pool (a role, or all that share slices) and place."""
    everyone = [(member.rank, member.role) for member in waiting.members]
    everyone += [(seat.rank, seat.role) for seat in waiting.seated]
    next_of: dict[str, int] = {}
    found: dict[int, tuple[str, int]] = {}
    for rank, role in sorted(everyone):
        pool = role if role in scope.roles else ""
        found[rank] = pool, next_of.get(pool, 0)
        next_of[pool] = next_of.get(pool, 0) + 1
    return found


def seated_mask(waiting: Waiting, scope: Scope, cluster: Cluster, kind: Kind | None) -> Mask | None:
    """Return the required domain that running members fix, for the gang or for one kind."""
    rules = scope.rules if kind is None else kind.rules
    if rules.required is None:
        return None
    codes = scope.codes(rules.required, len(cluster.names))
    for seat in waiting.seated:
        row = cluster.rows.get(seat.node)
        if row is None or codes[row] == UNKNOWN:
            continue
        if kind is None or seat.role in kind.roles:
            return np.asarray(codes == codes[row])
    return None
