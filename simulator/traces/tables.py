"""Traces that are tables with a header and a row for each job."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gangsched.core.model.pods import Expression, GpuShare, PodRequirements
from simulator.jobs import GPU, Job
from simulator.traces.rows import Left, Row, TraceError, each, table
from simulator.traces.shapes import job, kubernetes_name


@dataclass(frozen=True, slots=True)
class Table:
    """A table of jobs: the names of its columns, and the unit of its times."""

    at: str
    runtime: str
    gpus: str
    name: str = ""
    queue: str = ""
    unit_s: float = 1.0
    clock: bool = False

    def __call__(self, path: Path, left: Left, per_node: int) -> Iterator[Job]:
        """Yield the jobs of a file."""
        columns = [self.at, self.runtime, self.gpus, *filter(None, (self.name, self.queue))]

        def read(row: Row) -> Job:
            at_s = row.time_s(self.at) if self.clock else row.number(self.at, 0.0) * self.unit_s
            runtime_s = row.number(self.runtime, 0.0, above=True) * self.unit_s
            gpus = row.count(self.gpus, 1)
            name = row.text(self.name) if self.name else f"job-{row.line}"
            queue = kubernetes_name(row.text(self.queue)) if self.queue else "default"
            return job(name, at_s, runtime_s, gpus, per_node, queue=queue)

        return each(table(path, columns), read, left)


def iterations(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of Muri: run time is iterations times their time, not `duration`."""
    columns = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")

    def read(row: Row) -> Job:
        work_ms = row.number("iterations", 0, above=True) * row.number("iteration_time", 0)
        at_s = row.number("submit_time", 0) / 1000
        name = f"{row.text('model_name')}-{row.text('job_id')}"
        return job(name, at_s, work_ms / 1000, row.count("num_gpu", 1), per_node)

    return each(table(path, columns), read, left)


_GPU_HOURS = {
    "cifar10": 0.3,
    "ncf": 0.3,
    "deepspeech2": 3.0,
    "bert": 30.0,
    "yolov3": 30.0,
    "imagenet": 300.0,
}
"""The middles of Pollux's classes: small to 1 GPU-hour, medium to 10, large to 100."""


def applications(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of Pollux's and Sia's workloads, which have applications, not run times."""
    columns = ("name", "time", "application", "num_replicas")

    def read(row: Row) -> Job:
        gpus, application = row.count("num_replicas", 1), row.text("application")
        if application not in _GPU_HOURS:
            row.refuse("application", f"must be one of {', '.join(_GPU_HOURS)}")
        runtime_s = _GPU_HOURS[application] * 3600 / gpus
        return job(row.text("name"), row.number("time", 0), runtime_s, gpus, per_node)

    return each(table(path, columns), read, left)


_OWN = ("name", "at_s", "runtime_s")


def own(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of our own table, CSV or Parquet."""

    def read(row: Row) -> Job:
        given = {key: value for key, value in row.cells.items() if value}
        filled = Row(row.path, row.line, {"pods": "1", "gpus": "1", "priority": "0"} | given)
        return Job(
            kubernetes_name(row.text("name")),
            row.number("at_s", 0.0),
            row.number("runtime_s", 0.0, above=True),
            filled.count("pods", 1),
            filled.count("gpus"),
            queue=given.get("queue", "default"),
            user=given.get("user", ""),
            priority=int(filled.number("priority")),
            estimate_s=row.number("estimate_s", 0.0, above=True) if "estimate_s" in given else None,
            checkpoint_s=row.number("checkpoint_s", 0.0, above=True)
            if "checkpoint_s" in given
            else None,
        )

    if path.suffix != ".parquet":
        return each(table(path, _OWN), read, left)
    import pyarrow.parquet as pq  # noqa: PLC0415 -- only where such a file is read

    try:
        columns = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: {error}") from error
    missing = [name for name in _OWN if columns and name not in columns[0]]
    if missing:
        raise TraceError(
            f"{path}: there is no column {missing[0]!r}; it has: {', '.join(columns[0])}"
        )
    rows = (
        Row(path, line, {k: "" if v is None else str(v) for k, v in cells.items()})
        for line, cells in enumerate(columns, 1)
    )
    return each(rows, read, left)


def openb(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the pods of openb, each as a job."""
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

    def read(row: Row) -> Job:
        timed = "creation_time" in row.cells
        at_s = row.number("creation_time", 0) if timed else float(row.line)
        runtime_s = row.number("deletion_time") - at_s if timed else 1e9
        if runtime_s <= 0:
            row.refuse("deletion_time", "must be after creation_time")
        return Job(
            kubernetes_name(row.text("name")), at_s, runtime_s, gpus=0, needs=openb_needs(row)
        )

    return each(table(path, columns), read, left)


def openb_needs(row: Row) -> PodRequirements:
    """Return the requirements of a pod of openb: whole GPUs or a part of one, and GPU models."""
    gpus, milli = row.count("num_gpu"), row.count("gpu_milli")
    if gpus > 1 and milli != 1000:
        row.refuse("gpu_milli", "must be 1000 where there are several GPUs")
    requests = {
        "cpu": row.count("cpu_milli"),
        "memory": row.count("memory_mib") * 2**20,
    }
    share = GpuShare(milli) if gpus == 1 and milli < 1000 else None
    if gpus and share is None:
        requests[GPU] = gpus
    models = tuple(filter(None, row.cells.get("gpu_spec", "").split("|")))
    selector = (Expression("nvidia.com/gpu.product", "In", models),) if models else ()
    return PodRequirements(tuple(sorted(requests.items())), selector=selector, share=share)
