"""Results of a run: figures, tables, and their files."""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gangsched.core.quota.queue_tree import QueueTree
from simulator.experiments.run import RunResult
from simulator.experiments.stories import details, slowdown
from simulator.jobs import GPU, JobOutcome

Figures = dict[str, float]

_NAMED = 5


class FinalState(StrEnum):
    """The state of a gang at the end of the run."""

    FINISHED = "Finished"
    RUNNING = "Running"
    WAITING_AGAIN = "WaitingAgain"
    WAITING = "Waiting"
    NEVER = "CanNeverRun"
    COMING = "NotYetSubmitted"


def final_state(outcome: JobOutcome, run: RunResult) -> FinalState:
    """Return the state of a gang at the end of the run."""
    if outcome.job.at_s > run.end_s:
        return FinalState.COMING
    if outcome.ended_s is not None:
        return FinalState.FINISHED
    if outcome.started_s is None:
        return FinalState.NEVER if outcome.job.id in run.never else FinalState.WAITING
    return (
        FinalState.RUNNING
        if outcome.runs and outcome.runs[-1][1] >= run.end_s
        else FinalState.WAITING_AGAIN
    )


def wait_s(outcome: JobOutcome, now_s: float) -> float:
    """Return how long a gang waited for its first start, or has waited up to now."""
    return now_s - outcome.job.at_s if outcome.wait_s is None else outcome.wait_s


def came(run: RunResult) -> list[JobOutcome]:
    """Return the gangs that were submitted before the run ended."""
    return [outcome for outcome in run.outcomes if outcome.job.at_s <= run.end_s]


def run_figures(run: RunResult) -> Figures:
    """Return the figures of a run; times in seconds, shares from 0 to 1.

    Waits and slowdowns count gangs that started; other figures count those that did not.
    """
    submitted = came(run)
    done = [outcome for outcome in submitted if outcome.ended_s is not None]
    started = [outcome for outcome in submitted if outcome.started_s is not None]
    never = sum(final_state(outcome, run) is FinalState.NEVER for outcome in submitted)
    fixed = [node for node in run.nodes if node.name not in run.pool_nodes]
    total = sum(dict(node.allocatable).get(GPU, 0) for node in fixed)
    values = {
        "jobs": len(submitted),
        "finished": len(done),
        "running": sum(final_state(outcome, run) is FinalState.RUNNING for outcome in submitted),
        "never_started": len(submitted) - len(started),
        "can_never_run": never,
        "still_waiting": len(submitted) - len(started) - never,
        "makespan_s": max((outcome.ended_s or 0.0 for outcome in done), default=0.0),
        "jct_mean_s": mean((outcome.ended_s or 0.0) - outcome.job.at_s for outcome in done),
        "gpu_busy": _busy(run, run.last_s),
        "gpu_busy_all": _busy(run, run.end_s),
        "jain": jain(
            (outcome for outcome in submitted if outcome.job.id not in run.never), run.end_s
        ),
        "preempted": run.preempted,
        "stopped": sum(outcome.stopped for outcome in submitted),
        "lost_gpu_h": sum(outcome.lost_gpu_s for outcome in submitted) / 3600,
        "in_pieces": mean(s.in_pieces / s.gpus for s in run.samples if s.gpus and s.waiting_gpus),
        "nodes": len(fixed),
        "gpus": total,
        "events": run.events,
        "cycles": run.cycles,
        "compute_s": run.compute_s,
    }
    waits = [wait_s(outcome, run.end_s) for outcome in started]
    slow = [slowdown(outcome, run.end_s) for outcome in started]
    values |= {f"wait_{name}_s": value for name, value in _spread(waits).items()}
    values |= {f"slowdown_{name}": value for name, value in _spread(slow).items()}
    if run.scenario.pools:
        values |= {f"{name}": sum(row[name] for row in pool_rows(run)) for name in POOL_SUMS}
    return {key: float(value) for key, value in values.items()}


