"""Traces of real clusters and of other simulators, as jobs."""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from simulator.jobs import Job
from simulator.traces.formats import FORMATS, Format
from simulator.traces.rows import Left, TraceError

__all__ = ["FORMATS", "Format", "Trace", "TraceError", "read"]


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a trace, the first at 0 s; `left_out` counts rows by reason."""

    jobs: tuple[Job, ...]
    left_out: dict[str, int]
    format: Format


def read(path: Path, name: str, *, gpus_per_node: int = 8, skip: bool = False) -> Trace:
    """Read a trace. With `skip`, rows that are wrong are left out and counted.

    Raises:
        TraceError: there is no such format, or the file or one of its rows is wrong.

    """
    if name not in FORMATS:
        near = get_close_matches(name, FORMATS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TraceError(f"{path}: no format {name!r}; there are: {', '.join(FORMATS)}{hint}")
    trace_format, left = FORMATS[name], Left(skip=skip)
    jobs = list(trace_format.read(path, left, gpus_per_node))
    if not jobs:
        raise TraceError(f"{path}: no row could be read as a job")
    if trace_format.ordered:
        _in_order(jobs, path, left)
    jobs.sort(key=lambda job: job.at_s)
    return Trace(_distinct(jobs), left.reasons, trace_format)


def _in_order(jobs: list[Job], path: Path, left: Left) -> None:
    """Check the order of arrivals, in formats with ordered files."""
    for before, job in pairwise(jobs):
        if job.at_s < before.at_s:
            if not left.skip:
                raise TraceError(
                    f"{path}: {job.name} arrives at {job.at_s:g} s, before {before.name} at "
                    f"{before.at_s:g} s, which is listed first; bad_rows: skip sorts them"
                )
            left.out("arrives before an earlier row; sorted")


def _distinct(jobs: list[Job]) -> tuple[Job, ...]:
    """Return the jobs with unique names, and times that start at 0 s."""
    first_s, counts = jobs[0].at_s, dict[str, int]()
    renamed = []
    for job in jobs:
        counts[job.name] = counts.get(job.name, 0) + 1
        name = f"{job.name}-{counts[job.name]}" if counts[job.name] > 1 else job.name
        renamed.append(replace(job, name=name, at_s=job.at_s - first_s))
    return tuple(renamed)
