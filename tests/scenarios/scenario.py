"""Scenarios as data: nodes, queues, jobs, events, and expected outcomes.

Queues are written as users write them (the spec of the CRD); times are seconds from the beginning.
They run in virtual time through the production engine, under the judge of
`simulator/invariants/run_checker.py`.
"""

import json
from pathlib import Path
from typing import Any, Literal

import yaml
from builders import node
from pydantic import BaseModel, ConfigDict, Field

from gangsched.core import facts as f
from gangsched.core.model.constraints import Constraints, LevelRequest
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Queue
from gangsched.core.model.topology import Level, Topology
from gangsched.core.policy import Policies
from gangsched.installed import entry_points
from gangsched.kube.decoding.cluster.queues import parse_queue as decode
from gangsched.kube.decoding.metadata import decode_group
from simulator.jobs import Job
from simulator.virtual.job_run import JobRun

RACKS = Topology("default", (Level("rack", "rack"),))


class Model(BaseModel):
    """Nothing may be misspelt."""

    model_config = ConfigDict(extra="forbid")


class Nodes(Model):
    """Nodes n0, n1, ...; `rack` of them share a rack."""

    count: int = 2
    gpus: int = 8
    cpus: int = 64
    rack: int = 2


class JobText(Model):
    """One job, or `count` of them, `name`-0 and so on, one every `every` seconds."""

    name: str
    count: int = 0
    every: float = 0.0
    at: float = 0.0
    runs: float = 100.0
    told: float | None = Field(None, description="estimate; default: the truth; 0: none")
    pods: int = 1
    minimum: int | None = None
    gpus: int = 8
    queue: str = "default"
    priority: int = 0
    checkpoint: float | None = None
    grace: float = 1.0
    rack: bool = Field(default=False, description="all its pods in one rack")
    preemptible: bool = True
    least: float = Field(0.0, description="minimum run time")

    def jobs(self) -> list[Job]:
        """Return what the core knows as jobs."""
        names = [f"{self.name}-{index}" for index in range(self.count)] or [self.name]
        near = LevelRequest(required="rack") if self.rack else LevelRequest()
        told = self.runs if self.told is None else self.told or None
        return [
            Job(
                name,
                self.at + index * self.every,
                self.runs,
                self.pods,
                self.gpus,
                self.queue,
                priority=self.priority,
                estimate_s=told,
                checkpoint_s=self.checkpoint,
                minimum=self.minimum,
                grace_s=self.grace,
                preemptible=self.preemptible,
                min_runtime_s=self.least,
                constraints=Constraints(near=near),
            )
            for index, name in enumerate(names)
        ]


class Happening(Model):
    """Something at a moment: a node fails or comes back, a queue changes or goes."""

    at: float
    node: str = ""
    does: Literal["fails", "comes"] = "fails"
    queue: str = ""
    becomes: dict[str, Any] | None = None


class Expect(Model):
    """What must hold in the end. `job` may end with * for all of that beginning."""

    job: str = ""
    starts_by: float | None = None
    starts_after: float | None = None
    ends_by: float | None = None
    stopped: int | None = None
    stopped_most: int | None = None
    refused: str = ""
    says: str = ""
    queue: str = ""
    gpus_most: int | None = None
    stops: int | None = None


