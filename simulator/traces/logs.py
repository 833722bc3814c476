"""Traces in their own formats: Gavel, the Standard Workload Format, Slurm's accounting."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from simulator.jobs import Job
from simulator.traces.rows import Left, Row, TraceError, each, lines, table
from simulator.traces.shapes import job, kubernetes_name, split

_GAVEL = {
    7: ("type", "command", "steps_arg", "data", "steps", "at_s", "gpus"),
    10: (
        "type", "command", "directory", "steps_arg", "data", "steps", "gpus", "weight", "slo",
        "at_s",
    ),
}  # fmt: skip
_THROUGHPUTS = "simulation_throughputs.json"


class _Steps(msgspec.Struct):
    """Steps per second of a job alone; the file also has those of jobs that share GPUs."""

    alone: Annotated[float, msgspec.Meta(gt=0)] = msgspec.field(name="null")


class _Throughputs(msgspec.Struct):
    v100: dict[str, _Steps]


def gavel(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of a Gavel trace: tabs, no header, throughputs in a file of their own."""
    places = [folder / _THROUGHPUTS for folder in (path.parent, path.parent.parent)]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise TraceError(
            f"{path}: Gavel's {_THROUGHPUTS} must be in the same folder or the one above"
        )
    try:
        steps_per_s = msgspec.json.decode(file.read_bytes(), type=_Throughputs).v100
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise TraceError(f"{file}: {error}") from error

    def rows() -> Iterator[Row]:
        for line, text in lines(path):
            cells = text.split("\t")
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
        runtime_s = row.number("steps", 0, above=True) / steps_per_s[key].alone
        kind = row.text("type").split(" (")[0]
        return job(f"{kind}-{row.line}", row.number("at_s", 0), runtime_s, gpus, per_node)

    return each(rows(), read, left)


_SWF = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "asked", "asked_time",
    "asked_memory", "status", "user", "group", "executable", "queue", "partition", "before",
    "think",
)  # fmt: skip


def swf(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of a Standard Workload Format file; a processor counts as a GPU."""

    def rows() -> Iterator[Row]:
        for line, text in lines(path):
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
        requested = row.count("asked", -1)
        gpus = requested if requested > 0 else row.count("processors", 1)
        pods, each_gets = split(gpus, per_node)
        declared_s = row.number("asked_time", -1)
        return Job(
            f"job-{row.text('job')}",
            row.number("submit", 0),
            row.number("run", 0, above=True),
            pods,
            each_gets,
            queue=f"queue-{row.text('queue')}" if row.number("queue") >= 0 else "default",
            user=f"user-{row.text('user')}" if row.number("user") >= 0 else "",
            estimate_s=declared_s if declared_s > 0 else None,
        )

    return each(rows(), read, left)


_SACCT = ("JobID", "Submit", "Start", "End", "AllocTRES")
_STEP = re.compile(r"^\d+(_\d+)?\.")


def sacct(path: Path, left: Left, per_node: int) -> Iterator[Job]:
    """Yield the jobs of `sacct -P`; lines of job steps are skipped."""

    def read(row: Row) -> Job:
        for column in ("Start", "End"):
            if row.text(column) in ("Unknown", "None", ""):
                row.refuse(column, "must be a time: the job never ran, or still runs")
        start_s, end_s = row.time_s("Start"), row.time_s("End")
        if end_s <= start_s:
            row.refuse("End", "must be after Start")
        tres = dict(part.split("=", 1) for part in row.text("AllocTRES").split(",") if "=" in part)
        gpu_amounts = [value for key, value in tres.items() if key.startswith("gres/gpu")]
        amounts = Row(
            row.path,
            row.line,
            {
                "AllocTRES gres/gpu": tres.get("gres/gpu")
                or (gpu_amounts[0] if gpu_amounts else "")
                or "0",
                "NNodes": row.cells.get("NNodes") or tres.get("node") or "1",
            },
        )
        gpus, nodes = amounts.count("AllocTRES gres/gpu"), amounts.count("NNodes", 1)
        pods, each_gets = (nodes, gpus // nodes) if gpus % nodes == 0 else split(gpus, per_node)
        return Job(
            kubernetes_name(f"{row.cells.get('JobName') or 'job'}-{row.text('JobID')}"),
            row.time_s("Submit"),
            end_s - start_s,
            pods,
            each_gets,
            queue=kubernetes_name(
                row.cells.get("Account") or row.cells.get("Partition") or "default"
            ),
            user=row.cells.get("User", ""),
            estimate_s=_limit_s(row),
        )

    rows = (row for row in table(path, _SACCT, delimiter="|") if not _STEP.match(row.text("JobID")))
    return each(rows, read, left)


def _limit_s(row: Row) -> float | None:
    """Return Slurm's Timelimit, [days-]hours:minutes:seconds; None without one."""
    text = row.cells.get("Timelimit", "")
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,6}):(\d{1,6}):(\d{1,6})", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds) or None
