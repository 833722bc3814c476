"""Finds the best placement of one gang, with a proof if possible.

1. Counting finds a placement (the topology heuristic, and a flat one), or shows that none exists.
2. Counting bounds what any placement in each domain can cost. If the best found meets the lowest
   bound, it is proved without a solver; this is the usual case.
3. Else CP-SAT solves the most promising domains, with the best found as hint and floor, until the
   next bound is no better or the budget is spent.
"""

from dataclasses import dataclass, replace

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement, Proof
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement import choosers
from gangsched.core.placement.choosers import fewest_bins, first_fit
from gangsched.core.placement.constraints import (
    MisconfiguredError,
    ResolvedConstraints,
    resolve_constraints,
)
from gangsched.core.placement.demand import PodClass, pod_classes
from gangsched.core.placement.explain import explain
from gangsched.core.placement.fill import CountedPlacement, Filling, placement, search, tries
from gangsched.core.placement.fragmentation import TypicalPod, growth
from gangsched.core.placement.objectives import DEFAULT, Cost, PlacementCosts, PlacementObjective
from gangsched.core.placement.optimal.bounds import CandidateDomain, candidate_domains
from gangsched.core.placement.optimal.cpsat import SolverStatus, solve
from gangsched.core.placement.optimal.knapsack import tightest_counts
from gangsched.core.placement.optimal.patterns import ProgramTooLargeError
from gangsched.core.placement.optimal.program import PlacementProblem, build_program
from gangsched.core.placement.tree_fill import TOPOLOGY_FILL, FillStrategy
from gangsched.core.snapshot import Snapshot

_FLAT = FillStrategy(fewest_bins)
_ALTERNATIVES = (
    _FLAT,
    FillStrategy(first_fit),
    FillStrategy(first_fit, descend=True),
    FillStrategy(choosers.tightest),
    FillStrategy(choosers.tightest, descend=True),
)
"""Strategies to try if nothing was proved: sometimes one is better than going down the tree."""

_INTEGER_S, _TOO_LARGE_S = 1e-5, 0.1
"""Deterministic seconds for each integer of a program, and for a program that is too large."""


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """Objectives in order, and deterministic seconds of CP-SAT for one gang.

    Gangs of more than `solved_pods` pods are placed by counting, which is quick. `typical` is the
    workload by which FRAGMENTATION is measured.
    """

    objectives: tuple[PlacementObjective, ...]
    budget: float
    solved_pods: int
    typical: tuple[TypicalPod, ...] = ()


@dataclass(slots=True)
class Best:
    """The best counts so far, and the bounds on better ones."""

    cost: Cost
    counts: list[Ints] | None
    open_bound: Cost | None = None
    undecided: bool = False
    spent: float = 0.0

    def offer(self, cost: Cost, counts: list[Ints]) -> None:
        """Keep counts if they are better."""
        if self.counts is None or cost < self.cost:
            self.cost, self.counts = cost, counts

    def leave_open(self, bound: Cost) -> None:
        """Record that a placement with the cost `bound` could not be ruled out."""
        self.undecided = True
        if self.open_bound is None or bound < self.open_bound:
            self.open_bound = bound


def optimise(
    waiting: PendingGang, snapshot: Snapshot, options: SolverOptions
) -> Placement | Refusal:
    """Place a gang as well as the budget allows, in the steps of the module's docstring."""
    cluster = snapshot.cluster
    try:
        scope = resolve_constraints(waiting, cluster)
    except MisconfiguredError as error:
        return Refusal(waiting.gang.id, Reason.MISCONFIGURED, str(error))
    undecided = False
    for gpu, mask in scope.gpu_masks:
        only = scope if len(scope.gpu_masks) == 1 else replace(scope, gpu_masks=((gpu, mask),))
        counted, best = _on_one_kind(waiting, snapshot, only, options)
        undecided |= best is not None and best.undecided
        if counted is None or best is None or best.counts is None:
            continue
        result = placement(waiting, snapshot, only, replace(counted, counts=best.counts))
        proof = Proof.GAP if best.undecided else Proof.PROVED
        bound = best.open_bound if best.open_bound is not None else best.cost
        bound = min(bound, best.cost)
        return replace(result, proof=proof, cost=best.cost, bound=bound, spent=best.spent)
    refusal = explain(waiting, snapshot, scope, lambda trial: _feasible(trial, snapshot, options))
    return replace(refusal, proved=not undecided)