def _spread(values: Sequence[float]) -> Figures:
    """Return the mean and percentiles, 0 without values."""
    spread = {"mean": mean(values)}
    for percent in (50, 95, 99):
        spread[f"p{percent}"] = float(np.percentile(values, percent)) if values else 0.0
    return spread


def mean(values: Iterable[float]) -> float:
    """Return the mean, 0 without values."""
    listed = list(values)
    return statistics.fmean(listed) if listed else 0.0


def _busy(run: RunResult, until_s: float) -> float:
    """Return the share of all GPU time up to `until_s` in which pods held GPUs.

    Nodes of pools count from their purchase until they are given back.
    """
    gpus = {node.name: dict(node.allocatable).get(GPU, 0) for node in run.nodes}
    fixed = sum(count for name, count in gpus.items() if name not in run.pool_nodes)
    of_pool = {spec.name: spec.gpus for spec in run.scenario.pools}
    there_s = fixed * until_s
    changes = [*run.nodes_bought, (until_s, {})]
    for (since_s, counts), (next_s, _) in pairwise(changes):
        passed_s = max(min(next_s, until_s) - since_s, 0.0)
        there_s += passed_s * sum(count * of_pool[name] for name, count in counts.items())
    held_s = 0.0 if run.stays is None else float(run.stays.gpu_s(until_s).sum())
    return held_s / there_s if there_s else 0.0


POOL_SUMS = ("cost", "bought_node_h", "wasted_node_h", "purchase_failures", "reclaimed_nodes")


def pool_rows(run: RunResult) -> list[dict[str, Any]]:
    """Return a row for each pool: what it made, and what that cost in $."""
    return [
        {
            "pool": name,
            "price": spec.price,
            "nodes_limit": spec.nodes,
            "nodes_max": figures.nodes_max,
            "nodes_bought": figures.nodes,
            "bought_node_h": figures.bought_s / 3600,
            "wasted_node_h": figures.wasted_s / 3600,
            "cost": figures.cost,
            "purchase_failures": figures.failures,
            "reclaimed_nodes": figures.reclaimed,
        }
        for spec in run.scenario.pools
        for name, figures in [(spec.name, run.pools[spec.name])]
    ]


def _cost(run: RunResult) -> float:
    return sum(figures.cost for figures in run.pools.values())


def _cost_and_wait(run: RunResult) -> float:
    """Return the cost, with a price for each hour that a job waits."""
    return _cost(run) + run.scenario.buying.wait_price * sum(_waits(run)) / 3600


def jain(outcomes: Iterable[JobOutcome], now_s: float) -> float:
    """Return Jain's index over the mean bounded slowdowns of queues: 1 if all are equal.

    A gang that has not ended counts with its slowdown so far, so that starvation is visible.
    """
    by_queue: dict[str, list[float]] = {}
    for outcome in outcomes:
        by_queue.setdefault(outcome.job.queue, []).append(slowdown(outcome, now_s))
    means = [statistics.fmean(values) for values in by_queue.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means)) if means else 1.0


# -- objectives of tuning -----------------------------------------------------------------------


def _waits(run: RunResult) -> list[float]:
    return [wait_s(outcome, run.end_s) for outcome in came(run)]


def _slow(run: RunResult) -> list[float]:
    return [slowdown(outcome, run.end_s) for outcome in came(run)]


def _jct(run: RunResult) -> list[float]:
    ends = (run.end_s if outcome.ended_s is None else outcome.ended_s for outcome in came(run))
    return [end_s - outcome.job.at_s for end_s, outcome in zip(ends, came(run), strict=True)]


def _lost_gpu_h(run: RunResult) -> float:
    """Return the lost work, with all work of gangs that never started."""
    left = (outcome.job for outcome in came(run) if outcome.started_s is None)
    left_s = sum(job.runtime_s * job.all_gpus() for job in left)
    return left_s / 3600 + run_figures(run)["lost_gpu_h"]


