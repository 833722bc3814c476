"""Policies on real traces: waits, busy GPUs, and fairness between queues.

Philly (Microsoft, ATC'19, as flattened by Pollux): jobs from 2017-10-07 on; queues are its virtual
clusters. ITP (Microsoft, ElasticFlow's traces, ASPLOS'23): three of its clusters as queues of one.
There are fewer GPUs than the jobs would keep busy, so that jobs are always pending. The nominal
quota of each queue is its average use. Users declare one to five times the true run time (Mu'alem
and Feitelson, TPDS 2001). Jobs write a checkpoint every 30 minutes.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from zlib import crc32

from rich.progress import track

from gangsched.core.engine.engine import Limits
from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import Preemption, Queue, Quota, Reclaim, Within
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.conservative import Conservative
from policies.drf import Drf
from policies.easy import Easy
from policies.fair import Fair
from policies.fifo import Fifo
from policies.least_attained import LeastAttained
from policies.pack import Pack
from policies.shortest import Shortest
from policies.youngest import Youngest
from simulator.jobs import Job, JobOutcome
from simulator.virtual.job_run import JobRun, Timing

GPU = "nvidia.com/gpu"
DATA = Path(__file__).parents[2] / "shared" / "data"
JOBS = 4000
LOAD = 1.25
"""The GPUs that the jobs would keep busy on average, over the existing GPUs."""

GPUS_PER_NODE = 8

Row = tuple[float, float, int, str]
"""Submission and run time in seconds, GPUs, queue."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A set of policies; `strict` queues are strict FIFO, and `reclaims` allows preemption."""

    name: str
    policies: Policies
    strict: bool = False
    reclaims: bool = True


_BASE = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
SETTINGS = (
    Setting("FIFO, strict", replace(_BASE, backfill=None), strict=True),
    Setting("FIFO, who fits passes", replace(_BASE, backfill=None)),
    Setting("FIFO + EASY", _BASE),
    Setting("FIFO + conservative, 20", replace(_BASE, backfill=Conservative(20))),
    Setting("FIFO + EASY, no reclaim", _BASE, reclaims=False),
    Setting("FIFO + EASY, youngest stop", replace(_BASE, preemptor=Youngest())),
    Setting("FIFO + EASY, fair over time", replace(_BASE, sharing=Fair())),
    Setting("FIFO + EASY, one line", replace(_BASE, sharing=None)),
    Setting("shortest + EASY", replace(_BASE, order=Shortest())),
    Setting("least service + EASY", replace(_BASE, order=LeastAttained())),
)


# -- traces ---------------------------------------------------------------------------------------


def philly() -> Iterator[Row]:
    """Yield jobs of Philly's trace."""
    with (DATA / "philly/philly.csv").open() as file:
        for row in csv.DictReader(file):
            at_s = datetime.fromisoformat(row["timestamp"]).timestamp()
            yield at_s, float(row["duration"]), int(row["num_gpus"]), row["cluster"]


def itp() -> Iterator[Row]:
    """Yield jobs of three clusters of ITP."""
    for name in ("cluster07", "cluster08", "cluster09"):
        with (DATA / f"ms-itp-elasticflow/raw/{name}.csv").open() as file:
            for row in csv.DictReader(file):
                at_s, runtime_s = float(row["submission_time"]), float(row["duration"])
                yield at_s, runtime_s, int(row["num_gpu"]), name


TRACES: dict[str, tuple[Callable[[], Iterator[Row]], int]] = {
    "philly": (philly, 16_000),
    "itp": (itp, 20_000),
}


