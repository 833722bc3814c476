"""The formats of traces: what each column becomes, what is dropped, what has to be assumed.

Sources: Philly (Jeon et al., ATC'19), ITP (Gu et al., ASPLOS'23), Muri (Zhao et al., SIGCOMM'22),
Tiresias (Gu et al., NSDI'19), ElasticFlow (ASPLOS'23), Gavel (Narayanan et al., OSDI'20), Pollux
(Qiao et al., OSDI'21), Sia (Jayaram Subramanya et al., SOSP'23), openb (Weng et al., ATC'23), SWF
(Feitelson's Parallel Workloads Archive, version 2.2), sacct (Slurm's manual page).
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangsched.core.model import Expression, PodNeeds, Share
from simulator.jobs import GPU, Job
from simulator.traces.rows import Left, Row, TraceError, each, opened, table

Read = Callable[[Path, Left, int], Iterator[Job]]
"""Yields the jobs of a file, with as many GPUs on a node; times are the file's own."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format: what its readers should know of it, and how it is read.

    An `ordered` file lists jobs as they came; elsewhere they are sorted.
    """

    name: str
    read: Read
    maps: str
    drops: str = "nothing"
    assumes: str = "nothing"
    ordered: bool = False


def split(gpus: int, per_node: int) -> tuple[int, int]:
    """Return pods and GPUs a pod: whole nodes where a job is larger than one."""
    if gpus <= per_node:
        return 1, gpus
    each_gets = next(size for size in range(per_node, 0, -1) if gpus % size == 0)
    return gpus // each_gets, each_gets


def _job(name: str, at_s: float, runtime_s: float, gpus: int, per_node: int, **more: str) -> Job:
    pods, each_gets = split(gpus, per_node)
    return Job(_named(name), at_s, runtime_s, pods, each_gets, **more)  # type: ignore[arg-type]


def _named(name: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "job"


# -- tables -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of jobs: columns, and the factors that turn them into seconds."""

    at: str
    runtime: str
    gpus: str
    name: str = ""
    queue: str = ""
    unit_s: float = 1.0
    clock: bool = False

    def __call__(self, path: Path, left: Left, per_node: int) -> Iterator[Job]:
        columns = [self.at, self.runtime, self.gpus, *filter(None, (self.name, self.queue))]

        def read(row: Row) -> Job:
            at_s = row.time_s(self.at) if self.clock else row.number(self.at, 0.0) * self.unit_s
            runtime_s = row.number(self.runtime, 0.0, above=True) * self.unit_s
            gpus = row.count(self.gpus, 1)
            name = row.text(self.name) if self.name else f"job-{row.line}"
            queue = _named(row.text(self.queue)) if self.queue else "default"
            return _job(name, at_s, runtime_s, gpus, per_node, queue=queue)

        return each(table(path, columns), read, left)


