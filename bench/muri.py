"""Muri's tables: gang SRTF and SRSF on its traces, and an order between the two.

Expected are the values behind figures 9 and 10 of Zhao et al., SIGCOMM'22 (8 nodes of 8 GPUs).
"""

import csv
import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.progress import track

from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.policy import Policies
from policies.first_fit import FirstFit
from policies.shortest import Shortest
from simulator.jobs import GPU, Job
from simulator.traces.shapes import split
from simulator.virtual.offline_replan import replan

DATA = Path(__file__).parents[2] / "shared" / "data" / "muri"
TRACES = ("trace1", "trace1_pr", "trace2", "trace3_pr")
ORDERS = {
    "SRTF": Shortest(patience_s=1e12),
    "SRSF": Shortest(service=1.0, patience_s=1e12),
    "between": Shortest(service=0.9, patience_s=1e12),
}
_OVERHEAD_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
"""Seconds to stop and restart, on 1, 2, 4, 8, 16 and 32 GPUs; 10 for any other model."""

_SETUP = 1.015  # what Muri's profiles add to the time of an iteration


def jobs(trace: str) -> list[Job]:
    """Read a trace; the user of a job is its model."""
    jobs_read = []
    with (DATA / "trace-data" / f"{trace}.csv").open() as file:
        for row in csv.DictReader(file):
            work_s = float(row["iterations"]) * float(row["iteration_time"]) * _SETUP / 1000
            pods, gpus = split(int(row["num_gpu"]), 8)
            name, at_s = f"job-{int(row['job_id']):06}", float(row["submit_time"]) / 1000
            jobs_read.append(Job(name, at_s, work_s, pods, gpus, user=row["model_name"]))
    return jobs_read


def overhead_s(job: Job) -> float:
    """Return the seconds of work that a job loses at each event."""
    costs = _OVERHEAD_S.get(job.user)
    return float(costs[(job.pods * job.gpus).bit_length() - 1]) if costs else 10.0


def nodes() -> list[Node]:
    """Return Muri's cluster."""
    amounts = (("cpu", 96_000_000), (GPU, 8), ("pods", 1000))
    names = [NodeName(f"node-{index}") for index in range(8)]
    return [Node(name, amounts, {"kubernetes.io/hostname": name}) for name in names]


def measure(trace: str, order: str) -> dict[str, float]:
    """Run one policy on one trace; seconds."""
    done = replan(nodes(), jobs(trace), Policies(ORDERS[order], FirstFit()), overhead_s)
    times = sorted((progress.ended_s or 0.0) - progress.job.at_s for progress in done)
    return {
        "jct": sum(times) / len(times),
        "makespan": max(progress.ended_s or 0.0 for progress in done),
        "p99": times[int(0.99 * len(times))],
        "interrupted": float(sum(progress.interrupted for progress in done)),
    }


def run() -> dict[str, float]:
    """Return flat figures: each mean completion time, and the largest relative differences."""
    expected = json.loads((DATA / "expected_sim_fig9_10.json").read_text())
    pairs = [(trace, order) for order in ORDERS for trace in TRACES]
    with ProcessPoolExecutor() as pool:
        done = pool.map(measure, *zip(*pairs, strict=True))
        results = list(track(done, "Muri's traces", total=len(pairs), transient=True))
    figures: dict[str, float] = {}
    worst = {"jct": 0.0, "makespan": 0.0, "p99": 0.0}
    for (trace, order), values in zip(pairs, results, strict=True):
        at = expected["traces"].index(trace)
        for key, value in values.items():
            figures[f"{trace}_{order.lower()}_{key}"] = value
            if key in worst and order in expected:
                value_expected = expected[order][key][at]
                worst[key] = max(worst[key], abs(value - value_expected) / value_expected)
    return figures | {f"muri_max_rel_diff_{key}": value for key, value in worst.items()}
