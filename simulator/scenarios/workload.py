"""The jobs of a scenario, from traces and generators, with what users declare about them."""

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


def jobs_of(scenario: Scenario, traces_read: Iterable[Trace], seed: int) -> list[Job]:
    """Return all jobs of one run, in order of their arrival."""
    jobs: list[Job] = []
    for source, trace in zip(scenario.workload.traces, traces_read, strict=True):
        jobs += _of_trace(source, trace)
    for number, generator in enumerate(scenario.workload.generators):
        jobs += _generated(generator, random.Random(f"{seed} {number}"))  # noqa: S311 -- no secret
    count_of: dict[str, int] = {}
    named = []
    begin_s, end_s = scenario.workload.begin, scenario.workload.end or math.inf
    for job in sorted(jobs, key=lambda job: job.at_s):
        if not begin_s <= job.at_s < end_s:
            continue
        count_of[job.name] = count_of.get(job.name, 0) + 1
        name = f"{job.name}-{count_of[job.name]}" if count_of[job.name] > 1 else job.name
        shifted = replace(job, name=name, at_s=job.at_s - begin_s)
        named.append(_with_declarations(shifted, scenario))
    if (jobs or not scenario.cluster.snapshot) and not named:
        raise ConfigError(
            f"{scenario.name}: no job arrives between workload.begin and workload.end"
        )
    return named


def _of_trace(source: TraceSource, trace: Trace) -> Iterator[Job]:
    last = None if source.jobs is None else source.first + source.jobs
    chosen = trace.jobs[source.first : last]
    for job in chosen:
        at_s = (job.at_s - chosen[0].at_s) / source.faster
        yield replace(job, at_s=at_s, queue=source.queue or job.queue)


def _generated(generator: Generator, rng: random.Random) -> Iterator[Job]:
    at_s = 0.0
    queues, pods, gpus = (
        _Choice(weights) for weights in (generator.queues, generator.pods, generator.gpus)
    )
    for number in range(generator.jobs):
        at_s = _next_s(at_s, generator, rng)
        runtime_s = generator.runtime * math.exp(rng.gauss(0.0, generator.spread))
        yield Job(
            f"{generator.name}-{number}",
            at_s,
            min(max(runtime_s, 1.0), generator.longest),
            pods.draw(rng),
            gpus.draw(rng),
            queue=queues.draw(rng),
            user=f"user-{rng.randrange(generator.users)}",
            priority=generator.priority,
        )


def _next_s(at_s: float, generator: Generator, rng: random.Random) -> float:
    """Return the time of the next arrival, by thinning (Lewis and Shedler, 1979)."""
    while True:
        at_s += rng.expovariate((1.0 + generator.by_day) / generator.every)
        rate = 1.0 - generator.by_day * math.cos(2 * math.pi * (at_s - _DAWN_S) / _DAY_S)
        if not generator.by_day or rng.random() * (1.0 + generator.by_day) < rate:
            return at_s


class _Choice(Generic[T]):
    """A weighted random choice."""

    def __init__(self, weights: dict[T, float]) -> None:
        self._values, self._weights = list(weights), list(weights.values())

    def draw(self, rng: random.Random) -> T:
        return rng.choices(self._values, self._weights)[0]


def _with_declarations(job: Job, scenario: Scenario) -> Job:
    """Add what the user declares: the expected run time and the checkpoint interval."""
    estimate_s = job.estimate_s
    if estimate_s is None and scenario.workload.estimates != "none":
        factor = 1.0 + 4.0 * (crc32(job.name.encode()) / 2**32)
        estimate_s = job.runtime_s * (factor if scenario.workload.estimates == "rough" else 1.0)
    return replace(
        job,
        estimate_s=estimate_s,
        checkpoint_s=job.checkpoint_s or scenario.workload.checkpoint,
        grace_s=scenario.workload.grace,
        asks_s=scenario.workload.checkpoint_grace,
        save_s=(scenario.workload.checkpoint_grace or 0.0) / 2,
    )


def demand(jobs: Iterable[Job]) -> dict[str, float]:
    """Return how many GPUs the jobs of each queue use on average while jobs arrive."""
    listed = list(jobs)
    span_s = max(listed[-1].at_s - listed[0].at_s, 1.0) if listed else 1.0
    by_queue: dict[str, float] = {}
    for job in listed:
        busy = min(job.runtime_s, span_s) * job.all_gpus() / span_s
        by_queue[job.queue] = by_queue.get(job.queue, 0.0) + busy
    return by_queue


def queues_of(wanted: QueuesOfWorkload, jobs: Iterable[Job], gpus: int) -> list[QueueEntry]:
    """Return a queue for each name in the jobs, below `all`, which has every GPU."""
    demanded = demand(jobs)
    total = sum(demanded.values()) or 1.0
    rules = PreemptionSpec(withinQueue=wanted.within_queue, reclaim=wanted.reclaim)
    queues = [QueueEntry(name="all", quotas=[QuotaSpec(resource=GPU, nominal=gpus)])]
    for name, used in sorted(demanded.items()):
        share = used / total if wanted.guarantee == "average" else 1 / len(demanded)
        quota = QuotaSpec(resource=GPU, nominal=int(share * gpus))
        queues.append(
            QueueEntry(
                name=name, parent="all", quotas=[quota], preemption=rules, strict=wanted.strict
            )
        )
    return queues
