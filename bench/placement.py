"""Placement on generated instances: time, proofs, and quality against heuristics and a MILP.

Every instance is a seeded cluster (100 to 10,000 nodes in blocks of racks, three levels of
occupancy) with one gang: homogeneous, of two roles, sliced, or of MIG instances.
"""

import contextlib
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from instances import TREE, a_cluster, a_gang, waiting
from ortools.linear_solver.python import model_builder
from rich.progress import track

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.facts import PodSeen
from gangsched.core.model.constraints import NO_CONSTRAINTS, LevelRequest, SliceRequest
from gangsched.core.model.gangs import PendingGang, Role
from gangsched.core.model.ids import NodeName, PodName, PodUid
from gangsched.core.model.placement import Placement, Proof
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.constraints import resolve_constraints
from gangsched.core.placement.demand import pod_classes
from gangsched.core.placement.objectives import Cost, PlacementCosts
from gangsched.core.placement.optimal.patterns import ProgramTooLargeError
from gangsched.core.placement.optimal.program import (
    PlacementProblem,
    PlacementProgram,
    build_program,
)
from gangsched.core.policy import Placer
from gangsched.core.snapshot import Snapshot
from policies.best_fit import BestFit
from policies.cpsat import Cpsat
from policies.dot_product import DotProduct
from policies.fgd import Fgd
from policies.first_fit import FirstFit
from policies.pack import Pack
from policies.random_fit import RandomFit
from policies.spread import SpreadPlacer
from policies.topology import TopologyPlacer

NODES = (100, 500, 2000, 5000, 10_000)
OCCUPIED = (0.3, 0.6, 0.85)
KINDS = ("homogeneous", "two-role", "sliced", "mig")
SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512)
HEURISTICS: dict[str, Placer] = {
    "pack": Pack(),
    "spread": SpreadPlacer(),
    "topology": TopologyPlacer(),
    "best_fit": BestFit(),
    "first_fit": FirstFit(),
    "dot_product": DotProduct(),
    "random": RandomFit(),
    "fgd": Fgd(),
}
EACH = 3
"""Gangs for each cluster and kind."""

_MILP_S = 2.0
_MILP_NODES = 2000
"""HiGHS gets the whole cluster in one model, without our decomposition; larger ones time out."""


@dataclass
class Found:
    """One result: its time, and its cost (None: refused)."""

    ms: float
    result: Placement | Refusal
    cost: Cost | None


def place(placer: Placer, gang: PendingGang, cluster: Cluster) -> Found:
    """Place once and measure."""
    snapshot = Snapshot(cluster, ())
    started_s = time.perf_counter()
    result = placer.place(gang, snapshot)
    ms = (time.perf_counter() - started_s) * 1000
    if isinstance(result, Refusal):
        return Found(ms, result, None)
    return Found(ms, result, cost(result, gang, cluster))


def cost(result: Placement, gang: PendingGang, cluster: Cluster) -> Cost:
    """Return the cost of any policy's placement by the default objectives."""
    scope = resolve_constraints(gang, cluster)
    kinds = pod_classes(gang, scope, cluster)
    kind_of = {member.name: at for at, kind in enumerate(kinds) for member in kind.members}
    counts: list[Ints] = [np.zeros(len(cluster.names), dtype=np.int64) for _ in kinds]
    for name, node in result.nodes:
        counts[kind_of[name]][cluster.rows[node]] += 1
    return PlacementCosts(cluster, scope, [kind.needs for kind in kinds]).cost(counts)


def milp(gang: PendingGang, cluster: Cluster) -> tuple[Cost | None, bool]:
    """Solve the same model, whole, with HiGHS: (cost, proved)."""
    scope = resolve_constraints(gang, cluster)
    kinds = pod_classes(gang, scope, cluster)
    wanted = [len(kind.members) for kind in kinds]
    mask = scope.allowed & scope.located(len(cluster.names))
    try:
        prices = PlacementCosts(cluster, scope, [kind.needs for kind in kinds])
        program = build_program(PlacementProblem(gang, cluster, scope, kinds, wanted, mask, prices))
    except ProgramTooLargeError:
        return None, False
    return _highs(program)


