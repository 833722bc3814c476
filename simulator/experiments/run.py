"""One run of a scenario with one seed: the production engine in virtual time, and its result."""

import gc
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.facts import TopologySeen
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import Queue
from gangsched.core.policy import Policies
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.kube.decoding.cluster.nodes import node_fact
from gangsched.kube.decoding.cluster.queues import parse_queue as read_queue
from gangsched.kube.decoding.metadata import decode_group
from gangsched.local.nodes import RACK_LABEL, NodeGroup
from gangsched.plugins import load_policies
from simulator.experiments.prospects import Hopeless, hopeless
from simulator.jobs import GPU, Job, JobOutcome
from simulator.scenarios.initial_state import InitialState, read_initial_state
from simulator.scenarios.scenario import COUNTING, QueueEntry, QueuesOfWorkload, Scenario
from simulator.scenarios.workload import demand, jobs_of, queues_of, traces
from simulator.traces import Trace
from simulator.virtual.api_calls import ApiCallJobRun
from simulator.virtual.api_server import ApiServer, Writes
from simulator.virtual.job_run import JobRun, Observers, Timing
from simulator.virtual.node_market import NodeMarket, PoolFigures, SimulatedPool
from simulator.virtual.usage_meter import Meter, QuotaUse, Stays

SAMPLES = 400
PICTURES = 6
"""How many times the GPUs in use on every node are recorded."""

_REPORTS_MAX = 24
_PATROL_S = 300.0
_GARBAGE = 50_000


@dataclass(slots=True)
class Sample:
    """The cluster at one time; `in_pieces` are the free GPUs of partly used nodes."""

    at_s: float
    gpus: int
    used: float
    in_pieces: float
    waiting: dict[str, int]
    waiting_gpus: float


@dataclass(slots=True)
class RunResult:
    """The result of a run.

    `stories` has the reports of each gang: time, message, reason. `never` has the gangs that cannot
    run. `quota_use` counts up to the arrival of the last job, at `last_s`.
    """

    scenario: Scenario
    seed: int
    nodes: list[Node]
    queues: list[Queue]
    outcomes: list[JobOutcome]
    samples: list[Sample] = field(default_factory=list)
    pictures: list[tuple[float, list[float]]] = field(default_factory=list)
    stories: dict[GangId, list[tuple[float, str, str]]] = field(default_factory=dict)
    never: dict[GangId, Hopeless] = field(default_factory=dict)
    stays: Stays | None = None
    quota_use: dict[str, QuotaUse] = field(default_factory=dict)
    last_s: float = 0.0
    left_out: dict[str, int] = field(default_factory=dict)
    end_s: float = 0.0
    compute_s: float = 0.0
    events: int = 0
    cycles: int = 0
    preempted: int = 0
    pool_nodes: frozenset[NodeName] = frozenset()
    """Those of `nodes` that exist only while they are bought."""
    pools: dict[str, PoolFigures] = field(default_factory=dict)
    nodes_bought: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """How many nodes of each pool there were, after each change."""

    def tree(self) -> QueueTree:
        """Return its queues as a tree."""
        return QueueTree(self.queues)


def policies_of(scenario: Scenario) -> Policies:
    """Load the policies that a scenario names.

    Raises:
        ConfigError: a policy or an option of it does not exist.

    """
    return load_policies(scenario.policies)


def nodes_of(scenario: Scenario, jobs: Sequence[Job]) -> list[Node]:
    """Return the declared nodes, or as many as `cluster.load` needs for these jobs."""
    groups = scenario.cluster.nodes
    if scenario.cluster.load is not None:
        wanted = sum(demand(jobs).values()) / scenario.cluster.load / groups[0].gpus
        groups = (groups[0].model_copy(update={"count": max(math.ceil(wanted), 1)}),)
    return [_node(manifest) for group in groups for manifest in _manifests(group)]


def pools_of(scenario: Scenario) -> list[SimulatedPool]:
    """Return the pools with all nodes that they can make."""
    return [
        SimulatedPool(
            spec,
            tuple(replace(_node(one), price=spec.price) for one in _manifests(spec.group()))
            if spec.nodes
            else (),
        )
        for spec in scenario.pools
    ]


