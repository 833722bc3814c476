"""What a run comes to: figures, tables, and the files they are kept in."""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gangsched.core.quota.queue_tree import QueueTree
from simulator.experiments.run import Run
from simulator.experiments.stories import details, slowdown
from simulator.jobs import GPU, JobOutcome

Figures = dict[str, float]

_NAMED = 5


class State(StrEnum):
    """What had become of a gang when the run ended."""

    FINISHED = "Finished"
    RUNNING = "Running"
    WAITING_AGAIN = "WaitingAgain"
    WAITING = "Waiting"
    NEVER = "CanNeverRun"
    COMING = "NotYetSubmitted"


def state(outcome: JobOutcome, run: Run) -> State:
    """Return what had become of a gang."""
    if outcome.job.at_s > run.end_s:
        return State.COMING
    if outcome.ended_s is not None:
        return State.FINISHED
    if outcome.started_s is None:
        return State.NEVER if outcome.job.id in run.never else State.WAITING
    return (
        State.RUNNING if outcome.runs and outcome.runs[-1][1] >= run.end_s else State.WAITING_AGAIN
    )


def wait_s(outcome: JobOutcome, now_s: float) -> float:
    """Return how long a gang waited for its first start; up to now, if it never started."""
    return now_s - outcome.job.at_s if outcome.wait_s is None else outcome.wait_s


def came(run: Run) -> list[JobOutcome]:
    """Return the gangs that came before the run ended."""
    return [outcome for outcome in run.outcomes if outcome.job.at_s <= run.end_s]


def figures(run: Run) -> Figures:
    """Return the figures of a run; times in seconds, shares from 0 to 1.

    Waits and slowdowns are of gangs that started; those that did not are figures of their own.
    """
    everybody = came(run)
    done = [outcome for outcome in everybody if outcome.ended_s is not None]
    started = [outcome for outcome in everybody if outcome.started_s is not None]
    never = sum(state(outcome, run) is State.NEVER for outcome in everybody)
    total = sum(dict(node.allocatable).get(GPU, 0) for node in run.nodes)
    found = {
        "jobs": len(everybody),
        "finished": len(done),
        "running": sum(state(outcome, run) is State.RUNNING for outcome in everybody),
        "never_started": len(everybody) - len(started),
        "can_never_run": never,
        "still_waiting": len(everybody) - len(started) - never,
        "makespan_s": max((one.ended_s or 0.0 for one in done), default=0.0),
        "jct_mean_s": mean((one.ended_s or 0.0) - one.job.at_s for one in done),
        "gpu_busy": _busy(run, run.last_s, total),
        "gpu_busy_all": _busy(run, run.end_s, total),
        "jain": jain((one for one in everybody if one.job.id not in run.never), run.end_s),
        "preempted": run.preempted,
        "stopped": sum(one.stopped for one in everybody),
        "lost_gpu_h": sum(one.lost_gpu_s for one in everybody) / 3600,
        "in_pieces": mean(s.in_pieces / s.gpus for s in run.samples if s.gpus and s.waiting_gpus),
        "nodes": len(run.nodes),
        "gpus": total,
        "events": run.events,
        "cycles": run.cycles,
        "compute_s": run.compute_s,
    }
    waits = [wait_s(one, run.end_s) for one in started]
    slow = [slowdown(one, run.end_s) for one in started]
    found |= {f"wait_{name}_s": value for name, value in _spread(waits).items()}
    found |= {f"slowdown_{name}": value for name, value in _spread(slow).items()}
    return {key: float(value) for key, value in found.items()}


def _spread(values: Sequence[float]) -> Figures:
    """Return mean and percentiles; 0 where there is nothing."""
    found = {"mean": mean(values)}
    for part in (50, 95, 99):
        found[f"p{part}"] = float(np.percentile(values, part)) if values else 0.0
    return found


def mean(values: Iterable[float]) -> float:
    """Return the mean, 0 of nothing."""
    listed = list(values)
    return statistics.fmean(listed) if listed else 0.0


