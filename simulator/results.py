"""What a run comes to: figures, tables, and the files they are kept in."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gangsched.core.model import NodeName
from simulator.jobs import Fate
from simulator.run import Run, racks

_LEAST_S = 10.0
"""Slowdowns are bounded: of a job of less, its wait is compared with so much (Feitelson)."""

Figures = dict[str, float]


def slowdown(fate: Fate, now_s: float) -> float:
    """Return how many times as long as its run time a job took, bounded; so far, if it waits."""
    end_s = fate.ended_s if fate.ended_s is not None else now_s
    return max((end_s - fate.job.at_s) / max(fate.job.runtime_s, _LEAST_S), 1.0)


def gpus(fate: Fate) -> int:
    """Return all GPUs of a job; a job that asks for parts of GPUs, or none, counts none."""
    return fate.job.pods * fate.job.gpus


def figures(run: Run) -> Figures:
    """Return the figures of a run; times in seconds, shares from 0 to 1."""
    came = [fate for fate in run.fates if fate.job.at_s <= run.end_s]
    done = [fate for fate in came if fate.ended_s is not None]
    waits = np.array(
        [run.end_s - one.job.at_s if one.wait_s is None else one.wait_s for one in came]
    )
    slow = np.array([slowdown(one, run.end_s) for one in came])
    total = sum(dict(node.allocatable).get("nvidia.com/gpu", 0) for node in run.nodes)
    last_s = max((one.job.at_s for one in came), default=0.0)
    lost_gpu_s = sum(one.lost_gpu_s for one in came)
    ran = [one for one in came if one.runs]
    found = {
        "jobs": len(came),
        "finished": len(done),
        "running": sum(one.ended_s is None and bool(one.runs) for one in came),
        "never_started": len(came) - len(ran),
        "makespan_s": max((one.ended_s or 0.0 for one in done), default=0.0),
        "wait_mean_s": float(waits.mean()) if came else 0.0,
        "jct_mean_s": _mean((one.ended_s or 0.0) - one.job.at_s for one in done),
        "slowdown_mean": float(slow.mean()) if came else 0.0,
        "gpu_busy": _busy(came, last_s or run.end_s, total),
        "gpu_busy_all": _busy(came, run.end_s, total),
        "jain": jain(came, run.end_s),
        "preempted": run.preempted,
        "stopped": sum(one.stopped for one in came),
        "lost_gpu_h": lost_gpu_s / 3600,
        "in_pieces": _mean(s.in_pieces / s.gpus for s in run.samples if s.gpus and s.waiting_gpus),
        "nodes": len(run.nodes),
        "gpus": total,
        "events": run.events,
        "cycles": run.cycles,
        "compute_s": run.compute_s,
    }
    for name, values in (("wait", waits), ("slowdown", slow)):
        for part in (50, 95, 99):
            unit = "_s" if name == "wait" else ""
            found[f"{name}_p{part}{unit}"] = float(np.percentile(values, part)) if came else 0.0
    return {key: float(value) for key, value in found.items()}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return statistics.fmean(listed) if listed else 0.0


def _busy(fates: Iterable[Fate], until_s: float, total: int) -> float:
    """Return the share of all GPUs' time until then that was used."""
    used_s = sum(
        gpus(one) * max(min(end_s, until_s) - start_s, 0.0)
        for one in fates
        for start_s, end_s in one.runs
    )
    return used_s / (total * until_s) if total and until_s else 0.0


def jain(fates: Sequence[Fate], now_s: float) -> float:
    """Return Jain's index over the queues' mean bounded slowdowns: 1 where all fare alike."""
    by_queue: dict[str, list[float]] = {}
    for fate in fates:
        by_queue.setdefault(fate.job.queue, []).append(slowdown(fate, now_s))
    means = [statistics.fmean(values) for values in by_queue.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means)) if means else 1.0


# -- pictures ---------------------------------------------------------------------------------

_LANES = 48
_COLUMNS = 240
_WORST = 10


def details(run: Run) -> dict[str, object]:
    """Return what pictures and stories need, as JSON values."""
    names = sorted({one.job.queue for one in run.fates})
    lanes = _lanes(run)
    holds, busy = _occupied(run, lanes, names)
    worst = sorted(run.fates, key=lambda one: -slowdown(one, run.end_s))[:_WORST]
    return {
        "end_s": run.end_s,
        "queues": names,
        "waiting": [[one.at_s, one.waiting] for one in run.samples],
        "gpus_of_nodes": [dict(node.allocatable).get("nvidia.com/gpu", 0) for node in run.nodes],
        "pictures": run.pictures,
        "lanes": list(dict.fromkeys(lanes.values())),
        "lane_queue": holds.tolist(),
        "lane_busy": busy.round(3).tolist(),
        "worst": [_story(one, run) for one in worst],
    }