def _feasible(waiting: PendingGang, snapshot: Snapshot, options: SolverOptions) -> bool:
    """Return whether a changed gang fits."""
    try:
        scope = resolve_constraints(waiting, snapshot.cluster)
    except MisconfiguredError:
        return False
    if search(waiting, snapshot, scope, _FLAT) is not None:
        return True
    quick = replace(options, objectives=())
    for gpu, mask in scope.gpu_masks:
        only = replace(scope, gpu_masks=((gpu, mask),))
        counted, best = _on_one_kind(waiting, snapshot, only, quick)
        if counted is not None and best is not None and best.counts is not None:
            return True
    return False


def _on_one_kind(
    waiting: PendingGang, snapshot: Snapshot, scope: ResolvedConstraints, options: SolverOptions
) -> tuple[CountedPlacement | None, Best | None]:
    """Place a gang on one GPU type; return its classes with first counts, and the best."""
    cluster = snapshot.cluster
    gpu, allowed = scope.gpu_masks[0]
    mask = allowed & scope.allowed
    kinds = pod_classes(waiting, scope, cluster)
    if any(kind.split for kind in kinds):
        return None, None
    by_counting = waiting.placed_members or any(kind.needs.share is not None for kind in kinds)
    rigid = all(kind.pods_min == kind.pods_max for kind in kinds)
    counts: list[Ints] = []
    wanted = [kind.pods_min for kind in kinds]
    if by_counting or not rigid or not _counting_is_exact(kinds):
        # The pods of each class, and first counts. (Rigid gangs of one class are counted below.)
        counted = search(waiting, snapshot, scope, TOPOLOGY_FILL)
        if counted is not None:
            counts, kinds = counted.counts, counted.kinds
            wanted = [int(count.sum()) for count in counts]
        elif by_counting or _counting_is_exact(kinds):
            return None, None
    elif not any(wanted):
        return None, None
    counted = CountedPlacement(kinds, counts, gpu, mask)
    prices = _prices(cluster, scope, kinds, options)
    best = Best((), None)
    if counts:
        best.offer(prices.cost(counts), counts)
    if by_counting:  # the program models neither late members of a running gang nor shares of GPUs
        best.leave_open(best.cost)
        return counted, best
    known = mask & scope.located(len(mask))
    _improve(
        PlacementProblem(waiting, cluster, scope, kinds, wanted, known, prices),
        snapshot,
        best,
        options,
    )
    for style in _ALTERNATIVES if best.undecided else ():
        other = search(waiting, snapshot, scope, style)
        if other is not None and [int(count.sum()) for count in other.counts] == wanted:
            best.offer(prices.cost(other.counts), other.counts)
    return counted, best


def _counting_is_exact(kinds: list[PodClass]) -> bool:
    """Return whether counting that finds no placement proves that none exists."""
    return len([kind for kind in kinds if kind.pods_min]) <= 1


def _prices(
    cluster: Cluster, scope: ResolvedConstraints, kinds: list[PodClass], options: SolverOptions
) -> PlacementCosts:
    needs = [kind.needs for kind in kinds]
    if PlacementObjective.FRAGMENTATION not in options.objectives:
        return PlacementCosts(cluster, scope, needs, options.objectives)
    rows = np.flatnonzero(cluster.live)
    grows = []
    for pod in needs:
        column = np.zeros(len(cluster.names), dtype=np.int64)
        values, _ = growth(cluster, rows, pod, options.typical)
        column[rows] = np.rint(np.where(np.isfinite(values), values, 0)).astype(np.int64)
        grows.append(column)
    return PlacementCosts(cluster, scope, needs, options.objectives, grows)


