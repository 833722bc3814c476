"""A scenario on the real control plane: real API server, controllers and scheduler, KWOK's nodes.

Time is compressed: jobs come `faster` times closer together and run so much shorter, and what is
measured is stretched again. Calls, watches and planning take what they take, so that a second of
theirs counts `faster` seconds.
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
from gangsched.local.plane import Options, Plane
from simulator.experiments.run import Run, entries_of, prepare
from simulator.jobs import Job, JobOutcome
from simulator.scenarios.scenario import Scenario

_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
_OURS = "/apis/gangsched.io/v1beta1"
_NAME_LABEL = "training.kubeflow.org/job-name"
_SLACK_S = 120.0
"""A run is given up when no job ended for so long, and for as long as the longest of them runs."""


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
    """A receiver of the watch on pods: where each job's are bound, and when all have ended."""

    outcomes: dict[str, JobOutcome]
    now_s: Callable[[], float]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    left: int = 0
    _bound: dict[str, dict[str, str]] = field(default_factory=dict)
    _ended: dict[str, set[str]] = field(default_factory=dict)
    _since_s: dict[str, float] = field(default_factory=dict)

    def seen(self, raw: bytes) -> None:
        """Note a pod that is bound, or has ended."""
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

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Note a pod that left; before its work was done, the job was stopped."""
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


def rehearse(
    scenario: Scenario,
    seed: int,
    faster: float,
    journal: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Run, float]:
    """Run a scenario on a fresh local control plane; return the run, and its greatest delay.

    The delay is that of creating a job, in real seconds: a world that falls behind its own clock
    measures itself. What the scheduler was told and decided is in the journal afterwards.

    Raises:
        ConfigError: the scenario asks for something that this world cannot do.
        PlaneError: the control plane did not start.

    """
    if scenario.cluster.snapshot or scenario.faults.model_fields_set:
        raise ConfigError(
            f"{scenario.name}: on KWOK there are no faults, and no snapshot to begin with"
        )
    result, jobs, _ = prepare(scenario, seed)
    odd = next((job for job in jobs if job.needs is not None or job.minimum is not None), None)
    if odd is not None:
        raise ConfigError(f"{scenario.name}: job {odd.name} cannot be written as a PyTorchJob")
    groups = scenario.cluster.nodes
    if len(groups) == 1:
        groups = (groups[0].model_copy(update={"count": len(result.nodes)}),)
    nodes = tuple(one.model_copy(update={"taints": one.taints or ()}) for one in groups)
    plane = Plane("simulate")
    plane.down()
    journal.unlink(missing_ok=True)
    config = plane.folder.parent / "simulate-policies.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    settings = scenario.policies.model_dump(mode="json") | {"journal": str(journal.resolve())}
    config.write_text(yaml.safe_dump(settings))
    options = Options("direct", flags=(("gangsched", f"--config {config}"),))
    try:
        plane.up(NodeFile(nodes=nodes), options, progress)
        begin_s = time.perf_counter()
        late_s = asyncio.run(_run(plane, scenario, result, jobs, faster, progress))
        result.compute_s = time.perf_counter() - begin_s
    finally:
        plane.down()
        config.unlink(missing_ok=True)
    return result, late_s


async def _run(
    plane: Plane,
    scenario: Scenario,
    result: Run,
    jobs: Sequence[Job],
    faster: float,
    progress: Callable[[str], None],
) -> float:
    outcomes = {job.name: JobOutcome(job) for job in jobs}
    async with KubeClient(plane.kubeconfig) as client:
        await _declare(client, scenario, result, jobs)
        begin_s = time.monotonic()

        def now_s() -> float:
            return (time.monotonic() - begin_s) * faster

        seen = _Seen(outcomes, now_s, left=len(jobs))
        watch = Watch(client, "/api/v1/namespaces/default/pods", seen)
        watching = asyncio.create_task(watch.run())
        await watch.synced.wait()
        begin_s = time.monotonic()
        late_s = 0.0
        creating: set[asyncio.Task[Any]] = set()
        for number, job in enumerate(jobs):
            wait_s = begin_s + job.at_s / faster - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            late_s = max(late_s, -wait_s)
            creating.add(asyncio.create_task(client.create(_JOBS, manifest(job, faster))))
            progress(f"{number + 1} of {len(jobs)} jobs came, {seen.left} have not ended")
        await asyncio.gather(*creating)
        longest_s = max((job.runtime_s for job in jobs), default=0.0) / faster
        await _ended(seen, longest_s + _SLACK_S, progress)
        watching.cancel()
        result.end_s = now_s()
    result.outcomes = list(outcomes.values())
    return late_s


async def _ended(seen: _Seen, quiet_s: float, progress: Callable[[str], None]) -> None:
    """Wait until every job has ended, or none of them did for so long."""
    left, give_up_s = 0, 0.0
    while seen.left and (seen.left != left or time.monotonic() < give_up_s):
        if seen.left != left:
            left, give_up_s = seen.left, time.monotonic() + quiet_s
        seen.changed.clear()
        progress(f"{seen.left} jobs have not ended")
        with suppress(TimeoutError):
            await asyncio.wait_for(seen.changed.wait(), 5.0)


async def _declare(
    client: KubeClient, scenario: Scenario, result: Run, jobs: Sequence[Job]
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


def manifest(job: Job, faster: float) -> dict[str, Any]:
    """Return a job as a PyTorchJob whose pods succeed after their time."""
    amounts = {
        key: f"{value}m" if key == "cpu" else value for key, value in job.wants().requests if value
    }
    limits = {key: value for key, value in amounts.items() if "/" in key}
    pod = {
        "metadata": {"annotations": {"gangsched.io/runs-for": f"{job.runtime_s / faster:.3f}s"}},
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
        metadata["annotations"] = {RUNTIME_ANNOTATION: f"{max(job.estimate_s / faster, 1):.0f}"}
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


# -- the two worlds side by side ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """How alike two runs of the same jobs are.

    `order` is the share of pairs of jobs that start in the same order, of those that start apart
    in both; waits are means in seconds, `apart_s` how far apart starts may be and count as one.
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
    """Compare the same jobs in two worlds."""
    others = {outcome.job.id: outcome for outcome in second}
    pairs = [
        (one, others[one.job.id])
        for one in first
        if one.started_s is not None and others[one.job.id].started_s is not None
    ]
    starts = [(one.started_s or 0.0, other.started_s or 0.0) for one, other in pairs]
    same = total = 0
    for at, (a, b) in enumerate(starts):
        for c, d in starts[at + 1 :]:
            if abs(a - c) > apart_s and abs(b - d) > apart_s:
                total += 1
                same += (a < c) == (b < d)
    waits = [(one.wait_s or 0.0, other.wait_s or 0.0) for one, other in pairs]
    count = max(len(pairs), 1)
    furthest = sorted(
        ((one.job.id, w, v) for (one, _), (w, v) in zip(pairs, waits, strict=True)),
        key=lambda item: -abs(item[1] - item[2]),
    )
    return Agreement(
        len(pairs),
        same / total if total else 1.0,
        (sum(w for w, _ in waits) / count, sum(v for _, v in waits) / count),
        (
            max((one.ended_s or 0.0 for one, _ in pairs), default=0.0),
            max((other.ended_s or 0.0 for _, other in pairs), default=0.0),
        ),
        tuple(furthest[:5]),
    )


def start_delay_s(run: Run, faster: float) -> float:
    """Return the median real time from a job's creation to its start, of those that did not wait.

    It is what the calls of a start take; a tenth of the jobs is taken to have found room at once.
    """
    waits = sorted(
        (outcome.wait_s or 0.0) / faster for outcome in run.outcomes if outcome.wait_s is not None
    )
    first = waits[: max(len(waits) // 10, 1)]
    return first[len(first) // 2] if first else 0.0