OBJECTIVES: dict[str, tuple[int, Callable[[RunResult], float]]] = {
    "wait_mean_s": (1, lambda run: mean(_waits(run))),
    "wait_p95_s": (1, lambda run: _spread(_waits(run))["p95"]),
    "jct_mean_s": (1, lambda run: mean(_jct(run))),
    "slowdown_mean": (1, lambda run: mean(_slow(run))),
    "slowdown_p95": (1, lambda run: _spread(_slow(run))["p95"]),
    "lost_gpu_h": (1, _lost_gpu_h),
    "gpu_busy": (-1, lambda run: run_figures(run)["gpu_busy"]),
    "cost": (1, _cost),
    "cost_and_wait": (1, _cost_and_wait),
    "jain": (-1, lambda run: jain(came(run), run.end_s)),
}
"""The objectives of tuning: 1 or -1 for less or more is better, and the value.

No objective improves when gangs never start, but `cost`: they count as pending until the end, and
their work as lost.
"""


# -- queues -------------------------------------------------------------------------------------


def queue_rows(run: RunResult) -> list[dict[str, object]]:
    """Return a row for each queue that has jobs or holds GPUs; a parent counts its subtree.

    GPU-hours count up to the arrival of the last job; `guarantee_used` is a share from 0 to 1.
    """
    assert run.stays is not None, "a run that is over has been counted"  # noqa: S101
    tree, gpu_s = run.tree(), run.stays.gpu_s(run.last_s)
    own = np.bincount(run.stays.queue + 1, gpu_s, len(run.quota_use) + 1)[1:].tolist()
    held_s = dict(zip(sorted(run.quota_use), own, strict=True))
    outcomes: dict[str, list[JobOutcome]] = {}
    for outcome in came(run):
        outcomes.setdefault(tree.charged_queue(outcome.job.queue), []).append(outcome)
    rows = []
    for name, depth in _in_order(tree):
        below = tree.subtree(name)
        in_subtree = [outcome for queue in below for outcome in outcomes.get(queue, ())]
        quota_use = run.quota_use[name]
        used_s = sum(held_s[queue] for queue in below)
        if not in_subtree and not used_s and not quota_use.nominal:
            continue
        waits = _spread([outcome.wait_s for outcome in in_subtree if outcome.wait_s is not None])
        rows.append(
            {
                "queue": name,
                "depth": depth,
                "jobs": len(in_subtree),
                "wait_mean_s": waits["mean"],
                "wait_p50_s": waits["p50"],
                "wait_p95_s": waits["p95"],
                "slowdown_mean": mean(
                    slowdown(outcome, run.end_s)
                    for outcome in in_subtree
                    if outcome.job.id not in run.never
                ),
                "never_started": sum(outcome.started_s is None for outcome in in_subtree),
                "guarantee_gpus": quota_use.nominal,
                "used_gpu_h": used_s / 3600,
                "guarantee_used": quota_use.own_s / quota_use.nominal_s
                if quota_use.nominal_s
                else None,
                "borrowed_gpu_h": quota_use.borrowed_s / 3600,
                "lent_gpu_h": quota_use.lent_s / 3600,
                "stopped": sum(outcome.stopped for outcome in in_subtree),
                "lost_gpu_h": sum(outcome.lost_gpu_s for outcome in in_subtree) / 3600,
                **({"cost": _cost_of(run, below)} if run.pools else {}),
            }
        )
    return rows


def _cost_of(run: RunResult, queues: Iterable[str]) -> float:
    """Return what the nodes that were bought for some queues cost."""
    costs = [figures.cost_by_queue for figures in run.pools.values()]
    return sum(cost.get(queue, 0.0) for queue in queues for cost in costs)


def _in_order(tree: QueueTree) -> Iterable[tuple[str, int]]:
    """Yield queues with their depth, each before its children."""
    path_of = {tree.path(name)[::-1]: name for name in tree.queues if name in tree}
    return ((path_of[path], len(path) - 1) for path in sorted(path_of))


# -- files --------------------------------------------------------------------------------------


