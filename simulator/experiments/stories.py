"""What the page draws and tells of a run: who held which nodes when, and how the worst fared."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gangsched.core.model.ids import NodeName
from simulator.experiments.run import Run, racks
from simulator.jobs import GPU, JobOutcome

_LEAST_S = 10.0
"""Slowdowns are bounded: of a job of less, its wait is compared with so much (Feitelson)."""

_LANES = 48
_COLUMNS = 240
_WORST = 10
_OTHERS = "pods of no gang"


def slowdown(outcome: JobOutcome, now_s: float) -> float:
    """Return how many times as long as its run time a job took, bounded; so far, if it waits."""
    end_s = outcome.ended_s if outcome.ended_s is not None else now_s
    return max((end_s - outcome.job.at_s) / max(outcome.job.runtime_s, _LEAST_S), 1.0)


def details(run: Run) -> dict[str, object]:
    """Return what pictures and stories need, as JSON values."""
    names = sorted({one.job.queue for one in run.outcomes})
    lanes = _lanes(run)
    held, total = _occupied(run, lanes, names)
    busy = np.where(total > 0, held.sum(axis=0) / np.maximum(total, 1), 0.0)
    able = (
        one for one in run.outcomes if one.job.at_s <= run.end_s and one.job.id not in run.never
    )
    worst = sorted(able, key=lambda one: -slowdown(one, run.end_s))[:_WORST]
    return {
        "end_s": run.end_s,
        "queues": [*names, _OTHERS],
        "waiting": [[one.at_s, one.waiting] for one in run.samples],
        "gpus_of_nodes": [dict(node.allocatable).get(GPU, 0) for node in run.nodes],
        "pictures": run.pictures,
        "lanes": list(dict.fromkeys(lanes.values())),
        "lane_queue": held.argmax(axis=0).tolist(),
        "lane_busy": busy.round(3).tolist(),
        "worst": [_story(one, run) for one in worst],
    }


def _story(outcome: JobOutcome, run: Run) -> dict[str, object]:
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
        "events": sorted(
            _events(outcome, run), key=lambda event: event[0]
        ),  # of equals, as they come
    }


def _events(outcome: JobOutcome, run: Run) -> Iterator[tuple[float, str]]:
    """Yield what happened to a gang and what it was told, in order where moments are equal."""
    yield outcome.job.at_s, "submitted"
    for at_s, message, _ in run.stories.get(outcome.job.id, ()):
        yield at_s, message
    for start_s, end_s in outcome.runs:
        yield start_s, "started"
        if outcome.ended_s == end_s:
            yield end_s, "done"
        elif end_s < run.end_s:
            yield end_s, "stopped"
    if outcome.ended_s is None:
        runs = bool(outcome.runs) and outcome.runs[-1][1] >= run.end_s
        yield run.end_s, f"the simulation ends, and it {'runs' if runs else 'waits'}"


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
    """Return the GPUs each queue holds of each lane on average in each part of the time.

    Beside it is how many GPUs each lane has. Pods of no gang are the last queue.
    """
    rows = {name: at for at, name in enumerate(dict.fromkeys(lanes.values()))}
    lane = np.array([rows[lanes[node.name]] for node in run.nodes])
    has = np.array([dict(node.allocatable).get(GPU, 0) for node in run.nodes], float)
    total = np.bincount(lane, has, len(rows))[:, None]
    stays = run.stays
    assert stays is not None, "a run that is over has been counted"  # noqa: S101
    number = {name: at for at, name in enumerate(queues)}
    known = [number.get(name, len(queues)) for name in sorted(run.loans)]
    queue = np.array([*known, len(queues)])[stays.queue]  # -1 is the last
    step_s = max(run.end_s, 1.0) / _COLUMNS
    size = (len(queues) + 1) * len(rows)
    to = queue * len(rows) + lane[stays.node]
    edges = np.arange(_COLUMNS + 1) * step_s
    upto = np.array([np.bincount(to, stays.gpu_s(edge), size) for edge in edges])
    held = np.diff(upto, axis=0).T / step_s
    return held.reshape(len(queues) + 1, len(rows), _COLUMNS), total
