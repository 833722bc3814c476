"""What a placement costs, as a list of numbers compared from left to right."""

from enum import StrEnum

import numpy as np

from gangsched.core.cluster import Cluster, Ints
from gangsched.core.model import GPU, PodNeeds
from gangsched.core.placement.scope import Scope
from gangsched.core.topology import UNKNOWN

Cost = tuple[int, ...]


class Objective(StrEnum):
    """What is to be small, in the order a policy lists them.

    DOMAINS: how many domains of each level are used (the preferred level first, then the coarsest)
    and how many hosts. PREFERENCE: node preferences that are not met. LEFTOVER: how much of the
    gang's main resource was free in all the domains and hosts it touches, level by level summed;
    small means that large holes stay whole. FRAGMENTATION: growth of FGD's measure (ATC'23), in
    thousandths of a GPU.
    """

    DOMAINS = "domains"
    PREFERENCE = "preference"
    LEFTOVER = "leftover"
    FRAGMENTATION = "fragmentation"


DEFAULT = (Objective.DOMAINS, Objective.PREFERENCE, Objective.LEFTOVER)


def main_resource(needs: list[PodNeeds]) -> str:
    """Return what is scarce for a gang: GPUs, else its first extended resource, else CPU."""
    names = {name for one in needs for name, _ in one.requests}
    if GPU in names or any(one.share is not None for one in needs):
        return GPU
    extended = sorted(name for name in names if "/" in name)
    return extended[0] if extended else "cpu"


def free_main(cluster: Cluster, resource: str) -> Ints:
    """Return what is free of one resource, shape (slots,), never negative."""
    if resource not in cluster.resources:
        return np.zeros(len(cluster.names), dtype=np.int64)
    column = cluster.resources.index(resource)
    free: Ints = np.maximum(cluster.allocatable[:, column] - cluster.used[:, column], 0)
    return free


def cost_of(
    counts: list[Ints],
    cluster: Cluster,
    scope: Scope,
    objectives: tuple[Objective, ...] = DEFAULT,
    needs: list[PodNeeds] | None = None,
    growth: list[Ints] | None = None,
) -> Cost:
    """Return the cost of counted places.

    `needs` are those of each entry of `counts`; without them preferences and leftovers cost 0.
    `growth` is what one pod of each entry adds to the fragmentation of each slot.
    """
    used = np.flatnonzero(sum(counts))
    cost: list[int] = []
    for objective in objectives:
        match objective:
            case Objective.DOMAINS:
                cost.extend(_domains(scope, level, used, cluster) for level in scope.order)
                cost.append(len(used))
            case Objective.PREFERENCE:
                cost.append(-_preference(counts, needs or [], cluster))
            case Objective.LEFTOVER:
                cost.append(_leftover(used, needs or [], cluster, scope))
            case Objective.FRAGMENTATION:
                pairs = zip(counts, growth or [], strict=False)
                cost.append(sum(int((count * grows).sum()) for count, grows in pairs))
    return tuple(cost)


def _domains(scope: Scope, level: int, rows: Ints, cluster: Cluster) -> int:
    """Count domains; every node of unknown place is a domain of its own."""
    codes = scope.codes(level, len(cluster.names))[rows]
    return len(np.unique(codes[codes != UNKNOWN])) + int((codes == UNKNOWN).sum())


def _preference(counts: list[Ints], needs: list[PodNeeds], cluster: Cluster) -> int:
    total = 0
    for count, one in zip(counts, needs, strict=False):
        for weight, term in one.preferred:
            total += weight * int((count * cluster.filters.matches_term(cluster.live, term)).sum())
    return total


def _leftover(rows: Ints, needs: list[PodNeeds], cluster: Cluster, scope: Scope) -> int:
    if not needs:
        return 0
    free = free_main(cluster, main_resource(needs))
    total = int(free[rows].sum())
    for level in range(scope.depth):
        codes = scope.codes(level, len(free))
        touched = np.unique(codes[rows])
        total += int(free[np.isin(codes, touched[touched != UNKNOWN])].sum())
        total += int(free[rows][codes[rows] == UNKNOWN].sum())
    return total
