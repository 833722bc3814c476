"""A gang's placement as an integer program over counts.

No variable stands for a pod or a node. Indistinguishable nodes (same domain, same capacity
for every pod class, same preference) are one node class. For a node class, `hosts` counts its nodes
by pattern (the most pods of each class that one node takes), and `pods` its pods of each class.
Indistinguishable domains are ordered, so that the solver does not try their permutations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gangsched.core.cluster.node_table import Ints, Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.model.gangs import PendingGang
from gangsched.core.placement.constraints import ResolvedConstraints
from gangsched.core.placement.demand import PodClass
from gangsched.core.placement.objectives import PlacementCosts, PlacementObjective
from gangsched.core.placement.optimal.linear import Linear, Terms
from gangsched.core.placement.optimal.patterns import (
    Pattern,
    ProgramTooLargeError,
    maximal_patterns,
)

VARIABLES_MAX = 12_000

Domain = tuple[int, int]
"""Level and code; a node without a known domain is one of its own, with a code below -1."""


@dataclass(slots=True)
class NodeClass:
    """Indistinguishable nodes: their slots, patterns and variables."""

    rows: Ints
    patterns: list[Pattern]
    path: tuple[int, ...]
    hosts: list[int]
    pods: list[int]
    preference: tuple[int, ...]
    free: int
    growth: list[int]


@dataclass(slots=True)
class PlacementProgram:
    """The program and what its variables mean."""

    linear: Linear
    kinds: list[PodClass]
    wanted: list[int]
    classes: list[NodeClass]
    used: dict[Domain, int]

    def counts(self, values: list[int], slots: int) -> list[Ints]:
        """Turn a solution into pods per class and slot."""
        counts = [np.zeros(slots, dtype=np.int64) for _ in self.kinds]
        for group in self.classes:
            rows = iter(group.rows)
            left = [values[variable] for variable in group.pods]
            for pattern, variable in zip(group.patterns, group.hosts, strict=True):
                for _ in range(values[variable]):
                    row = next(rows)
                    for index, most in enumerate(pattern):
                        take = min(most, left[index])
                        counts[index][row] += take
                        left[index] -= take
        return counts

    def values(self, counts: list[Ints]) -> list[int] | None:
        """Turn pods per class and slot into a hint, or None if the program lacks a pattern."""
        values = [0] * len(self.linear.bounds)
        for group in self.classes:
            for row in group.rows:
                here = tuple(int(count[row]) for count in counts)
                if not any(here):
                    continue
                at = next(
                    (
                        i
                        for i, pattern in enumerate(group.patterns)
                        if all(a <= b for a, b in zip(here, pattern, strict=True))
                    ),
                    None,
                )
                if at is None:
                    return None
                values[group.hosts[at]] += 1
                for index, number in enumerate(here):
                    values[group.pods[index]] += number
                for level, code in enumerate(group.path):
                    values[self.used[level, code]] = 1
        return values


@dataclass(slots=True)
class PlacementProblem:
    """The pods to place, and the slots that they may use."""

    waiting: PendingGang
    cluster: Cluster
    scope: ResolvedConstraints
    kinds: list[PodClass]
    wanted: list[int]
    mask: Mask
    prices: PlacementCosts

    @property
    def objectives(self) -> tuple[PlacementObjective, ...]:
        """Return the objectives to minimise, in order."""
        return self.prices.objectives

    def capacity(self, index: int) -> Ints:
        """Return how many pods of a class each slot may take, in whole slices and within limits."""
        kind = self.kinds[index]
        mask = self.mask & self.scope.located(len(self.mask), kind.rules)
        capacity = np.minimum(self.cluster.capacity(kind.needs) * mask, self.wanted[index])
        if kind.allowed is not None:
            capacity = capacity * kind.allowed
        if self.waiting.pods_per_node_max is not None:
            capacity = np.minimum(capacity, self.waiting.pods_per_node_max)
        unit = self.host_unit(index)
        return capacity // unit * unit

    def host_unit(self, index: int) -> int:
        """Return the slice size of a class on one host: its pods there are a multiple of it.

        If all pods of a class must share one host, they are one slice.
        """
        kind = self.kinds[index]
        if kind.rules.required == self.scope.depth:
            return max(self.wanted[index], 1)
        return kind.rules.unit(self.scope.depth)


def build_program(request: PlacementProblem) -> PlacementProgram:
    """Build the program.

    Raises:
        TooLargeError: it has too many patterns or variables.

    """
    linear = Linear()
    program = PlacementProgram(linear, request.kinds, request.wanted, [], {})
    for rows, patterns, path in _classes(request):
        _add_class(program, request, rows, patterns, path)
        if len(linear.bounds) > VARIABLES_MAX:
            raise ProgramTooLargeError(f"more than {VARIABLES_MAX} integers")
    for index, wanted in enumerate(request.wanted):
        linear.add([(group.pods[index], 1) for group in program.classes], wanted, wanted)
    _add_domains(program, request)
    _add_rules(program, request)
    _break_symmetry(program, request)
    _add_objectives(program, request)
    return program


def _classes(request: PlacementProblem) -> Iterator[tuple[Ints, list[Pattern], tuple[int, ...]]]:
    """Yield the slots of each class, its patterns, and its domains from coarse to fine."""
    cluster, scope = request.cluster, request.scope
    slots = len(request.mask)
    capacities = [request.capacity(index) for index in range(len(request.kinds))]
    usable = np.flatnonzero(np.any([capacity > 0 for capacity in capacities], axis=0))
    if not len(usable):
        return
    columns: list[Ints] = [capacity[usable] for capacity in capacities]
    for level in range(scope.depth):
        codes = scope.codes(level, slots)[usable]
        columns.append(np.where(codes == UNKNOWN, -2 - usable, codes))
    columns.append(request.prices.free[usable])
    if any(kind.needs.preferred for kind in request.kinds):
        columns.extend(liked[usable] for liked in request.prices.preference_weights())
    if request.prices.growth is not None:
        columns.extend(growth[usable] for growth in request.prices.growth)
    if len(request.kinds) > 1:  # classes compete on a node: all requested resources matter
        asked = np.flatnonzero(sum(cluster.request_vector(kind.needs) for kind in request.kinds))
        columns.extend(cluster.free()[usable][:, asked].T)
    table = np.stack(columns, axis=1)
    keys, group_of = np.unique(table, axis=0, return_inverse=True)
    group_of = group_of.reshape(-1)
    order = np.argsort(group_of, kind="stable")
    cuts = np.flatnonzero(np.diff(group_of[order])) + 1
    depth = len(request.kinds)
    if len(keys) * (depth + 1) > VARIABLES_MAX:  # before their patterns are computed
        raise ProgramTooLargeError(f"more than {VARIABLES_MAX} integers")
    for key, members in zip(keys, np.split(usable[order], cuts), strict=True):
        path = tuple(int(code) for code in key[depth : depth + scope.depth])
        yield members, _patterns(request, int(members[0]), key[:depth]), path


def _patterns(request: PlacementProblem, row: int, most: Ints) -> list[Pattern]:
    """Return the maximal combinations of pods of each class that one node takes."""
    limit = request.waiting.pods_per_node_max
    if request.scope.depth in request.scope.spread:
        spread = request.scope.spread[request.scope.depth]
        limit = spread if limit is None else min(limit, spread)
    if len(most) == 1:
        return [(int(most[0]) if limit is None else min(int(most[0]), limit),)]
    cluster = request.cluster
    steps = [range(0, int(top) + 1, request.host_unit(index)) for index, top in enumerate(most)]
    vectors = [cluster.request_vector(kind.needs) for kind in request.kinds]
    return maximal_patterns(cluster.allocatable[row] - cluster.used[row], vectors, steps, limit)


def _add_class(
    program: PlacementProgram,
    request: PlacementProblem,
    rows: Ints,
    patterns: list[Pattern],
    path: tuple[int, ...],
) -> None:
    linear, count = program.linear, len(rows)
    hosts = [linear.variable(0, count) for _ in patterns]
    pods = []
    for index, wanted in enumerate(request.wanted):
        most = max((pattern[index] for pattern in patterns), default=0) * count
        pods.append(linear.variable(0, min(most, wanted)))
        terms: Terms = [(pods[-1], 1)]
        terms += [(v, -p[index]) for v, p in zip(hosts, patterns, strict=True)]
        linear.add(terms, None, 0)
    if len(hosts) > 1:
        linear.add([(variable, 1) for variable in hosts], None, count)
    row, prices = int(rows[0]), request.prices
    growth = [int(per_row[row]) for per_row in prices.growth] if prices.growth is not None else []
    liked = tuple(int(per_row[row]) for per_row in prices.preference_weights())
    free = int(prices.free[row])
    program.classes.append(NodeClass(rows, patterns, path, hosts, pods, liked, free, growth))


def _members(program: PlacementProgram) -> dict[Domain, list[NodeClass]]:
    members: dict[Domain, list[NodeClass]] = {}
    for group in program.classes:
        for level, code in enumerate(group.path):
            members.setdefault((level, code), []).append(group)
    return members


def _add_domains(program: PlacementProgram, request: PlacementProblem) -> None:
    """Add when a domain counts as used; tight bounds keep the linear relaxation strong."""
    linear = program.linear
    total = sum(request.wanted)
    for domain, groups in _members(program).items():
        used = program.used[domain] = linear.variable(0, 1)
        hosts: Terms = [(v, 1) for group in groups for v in group.hosts]
        most = min(sum(len(group.rows) for group in groups), total)
        linear.add([*hosts, (used, -most)], None, 0)
        linear.add([*hosts, (used, -1)], 0, None)
        for index, wanted in enumerate(request.wanted):
            pods: Terms = [(group.pods[index], 1) for group in groups]
            pods_max = sum(linear.bounds[group.pods[index]][1] for group in groups)
            linear.add([*pods, (used, -min(pods_max, wanted))], None, 0)
    for group in program.classes:
        for level in range(1, len(group.path)):
            child, parent = (
                program.used[level, group.path[level]],
                (level - 1, group.path[level - 1]),
            )
            linear.add([(child, 1), (program.used[parent], -1)], None, 0)


def _add_rules(program: PlacementProgram, request: PlacementProblem) -> None:
    linear, scope = program.linear, request.scope
    members = _members(program)
    level = scope.rules.required
    if level is not None and level < scope.depth:
        linear.add([(v, 1) for (at, _), v in program.used.items() if at == level], None, 1)
    elif level is not None:
        linear.add([(v, 1) for group in program.classes for v in group.hosts], None, 1)
    for (at, _), groups in members.items():
        if at in scope.spread:
            pods: Terms = [(v, 1) for group in groups for v in group.pods]
            linear.add(pods, None, scope.spread[at])
        for index, kind in enumerate(request.kinds):
            for slice_level, size in kind.rules.slices:
                if slice_level == at:
                    whole = linear.variable(0, request.wanted[index] // size)
                    inside: Terms = [(group.pods[index], 1) for group in groups]
                    linear.add([*inside, (whole, -size)], 0, 0)
    for index, kind in enumerate(request.kinds):
        if kind.rules.required is not None and kind.rules.required < scope.depth:
            _one_domain(program, request, index, kind.rules.required)
        if request.host_unit(index) > 1:
            _units(program, request, index, request.host_unit(index))


def _one_domain(
    program: PlacementProgram, request: PlacementProblem, index: int, level: int
) -> None:
    """Require that all pods of one class share one domain of a level."""
    linear, wanted = program.linear, request.wanted[index]
    choices: Terms = []
    for (at, _), groups in _members(program).items():
        if at == level:
            here = linear.variable(0, 1)
            choices.append((here, 1))
            pods: Terms = [(group.pods[index], 1) for group in groups]
            linear.add([*pods, (here, -wanted)], None, 0)
    linear.add(choices, None, 1)


def _units(program: PlacementProgram, request: PlacementProblem, index: int, unit: int) -> None:
    """Require whole slices on every host; patterns are multiples of the slice size already."""
    for group in program.classes:
        whole = program.linear.variable(0, request.wanted[index] // unit)
        program.linear.add([(group.pods[index], 1), (whole, -unit)], 0, 0)


def _break_symmetry(program: PlacementProgram, request: PlacementProblem) -> None:
    """Order equal finest domains of one parent by their number of pods."""
    finest = request.scope.depth - 1
    if finest < 0:
        return
    equal: dict[object, list[list[NodeClass]]] = {}
    free = _free(program, request)
    for (level, code), groups in _members(program).items():
        if level == finest:
            look = tuple(
                (len(g.rows), tuple(g.patterns), g.free, g.preference, tuple(g.growth))
                for g in groups
            )
            equal.setdefault((groups[0].path[:-1], free[level, code], look), []).append(groups)
    for equals in equal.values():
        for first, second in pairwise(equals):
            terms: Terms = [(v, 1) for group in first for v in group.pods]
            terms += [(v, -1) for group in second for v in group.pods]
            program.linear.add(terms, 0, None)


def _add_objectives(program: PlacementProgram, request: PlacementProblem) -> None:
    linear = program.linear
    every: Terms = [(v, 1) for group in program.classes for v in group.hosts]
    for objective in request.objectives:
        match objective:
            case PlacementObjective.DOMAINS:
                for level in request.scope.order:
                    linear.objectives.append(
                        [(v, 1) for (at, _), v in program.used.items() if at == level]
                    )
                linear.objectives.append(every)
            case PlacementObjective.PREFERENCE:
                linear.objectives.append(
                    [
                        (v, -liked)
                        for group in program.classes
                        for v, liked in zip(group.pods, group.preference, strict=True)
                        if liked
                    ]
                )
            case PlacementObjective.LEFTOVER:
                terms: Terms = [
                    (v, group.free) for group in program.classes for v in group.hosts if group.free
                ]
                terms += [
                    (program.used[domain], free) for domain, free in _free(program, request).items()
                ]
                linear.objectives.append(terms)
            case PlacementObjective.FRAGMENTATION:
                linear.objectives.append(
                    [
                        (v, grows)
                        for group in program.classes
                        for v, grows in zip(group.pods, group.growth, strict=True)
                        if grows
                    ]
                )


def _free(program: PlacementProgram, request: PlacementProblem) -> dict[Domain, int]:
    """Return the free amount of the main resource in each domain, full nodes included."""
    return {
        (level, group.path[level]): int(request.prices.around(level)[group.rows[0]])
        for group in program.classes
        for level in range(len(group.path))
    }
