"""Lower bounds by counting on the cost of any placement, for each domain.

For one pod class the number of domains is exact (the largest capacities first). With several
classes, it is the largest of their bounds and of the bound by their main resource.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gangsched.core.bounds import AMOUNT
from gangsched.core.cluster.node_table import Ints, Mask
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.placement.choosers import fewest_bins
from gangsched.core.placement.objectives import PlacementObjective
from gangsched.core.placement.optimal.program import PlacementProblem
from gangsched.core.placement.tree_fill import FillStrategy, TreeFill

IMPOSSIBLE = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class CandidateDomain:
    """A domain that may hold the whole gang, and a bound on the cost of any placement in it."""

    mask: Mask
    bound: tuple[int, ...]


def candidate_domains(request: PlacementProblem, level: int | None) -> Iterator[CandidateDomain]:
    """Yield the domains of a level that counting does not rule out, the cheapest bound first.

    `level` None stands for the whole cluster as one domain.
    """
    slots = len(request.mask)
    codes = np.zeros(slots, dtype=np.int64)
    if level is not None:
        codes = _domains(request.scope.codes(level, slots))
    codes = np.where(request.mask, codes, UNKNOWN)
    size = int(codes.max(initial=-1)) + 1
    if size == 0:
        return
    table = np.stack(_components(request, level, codes, size), axis=1)
    possible = np.flatnonzero(np.all(table < IMPOSSIBLE, axis=1))
    order = possible[np.lexsort(table[possible].T[::-1])]
    for code in order:
        yield CandidateDomain(codes == code, tuple(int(value) for value in table[code]))


def _components(request: PlacementProblem, level: int | None, codes: Ints, size: int) -> list[Ints]:
    """Return one array a cost component, with a bound for each candidate domain."""
    scope, prices = request.scope, request.prices
    weight = [dict(kind.needs.requests).get(prices.main, 0) for kind in request.kinds]
    demand = sum(w * n for w, n in zip(weight, request.wanted, strict=True))
    demand = min(demand, AMOUNT.most)  # a lower bound stays valid if it is lower
    components: list[Ints] = []
    for objective in request.objectives:
        match objective:
            case PlacementObjective.DOMAINS:
                components.extend(
                    np.ones(size, dtype=np.int64)
                    if level is not None and at <= level
                    else _fewest(request, at, codes, size, demand)
                    for at in scope.order
                )
                components.append(_fewest(request, scope.depth, codes, size, demand))
            case PlacementObjective.PREFERENCE:
                components.append(np.full(size, -_preference_max(request), dtype=np.int64))
            case PlacementObjective.LEFTOVER:
                total = np.full(size, demand * (scope.depth + 1), dtype=np.int64)
                for at in range(scope.depth):
                    if level is not None and at <= level:
                        around = np.zeros(size, dtype=np.int64)
                        inside = codes != UNKNOWN
                        around[codes[inside]] = prices.around(at)[inside]
                        total += around - demand
                components.append(total)
            case PlacementObjective.FRAGMENTATION:
                components.append(np.full(size, _growth_min(request), dtype=np.int64))
    if not components:
        components.append(_fewest(request, scope.depth, codes, size, demand))
    return components


def _fewest(request: PlacementProblem, level: int, codes: Ints, size: int, demand: int) -> Ints:
    """Return how many domains of a level are needed at least inside each candidate."""
    best = np.zeros(size, dtype=np.int64)
    slots = len(codes)
    members = np.zeros(slots, dtype=np.int64)
    at = request.scope.codes(level, slots)
    for index, (kind, wanted) in enumerate(zip(request.kinds, request.wanted, strict=True)):
        if not wanted:
            continue
        capacity = request.capacity(index) * (codes != UNKNOWN)
        descent = TreeFill(request.cluster, request.scope, FillStrategy(fewest_bins), kind, members)
        domain_capacity = descent.capacities(capacity, level)
        best = np.maximum(
            best, _prefix(_owners(at, codes, domain_capacity), domain_capacity, wanted, size)
        )
    if (
        demand and len(request.kinds) > 1
    ):  # classes compete for it; a single class was counted exactly
        free = request.prices.free * (codes != UNKNOWN)
        total = free if level >= request.scope.depth else _sums(at, free)
        best = np.maximum(best, _prefix(_owners(at, codes, total), total, demand, size))
    return best


def _owners(at: Ints, codes: Ints, capacity: Ints) -> Ints:
    """Return the candidate each domain of a level lies in, UNKNOWN for none."""
    owner = np.full(len(capacity), UNKNOWN, dtype=np.int64)
    known = np.where(at == UNKNOWN, len(capacity) - len(at) + np.arange(len(at)), at)
    inside = codes != UNKNOWN
    owner[known[inside]] = codes[inside]
    return owner


def _domains(at: Ints) -> Ints:
    """Number the domains; each node without a known domain gets one of its own at the end."""
    return np.where(at == UNKNOWN, int(at.max(initial=-1)) + 1 + np.arange(len(at)), at)


def _sums(at: Ints, free: Ints) -> Ints:
    size = int(at.max(initial=-1)) + 1 + len(at)
    return np.bincount(_domains(at), weights=free, minlength=size).astype(np.int64)


def _prefix(owner: Ints, capacity: Ints, wanted: int, size: int) -> Ints:
    """Return, per owner, how many of its largest capacities reach `wanted`."""
    length = min(len(owner), len(capacity))
    owner, capacity = owner[:length], capacity[:length]
    here = np.flatnonzero((owner != UNKNOWN) & (capacity > 0))
    result = np.full(size, IMPOSSIBLE, dtype=np.int64)
    if not len(here):
        return result
    order = here[np.lexsort((-capacity[here], owner[here]))]
    owners = owner[order]
    running = np.cumsum(capacity[order])
    first = np.concatenate([[0], np.flatnonzero(np.diff(owners)) + 1])
    start = np.zeros(len(order), dtype=np.int64)
    start[first] = 1
    group = np.cumsum(start) - 1
    before = np.concatenate([[0], running])[first]
    within = running - before[group]
    position = np.arange(len(order)) - first[group] + 1
    enough = within >= wanted
    np.minimum.at(result, owners[enough], position[enough])
    return result


def _preference_max(request: PlacementProblem) -> int:
    total = 0
    for kind, wanted in zip(request.kinds, request.wanted, strict=True):
        total += wanted * sum(max(weight, 0) for weight, _ in kind.needs.preferred)
    return total


def _growth_min(request: PlacementProblem) -> int:
    total = 0
    for grows, kind, wanted in zip(
        request.prices.growth or [], request.kinds, request.wanted, strict=False
    ):
        there = (request.cluster.capacity(kind.needs) > 0) & request.mask
        total += wanted * int(grows[there].min(initial=0))
    return total
