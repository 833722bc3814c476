"""The jobs of a scenario: from traces and from generators, with what their users say of them."""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Generic, TypeVar
from zlib import crc32

from gangsched.api.queue import PreemptionSpec, QuotaSpec
from gangsched.config import ConfigError
from simulator.jobs import GPU, Job
from simulator.scenarios.scenario import (
    Generator,
    QueueEntry,
    QueuesOfWorkload,
    Scenario,
    TraceSource,
)
from simulator.traces import Trace, read

T = TypeVar("T")

_DAY_S = 86_400.0
_DAWN_S = 3 * 3600.0


def traces(scenario: Scenario) -> list[Trace]:
    """Read the traces of a scenario.

    Raises:
        TraceError: a file or one of its rows is wrong.

    """
    per_node = max((group.gpus for group in scenario.cluster.nodes), default=0) or 8
    return [
        read(
            scenario.folder / source.path,
            source.format,
            gpus_per_node=per_node,
            skip=source.bad_rows == "skip",
        )
        for source in scenario.workload.traces
    ]


def jobs_of(scenario: Scenario, found: Iterable[Trace], seed: int) -> list[Job]:
    """Return all jobs of one run, in order of their arrival."""
    jobs: list[Job] = []
    for source, trace in zip(scenario.workload.traces, found, strict=True):
        jobs += _of_trace(source, trace)
    for number, generator in enumerate(scenario.workload.generators):
        jobs += _generated(generator, random.Random(f"{seed} {number}"))  # noqa: S311 -- no secret
    known: dict[str, int] = {}
    named = []
    begin_s, end_s = scenario.workload.begin, scenario.workload.end or math.inf
    for job in sorted(jobs, key=lambda one: one.at_s):
        if not begin_s <= job.at_s < end_s:
            continue
        known[job.name] = known.get(job.name, 0) + 1
        again = f"{job.name}-{known[job.name]}" if known[job.name] > 1 else job.name
        named.append(_with_words(replace(job, name=again, at_s=job.at_s - begin_s), scenario))
    if (jobs or not scenario.cluster.snapshot) and not named:
        raise ConfigError(f"{scenario.name}: no job comes between workload.begin and workload.end")
    return named


def _of_trace(source: TraceSource, trace: Trace) -> Iterator[Job]:
    last = None if source.jobs is None else source.first + source.jobs
    chosen = trace.jobs[source.first : last]
    for job in chosen:
        at_s = (job.at_s - chosen[0].at_s) / source.faster
        yield replace(job, at_s=at_s, queue=source.queue or job.queue)


def _generated(wanted: Generator, rng: random.Random) -> Iterator[Job]:
    at_s = 0.0
    queues, pods, gpus = (_Choice(some) for some in (wanted.queues, wanted.pods, wanted.gpus))
    for number in range(wanted.jobs):
        at_s = _next_s(at_s, wanted, rng)
        runtime_s = wanted.runtime * math.exp(rng.gauss(0.0, wanted.spread))
        yield Job(
            f"{wanted.name}-{number}",
            at_s,
            min(max(runtime_s, 1.0), wanted.longest),
            pods.one(rng),
            gpus.one(rng),
            queue=queues.one(rng),
            user=f"user-{rng.randrange(wanted.users)}",
            priority=wanted.priority,
        )


def _next_s(at_s: float, wanted: Generator, rng: random.Random) -> float:
    """Return the next arrival: thinning (Lewis and Shedler, 1979), where the rate changes."""
    while True:
        at_s += rng.expovariate((1.0 + wanted.by_day) / wanted.every)
        rate = 1.0 - wanted.by_day * math.cos(2 * math.pi * (at_s - _DAWN_S) / _DAY_S)
        if not wanted.by_day or rng.random() * (1.0 + wanted.by_day) < rate:
            return at_s


class _Choice(Generic[T]):
    """A choice by weight."""

    def __init__(self, weights: dict[T, float]) -> None:
        self._values, self._weights = list(weights), list(weights.values())

    def one(self, rng: random.Random) -> T:
        return rng.choices(self._values, self._weights)[0]


def _with_words(job: Job, scenario: Scenario) -> Job:
    """Add what the user says: an expected run time, and how often a checkpoint is written."""
    said = job.estimate_s
    if said is None and scenario.workload.estimates != "none":
        factor = 1.0 + 4.0 * (crc32(job.name.encode()) / 2**32)
        said = job.runtime_s * (factor if scenario.workload.estimates == "rough" else 1.0)
    return replace(
        job,
        estimate_s=said,
        checkpoint_s=job.checkpoint_s or scenario.workload.checkpoint,
        grace_s=scenario.workload.grace,
    )


def demand(jobs: Iterable[Job]) -> dict[str, float]:
    """Return the GPUs that each queue's jobs keep busy on average while jobs come."""
    listed = list(jobs)
    span_s = max(listed[-1].at_s - listed[0].at_s, 1.0) if listed else 1.0
    found: dict[str, float] = {}
    for job in listed:
        busy = min(job.runtime_s, span_s) * job.all_gpus() / span_s
        found[job.queue] = found.get(job.queue, 0.0) + busy
    return found


def queues_of(wanted: QueuesOfWorkload, jobs: Iterable[Job], gpus: int) -> list[QueueEntry]:
    """Return a queue for each that jobs name, below `all`, which has every GPU."""
    asked = demand(jobs)
    total = sum(asked.values()) or 1.0
    rules = PreemptionSpec(withinQueue=wanted.within_queue, reclaim=wanted.reclaim)
    queues = [QueueEntry(name="all", quotas=[QuotaSpec(resource=GPU, nominal=gpus)])]
    for name, used in sorted(asked.items()):
        part = used / total if wanted.guarantee == "average" else 1 / len(asked)
        quota = QuotaSpec(resource=GPU, nominal=int(part * gpus))
        queues.append(
            QueueEntry(
                name=name, parent="all", quotas=[quota], preemption=rules, strict=wanted.strict
            )
        )
    return queues