def _manifests(group: NodeGroup) -> list[dict[str, object]]:
    return group.model_copy(update={"taints": group.taints or ()}).manifests()


def _node(manifest: dict[str, object]) -> Node:
    return node_fact(msgspec.json.encode(manifest)).node


def run(
    scenario: Scenario,
    seed: int,
    traces_read: Sequence[Trace] | None = None,
    engine: Callable[[Limits], SchedulingEngine] = Engine,
) -> RunResult:
    """Run a scenario once; tests replace `engine` to prove that the checker finds bugs.

    Raises:
        ConfigError: the scenario cannot be run; the message says which field is wrong.
        TraceError: a trace is wrong.
        ViolationError: an invariant of the scheduler does not hold.

    """
    result, jobs, start = prepare(scenario, seed, traces_read)
    return _Runner(result, jobs, engine, start).run()


def prepare(
    scenario: Scenario, seed: int, traces_read: Sequence[Trace] | None = None
) -> tuple[RunResult, list[Job], InitialState | None]:
    """Return the nodes and queues of a run, its jobs, and its initial state.

    Raises:
        ConfigError, TraceError: see `run`.

    """
    traces_read = traces(scenario) if traces_read is None else traces_read
    jobs = jobs_of(scenario, traces_read, seed)
    nodes = nodes_of(scenario, jobs)
    before = scenario.cluster.snapshot
    initial = read_initial_state(scenario.folder / before) if before is not None else None
    if initial is not None:
        jobs = sorted((*initial.jobs, *jobs), key=lambda job: job.at_s)
        nodes = [*initial.nodes, *nodes]
    if not jobs:
        raise ConfigError(
            f"{scenario.name}: there are no jobs: {before} has no running or pending gangs, and "
            f"workload has no traces or generators"
        )
    bought = [node for pool in pools_of(scenario) for node in pool.nodes]
    queues = _queues(scenario, jobs, [*nodes, *bought], initial)
    result = RunResult(scenario, seed, [*nodes, *bought], queues, [])
    result.pool_nodes = frozenset(node.name for node in bought)
    for trace in traces_read:
        for reason, count in trace.left_out.items():
            result.left_out[reason] = result.left_out.get(reason, 0) + count
    return result, jobs, initial


def never_run(
    result: RunResult, jobs: Sequence[Job], initial: InitialState | None
) -> dict[GangId, Hopeless]:
    """Return the jobs that the empty cluster cannot run, and why.

    Raises:
        ConfigError: a policy that the scenario names does not exist.

    """
    scenario = result.scenario
    topologies = () if initial is None else initial.topologies
    if scenario.cluster.topology is not None:
        topologies = (*topologies, scenario.cluster.topology.topology("default"))
    counting = scenario.policies.model_copy(
        update={"placer": COUNTING, "placer_options": {}}  # its refusals say what is proved
    )
    others = () if initial is None else initial.others
    return hopeless(jobs, result.nodes, result.queues, topologies, others, load_policies(counting))


def entries_of(
    scenario: Scenario, jobs: Sequence[Job], nodes: Sequence[Node]
) -> Sequence[QueueEntry]:
    """Return the queues that the scenario declares, or those that its jobs name."""
    if not isinstance(scenario.queues, QueuesOfWorkload):
        return scenario.queues
    gpus = sum(dict(node.allocatable).get(GPU, 0) for node in nodes)
    return queues_of(scenario.queues, jobs, gpus)


def _queues(
    scenario: Scenario, jobs: Sequence[Job], nodes: Sequence[Node], initial: InitialState | None
) -> list[Queue]:
    if not scenario.queues and initial is not None:
        return list(initial.queues)
    queues = []
    for entry in entries_of(scenario, jobs, nodes):
        raw = msgspec.json.encode(
            {"metadata": {"name": entry.name}, "spec": entry.model_dump(exclude={"name"})}
        )
        queues.append(read_queue(decode_group(raw), {}, {}))
    names = {queue.name for queue in queues} | {"default"}
    unknown = next((job for job in jobs if job.queue not in names), None)
    if unknown is not None:
        raise ConfigError(
            f"{scenario.name}: job {unknown.name} names queue {unknown.queue!r}; the queues are: "
            f"{', '.join(sorted(names))}"
        )
    return queues