class Scenario(Model):
    """One scenario; `source` names the issue it comes from, `wants` what its users asked for."""

    name: str
    source: str
    wants: str
    nodes: Nodes = Nodes()
    policies: dict[str, str] = Field(default_factory=dict)
    queues: dict[str, dict[str, Any]] = Field(default_factory=dict)
    jobs: list[JobText]
    happens: list[Happening] = Field(default_factory=list)
    until: float = 10_000.0
    expect: list[Expect]

    def run(self) -> JobRun:
        """Run it to its end."""
        nodes = {one.name: one for one in self._nodes()}
        queues = [read(name, spec) for name, spec in self.queues.items()]
        jobs = [job for text in self.jobs for job in text.jobs()]
        unchanged = not any(one.queue for one in self.happens)
        job_run = JobRun(nodes.values(), jobs, policies(self.policies), queues, checked=unchanged)
        job_run.engine.observe(f.TopologySeen(RACKS), 0.0)
        for one in self.happens:
            if one.queue:
                fact = (
                    f.QueueGone(one.queue)
                    if one.becomes is None
                    else f.QueueSeen(read(one.queue, one.becomes))
                )
                job_run.at(one.at, lambda fact=fact: job_run.observe(fact))
            elif one.does == "fails":
                job_run.at(one.at, lambda name=one.node: job_run.node_fails(name))
            else:
                fact = f.NodeSeen(nodes[one.node])
                job_run.at(one.at, lambda fact=fact: job_run.observe(fact))
        return job_run.run(until_s=self.until)

    def _nodes(self):
        for index in range(self.nodes.count):
            labels = {"rack": f"r{index // self.nodes.rack}"}
            yield node(f"n{index}", self.nodes.gpus, self.nodes.cpus * 1000, labels=labels)


def read(name: str, spec: dict[str, Any]) -> Queue:
    """Read a queue as the scheduler does."""
    body = {"metadata": {"name": name}, "spec": spec}
    return decode(decode_group(json.dumps(body).encode()), {}, {})


def policies(named: dict[str, str]) -> Policies:
    """Return the policies of these names, the defaults for the others."""
    chosen = {
        "order": "fifo",
        "placer": "pack",
        "sharing": "drf",
        "backfill": "easy",
        "preemptor": "cheapest",
    } | named
    made = {
        kind: entry_points(group=f"gangsched.{kind}s")[name].load()()
        for kind, name in chosen.items()
        if name != "none"
    }
    return Policies(**made)


def load_all() -> list[Scenario]:
    """Return the scenarios of every file beside this one."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        found += [Scenario.model_validate(one) for one in yaml.safe_load(path.read_text())]
    return found


def check(scenario: Scenario, job_run: JobRun) -> None:
    """Compare what came of it with what must."""
    for expect in scenario.expect:
        if expect.stops is not None:
            assert len(job_run.preemptions) == expect.stops, job_run.preemptions
        if expect.queue:
            most = job_run.checker.most[expect.queue][("nvidia.com/gpu", "")]
            assert most <= (expect.gpus_most or 0) * 1000, (expect, most)
        outcomes = [
            outcome
            for outcome in job_run.outcomes.values()
            if expect.job
            and (
                outcome.job.name.startswith(expect.job[:-1])
                if expect.job.endswith("*")
                else outcome.job.name == expect.job
            )
        ]
        assert bool(outcomes) == bool(expect.job), f"no job {expect.job}"
        for outcome in outcomes:
            _check_job(expect, outcome, job_run)


def _check_job(expect: Expect, outcome, job_run: JobRun) -> None:
    evidence = (expect, outcome, job_run.engine.view.refusals.get(outcome.job.id))
    if expect.starts_by is not None:
        assert outcome.started_s is not None, evidence
        assert outcome.started_s <= expect.starts_by, evidence
    if expect.starts_after is not None:
        assert outcome.started_s is not None, evidence
        assert outcome.started_s >= expect.starts_after, evidence
    if expect.ends_by is not None:
        assert outcome.ended_s is not None, evidence
        assert outcome.ended_s <= expect.ends_by, evidence
    if expect.stopped is not None:
        assert outcome.stopped == expect.stopped, evidence
    if expect.stopped_most is not None:
        assert outcome.stopped <= expect.stopped_most, evidence
    if expect.refused or expect.says:
        refusal = job_run.engine.view.refusals[GangId(f"ns/{outcome.job.name}")]
        assert expect.refused in ("", refusal.reason.value), evidence
        assert expect.says in refusal.message, evidence
