"""Chooses among several gangs the set that uses the capacity best.

Planned one after the other, one gang can take the capacity of two. If the order allows that gangs
are planned together, CP-SAT chooses the set with the most GPU-hours, on sums per finest domain. The
placer then places that set. A set that it cannot place is ruled out, and the next one is tried. So
the result is never worse than planning one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gangsched.core.bounds import AMOUNT
from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import GPU
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.constraints import (
    MisconfiguredError,
    ResolvedConstraints,
    resolve_constraints,
)
from gangsched.core.placement.demand import PodClass, pod_classes
from gangsched.core.snapshot import Snapshot
from gangsched.core.solver import cp_model

BATCH_MAX = 20
"""The number of gangs planned together; with more, proofs take seconds."""

_ATTEMPTS = 5
_INTEGERS_MAX = 20_000
_BUDGET = 0.5
_RUNTIME_S = 3600.0
"""The assumed run time of a gang that declares none."""

Outcome = list[tuple[PendingGang, Placement | Refusal]]
PlaceInOrder = Callable[[list[PendingGang]], Outcome]


@dataclass(frozen=True, slots=True)
class _ResolvedGang:
    """A gang with its resolved constraints and its pod classes."""

    waiting: PendingGang
    scope: ResolvedConstraints
    kinds: list[PodClass]


def gpu_seconds(waiting: PendingGang) -> int:
    """Return the weight of starting a gang: GPU-seconds, or seconds if it has no GPUs."""
    runtime_s = waiting.gang.expected_runtime_s or _RUNTIME_S
    gpus = sum(dict(member.needs.requests).get(GPU, 0) for member in waiting.members)
    return max(min(round(runtime_s * max(gpus, 1)), AMOUNT.most), 1)


def choose_jointly(
    batch: list[PendingGang], snapshot: Snapshot, so_far: Outcome, place: PlaceInOrder
) -> Outcome:
    """Return the outcome with more GPU-hours: `so_far`, or one that a joint choice found.

    `place` places gangs in the given order on the snapshot, and leaves the snapshot unchanged.
    """
    reached = _total(so_far)
    asked = _resolve(batch, snapshot)
    if asked is None or len(batch) > BATCH_MAX:
        return so_far
    leaves = len(np.unique(_leaves(asked[0].scope, len(snapshot.cluster.names))))
    if leaves * sum(len(gang.kinds) for gang in asked) > _INTEGERS_MAX:
        return so_far
    ruled_out: list[frozenset[int]] = []
    for _ in range(_ATTEMPTS):
        chosen = _choose(asked, snapshot, reached, ruled_out)
        if chosen is None:
            return so_far
        first = sorted((batch[i] for i in chosen), key=lambda gang: -len(gang.members))
        rest = [gang for i, gang in enumerate(batch) if i not in chosen]
        outcome = place([*first, *rest])
        if _total(outcome) > reached:
            return outcome
        ruled_out.append(chosen)
    return so_far


def _total(outcome: Outcome) -> int:
    return sum(gpu_seconds(waiting) for waiting, result in outcome if isinstance(result, Placement))


def _resolve(batch: list[PendingGang], snapshot: Snapshot) -> list[_ResolvedGang] | None:
    resolved = []
    for waiting in batch:
        try:
            scope = resolve_constraints(waiting, snapshot.cluster)
        except MisconfiguredError:
            return None
        resolved.append(
            _ResolvedGang(waiting, scope, pod_classes(waiting, scope, snapshot.cluster))
        )
    return resolved


def _choose(
    asked: list[_ResolvedGang], snapshot: Snapshot, reached: int, ruled_out: list[frozenset[int]]
) -> frozenset[int] | None:
    """Return the set of gangs with the highest weight above `reached`, or None."""
    model = cp_model.CpModel()
    admitted = [model.new_bool_var("") for _ in asked]
    used: dict[tuple[int, int], list[cp_model.LinearExprT]] = {}
    for index, gang in enumerate(asked):
        _add_gang(model, gang, admitted[index], snapshot, used)
    leaves = _leaves(asked[0].scope, len(snapshot.cluster.names))
    free = np.maximum(snapshot.cluster.free(), 0)
    for (leaf, column), terms in used.items():
        model.add(sum(terms) <= int(free[leaves == leaf, column].sum()))
    for group in ruled_out:
        model.add(sum(admitted[i] for i in group) <= len(group) - 1)
    worth = sum(gpu_seconds(gang.waiting) * admitted[i] for i, gang in enumerate(asked))
    model.add(worth >= reached + 1)
    model.maximize(worth)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _BUDGET
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return frozenset(i for i, variable in enumerate(admitted) if solver.value(variable))


def _add_gang(
    model: cp_model.CpModel,
    gang: _ResolvedGang,
    admitted: cp_model.IntVar,
    snapshot: Snapshot,
    used: dict[tuple[int, int], list[cp_model.LinearExprT]],
) -> None:
    """Add counts per finest domain, their use of resources there, and the required domain."""
    cluster, scope = snapshot.cluster, gang.scope
    leaves = _leaves(scope, len(cluster.names))
    mask = scope.allowed & scope.gpu_masks[0][1]
    level = scope.rules.required
    homes: dict[int, cp_model.IntVar] = {}
    for kind in gang.kinds:
        capacity = cluster.capacity(kind.needs) * mask
        vector = cluster.request_vector(kind.needs)
        counts = []
        for leaf in np.unique(leaves[capacity > 0]):
            here = leaves == leaf
            most = min(int(capacity[here].sum()), kind.pods_min)
            count = model.new_int_var(0, most, "")
            counts.append(count)
            for column in np.flatnonzero(vector):
                terms = used.setdefault((int(leaf), int(column)), [])
                terms.append(count * int(vector[column]))
            if level is not None and level < scope.depth:
                home = int(scope.codes(level, len(here))[here][0])
                chosen = homes.setdefault(home, model.new_bool_var(""))
                model.add(count <= most * chosen)
        model.add(sum(counts) == kind.pods_min * admitted)
    if homes:
        model.add(sum(homes.values()) <= 1)


def _leaves(scope: ResolvedConstraints, slots: int) -> Ints:
    """Return the finest domain of each slot; a node without one is a domain of its own."""
    if scope.depth == 0:
        return np.zeros(slots, dtype=np.int64)
    codes = scope.codes(scope.depth - 1, slots)
    return np.where(codes == UNKNOWN, int(codes.max(initial=-1)) + 1 + np.arange(slots), codes)