class _Runner:
    """Builds a job run from a scenario, schedules its faults, and takes samples."""

    def __init__(
        self,
        result: RunResult,
        jobs: list[Job],
        engine: Callable[[Limits], SchedulingEngine],
        initial: InitialState | None,
    ) -> None:
        self._result = result
        self._rng = random.Random(f"faults {result.seed}")  # noqa: S311 -- no secret
        scenario, delays = result.scenario, result.scenario.delays
        self._start, self._meter = initial, Meter(result.nodes, result.queues)
        self._fixed = [node for node in result.nodes if node.name not in result.pool_nodes]
        inputs = (self._fixed, jobs, policies_of(scenario), result.queues)
        options: dict[str, Any] = {
            "limits": Limits(report_interval_s=_PATROL_S, retry_interval_s=delays.replan),
            "timing": Timing(
                delays.plan,
                self._start_s if delays.start else lambda: 0.0,
                Writes(delays.writes_per_s, delays.burst) if delays.writes_per_s else None,
            ),
            "observers": Observers(self._meter, on_report=self._keep_report),
            "engine": engine,
        }
        faults = scenario.faults
        self._job_run = JobRun(*inputs, **options)
        if faults.any_api():
            api = ApiServer(self._rng, faults.api_latency, faults.api_errors)
            self._job_run = ApiCallJobRun(api, *inputs, **options)
            if faults.restart_mtbf is not None:
                self._restarts(self._job_run, faults.restart_mtbf)
        self._market = self._open_market(scenario)
        if scenario.cluster.topology is not None:
            self._job_run.observe(TopologySeen(scenario.cluster.topology.topology("default")))
        if initial is not None:
            self._resume(initial)
        longest_s = max(job.runtime_s for job in jobs)
        self._until_s = scenario.horizon or float("inf")
        last_s = max(jobs[-1].at_s, 0.0)
        result.last_s = max((job.at_s for job in jobs if 0 < job.at_s <= self._until_s), default=0)
        self._every_s = max(min(last_s + longest_s, self._until_s) / SAMPLES, 1.0)
        self._picture_s = max(min(last_s, self._until_s) / PICTURES, 1.0)
        self._gpus = np.array([dict(node.allocatable).get(GPU, 0) for node in result.nodes])
        self._break()

    def _open_market(self, scenario: Scenario) -> NodeMarket | None:
        if not scenario.pools:
            return None
        pools, seed = pools_of(scenario), self._result.seed
        market = NodeMarket(self._job_run, pools, scenario.buying, seed)
        observers = self._job_run.observers
        observers.on_fact, observers.on_refusals = market.observe, market.planned
        return market

    def _resume(self, start: InitialState) -> None:
        """Restore the initial state."""
        job_run = self._job_run
        facts: list[f.Fact] = [f.TopologySeen(declared) for declared in start.topologies]
        facts += [f.AdvanceReservationSeen(declared) for declared in start.bookings]
        for fact in (*facts, *start.others):
            job_run.observe(fact)
        for gang, seats in start.seats.items():
            job_run.at(0.0, lambda g=gang, s=seats: job_run.resume(g, s, start.started_s[g]))  # type: ignore[misc]

    def run(self) -> RunResult:
        begin_s = time.perf_counter()
        self._job_run.at(0.0, self._take_sample)
        if self._result.last_s:
            self._job_run.at(self._result.last_s, self._last_came)
        with _little_garbage():
            self._job_run.run(self._until_s)
        result, job_run = self._result, self._job_run
        if job_run.checker is not None and not result.scenario.horizon:
            job_run.checker.over((outcome.job for outcome in job_run.waiting()), job_run.now_s)
        result.compute_s = time.perf_counter() - begin_s
        result.outcomes = list(job_run.outcomes.values())
        job_run.close()
        if self._market is not None:
            self._market.close()
            result.pools, result.nodes_bought = self._market.figures, self._market.history
        result.last_s = result.last_s or job_run.now_s
        result.quota_use = result.quota_use or self._meter.quota_use(job_run.now_s)
        result.stays = self._meter.close(job_run.now_s)
        left = [outcome.job for outcome in result.outcomes if outcome.started_s is None]
        result.never = never_run(result, left, self._start)
        result.preempted = sum(not order.pods for order in job_run.preemptions)
        result.end_s, result.events, result.cycles = job_run.now_s, job_run.events, job_run.cycles
        return result

    # -- samples ------------------------------------------------------------------------------

    def _take_sample(self) -> None:
        result, engine, now_s = self._result, self._job_run.engine, self._job_run.now_s
        cluster = engine.view.cluster
        present = np.array([node.name in cluster.rows for node in result.nodes])
        has = np.where(present, self._gpus, 0)
        used = np.where(present, self._meter.on_nodes(), 0.0)
        partly = (used > 0) & (used < has)
        waiting: dict[str, int] = {}
        gpus = 0.0
        for outcome in self._job_run.waiting():
            waiting[outcome.job.queue] = waiting.get(outcome.job.queue, 0) + 1
            gpus += outcome.job.all_gpus()
        in_pieces = float((has - used)[partly].sum())
        result.samples.append(
            Sample(now_s, int(has.sum()), float(used.sum()), in_pieces, waiting, gpus)
        )
        due_s = self._picture_s * (len(result.pictures) + 0.5)
        if now_s >= due_s and len(result.pictures) < PICTURES:
            result.pictures.append((now_s, np.where(present, used, -1.0).tolist()))
        if self._job_run.busy():
            self._job_run.at(now_s + self._every_s, self._take_sample)

    def _last_came(self) -> None:
        self._result.quota_use = self._meter.quota_use(self._job_run.now_s)

    def _keep_report(self, report: o.Report) -> None:
        """Keep the reports of a gang; of successive reports with one reason, the first and last."""
        if self._job_run.outcomes[report.gang].ended_s is not None:
            return  # the job is done; these reports are about the deletion of its pods
        kept = self._result.stories.setdefault(report.gang, [])
        if kept and kept[-1][1] == report.message:
            return
        again = [reason for *_, reason in kept[-2:]] == [report.reason] * 2
        if again or len(kept) == _REPORTS_MAX:
            del kept[-1 if again else _REPORTS_MAX // 2]
        kept.append((self._job_run.now_s, report.message, report.reason))

    # -- faults ---------------------------------------------------------------------------------

    def _start_s(self) -> float:
        delays = self._result.scenario.delays
        return delays.start * math.exp(self._rng.gauss(0.0, delays.start_spread))

    def _restarts(self, job_run: ApiCallJobRun, mtbf_s: float) -> None:
        def restart() -> None:
            job_run.restart()
            self._restarts(job_run, mtbf_s)

        job_run.at(job_run.now_s + self._rng.expovariate(1 / mtbf_s), restart)

    def _break(self) -> None:
        """Schedule the first failure of each node and rack."""
        faults = self._result.scenario.faults
        if faults.node_mtbf is not None:
            for node in self._fixed:
                self._fails([node], faults.node_mtbf, faults.node_repair)
        if faults.rack_mtbf is not None:
            for rack in racks(self._fixed).values():
                self._fails(rack, faults.rack_mtbf, faults.rack_repair)

    def _fails(self, nodes: list[Node], mtbf_s: float, repair_s: float) -> None:
        at_s = self._job_run.now_s + self._rng.expovariate(1 / mtbf_s)
        back_s = self._rng.expovariate(1 / repair_s)

        def fail() -> None:
            present = [
                node for node in nodes if node.name in self._job_run.engine.view.cluster.rows
            ]
            for node in present:
                self._job_run.node_fails(node.name)
            self._job_run.at(self._job_run.now_s + back_s, lambda: back(present))

        def back(failed: list[Node]) -> None:
            for node in failed:
                self._job_run.node_returns(node)
            self._fails(nodes, mtbf_s, repair_s)

        self._job_run.at(at_s, fail)


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Collect garbage seldom, and never the jobs: a run leaves almost no cyclic garbage.

    All is thawed in the end, also what the caller froze: else each run of a process would be kept.
    """
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


def racks(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Return the nodes of each rack; nodes without a rack label are left out."""
    racks: dict[str, list[Node]] = {}
    for node in nodes:
        rack = node.labels.get(RACK_LABEL)
        if rack is not None:
            racks.setdefault(rack, []).append(node)
    return racks