def _improve(
    request: PlacementProblem, snapshot: Snapshot, best: Best, options: SolverOptions
) -> None:
    """Look for better counts, from the finest level that could hold the gang to the coarsest."""
    scope = request.scope
    top = scope.rules.required
    levels: list[int | None] = [top]
    if request.objectives[:1] == (PlacementObjective.DOMAINS,):
        finest = scope.depth - 1
        if scope.order == tuple(range(scope.depth)):
            levels = [*range(finest, -1 if top is None else top, -1), top]
        elif top is None or top < finest:  # the preferred level counts before coarser ones
            levels = [finest, top]
    budget = min(options.budget, snapshot.solver_budget.left_s)
    if sum(request.wanted) > options.solved_pods:
        budget = 0.0
    left = tries(request.kinds)
    for level in levels:
        for candidate in candidate_domains(request, level):
            if best.counts is not None and candidate.bound >= best.cost:
                break
            if not left:
                best.leave_open(candidate.bound)
                return
            left -= 1
            before = best.spent
            _solve_in(request, snapshot, candidate, best, budget)
            budget -= best.spent - before
            snapshot.solver_budget.left_s -= best.spent - before
            if not request.objectives and best.counts is not None:
                return
        if best.counts is not None and (level == top or _single(best, scope, level)):
            return


def _single(best: Best, scope: ResolvedConstraints, level: int | None) -> bool:
    """Return whether no coarser level can be better: the best uses one domain of this level."""
    return level is None or level >= scope.depth or best.cost[scope.order.index(level)] == 1


def _solve_in(
    request: PlacementProblem,
    snapshot: Snapshot,
    candidate: CandidateDomain,
    best: Best,
    budget: float,
) -> None:
    """Search one domain by counting, and then by CP-SAT if nothing is proved and budget is left."""
    inside = replace(request, mask=request.mask & candidate.mask)
    filling = Filling(request.waiting, snapshot, request.scope, TOPOLOGY_FILL, request.kinds)
    counts = filling.attempt(request.wanted, inside.mask)
    if counts is None and _counting_is_exact(request.kinds):
        return
    if counts is not None:
        cost = request.prices.cost(counts)
        best.offer(cost, counts)
        if cost <= candidate.bound or not request.objectives:
            return
        exact = _tightest(inside, counts, cost)
        if exact is not None:
            best.offer(request.prices.cost([exact]), [exact])
            return
    if budget <= 0:
        best.leave_open(candidate.bound)
        return
    try:
        program = build_program(inside)
    except ProgramTooLargeError:
        best.spent += _TOO_LARGE_S
        best.leave_open(candidate.bound)
        return
    best.spent += len(program.linear.bounds) * _INTEGER_S
    hint = None
    if best.counts is not None and not any((c * ~inside.mask).any() for c in best.counts):
        hint = program.values(best.counts)
    elif counts is not None:
        hint = program.values(counts)
    solved = solve(program.linear, hint, budget, candidate.bound)
    best.spent += solved.spent
    if solved.outcome in (SolverStatus.OPTIMAL, SolverStatus.FEASIBLE):
        better = program.counts(solved.values, len(inside.mask))
        best.offer(request.prices.cost(better), better)
    if solved.outcome is SolverStatus.FEASIBLE:
        bound = max(candidate.bound, solved.bound)
        if bound < best.cost:
            best.leave_open(bound)
    elif solved.outcome is SolverStatus.UNKNOWN:
        best.leave_open(candidate.bound)


def _tightest(request: PlacementProblem, counts: list[Ints], cost: Cost) -> Ints | None:
    """Choose the hosts of one finest domain exactly, for one pod class; None in other cases."""
    scope, prices = request.scope, request.prices
    if (
        len(counts) > 1
        or prices.objectives != DEFAULT
        or request.kinds[0].needs.preferred
        or any(cost[level] > 1 for level in range(scope.depth))
        or scope.spread
        or request.host_unit(0) > 1
    ):
        return None
    hosts = int((counts[0] > 0).sum())  # filling the largest first used as few as possible
    return tightest_counts(request.capacity(0), prices.free, request.wanted[0], hosts)