def _busy(run: Run, until_s: float, total: int) -> float:
    """Return the share of all GPUs' time until then in which pods held them."""
    held_s = 0.0 if run.stays is None else float(run.stays.gpu_s(until_s).sum())
    return held_s / (total * until_s) if total and until_s else 0.0


def jain(outcomes: Iterable[JobOutcome], now_s: float) -> float:
    """Return Jain's index over the queues' mean bounded slowdowns: 1 where all fare alike.

    Of a gang that has not ended, its slowdown so far counts: a queue that starves is seen.
    """
    by_queue: dict[str, list[float]] = {}
    for outcome in outcomes:
        by_queue.setdefault(outcome.job.queue, []).append(slowdown(outcome, now_s))
    means = [statistics.fmean(values) for values in by_queue.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means)) if means else 1.0


# -- what may be sought -------------------------------------------------------------------------


def _waits(run: Run) -> list[float]:
    return [wait_s(one, run.end_s) for one in came(run)]


def _slow(run: Run) -> list[float]:
    return [slowdown(one, run.end_s) for one in came(run)]


def _jct(run: Run) -> list[float]:
    ends = (run.end_s if one.ended_s is None else one.ended_s for one in came(run))
    return [end_s - one.job.at_s for end_s, one in zip(ends, came(run), strict=True)]


def _lost_gpu_h(run: Run) -> float:
    """Return the work that was lost, and all work of gangs that never started."""
    left = (one.job for one in came(run) if one.started_s is None)
    left_s = sum(job.runtime_s * job.all_gpus() for job in left)
    return left_s / 3600 + figures(run)["lost_gpu_h"]


OBJECTIVES: dict[str, tuple[int, Callable[[Run], float]]] = {
    "wait_mean_s": (1, lambda run: mean(_waits(run))),
    "wait_p95_s": (1, lambda run: _spread(_waits(run))["p95"]),
    "jct_mean_s": (1, lambda run: mean(_jct(run))),
    "slowdown_mean": (1, lambda run: mean(_slow(run))),
    "slowdown_p95": (1, lambda run: _spread(_slow(run))["p95"]),
    "lost_gpu_h": (1, _lost_gpu_h),
    "gpu_busy": (-1, lambda run: figures(run)["gpu_busy"]),
    "jain": (-1, lambda run: jain(came(run), run.end_s)),
}
"""What may be sought: 1 where less is better, and its value.

None gets better because gangs never start: those count as waiting until the end, and what they
would have done as lost.
"""


# -- queues -------------------------------------------------------------------------------------


def queue_rows(run: Run) -> list[dict[str, object]]:
    """Return a row for each queue that has jobs or holds GPUs, parents with all below them.

    GPU-hours are those held until the last job came, `guarantee_used` is a share from 0 to 1.
    """
    assert run.stays is not None, "a run that is over has been counted"  # noqa: S101
    tree, gpu_s = run.tree(), run.stays.gpu_s(run.last_s)
    own = np.bincount(run.stays.queue + 1, gpu_s, len(run.loans) + 1)[1:].tolist()
    held_s = dict(zip(sorted(run.loans), own, strict=True))
    outcomes: dict[str, list[JobOutcome]] = {}
    for outcome in came(run):
        outcomes.setdefault(tree.home(outcome.job.queue), []).append(outcome)
    rows = []
    for name, depth in _in_order(tree):
        below = tree.below(name)
        some = [outcome for one in below for outcome in outcomes.get(one, ())]
        loans = run.loans[name]
        used_s = sum(held_s[one] for one in below)
        if not some and not used_s and not loans.guarantee:
            continue
        waits = _spread([one.wait_s for one in some if one.wait_s is not None])
        rows.append(
            {
                "queue": name,
                "depth": depth,
                "jobs": len(some),
                "wait_mean_s": waits["mean"],
                "wait_p50_s": waits["p50"],
                "wait_p95_s": waits["p95"],
                "slowdown_mean": mean(
                    slowdown(one, run.end_s) for one in some if one.job.id not in run.never
                ),
                "never_started": sum(one.started_s is None for one in some),
                "guarantee_gpus": loans.guarantee,
                "used_gpu_h": used_s / 3600,
                "guarantee_used": loans.own_s / loans.guarantee_s if loans.guarantee_s else None,
                "borrowed_gpu_h": loans.borrowed_s / 3600,
                "lent_gpu_h": loans.lent_s / 3600,
                "stopped": sum(one.stopped for one in some),
                "lost_gpu_h": sum(one.lost_gpu_s for one in some) / 3600,
            }
        )
    return rows