def jobs_table(run: RunResult) -> pa.Table:
    """Return a row for each job; `wait_s` and `slowdown` are null if it never started."""
    rows = []
    for outcome in run.outcomes:
        end_state = final_state(outcome, run)
        never = run.never.get(outcome.job.id)
        rows.append(
            {
                "name": outcome.job.name,
                "queue": outcome.job.queue,
                "user": outcome.job.user,
                "pods": outcome.job.pods,
                "gpus": outcome.job.gpus,
                "all_gpus": float(outcome.job.all_gpus()),
                "at_s": outcome.job.at_s,
                "runtime_s": outcome.job.runtime_s,
                "estimate_s": outcome.job.estimate_s,
                "state": end_state.value,
                "why": never.message if never is not None and end_state is FinalState.NEVER else "",
                "started_s": outcome.started_s,
                "ended_s": outcome.ended_s,
                "wait_s": outcome.wait_s,
                "slowdown": None if outcome.started_s is None else slowdown(outcome, run.end_s),
                "runs": [{"start_s": start, "end_s": end} for start, end in outcome.runs],
                "stopped": outcome.stopped,
                "lost_gpu_s": float(outcome.lost_gpu_s),
            }
        )
    return pa.Table.from_pylist(rows, schema=_JOBS)


_RUN = pa.struct([("start_s", pa.float64()), ("end_s", pa.float64())])
_JOBS = pa.schema(
    [
        ("name", pa.string()),
        ("queue", pa.string()),
        ("user", pa.string()),
        ("pods", pa.int64()),
        ("gpus", pa.int64()),
        ("all_gpus", pa.float64()),
        ("at_s", pa.float64()),
        ("runtime_s", pa.float64()),
        ("estimate_s", pa.float64()),
        ("state", pa.string()),
        ("why", pa.string()),
        ("started_s", pa.float64()),
        ("ended_s", pa.float64()),
        ("wait_s", pa.float64()),
        ("slowdown", pa.float64()),
        ("runs", pa.list_(_RUN)),
        ("stopped", pa.int64()),
        ("lost_gpu_s", pa.float64()),
    ]
)
"""The types are explicit: a column without values would have none."""


def samples_table(run: RunResult) -> pa.Table:
    """Return a row for each sample."""
    rows = [asdict(sample) | {"waiting": sum(sample.waiting.values())} for sample in run.samples]
    return pa.Table.from_pylist(rows)


def not_started(run: RunResult) -> list[dict[str, object]]:
    """Return why gangs never started: the number of gangs and some names for each reason."""
    names_by_reason: dict[str, list[str]] = {}
    for outcome in came(run):
        match final_state(outcome, run):
            case FinalState.NEVER:
                names_by_reason.setdefault(run.never[outcome.job.id].message, []).append(
                    outcome.job.name
                )
            case FinalState.WAITING:
                names_by_reason.setdefault("", []).append(outcome.job.name)
            case _:
                pass
    return [
        {"never": why, "jobs": len(names), "names": names[:_NAMED]}
        for why, names in names_by_reason.items()
    ]


def write(run: RunResult, folder: Path, about: Mapping[str, object]) -> Figures:
    """Write a run's tables and figures; `run.json` comes last, as the mark of a whole run."""
    folder.mkdir(parents=True, exist_ok=True)
    values = run_figures(run)
    queues = queue_rows(run)
    pq.write_table(jobs_table(run), folder / "jobs.parquet")
    pq.write_table(samples_table(run), folder / "samples.parquet")
    pq.write_table(pa.Table.from_pylist(queues), folder / "queues.parquet")
    document = {
        **about,
        "seed": run.seed,
        "figures": values,
        "queues": queues,
        "pools": pool_rows(run),
        "not_started": not_started(run),
        "left_out": run.left_out,
        "scenario": run.scenario.model_dump(mode="json"),
    }
    (folder / "details.json").write_text(json.dumps(details(run)))
    partial = folder / "run.json.partial"
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(folder / "run.json")
    return values