def _iterations(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Muri's: the work is iterations times their time; the column `duration` is something else."""
    columns = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")

    def read(row: Row) -> Job:
        work_ms = row.number("iterations", 0, above=True) * row.number("iteration_time", 0)
        at_s = row.number("submit_time", 0) / 1000
        name = f"{row.text('model_name')}-{row.text('job_id')}"
        return _job(name, at_s, work_ms / 1000, row.count("num_gpu", 1), per_node)

    return each(table(path, columns), read, left)


_GPU_HOURS = {
    "cifar10": 0.3,
    "ncf": 0.3,
    "deepspeech2": 3.0,
    "bert": 30.0,
    "yolov3": 30.0,
    "imagenet": 300.0,
}
"""The middles of Pollux's classes: small up to 1 GPU-hour, medium to 10, large to 100."""


def _applications(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    columns = ("name", "time", "application", "num_replicas")

    def read(row: Row) -> Job:
        gpus, application = row.count("num_replicas", 1), row.text("application")
        if application not in _GPU_HOURS:
            row.refuse("application", f"must be one of {', '.join(_GPU_HOURS)}")
        runtime_s = _GPU_HOURS[application] * 3600 / gpus
        return _job(row.text("name"), row.number("time", 0), runtime_s, gpus, per_node)

    return each(table(path, columns), read, left)


_OWN = ("name", "at_s", "runtime_s")


def _own(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    def read(row: Row) -> Job:
        given = {key: value for key, value in row.cells.items() if value}
        filled = Row(row.path, row.line, {"pods": "1", "gpus": "1", "priority": "0"} | given)
        return Job(
            _named(row.text("name")),
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
        Row(path, line, {k: "" if v is None else str(v) for k, v in one.items()})
        for line, one in enumerate(columns, 1)
    )
    return each(rows, read, left)


# -- others -----------------------------------------------------------------------------------


def _openb(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

    def read(row: Row) -> Job:
        timed = "creation_time" in row.cells
        at_s = row.number("creation_time", 0) if timed else float(row.line)
        runtime_s = row.number("deletion_time") - at_s if timed else 1e9
        if runtime_s <= 0:
            row.refuse("deletion_time", "must be after creation_time")
        return Job(_named(row.text("name")), at_s, runtime_s, gpus=0, needs=openb_needs(row))

    return each(table(path, columns), read, left)


def openb_needs(row: Row) -> PodNeeds:
    """Return what a pod of openb asks: whole GPUs, or a part of one, of the models it names."""
    gpus, milli = row.count("num_gpu"), row.count("gpu_milli")
    if gpus > 1 and milli != 1000:
        row.refuse("gpu_milli", "must be 1000 where there are several GPUs")
    requests = {
        "cpu": row.count("cpu_milli"),
        "memory": row.count("memory_mib") * 2**20,
    }
    share = Share(milli) if gpus == 1 and milli < 1000 else None
    if gpus and share is None:
        requests[GPU] = gpus
    models = tuple(filter(None, row.cells.get("gpu_spec", "").split("|")))
    selector = (Expression("nvidia.com/gpu.product", "In", models),) if models else ()
    return PodNeeds(tuple(sorted(requests.items())), selector=selector, share=share)


_GAVEL = {
    7: ("type", "command", "steps_arg", "data", "steps", "at_s", "gpus"),
    10: (
        "type", "command", "directory", "steps_arg", "data", "steps", "gpus", "weight", "slo",
        "at_s",
    ),
}  # fmt: skip
_THROUGHPUTS = "simulation_throughputs.json"


def _gavel(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of a Gavel trace: tabs, no header, steps at a throughput given elsewhere."""
    places = [folder / _THROUGHPUTS for folder in (path.parent, path.parent.parent)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise TraceError(f"{path}: Gavel's {_THROUGHPUTS} must lie beside it or one folder above")
    with opened(found) as file:
        steps_per_s: dict[str, dict[str, float]] = json.load(file)["v100"]

    def rows() -> Iterator[Row]:
        with opened(path) as file:
            for line, text in enumerate(file, 1):
                cells = text.rstrip("\n").split("\t")
                if len(cells) not in _GAVEL:
                    raise TraceError(
                        f"{path}: line {line}: has {len(cells)} columns, Gavel's have 7 or 10; "
                        f"the file may be cut short"
                    )
                yield Row(path, line, dict(zip(_GAVEL[len(cells)], cells, strict=True)))

    def read(row: Row) -> Job:
        gpus = row.count("gpus", 1)
        key = f"('{row.text('type')}', {gpus})"
        if key not in steps_per_s:
            row.refuse("type", f"has no throughput on {gpus} V100s in {_THROUGHPUTS}")
        runtime_s = row.number("steps", 0, above=True) / steps_per_s[key]["null"]
        kind = row.text("type").split(" (")[0]
        return _job(f"{kind}-{row.line}", row.number("at_s", 0), runtime_s, gpus, per_node)

    return each(rows(), read, left)


_SWF = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "asked", "asked_time",
    "asked_memory", "status", "user", "group", "executable", "queue", "partition", "before",
    "think",
)  # fmt: skip


def _swf(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of a Standard Workload Format file; a processor is taken for a GPU."""

    def rows() -> Iterator[Row]:
        with opened(path) as file:
            for line, text in enumerate(file, 1):
                words = text.split()
                if not words or words[0].startswith(";"):
                    continue
                if len(words) < len(_SWF):
                    raise TraceError(
                        f"{path}: line {line}: has {len(words)} of {len(_SWF)} fields; the file "
                        f"may be cut short"
                    )
                yield Row(path, line, dict(zip(_SWF, words, strict=False)))

    def read(row: Row) -> Job:
        asked = row.count("asked", -1)
        gpus = asked if asked > 0 else row.count("processors", 1)
        pods, each_gets = split(gpus, per_node)
        said_s = row.number("asked_time", -1)
        return Job(
            f"job-{row.text('job')}",
            row.number("submit", 0),
            row.number("run", 0, above=True),
            pods,
            each_gets,
            queue=f"queue-{row.text('queue')}" if row.number("queue") >= 0 else "default",
            user=f"user-{row.text('user')}" if row.number("user") >= 0 else "",
            estimate_s=said_s if said_s > 0 else None,
        )

    return each(rows(), read, left)


_SACCT = ("JobID", "Submit", "Start", "End", "AllocTRES")
_STEP = re.compile(r"^\d+(_\d+)?\.")


def _sacct(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of `sacct -P`: lines of job steps are passed over."""

    def read(row: Row) -> Job:
        for column in ("Start", "End"):
            if row.text(column) in ("Unknown", "None", ""):
                row.refuse(column, "must be a time: the job never ran, or runs still")
        start_s, end_s = row.time_s("Start"), row.time_s("End")
        if end_s <= start_s:
            row.refuse("End", "must be after Start")
        tres = dict(part.split("=", 1) for part in row.text("AllocTRES").split(",") if "=" in part)
        asked = [value for key, value in tres.items() if key.startswith("gres/gpu")]
        gpus = int(tres.get("gres/gpu") or (asked[0] if asked else "0") or 0)
        nodes = int(row.cells.get("NNodes") or tres.get("node") or 1)
        pods, each_gets = (nodes, gpus // nodes) if gpus % nodes == 0 else split(gpus, per_node)
        return Job(
            _named(f"{row.cells.get('JobName') or 'job'}-{row.text('JobID')}"),
            row.time_s("Submit"),
            end_s - start_s,
            pods,
            each_gets,
            queue=_named(row.cells.get("Account") or row.cells.get("Partition") or "default"),
            user=row.cells.get("User", ""),
            estimate_s=_limit_s(row),
        )

    rows = (row for row in table(path, _SACCT, delimiter="|") if not _STEP.match(row.text("JobID")))
    return each(rows, read, left)


def _limit_s(row: Row) -> float | None:
    """Return Slurm's Timelimit, [days-]hours:minutes:seconds; None where there is none."""
    text = row.cells.get("Timelimit", "")
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds) or None


# -- all of them --------------------------------------------------------------------------------

_WHOLE = "jobs of more GPUs than a node has become pods that are alike"
_KNOWN: Sequence[Format] = (
    Format(
        "philly",
        _Table("timestamp", "duration", "num_gpus", queue="cluster", clock=True),
        "timestamp, duration, num_gpus; cluster (a virtual cluster) becomes the queue",
        "gpu_time (duration times GPUs)",
        f"times are UTC; {_WHOLE}",
    ),
    Format(
        "itp",
        _Table("submission_time", "duration", "num_gpu", name="job_id"),
        "job_id, submission_time, duration, num_gpu",
        "models, iterations and deadlines, where the file has them",
        f"one file is one queue; {_WHOLE}",
    ),
    Format(
        "muri",
        _iterations,
        "submit_time (ms), num_gpu; run time is iterations times iteration_time (ms)",
        "duration (informative only), resource times, priority",
        _WHOLE,
    ),
    Format(
        "tiresias",
        _Table("submit_time", "duration", "num_gpu", name="job_id"),
        "job_id, submit_time, duration, num_gpu",
        "model, iterations, interval",
        _WHOLE,
    ),
    Format(
        "elasticflow",
        _Table("submit_time", "duration", "num_gpu", name="job_id"),
        "job_id, submit_time, duration, num_gpu",
        "model, iterations, deadline (ddl), batch size",
        _WHOLE,
    ),
    Format(
        "pollux",
        _applications,
        "name, time, num_replicas",
        "batch_size; that jobs are elastic",
        "a job takes the middle of its application's class of GPU-hours (Pollux, section 5.1)",
    ),
    Format(
        "gavel",
        _gavel,
        "arrival, scale factor; run time is the steps at the throughput on V100s",
        "command, weight, SLO",
        _WHOLE,
    ),
    Format(
        "openb",
        _openb,
        "name, creation_time to deletion_time, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec",
        "qos, pod_phase, scheduled_time",
        "lists without times: a pod a second, which never ends",
    ),
    Format(
        "swf",
        _swf,
        "submit, run, requested (else used) processors, requested time, user, queue",
        "wait, CPU time, memory, status, group, executable, partition, dependencies",
        f"a processor is a GPU; {_WHOLE}",
        ordered=True,
    ),
    Format(
        "sacct",
        _sacct,
        "Submit, Start to End, AllocTRES, Timelimit, User, NNodes; Account, else Partition, "
        "becomes the queue (sacct -a -P -o JobID,JobName,User,Account,Partition,Submit,Start,End,"
        "NNodes,AllocTRES,Timelimit)",
        "job steps, states, nodes' names",
        "times are UTC; a job without GPUs is kept with its nodes alone",
    ),
    Format(
        "gangsched",
        _own,
        "name, at_s, runtime_s and, where there: pods, gpus (a pod), queue, user, priority, "
        "estimate_s, checkpoint_s; CSV or Parquet",
    ),
)  # fmt: skip

FORMATS = {one.name: one for one in _KNOWN}