def _highs(program: PlacementProgram) -> tuple[Cost | None, bool]:
    linear = program.linear
    model = model_builder.Model()  # type: ignore[no-untyped-call]
    columns = [model.new_int_var(low, high, "") for low, high in linear.bounds]
    for terms, low, high in linear.constraints:
        floor = -math.inf if low is None else low
        model.add_linear_constraint(_sum(columns, terms), floor, math.inf if high is None else high)
    cost: list[int] = []
    for terms in linear.objectives:
        model.minimize(_sum(columns, terms))
        solver = model_builder.Solver("highs")
        solver.enable_output(False)  # noqa: FBT003 -- the solver's own signature
        solver.set_time_limit_in_seconds(_MILP_S)
        with _quiet():
            status = solver.solve(model)
        if status != model_builder.SolveStatus.OPTIMAL:
            return None, status == model_builder.SolveStatus.INFEASIBLE
        cost.append(round(solver.objective_value))
        if terms:
            model.add_linear_constraint(_sum(columns, terms), -math.inf, cost[-1])
    return tuple(cost), True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard standard output: HiGHS prints a banner in spite of its options."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _sum(columns: list[Any], terms: list[tuple[int, int]]) -> Any:
    chosen = [columns[variable] for variable, _ in terms]
    return model_builder.LinearExpr.weighted_sum(chosen, [factor for _, factor in terms])


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of unsorted values, 0 without values."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


