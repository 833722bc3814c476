"""A scenario on a real control plane: API server, controllers and scheduler, with KWOK's nodes.

Time is compressed by the factor `speedup`: arrivals and run times are divided by it, measured times
are multiplied by it. API calls, watches and planning take their real time, so that a second of
theirs counts `speedup` seconds.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangsched.api.names import RUNTIME_ANNOTATION
from gangsched.config import ConfigError
from gangsched.core.model.ids import GangId
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.watch import Watch
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import Plane, PlaneOptions
from simulator.experiments.run import RunResult, entries_of, prepare
from simulator.jobs import Job, JobOutcome
from simulator.scenarios.scenario import Scenario

_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
_OURS = "/apis/gangsched.io/v1beta1"
_NAME_LABEL = "training.kubeflow.org/job-name"
_SLACK_S = 120.0
"""A run ends early when no job ended for this time plus the longest run time of a job."""


class _Meta(msgspec.Struct):
    uid: str
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 -- the API's name


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decode = msgspec.json.Decoder(_Pod).decode


@dataclass(slots=True)
class _Seen:
    """Receives the watch on pods: records when the pods of a job are bound, and when all ended."""

    outcomes: dict[str, JobOutcome]
    now_s: Callable[[], float]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    left: int = 0
    _bound: dict[str, dict[str, str]] = field(default_factory=dict)
    _ended: dict[str, set[str]] = field(default_factory=dict)
    _since_s: dict[str, float] = field(default_factory=dict)

    def on_update(self, raw: bytes) -> None:
        """Record a pod that is bound or has ended."""
        pod = _decode(raw)
        name = pod.metadata.labels.get(_NAME_LABEL, "")
        outcome = self.outcomes.get(name)
        if outcome is None or outcome.ended_s is not None:
            return
        bound = self._bound.setdefault(name, {})
        if pod.spec.nodeName and pod.metadata.uid not in bound:
            bound[pod.metadata.uid] = pod.spec.nodeName
            if len(bound) == outcome.job.pods and name not in self._since_s:
                self._since_s[name] = self.now_s()
                if outcome.started_s is None:
                    outcome.started_s = self.now_s()
        if pod.status.phase == "Succeeded":
            ended = self._ended.setdefault(name, set())
            ended.add(pod.metadata.uid)
            if len(ended) == outcome.job.pods:
                outcome.ended_s = self.now_s()
                outcome.runs.append((self._since_s[name], self.now_s()))
                self.left -= 1
                self.changed.set()

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Record a deleted pod; if its work was not done, the job was interrupted."""
        pod = _decode(raw) if raw is not None else None
        name = pod.metadata.labels.get(_NAME_LABEL, "") if pod is not None else ""
        outcome = self.outcomes.get(name)
        if outcome is None or outcome.ended_s is not None:
            return
        self._bound.get(name, {}).pop(uid, None)
        since_s = self._since_s.pop(name, None)
        if since_s is not None:
            outcome.runs.append((since_s, self.now_s()))
            outcome.stopped += 1