@dataclass(slots=True)
class Workload:
    """The jobs of a trace from the first on, with their cluster and queues."""

    rows: list[Row]
    nodes: int = 0
    span_s: float = 0.0
    demand: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.span_s = self.rows[-1][0] - self.rows[0][0]
        demand: dict[str, float] = defaultdict(float)
        for _, runtime_s, gpus, queue in self.rows:
            demand[queue] += min(runtime_s, self.span_s) * gpus / self.span_s
        self.demand = dict(demand)
        self.nodes = round(sum(demand.values()) / LOAD / GPUS_PER_NODE)

    def jobs(self) -> list[Job]:
        """Return the jobs; a job with more GPUs than a node has several pods."""
        first_s, found = self.rows[0][0], []
        for index, (at_s, runtime_s, gpus, queue) in enumerate(self.rows):
            pods = max(gpus // GPUS_PER_NODE, 1)
            factor = 1.0 + 4.0 * (crc32(str(index).encode()) / 2**32)
            found.append(
                Job(
                    f"j{index}",
                    at_s - first_s,
                    max(runtime_s, 1.0),
                    pods,
                    max(gpus // pods, 1),
                    queue=queue,
                    estimate_s=max(runtime_s, 1.0) * factor,
                    checkpoint_s=1800.0,
                    grace_s=30.0,
                )
            )
        return found

    def queues(self, setting: Setting) -> list[Queue]:
        """Return a queue for each name in the jobs, with its average use as nominal quota."""
        total, whole = sum(self.demand.values()), self.nodes * GPUS_PER_NODE
        rules = Preemption(Within.NEVER, Reclaim.ANY if setting.reclaims else Reclaim.NEVER)
        queues = [Queue("all", quotas=(Quota(GPU, whole * 1000),))]
        for name, gpus in sorted(self.demand.items()):
            quota = Quota(GPU, int(gpus / total * whole) * 1000)
            queues.append(Queue(name, "all", (quota,), preemption=rules, strict=setting.strict))
        return queues


def workload(trace: str) -> Workload:
    """Read the jobs of one trace."""
    read, first = TRACES[trace]
    return Workload(sorted(read())[first : first + JOBS])


# -- figures --------------------------------------------------------------------------------------


def measure(trace: str, index: int) -> dict[str, float]:
    """Run one setting on one trace."""
    jobs_of_trace, setting = workload(trace), SETTINGS[index]
    nodes = [_node(number) for number in range(jobs_of_trace.nodes)]
    job_run = JobRun(
        nodes,
        jobs_of_trace.jobs(),
        setting.policies,
        jobs_of_trace.queues(setting),
        checked=False,
        limits=Limits(retry_interval_s=300.0),
        timing=Timing(plan_interval_s=60.0),
    )
    job_run.run()
    outcomes = list(job_run.outcomes.values())
    waits = sorted(outcome.wait_s or 0.0 for outcome in outcomes)
    busy_s = sum(
        _within(outcome, jobs_of_trace.span_s) * outcome.job.pods * outcome.job.gpus
        for outcome in outcomes
    )
    return {
        "mean_wait_s": statistics.mean(waits),
        "p95_wait_s": waits[int(0.95 * len(waits))],
        "utilisation": busy_s / (jobs_of_trace.nodes * GPUS_PER_NODE * jobs_of_trace.span_s),
        "jain": _jain(outcomes),
        "preempted_gpu_h": sum(outcome.lost_gpu_s for outcome in outcomes) / 3600,
        "unfinished": float(sum(outcome.ended_s is None for outcome in outcomes)),
    }


def _node(number: int) -> Node:
    name = NodeName(f"n{number:04}")
    amounts = (("cpu", 96_000), (GPU, GPUS_PER_NODE), ("pods", 110))
    return Node(name, amounts, {"kubernetes.io/hostname": name})


def _within(outcome: JobOutcome, until_s: float) -> float:
    return sum(max(min(end, until_s) - start, 0.0) for start, end in outcome.runs)


def _jain(outcomes: list[JobOutcome]) -> float:
    """Return Jain's index over the queues' mean bounded slowdowns (10 s): 1 where all are equal."""
    slowdowns: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        runtime_s = outcome.job.runtime_s
        waited_s = (outcome.wait_s or 0.0) + runtime_s
        slowdowns[outcome.job.queue].append(max(waited_s / max(runtime_s, 10.0), 1.0))
    means = [statistics.mean(values) for values in slowdowns.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means))


def run() -> dict[str, float]:
    """Return flat figures; write the table as Markdown beside the JSON."""
    pairs = [(trace, index) for trace in TRACES for index in range(len(SETTINGS))]
    with ProcessPoolExecutor() as pool:
        done = pool.map(measure, *zip(*pairs, strict=True))
        results = list(track(done, "settings on traces", total=len(pairs), transient=True))
    figures: dict[str, float] = {}
    for (trace, index), values in zip(pairs, results, strict=True):
        key = "".join(c if c.isalnum() else "_" for c in SETTINGS[index].name.lower())
        figures |= {f"{trace}_{key}_{name}": value for name, value in values.items()}
    Path("build/bench/traces.md").write_text(markdown(pairs, results))
    return figures


def markdown(pairs: list[tuple[str, int]], results: list[dict[str, float]]) -> str:
    """Return a table for the documentation."""
    lines = [
        "| trace | policies | mean wait | p95 wait | GPUs busy | Jain | lost GPU-hours |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (trace, index), values in zip(pairs, results, strict=True):
        lines.append(
            f"| {trace} | {SETTINGS[index].name} | {values['mean_wait_s'] / 60:.0f} min "
            f"| {values['p95_wait_s'] / 60:.0f} min | {100 * values['utilisation']:.1f} % "
            f"| {values['jain']:.2f} | {values['preempted_gpu_h']:.0f} |"
        )
    return "\n".join(lines) + "\n"
