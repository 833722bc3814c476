"""The cheapest set to preempt, as a program: the victims, and the pods each node then takes.

It serves gangs with equal pods. Nodes without victims are one constant. If all pods need one domain
of a level, exactly one domain is chosen. The program has only sums of quota; the caller checks the
rest.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.placement.constraints import MisconfiguredError, resolve_constraints
from gangsched.core.preemption.victim_options import VictimOption
from gangsched.core.snapshot import Snapshot
from gangsched.core.solver import cp_model

_BUDGET = 0.02
"""Deterministic seconds; ten times as many found nothing cheaper on the loads of the benchmark."""


def find_cheaper_set(
    waiting: PendingGang,
    snapshot: Snapshot,
    options: list[VictimOption],
    limit: int,
    ruled_out: list[list[VictimOption]],
    quota: list[tuple[int, list[int]]],
) -> list[VictimOption] | None:
    """Return a set that costs less than `limit` and frees enough, or None.

    `quota` lists amounts that must come free, each with what every option frees of it.
    """
    kinds = {member.needs for member in waiting.members}
    (needs,) = kinds if len(kinds) == 1 else (None,)
    if needs is None or needs.share is not None or needs.host_ports:
        return None
    cluster = snapshot.cluster
    if cluster.unknown_requests(needs):
        return None
    try:
        scope = resolve_constraints(waiting, cluster)
    except MisconfiguredError:
        return None
    domains = np.zeros(len(cluster.names), dtype=np.int64)
    if scope.rules.required is not None:
        domains = scope.codes(scope.rules.required, len(cluster.names))
    capacity = cluster.capacity(needs) * (scope.allowed & scope.gpu_masks[0][1])
    vector = cluster.request_vector(needs)
    free = cluster.free()
    model = cp_model.CpModel()
    gone = [model.new_bool_var("") for _ in options]
    freed = _freed(options, cluster)
    eligible = cluster.eligible(needs) & scope.allowed & scope.gpu_masks[0][1]
    counts: dict[int, list[cp_model.LinearExprT]] = {}
    touched = np.zeros(len(cluster.names), dtype=np.bool_)
    for row, leaving in freed.items():
        touched[row] = True
        if not eligible[row]:
            continue
        most = free[row] + np.sum([amounts for _, amounts in leaving], axis=0)
        columns = np.flatnonzero(vector)
        bound = int(np.min(most[columns] // vector[columns]))
        if bound <= 0:
            continue
        count = model.new_int_var(0, min(bound, waiting.members_min), "")
        counts.setdefault(int(domains[row]), []).append(count)
        for column in columns[free[row, columns] < bound * vector[columns]]:
            released = sum(gone[at] * int(amounts[column]) for at, amounts in leaving)
            model.add(count * int(vector[column]) <= int(free[row, column]) + released)
    chosen = []
    for code in sorted({*counts, *(int(c) for c in np.unique(domains[capacity > 0]))}):
        here = model.new_bool_var("")
        chosen.append(here)
        constant = int(capacity[(domains == code) & ~touched].sum())
        lacking = waiting.members_min - constant
        if lacking > 0:
            model.add(sum(counts.get(code, [])) >= lacking * here)
    model.add_exactly_one(chosen)
    for group in ruled_out:
        ids = {id(option) for option in group}
        others = (g for g, option in zip(gone, options, strict=True) if id(option) not in ids)
        model.add(sum(others) >= 1)
    for lacks, frees in quota:
        model.add(sum(g * amount for g, amount in zip(gone, frees, strict=True)) >= lacks)
    _one_of_each(model, options, gone)
    cost = sum(g * option.cost for g, option in zip(gone, options, strict=True))
    model.add(cost <= limit - 1)
    model.minimize(cost)
    solution = _solve(model, gone)
    return None if solution is None else [options[at] for at in solution]


def _solve(model: cp_model.CpModel, gone: list[cp_model.IntVar]) -> list[int] | None:
    """Return the variables that are set, or None without a solution."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _BUDGET
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [at for at, variable in enumerate(gone) if solver.value(variable)]


def _freed(options: list[VictimOption], cluster: Cluster) -> dict[int, list[tuple[int, Ints]]]:
    """Return, by row, the amounts that each option frees there."""
    freed: dict[int, dict[int, Ints]] = {}
    for at, option in enumerate(options):
        for place in option.places:
            row = cluster.rows.get(place.node)
            if row is not None:
                here = freed.setdefault(row, {})
                here[at] = here.get(at, 0) + cluster.whole_unit_requests(place.needs, -1)
    return {row: list(here.items()) for row, here in freed.items()}


def _one_of_each(
    model: cp_model.CpModel, options: list[VictimOption], gone: list[cp_model.IntVar]
) -> None:
    """Let a gang be preempted whole, or lose its surplus pods, or stay."""
    of_gang: dict[str, list[cp_model.IntVar]] = {}
    for option, variable in zip(options, gone, strict=True):
        of_gang.setdefault(option.candidate.running.gang.id, []).append(variable)
    for variables in of_gang.values():
        if len(variables) > 1:
            model.add_at_most_one(variables)
