"""Traces of real clusters, and of other simulators, as jobs."""

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
    found, left = FORMATS[name], Left(skip=skip)
    jobs = list(found.read(path, left, gpus_per_node))
    if not jobs:
        raise TraceError(f"{path}: there is no job in it that could be read")
    if found.ordered:
        _in_order(jobs, path, left)
    jobs.sort(key=lambda job: job.at_s)
    return Trace(_distinct(jobs), left.reasons, found)


def _in_order(jobs: list[Job], path: Path, left: Left) -> None:
    """Complain about time that goes backwards, in formats whose files are in order."""
    for before, job in pairwise(jobs):
        if job.at_s < before.at_s:
            if not left.skip:
                raise TraceError(
                    f"{path}: {job.name} came at {job.at_s:g} s, before {before.name} at "
                    f"{before.at_s:g} s, which is listed first; bad_rows: skip sorts them"
                )
            left.out("came before an earlier one, and was sorted in")


def _distinct(jobs: list[Job]) -> tuple[Job, ...]:
    """Return the jobs from 0 s on, each with a name of its own."""
    first_s, seen = jobs[0].at_s, dict[str, int]()
    found = []
    for job in jobs:
        seen[job.name] = seen.get(job.name, 0) + 1
        again = f"{job.name}-{seen[job.name]}" if seen[job.name] > 1 else job.name
        found.append(replace(job, name=again, at_s=job.at_s - first_s))
    return tuple(found)
