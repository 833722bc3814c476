"""What purchases cost beside the least possible, and how well starts on new nodes are predicted.

Gangs of the seed arrive at a pool that has no nodes at first, is short of nodes now and then, and
has fewer nodes than two of the gangs need.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from gangsched.core.engine.engine import Limits
from gangsched.core.model.ids import GangId
from gangsched.core.planning.forecast import Effort, forecast
from simulator.experiments.run import policies_of, pools_of, prepare
from simulator.jobs import JobOutcome
from simulator.scenarios.scenario import parse
from simulator.virtual.job_run import JobRun
from simulator.virtual.node_market import NodeMarket

NODES_MAX, BOOT_S = 500, 300.0
_LOOK_S = 900.0
_NEAR_S = 60.0
"""A wait of less counts as so long where errors are shares of it."""


@dataclass(slots=True)
class PurchaseFigures:
    """Sums over some runs; times are node-seconds."""

    gangs: int = 0
    started: int = 0
    bought_s: float = 0.0
    wasted_s: float = 0.0
    least_s: float = 0.0
    errors: list[float] = field(default_factory=list)
    """Of predicted starts, as shares of the predicted waits."""

    def flat(self) -> dict[str, float]:
        """Return flat figures."""
        return {
            "gangs_that_fit_started_share": self.started / self.gangs,
            "wasted_node_share": self.wasted_s / self.bought_s,
            "cost_ratio_to_optimum": self.bought_s / self.least_s,
            "start_estimates": float(len(self.errors)),
            "start_estimate_error_p50": median(self.errors),
        }


def measure_purchases(seeds: Iterable[int], jobs: int = 400) -> PurchaseFigures:
    """Run the scenario of each seed."""
    figures = PurchaseFigures()
    for seed in seeds:
        _run(seed, jobs, figures)
    return figures


def least_node_s(used: Iterable[tuple[float, float, int]], boot_s: float) -> float:
    """Return the least node-seconds for gangs that run at these times: start, end, and nodes.

    A buyer who knows all times keeps a node between two gangs only if that is shorter than the boot
    of a new node. The k-th node is needed whenever gangs run on k nodes together; each k is decided
    alone, because any node can be the one to go on.
    """
    changes: dict[float, int] = {}
    for start_s, end_s, nodes in used:
        changes[start_s] = changes.get(start_s, 0) + nodes
        changes[end_s] = changes.get(end_s, 0) - nodes
    times = sorted(changes)
    total_s, running = 0.0, 0
    free_since: list[float] = []
    """When each node that is not needed now was needed last; the last one is used again first."""
    for at_s, next_s in pairwise([*times, times[-1] if times else 0.0]):
        running += changes[at_s]
        for _ in range(max(changes[at_s], 0)):
            idle_s = at_s - free_since.pop() if free_since else boot_s
            total_s += min(idle_s, boot_s)
        free_since += [at_s] * max(-changes[at_s], 0)
        total_s += running * (next_s - at_s)
    return total_s


def _run(seed: int, jobs: int, figures: PurchaseFigures) -> None:
    scenario = parse(_scenario(jobs), "purchases", Path())
    result, listed, _ = prepare(scenario, seed)
    policies, limits = policies_of(scenario), Limits(retry_interval_s=300.0)
    run = JobRun((), listed, policies, result.queues, limits=limits)
    market = NodeMarket(run, pools_of(scenario), scenario.buying, seed)
    run.observers.on_fact, run.observers.on_refusals = market.observe, market.planned
    predicted: list[tuple[GangId, float, float]] = []

    def look() -> None:
        snapshot = run.engine.view.snapshot_all(run.now_s)
        for gang, one in forecast(snapshot, policies, run.now_s, Effort(1)).items():
            if one.start_s is not None:
                predicted.append((gang, run.now_s, one.start_s))
        if run.now_s < listed[-1].at_s:
            run.at(run.now_s + _LOOK_S, look)

    run.at(_LOOK_S, look)
    run.run()
    market.close()
    fitting = [one for one in run.outcomes.values() if one.job.pods <= NODES_MAX]
    figures.gangs += len(fitting)
    figures.started += sum(one.started_s is not None for one in fitting)
    figures.bought_s += sum(one.bought_s for one in market.figures.values())
    figures.wasted_s += sum(one.wasted_s for one in market.figures.values())
    figures.least_s += least_node_s(_used(run.outcomes.values()), BOOT_S)
    for gang, at_s, start_s in predicted:
        started_s = run.outcomes[gang].started_s
        if started_s is not None:
            figures.errors.append(abs(started_s - start_s) / max(start_s - at_s, _NEAR_S))


def _used(outcomes: Iterable[JobOutcome]) -> Iterable[tuple[float, float, int]]:
    for outcome in outcomes:
        yield from ((start_s, end_s, outcome.job.pods) for start_s, end_s in outcome.runs)


def _scenario(jobs: int) -> dict[str, object]:
    size = {"gpus": {8: 1}, "runtime": 2400, "spread": 1.0, "longest": 43_200}
    sizes = {1: 30, 2: 20, 4: 20, 8: 15, 16: 10, 32: 4, 64: 1}
    return {
        "version": "gangsched.io/simulation/v1",
        "name": "purchases",
        "pools": [
            {"name": "p5", "nodes": NODES_MAX, "gpus": 8, "price": 98.25, "boot": BOOT_S,
             "shortage_mtbf": 28_800, "shortage_repair": 1800},
        ],
        "workload": {
            "generators": [
                {"name": "job", "jobs": jobs, "every": 240, "pods": sizes, **size},
                {"name": "large", "jobs": 2, "every": 14_400, "pods": {520: 1, 640: 1}, **size},
            ],
            "estimates": "exact",
        },
    }  # fmt: skip
