"""Several gangs at once: which of them together use the capacity best.

Planning one gang after the other can give the room for two to one. Where the order lets gangs be
looked at together, CP-SAT chooses the set with most GPU-hours on sums per finest domain; the
placer then places that set for real. A set it cannot place is ruled out and the next is asked for,
so the answer is never worse than one after the other.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

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

BATCH_MAX = 20
"""Gangs looked at together; beyond it proofs take seconds."""

_ATTEMPTS = 5
_INTEGERS_MAX = 20_000
_BUDGET = 0.5
_RUNTIME_S = 3600.0
"""What a gang that says nothing is expected to run."""

Outcome = list[tuple[PendingGang, Placement | Refusal]]
PlaceInOrder = Callable[[list[PendingGang]], Outcome]


@dataclass(frozen=True, slots=True)
class _ResolvedGang:
    """What one gang needs, resolved."""

    waiting: PendingGang
    scope: ResolvedConstraints
    kinds: list[PodClass]


def gpu_seconds(waiting: PendingGang) -> int:
    """Return what starting a gang is worth: GPU-seconds of its minimum, or pod-seconds."""
    runtime_s = waiting.gang.expected_runtime_s or _RUNTIME_S
    gpus = sum(dict(member.needs.requests).get(GPU, 0) for member in waiting.members)
    return max(min(round(runtime_s * max(gpus, 1)), AMOUNT.most), 1)


def choose_jointly(
    batch: list[PendingGang], snapshot: Snapshot, so_far: Outcome, place: PlaceInOrder
) -> Outcome:
    """Return the outcome with more GPU-hours: `so_far`, or one that a joint choice found.

    `place` places gangs in the order given, on the snapshot as it is, and leaves it so.
    """
    reached = _total(so_far)
    asked = _resolve(batch, snapshot)
    if asked is None or len(batch) > BATCH_MAX:
        return so_far
    leaves = len(np.unique(_leaves(asked[0].scope, len(snapshot.cluster.names))))
    if leaves * sum(len(one.kinds) for one in asked) > _INTEGERS_MAX:
        return so_far
    ruled_out: list[frozenset[int]] = []
    for _ in range(_ATTEMPTS):
        chosen = _choose(asked, snapshot, reached, ruled_out)
        if chosen is None:
            return so_far
        first = sorted((batch[i] for i in chosen), key=lambda one: -len(one.members))
        rest = [one for i, one in enumerate(batch) if i not in chosen]
        outcome = place([*first, *rest])
        if _total(outcome) > reached:
            return outcome
        ruled_out.append(chosen)
    return so_far


def _total(outcome: Outcome) -> int:
    return sum(gpu_seconds(waiting) for waiting, result in outcome if isinstance(result, Placement))


def _resolve(batch: list[PendingGang], snapshot: Snapshot) -> list[_ResolvedGang] | None:
    found = []
    for waiting in batch:
        try:
            scope = resolve_constraints(waiting, snapshot.cluster)
        except MisconfiguredError:
            return None
        found.append(_ResolvedGang(waiting, scope, pod_classes(waiting, scope, snapshot.cluster)))
    return found


def _choose(
    asked: list[_ResolvedGang], snapshot: Snapshot, reached: int, ruled_out: list[frozenset[int]]
) -> frozenset[int] | None:
    """Return the set of gangs worth most, more than `reached`, or None."""
    model = cp_model.CpModel()
    admitted = [model.new_bool_var("") for _ in asked]
    used: dict[tuple[int, int], list[cp_model.LinearExprT]] = {}
    for index, one in enumerate(asked):
        _add_gang(model, one, admitted[index], snapshot, used)
    leaves = _leaves(asked[0].scope, len(snapshot.cluster.names))
    free = np.maximum(snapshot.cluster.free(), 0)
    for (leaf, column), terms in used.items():
        model.add(sum(terms) <= int(free[leaves == leaf, column].sum()))
    for group in ruled_out:
        model.add(sum(admitted[i] for i in group) <= len(group) - 1)
    worth = sum(gpu_seconds(one.waiting) * admitted[i] for i, one in enumerate(asked))
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
    one: _ResolvedGang,
    admitted: cp_model.IntVar,
    snapshot: Snapshot,
    used: dict[tuple[int, int], list[cp_model.LinearExprT]],
) -> None:
    """Add counts per finest domain, what they use there, and the required domain."""
    cluster, scope = snapshot.cluster, one.scope
    leaves = _leaves(scope, len(cluster.names))
    mask = scope.allowed & scope.gpu_masks[0][1]
    level = scope.rules.required
    homes: dict[int, cp_model.IntVar] = {}
    for kind in one.kinds:
        room = cluster.capacity(kind.needs) * mask
        vector = cluster.request_vector(kind.needs)
        counts = []
        for leaf in np.unique(leaves[room > 0]):
            here = leaves == leaf
            most = min(int(room[here].sum()), kind.pods_min)
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
    """Return the finest domain of each slot; nodes of unknown place are their own."""
    if scope.depth == 0:
        return np.zeros(slots, dtype=np.int64)
    codes = scope.codes(scope.depth - 1, slots)
    return np.where(codes == UNKNOWN, int(codes.max(initial=-1)) + 1 + np.arange(slots), codes)
