"""Details of a run for its report: which queues used which nodes, and the jobs that fared worst."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gangsched.core.model.ids import NodeName
from simulator.experiments.run import RunResult, racks
from simulator.jobs import GPU, JobOutcome

_LEAST_S = 10.0
"""Bounded slowdown: a shorter run time counts as this long (Feitelson)."""

_LANES = 48
_COLUMNS = 240
_WORST = 10
_OTHERS = "pods of no gang"


def slowdown(outcome: JobOutcome, now_s: float) -> float:
    """Return the bounded slowdown of a job: its time from submission over its run time."""
    end_s = outcome.ended_s if outcome.ended_s is not None else now_s
    return max((end_s - outcome.job.at_s) / max(outcome.job.runtime_s, _LEAST_S), 1.0)


def details(run: RunResult) -> dict[str, object]:
    """Return the data of the report's figures and stories as JSON values."""
    queues = sorted({outcome.job.queue for outcome in run.outcomes})
    lanes = _lanes(run)
    held, total = _occupied(run, lanes, queues)
    busy = np.where(total > 0, held.sum(axis=0) / np.maximum(total, 1), 0.0)
    able = (
        outcome
        for outcome in run.outcomes
        if outcome.job.at_s <= run.end_s and outcome.job.id not in run.never
    )
    worst = sorted(able, key=lambda outcome: -slowdown(outcome, run.end_s))[:_WORST]
    return {
        "end_s": run.end_s,
        "queues": [*queues, _OTHERS],
        "waiting": [[outcome.at_s, outcome.waiting] for outcome in run.samples],
        "gpus_of_nodes": [dict(node.allocatable).get(GPU, 0) for node in run.nodes],
        "pictures": run.pictures,
        "lanes": list(dict.fromkeys(lanes.values())),
        "lane_queue": held.argmax(axis=0).tolist(),
        "lane_busy": busy.round(3).tolist(),
        "nodes_bought": [[at_s, counts] for at_s, counts in run.nodes_bought],
        "worst": [_story(outcome, run) for outcome in worst],
    }


def _story(outcome: JobOutcome, run: RunResult) -> dict[str, object]:
    job = outcome.job
    return {
        "name": job.name,
        "queue": job.queue,
        "pods": job.pods,
        "all_gpus": job.all_gpus(),
        "runtime_s": job.runtime_s,
        "ended": outcome.ended_s is not None,
        "slowdown": slowdown(outcome, run.end_s),
        "stopped": outcome.stopped,
        "events": sorted(_events(outcome, run), key=lambda event: event[0]),  # a stable sort
    }


def _events(outcome: JobOutcome, run: RunResult) -> Iterator[tuple[float, str]]:
    """Yield events and reports of a gang; those at equal times come in their order."""
    yield outcome.job.at_s, "submitted"
    for at_s, message, _ in run.stories.get(outcome.job.id, ()):
        yield at_s, message
    for start_s, end_s in outcome.runs:
        yield start_s, "started"
        if outcome.ended_s == end_s:
            yield end_s, "done"
        elif end_s < run.end_s:
            yield end_s, "interrupted"
    if outcome.ended_s is None:
        runs = bool(outcome.runs) and outcome.runs[-1][1] >= run.end_s
        yield run.end_s, f"{'running' if runs else 'pending'} when the simulation ends"


def _lanes(run: RunResult) -> dict[NodeName, str]:
    """Return a lane for each node: its rack, or a block of consecutive nodes."""
    rack_of = {node.name: name for name, nodes in racks(run.nodes).items() for node in nodes}
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
    run: RunResult, lanes: Mapping[NodeName, str], queues: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean GPUs that each queue holds in each lane and time step, and all GPUs by lane.

    Pods without a gang count as the last queue.
    """
    rows = {name: at for at, name in enumerate(dict.fromkeys(lanes.values()))}
    lane = np.array([rows[lanes[node.name]] for node in run.nodes])
    has = np.array([dict(node.allocatable).get(GPU, 0) for node in run.nodes], float)
    total = np.bincount(lane, has, len(rows))[:, None]
    stays = run.stays
    assert stays is not None, "a run that is over has been counted"  # noqa: S101
    number = {name: at for at, name in enumerate(queues)}
    known = [number.get(name, len(queues)) for name in sorted(run.quota_use)]
    queue = np.array([*known, len(queues)])[stays.queue]  # -1 is the last
    step_s = max(run.end_s, 1.0) / _COLUMNS
    size = (len(queues) + 1) * len(rows)
    to = queue * len(rows) + lane[stays.node]
    edges = np.arange(_COLUMNS + 1) * step_s
    upto = np.array([np.bincount(to, stays.gpu_s(edge), size) for edge in edges])
    held = np.diff(upto, axis=0).T / step_s
    return held.reshape(len(queues) + 1, len(rows), _COLUMNS), total