def run_on_kwok(
    scenario: Scenario,
    seed: int,
    speedup: float,
    journal: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[RunResult, float]:
    """Run a scenario on a new local control plane; return the run, and its largest delay.

    The delay is that of creating a job, in real seconds. It shows whether the machine was too slow
    for the speed-up. The journal then has the facts and decisions of the scheduler.

    Raises:
        ConfigError: the scenario needs something that KWOK cannot do.
        PlaneError: the control plane did not start.

    """
    if scenario.cluster.snapshot or scenario.faults.model_fields_set:
        raise ConfigError(f"{scenario.name}: a run on KWOK supports neither faults nor a snapshot")
    result, jobs, _ = prepare(scenario, seed)
    unsupported = next(
        (job for job in jobs if job.needs is not None or job.minimum is not None), None
    )
    if unsupported is not None:
        raise ConfigError(
            f"{scenario.name}: job {unsupported.name} cannot be written as a PyTorchJob"
        )
    groups = scenario.cluster.nodes
    if len(groups) == 1:
        groups = (groups[0].model_copy(update={"count": len(result.nodes)}),)
    nodes = tuple(group.model_copy(update={"taints": group.taints or ()}) for group in groups)
    plane = Plane("simulate")
    plane.down()
    journal.unlink(missing_ok=True)
    config = plane.folder.parent / "simulate-policies.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    settings = scenario.policies.model_dump(mode="json") | {"journal": str(journal.resolve())}
    config.write_text(yaml.safe_dump(settings))
    options = PlaneOptions("direct", flags=(("gangsched", f"--config {config}"),))
    try:
        plane.up(NodeFile(nodes=nodes), options, progress)
        begin_s = time.perf_counter()
        late_s = asyncio.run(_run(plane, scenario, result, jobs, speedup, progress))
        result.compute_s = time.perf_counter() - begin_s
    finally:
        plane.down()
        config.unlink(missing_ok=True)
    return result, late_s


async def _run(
    plane: Plane,
    scenario: Scenario,
    result: RunResult,
    jobs: Sequence[Job],
    speedup: float,
    progress: Callable[[str], None],
) -> float:
    outcomes = {job.name: JobOutcome(job) for job in jobs}
    async with KubeClient(plane.kubeconfig) as client:
        await _declare(client, scenario, result, jobs)
        begin_s = time.monotonic()

        def now_s() -> float:
            return (time.monotonic() - begin_s) * speedup

        seen = _Seen(outcomes, now_s, left=len(jobs))
        watch = Watch(client, "/api/v1/namespaces/default/pods", seen)
        watching = asyncio.create_task(watch.run())
        await watch.synced.wait()
        begin_s = time.monotonic()
        delay_s = 0.0
        creating: set[asyncio.Task[Any]] = set()
        for number, job in enumerate(jobs):
            wait_s = begin_s + job.at_s / speedup - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            delay_s = max(delay_s, -wait_s)
            creating.add(asyncio.create_task(client.create(_JOBS, job_manifest(job, speedup))))
            progress(f"{number + 1} of {len(jobs)} jobs are created, {seen.left} have not ended")
        await asyncio.gather(*creating)
        longest_s = max((job.runtime_s for job in jobs), default=0.0) / speedup
        await _ended(seen, longest_s + _SLACK_S, progress)
        watching.cancel()
        result.end_s = now_s()
    result.outcomes = list(outcomes.values())
    return delay_s


async def _ended(seen: _Seen, quiet_s: float, progress: Callable[[str], None]) -> None:
    """Wait until every job has ended, or until no job ended for `quiet_s`."""
    left, give_up_s = 0, 0.0
    while seen.left and (seen.left != left or time.monotonic() < give_up_s):
        if seen.left != left:
            left, give_up_s = seen.left, time.monotonic() + quiet_s
        seen.changed.clear()
        progress(f"{seen.left} jobs have not ended")
        with suppress(TimeoutError):
            await asyncio.wait_for(seen.changed.wait(), 5.0)


async def _declare(
    client: KubeClient, scenario: Scenario, result: RunResult, jobs: Sequence[Job]
) -> None:
    """Create the queues and the topology."""
    for entry in entries_of(scenario, jobs, result.nodes):
        spec = entry.model_dump(exclude={"name"}, exclude_none=True)
        await client.create(f"{_OURS}/queues", _object("Queue", entry.name, spec))
    if scenario.cluster.topology is not None:
        spec = scenario.cluster.topology.model_dump(mode="json", exclude_none=True)
        await client.create(f"{_OURS}/topologies", _object("Topology", "default", spec))


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def job_manifest(job: Job, speedup: float) -> dict[str, Any]:
    """Return a job as a PyTorchJob with pods that succeed after its run time."""
    amounts = {
        key: f"{value}m" if key == "cpu" else value for key, value in job.wants().requests if value
    }
    limits = {key: value for key, value in amounts.items() if "/" in key}
    pod = {
        "metadata": {"annotations": {"gangsched.io/runs-for": f"{job.runtime_s / speedup:.3f}s"}},
        "spec": {
            "containers": [
                {
                    "name": "pytorch",
                    "image": "none",
                    "resources": {"requests": amounts, "limits": limits},
                }
            ]
        },
    }
    roles: dict[str, Any] = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": pod}}
    if job.pods > 1:
        roles["Worker"] = roles["Master"] | {"replicas": job.pods - 1}
    metadata: dict[str, Any] = {"name": job.name}
    if job.estimate_s is not None:
        metadata["annotations"] = {RUNTIME_ANNOTATION: f"{max(job.estimate_s / speedup, 1):.0f}"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {
            "runPolicy": {
                "cleanPodPolicy": "None",
                "schedulingPolicy": {"queue": job.queue, "minAvailable": job.pods},
            },
            "pytorchReplicaSpecs": roles,
        },
    }


# -- comparison with virtual time -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two runs of the same jobs compare.

    `order` is the share of pairs of jobs that start in the same order. It leaves out pairs that
    start within `apart_s` of each other in a run. Waits are means in seconds.
    """

    jobs: int
    order: float
    wait_s: tuple[float, float]
    makespan_s: tuple[float, float]
    furthest: tuple[tuple[GangId, float, float], ...]

    @property
    def wait_ratio(self) -> float:
        """Return the second mean wait over the first."""
        first, second = self.wait_s
        return second / first if first else (1.0 if not second else float("inf"))


def agreement(
    first: Iterable[JobOutcome], second: Iterable[JobOutcome], apart_s: float
) -> Agreement:
    """Compare two runs of the same jobs."""
    others = {outcome.job.id: outcome for outcome in second}
    pairs = [
        (outcome, others[outcome.job.id])
        for outcome in first
        if outcome.started_s is not None and others[outcome.job.id].started_s is not None
    ]
    starts = [(outcome.started_s or 0.0, other.started_s or 0.0) for outcome, other in pairs]
    same = total = 0
    for at, (a, b) in enumerate(starts):
        for c, d in starts[at + 1 :]:
            if abs(a - c) > apart_s and abs(b - d) > apart_s:
                total += 1
                same += (a < c) == (b < d)
    waits = [(outcome.wait_s or 0.0, other.wait_s or 0.0) for outcome, other in pairs]
    count = max(len(pairs), 1)
    furthest = sorted(
        ((outcome.job.id, w, v) for (outcome, _), (w, v) in zip(pairs, waits, strict=True)),
        key=lambda item: -abs(item[1] - item[2]),
    )
    return Agreement(
        len(pairs),
        same / total if total else 1.0,
        (sum(w for w, _ in waits) / count, sum(v for _, v in waits) / count),
        (
            max((outcome.ended_s or 0.0 for outcome, _ in pairs), default=0.0),
            max((other.ended_s or 0.0 for _, other in pairs), default=0.0),
        ),
        tuple(furthest[:5]),
    )


def start_delay_s(run: RunResult, speedup: float) -> float:
    """Return the median real time from creation to start, for jobs that found free capacity.

    That is how long the API calls of a start take. The tenth of the jobs with the shortest waits is
    assumed to have found free capacity at once.
    """
    waits = sorted(
        (outcome.wait_s or 0.0) / speedup for outcome in run.outcomes if outcome.wait_s is not None
    )
    first = waits[: max(len(waits) // 10, 1)]
    return first[len(first) // 2] if first else 0.0