class Tally:
    """The totals over all instances."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = {}
        self.proved = self.placed = self.worse = self.refused = self.refusal_proved = 0
        self.solved = 0
        self.milp_done = self.milp_equal = self.milp_better = self.milp_worse = 0
        self.better: dict[str, int] = dict.fromkeys(HEURISTICS, 0)
        self.missed: dict[str, int] = dict.fromkeys(HEURISTICS, 0)

    def add(self, kind: str, count: int, gang: PendingGang, cluster: Cluster) -> None:
        """Place one gang with every policy."""
        solved = place(Cpsat(), gang, cluster)
        self.ms.setdefault("solver", []).append(solved.ms)
        self.ms.setdefault(f"solver_{kind}", []).append(solved.ms)
        self.ms.setdefault(f"solver_{count}", []).append(solved.ms)
        others = {name: place(placer, gang, cluster) for name, placer in HEURISTICS.items()}
        for name, other in others.items():
            self.ms.setdefault(name, []).append(other.ms)
        if solved.cost is None:
            self.refused += 1
            assert isinstance(solved.result, Refusal)
            self.refusal_proved += solved.result.proved
            self.worse += any(other.cost is not None for other in others.values())
            return
        assert isinstance(solved.result, Placement)
        self.placed += 1
        self.proved += solved.result.proof is Proof.PROVED
        if solved.result.proof is Proof.PROVED and not solved.result.spent:
            self.ms.setdefault("exact", []).append(solved.ms)
        costs = {name: other.cost for name, other in others.items()}
        self.worse += any(cost is not None and cost < solved.cost for cost in costs.values())
        for name, cost in costs.items():
            self.missed[name] += cost is None
            self.better[name] += cost is not None and solved.cost < cost
        if count <= _MILP_NODES:
            self._against_milp(solved.cost, gang, cluster)

    def _against_milp(self, reached: Cost, gang: PendingGang, cluster: Cluster) -> None:
        self.solved += 1
        started_s = time.perf_counter()
        other, proved = milp(gang, cluster)
        self.ms.setdefault("milp", []).append((time.perf_counter() - started_s) * 1000)
        if other is None or not proved:
            return
        self.milp_done += 1
        self.milp_equal += other == reached
        self.milp_better += other < reached
        self.milp_worse += other > reached

    def figures(self) -> dict[str, float]:
        """Return flat figures."""
        figures: dict[str, float] = {}
        for name, values in self.ms.items():
            figures[f"{name}_p50_ms"] = percentile(values, 0.5)
            figures[f"{name}_p99_ms"] = percentile(values, 0.99)
        figures["instances"] = self.placed + self.refused
        figures["solver_placed_count"] = self.placed
        figures["solver_proved_share"] = self.proved / max(self.placed, 1)
        figures["solver_refusal_proved_share"] = self.refusal_proved / max(self.refused, 1)
        figures["solver_worse_than_heuristic_count"] = self.worse
        for name in HEURISTICS:
            figures[f"solver_better_than_{name}_share"] = self.better[name] / max(self.placed, 1)
            figures[f"missed_by_{name}_count"] = self.missed[name]
        figures["milp_finished_share"] = self.milp_done / max(self.solved, 1)
        figures["milp_equal_count"] = self.milp_equal
        figures["milp_better_count"] = self.milp_better
        figures["milp_worse_count"] = self.milp_worse
        return figures


def infeasible() -> dict[str, float]:
    """Measure refusals at 5,000 nodes, with their reasons."""
    times_ms: dict[str, list[float]] = {}
    cluster = a_cluster(5000, 0.85, 7)
    rng = random.Random(5)
    big = PodRequirements((("cpu", 4000), (GPU, 8)))
    for index in range(20):
        size = rng.choice((64, 256, 512))
        server = PodRequirements((("cpu", 90_000), (GPU, 5)))
        gangs = {
            "count": waiting([Role("w", 6000, 6000, big)], NO_CONSTRAINTS),
            "rack": waiting(
                [Role("w", size, size, big)],
                replace(NO_CONSTRAINTS, near=LevelRequest(required="rack")),
            ),
            "two_role": waiting(
                [Role("s", 40 + index, 40 + index, server), Role("w", size, size, big)],
                replace(NO_CONSTRAINTS, near=LevelRequest(required="block")),
            ),
            "slices": waiting(
                [Role("w", 512, 512, big)],
                replace(NO_CONSTRAINTS, near=LevelRequest(slices=(SliceRequest("rack", 32),))),
            ),
        }
        for name, gang in gangs.items():
            answer = place(Cpsat(), gang, cluster)
            if answer.cost is None:
                times_ms.setdefault(name, []).append(answer.ms)
    every = [ms for values in times_ms.values() for ms in values]
    figures = {f"infeasible_{name}_p99_ms": percentile(ms, 0.99) for name, ms in times_ms.items()}
    return figures | {"infeasible_p99_ms": percentile(every, 0.99), "infeasible_count": len(every)}


def facts() -> dict[str, float]:
    """Measure the cost of one fact at 10,000 nodes, with the update of cached capacities."""
    from gangsched.core.engine.engine import Engine, Limits  # noqa: PLC0415 -- beside its only use
    from gangsched.core.facts import NodeSeen, TopologySeen  # noqa: PLC0415

    engine = Engine(Limits())
    engine.observe(TopologySeen(TREE), 0.0)
    source = a_cluster(10_000, 0.0, 1)
    for known in source.nodes:
        if known is not None:
            engine.observe(NodeSeen(known), 0.0)
    kinds = [PodRequirements((("cpu", 1000 * n), (GPU, n))) for n in (1, 2, 4, 8)]
    for needs in kinds:
        engine.view.cluster.capacity(needs)
    rng = random.Random(3)
    took: list[float] = []
    for index in range(5000):
        needs, node = rng.choice(kinds), NodeName(f"n{rng.randrange(10_000):05}")
        fact = PodSeen(PodUid(str(index)), PodName(f"x/p{index}"), needs, node=node)
        started_s = time.perf_counter()
        engine.observe(fact, 0.0)
        took.append((time.perf_counter() - started_s) * 1e6)
    started_s = time.perf_counter()
    for needs in kinds:
        engine.view.cluster.capacity(needs)
    refreshed = (time.perf_counter() - started_s) * 1e6 / 5000 / len(kinds)
    return {
        "fact_p50_us": percentile(took, 0.5),
        "fact_p99_us": percentile(took, 0.99),
        "fact_refresh_us": refreshed,
    }


def large() -> dict[str, float]:
    """Measure 1,024 pods at 10,000 nodes."""
    cluster = a_cluster(10_000, 0.6, 11)
    needs = [PodRequirements((("cpu", 4000), (GPU, gpus))) for gpus in (1, 2, 4, 8)]
    took: list[float] = []
    for index in range(20):
        gang = waiting([Role("w", 1024, 1024, needs[index % 4])], NO_CONSTRAINTS)
        took.append(place(Cpsat(), gang, cluster).ms)
    return {
        "gang_1024_at_10000_p50_ms": percentile(took, 0.5),
        "gang_1024_at_10000_p99_ms": max(took),
    }


def run() -> dict[str, float]:
    """Return flat figures."""
    tally = Tally()
    clusters: list[tuple[int, float, Callable[[], Cluster]]] = [
        (count, occupied, partial(a_cluster, count, occupied, index))
        for index, (count, occupied) in enumerate((c, o) for c in NODES for o in OCCUPIED)
    ]
    for number, (count, _, make) in enumerate(track(clusters, "placing", transient=True)):
        cluster = make()
        rng = random.Random(number)
        for kind in KINDS:
            for _ in range(EACH):
                sizes = [size for size in SIZES if size <= count]
                tally.add(kind, count, a_gang(kind, rng.choice(sizes), rng), cluster)
    return tally.figures() | infeasible() | facts() | large()