def _story(fate: Fate, run: Run) -> dict[str, object]:
    job = fate.job
    return {
        "name": job.name,
        "queue": job.queue,
        "pods": job.pods,
        "gpus": job.gpus,
        "at_s": job.at_s,
        "runtime_s": job.runtime_s,
        "started_s": fate.started_s,
        "ended_s": fate.ended_s,
        "slowdown": slowdown(fate, run.end_s),
        "stopped": fate.stopped,
        "told": run.stories.get(job.id, []),
    }


def _lanes(run: Run) -> dict[NodeName, str]:
    """Return a lane for each node: its rack, or so many nodes after each other."""
    rack_of = {node.name: name for name, some in racks(run.nodes).items() for node in some}
    if rack_of and len(set(rack_of.values())) <= _LANES and len(rack_of) == len(run.nodes):
        return rack_of
    size = -(-len(run.nodes) // _LANES)
    parts = [run.nodes[at : at + size] for at in range(0, len(run.nodes), size)]
    return {
        node.name: f"{part[0].name} .. {part[-1].name}" if len(part) > 1 else part[0].name
        for part in parts
        for node in part
    }


def _occupied(
    run: Run, lanes: Mapping[NodeName, str], queues: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return who holds most of each lane in each part of the time, and how much of it is held."""
    rows = {name: at for at, name in enumerate(dict.fromkeys(lanes.values()))}
    held = np.zeros((len(queues), len(rows), _COLUMNS))
    total = np.zeros(len(rows))
    for node in run.nodes:
        total[rows[lanes[node.name]]] += dict(node.allocatable).get("nvidia.com/gpu", 0)
    step_s = max(run.end_s, 1.0) / _COLUMNS
    edges = np.arange(_COLUMNS) * step_s
    number = {name: at for at, name in enumerate(queues)}
    for fate in run.fates:
        for (start_s, end_s), nodes in zip(fate.runs, fate.nodes, strict=False):
            first, last = int(start_s // step_s), min(int(end_s // step_s), _COLUMNS - 1)
            part = edges[first : last + 1]
            inside = np.minimum(part + step_s, end_s) - np.maximum(part, start_s)
            for name in nodes:
                lane = rows[lanes[name]]
                held[number[fate.job.queue], lane, first : last + 1] += fate.job.gpus * inside
    busy = held.sum(axis=0) / (np.maximum(total, 1)[:, None] * step_s)
    return held.argmax(axis=0), np.minimum(busy, 1.0)


# -- files ------------------------------------------------------------------------------------


def jobs_table(run: Run) -> pa.Table:
    """Return a row for each job."""
    rows = [
        {
            "name": one.job.name,
            "queue": one.job.queue,
            "user": one.job.user,
            "priority": one.job.priority,
            "pods": one.job.pods,
            "gpus": one.job.gpus,
            "at_s": one.job.at_s,
            "runtime_s": one.job.runtime_s,
            "estimate_s": one.job.estimate_s,
            "started_s": one.started_s,
            "ended_s": one.ended_s,
            "wait_s": one.wait_s,
            "slowdown": slowdown(one, run.end_s),
            "stopped": one.stopped,
            "lost_gpu_s": one.lost_gpu_s,
        }
        for one in run.fates
    ]
    return pa.Table.from_pylist(rows)


def samples_table(run: Run) -> pa.Table:
    """Return a row for each moment that was looked at."""
    rows = [asdict(one) | {"waiting": sum(one.waiting.values())} for one in run.samples]
    return pa.Table.from_pylist(rows)


def write(run: Run, folder: Path, about: Mapping[str, object]) -> Figures:
    """Write a run's tables and figures; `run.json` is the last, so that it tells they are whole."""
    folder.mkdir(parents=True, exist_ok=True)
    found = figures(run)
    pq.write_table(jobs_table(run), folder / "jobs.parquet")
    pq.write_table(samples_table(run), folder / "samples.parquet")
    document = {
        **about,
        "seed": run.seed,
        "figures": found,
        "left_out": run.left_out,
        "scenario": run.scenario.model_dump(mode="json"),
    }
    (folder / "details.json").write_text(json.dumps(details(run)))
    partial = folder / "run.json.partial"
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(folder / "run.json")
    return found
