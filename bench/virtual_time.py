"""The simulator: jobs per second, large clusters, cost by size, and the tables it reproduces.

Times are of one run on one core, with every invariant checked.
"""

import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import fgd
import matplotlib.pyplot as plt
import muri
from rich.progress import Progress

from simulator.experiments.results import run_figures
from simulator.experiments.run import run as simulate
from simulator.scenarios.scenario import parse

PHILLY = Path(__file__).parents[2] / "shared" / "data" / "philly" / "philly.csv"
SIZES = {"pods": {1: 97, 2: 2, 4: 1}, "gpus": {1: 93, 2: 2, 4: 2, 8: 3}}
"""The frequencies of Philly's trace, with up to eight GPUs in a pod."""

NODES = (250, 1000, 4000, 16_000)
JOBS = 2000
_COST = "_us_per_event"


def scenario(nodes: int, **workload: Any) -> dict[str, Any]:
    """Return a cluster of nodes of eight GPUs with a workload."""
    return {
        "version": "gangsched.io/simulation/v1",
        "name": "bench",
        "cluster": {"nodes": [{"name": "node", "count": nodes, "gpus": 8, "rack_size": 16}]},
        "queues": {"guarantee": "average"},
        "workload": workload,
    }


def generator(jobs: int, every_s: float, **more: Any) -> dict[str, Any]:
    """Return random jobs in three queues."""
    queues = {"a": 5, "b": 3, "c": 2}
    base = {"jobs": jobs, "every": every_s, "runtime": "1h", "longest": "3d", "queues": queues}
    return base | SIZES | {"users": 50} | more


def measure(name: str, fields: dict[str, Any]) -> dict[str, float]:
    """Run a scenario in this process; return seconds, events and MiB."""
    begin_s = time.process_time()
    result = simulate(parse(fields, name, Path()), 0)
    values = run_figures(result)
    took_s = time.process_time() - begin_s
    ran_s = sum(end - start for outcome in result.outcomes for start, end in outcome.runs)
    waits = [sum(sample.waiting.values()) for sample in result.samples]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "s": took_s,
        "rss_mib": rss,
        "events_per_s": values["events"] / took_s,
        "finished": values["finished"],
        "busy": values["gpu_busy"],
        "running": ran_s / result.end_s,
        "pending": statistics.fmean(waits),
        "us_per_event": values["compute_s"] * 1e6 / max(values["events"], 1),
    }


def scenarios() -> dict[str, dict[str, Any]]:
    """Return the scenarios by name."""
    trace = {"traces": [{"format": "philly", "path": str(PHILLY)}]}
    large = generator(10_000, 1.0, pods={8: 1}, gpus={8: 1}, longest="12h")
    found = {
        "jobs_100k": scenario(1000, generators=[generator(100_000, 14.0)]),
        "philly": scenario(312, **trace),
        "philly_half_full": scenario(90, **trace),
        "nodes_100k": scenario(100_000, generators=[large]),
    }
    for count in NODES:
        found[f"cost_{count}_nodes"] = scenario(count, generators=[generator(JOBS, 60.0)])
    for every_s in (60.0, 20.0, 7.0, 2.0):
        found[f"cost_running_every_{every_s:.0f}_s"] = scenario(
            1000, generators=[generator(JOBS, every_s)]
        )
    for every_s in (150.0, 100.0, 80.0, 60.0):
        found[f"cost_pending_every_{every_s:.0f}_s"] = scenario(
            20, generators=[generator(JOBS, every_s)]
        )
    return found


def plot(found: dict[str, float], path: Path) -> None:
    """Draw the cost of an event against nodes, running and pending gangs."""
    panels = {
        "nodes": ("nodes", ""),
        "running gangs": ("running_every", "_running"),
        "waiting gangs": ("pending_every", "_pending"),
    }
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for axis, (label, (part, size)) in zip(axes, panels.items(), strict=True):
        costs = [key for key in found if key.startswith("cost_") and key.endswith(_COST)]
        names = [key.removesuffix(_COST) for key in costs if part in key]
        sizes = [found[name + size] if size else float(name.split("_")[1]) for name in names]
        points = sorted(zip(sizes, (found[name + _COST] for name in names), strict=True))
        axis.plot(*zip(*points, strict=True), marker="o", color="#2b6cb0")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(label)
        axis.grid(visible=True, which="both", linewidth=0.3)
    axes[0].set_ylabel("microseconds an event")
    figure.savefig(path)


def run() -> dict[str, float]:
    """Return flat figures."""
    found: dict[str, float] = {}
    listed = scenarios()
    with Progress(transient=True) as progress:
        bar = progress.add_task("scenarios", total=len(listed))
        for name, fields in listed.items():
            with ProcessPoolExecutor(1) as pool:  # a new process, to measure memory by run
                values = pool.submit(measure, name, fields).result()
            found |= {f"{name}_{key}": value for key, value in values.items()}
            progress.advance(bar)
    plot(found, Path("build/bench/simulator.svg"))
    for part in (fgd.run(), muri.run()):
        found |= part
    found["fgd_max_abs_diff"] = max(v for k, v in found.items() if k.startswith("fgd_max"))
    found["muri_max_rel_diff"] = max(v for k, v in found.items() if k.startswith("muri_max"))
    return found