def _in_order(tree: QueueTree) -> Iterable[tuple[str, int]]:
    """Yield queues and how deep they lie, each before those below it."""
    ways = {tree.path(name)[::-1]: name for name in tree.queues if name in tree}
    return ((ways[way], len(way) - 1) for way in sorted(ways))


# -- files --------------------------------------------------------------------------------------


def jobs_table(run: Run) -> pa.Table:
    """Return a row for each job; `wait_s` and `slowdown` are empty of those that never started."""
    rows = []
    for one in run.outcomes:
        had = state(one, run)
        never = run.never.get(one.job.id)
        rows.append(
            {
                "name": one.job.name,
                "queue": one.job.queue,
                "user": one.job.user,
                "pods": one.job.pods,
                "gpus": one.job.gpus,
                "all_gpus": float(one.job.all_gpus()),
                "at_s": one.job.at_s,
                "runtime_s": one.job.runtime_s,
                "estimate_s": one.job.estimate_s,
                "state": had.value,
                "why": never.message if never is not None and had is State.NEVER else "",
                "started_s": one.started_s,
                "ended_s": one.ended_s,
                "wait_s": one.wait_s,
                "slowdown": None if one.started_s is None else slowdown(one, run.end_s),
                "runs": [{"start_s": start, "end_s": end} for start, end in one.runs],
                "stopped": one.stopped,
                "lost_gpu_s": float(one.lost_gpu_s),
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
"""Types are said, since of no job, or of none that started, nothing tells them."""


def samples_table(run: Run) -> pa.Table:
    """Return a row for each moment that was looked at."""
    rows = [asdict(one) | {"waiting": sum(one.waiting.values())} for one in run.samples]
    return pa.Table.from_pylist(rows)


def not_started(run: Run) -> list[dict[str, object]]:
    """Return why gangs never started: for each reason how many, and some of their names."""
    found: dict[str, list[str]] = {}
    for outcome in came(run):
        match state(outcome, run):
            case State.NEVER:
                found.setdefault(run.never[outcome.job.id].message, []).append(outcome.job.name)
            case State.WAITING:
                found.setdefault("", []).append(outcome.job.name)
            case _:
                pass
    return [
        {"never": why, "jobs": len(names), "names": names[:_NAMED]} for why, names in found.items()
    ]


def write(run: Run, folder: Path, about: Mapping[str, object]) -> Figures:
    """Write a run's tables and figures; `run.json` is the last, so that it tells they are whole."""
    folder.mkdir(parents=True, exist_ok=True)
    found = figures(run)
    queues = queue_rows(run)
    pq.write_table(jobs_table(run), folder / "jobs.parquet")
    pq.write_table(samples_table(run), folder / "samples.parquet")
    pq.write_table(pa.Table.from_pylist(queues), folder / "queues.parquet")
    document = {
        **about,
        "seed": run.seed,
        "figures": found,
        "queues": queues,
        "not_started": not_started(run),
        "left_out": run.left_out,
        "scenario": run.scenario.model_dump(mode="json"),
    }
    (folder / "details.json").write_text(json.dumps(details(run)))
    partial = folder / "run.json.partial"
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(folder / "run.json")
    return found
