"""Random faults in virtual time: seeded latencies and failures around the production engine.

This driver of the core executes orders after random delays, lets bindings fail, removes nodes, and
delivers some facts twice. After every event, the invariants are checked on its own record of pods.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodRequirements
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from simulator.invariants.placement_checks import (
    BoundPod,
    ViolationError,
    check_all_or_none,
    check_no_overcommit,
)
from simulator.virtual.event_loop import EventLoop


@dataclass(frozen=True, slots=True)
class FaultRates:
    """What fails and how often; probabilities for each action, times in seconds."""

    bind_fails: float = 0.02
    prepare_fails: float = 0.02
    fact_repeats: float = 0.1
    node_mtbf_s: float = 2_000.0
    node_repair_s: float = 60.0
    plan_s: float = 0.05
    latency_s: tuple[float, float] = (0.001, 0.5)
    answer_fails: float = 0.2


@dataclass(frozen=True, slots=True)
class GeneratedWorkload:
    """Generated gangs: random arrivals, mixed sizes; for half of them the pods come first."""

    nodes: int = 20
    gpus_per_node: int = 8
    gangs: int = 100
    arrival_s: float = 5.0
    runtime_s: tuple[float, float] = (5.0, 120.0)
    sizes: tuple[int, ...] = (1, 1, 2, 4, 8, 16, 32)
    gpus: tuple[int, ...] = (1, 1, 2, 4, 8)
    asks: float = 0.0
    """The share of gangs that save their work before they are stopped; half of all are urgent."""


@dataclass(slots=True)
class _Pod:
    uid: PodUid
    name: PodName
    gang: GangId
    needs: PodRequirements
    runtime_s: float
    node: NodeName | None = None
    ended: bool = False
    saved_s: float = 0.0


@dataclass(slots=True)
class FaultRunResult:
    """Counts of a run, and the log of its orders."""

    placed: int = 0
    finished: int = 0
    broken: int = 0
    refused: int = 0
    binds: int = 0
    announced: int = 0
    withdrawn: int = 0
    preempted: int = 0
    end_s: float = 0.0
    log: list[str] = field(default_factory=list)


class FaultWorld:
    """One seeded run. `run` returns the outcome or raises the first violation."""

    def __init__(
        self,
        seed: int,
        policies: Policies,
        workload: GeneratedWorkload | None = None,
        faults: FaultRates | None = None,
        engine: Callable[[Limits], Engine] = Engine,
    ) -> None:
        self.seed = seed
        self.faults = faults or FaultRates()
        self.workload = workload or GeneratedWorkload()
        self.outcome = FaultRunResult()
        self._policies = policies
        self._random = random.Random(seed)  # noqa: S311 -- a simulation, not a secret
        self._engine = engine(Limits(schedule_timeout_s=20.0, backoff_s=0.5, node_exclusion_s=5.0))
        self._loop = EventLoop()
        self._planning = False
        self._nodes: dict[NodeName, Node] = {}
        self._pods: dict[PodUid, _Pod] = {}
        self._gangs: dict[GangId, Gang] = {}
        self._done: dict[GangId, None] = {}
        self._runtime_s: dict[GangId, float] = {}
        self._partial: dict[GangId, float] = {}
        self._notices: dict[GangId, o.AnnounceStop] = {}
        self._uids = 0

    def run(self, horizon_s: float = 20_000.0) -> FaultRunResult:
        """Run until every gang finished or the horizon is reached.

        Raises:
            ViolationError: an invariant broke, or a gang that fits never ran.

        """
        self._set_up()
        while self._loop.next_s() <= horizon_s and len(self._done) < self.workload.gangs:
            self._loop.run_next()
            self._execute(self._engine.tick(self._now_s))
            self._plan_if_due()
            self._check()
        if len(self._done) < self.workload.gangs:
            left = sorted(gang for gang in self._gangs if gang not in self._done)[:3]
            raise ViolationError(f"seed {self.seed}: not finished by {horizon_s:g} s: {left}")
        self.outcome.end_s = self._now_s
        return self.outcome

    @property
    def _now_s(self) -> float:
        return self._loop.now_s

    # -- set-up -------------------------------------------------------------------------------

    def _set_up(self) -> None:
        load = self.workload
        for index in range(load.nodes):
            name = NodeName(f"node-{index:03}")
            self._node_comes(
                Node(name, (("cpu", 64_000), ("nvidia.com/gpu", load.gpus_per_node), ("pods", 40)))
            )
        at_s = 0.0
        for index in range(load.gangs):
            at_s += self._random.expovariate(1 / load.arrival_s)
            self._at(at_s, lambda index=index: self._gang_comes(index))  # type: ignore[misc]
        self._at(1.0, self._heartbeat)
        if self.faults.node_mtbf_s:
            self._at(self._random.expovariate(1 / self.faults.node_mtbf_s), self._node_fails)

    def _heartbeat(self) -> None:
        """Schedule a tick of the engine each second."""
        self._at(self._now_s + 1.0, self._heartbeat)

    def _gang_comes(self, index: int) -> None:
        load = self.workload
        size = self._random.choice(load.sizes)
        needs = PodRequirements((("cpu", 1000), ("nvidia.com/gpu", self._random.choice(load.gpus))))
        fits = load.nodes * (load.gpus_per_node // dict(needs.requests)["nvidia.com/gpu"])
        size = min(size, max(fits // 2, 1))
        gang_id = GangId(f"sim/gang-{index:04}")
        templated = self._random.random() < 0.5
        roles: tuple[Role, ...] = (Role("Worker", size, size, needs),) if templated else ()
        minimum = size if self._random.random() < 0.7 else max(1, size // 2)
        roles = tuple(replace(role, min_count=minimum) for role in roles)
        gang = Gang(gang_id, minimum, roles, created_s=self._now_s, schedule_timeout_s=20.0)
        if load.asks:
            asks = self._random.random() < load.asks
            priority = self._random.choice((0, 9))
            gang = replace(gang, priority=priority, checkpoint_grace_s=8.0 if asks else None)
        self._gangs[gang_id] = gang
        self._runtime_s[gang_id] = self._random.uniform(*load.runtime_s)
        self._deliver(f.GangSeen(gang))
        if not templated:
            for member in range(size):
                self._pod_comes(gang_id, PodName(f"{gang_id}-worker-{member}"), needs)

    def _pod_comes(self, gang_id: GangId, name: PodName, needs: PodRequirements) -> None:
        self._uids += 1
        pod = _Pod(PodUid(f"uid-{self._uids}"), name, gang_id, needs, self._runtime_s[gang_id])
        self._pods[pod.uid] = pod
        self._deliver_pod(pod)

    def _node_comes(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._deliver(f.NodeSeen(node))

    def _node_fails(self) -> None:
        self._at(
            self._now_s + self._random.expovariate(1 / self.faults.node_mtbf_s), self._node_fails
        )
        if len(self._nodes) < self.workload.nodes:
            return
        node = self._nodes.pop(self._random.choice(sorted(self._nodes)))
        self._deliver(f.NodeGone(node.name))
        for pod in [pod for pod in self._pods.values() if pod.node == node.name]:
            self._pod_leaves(pod)
        self._at(self._now_s + self.faults.node_repair_s, lambda: self._node_comes(node))

    # -- facts --------------------------------------------------------------------------------

    def _deliver_pod(self, pod: _Pod) -> None:
        self._deliver(
            f.PodSeen(
                pod.uid,
                pod.name,
                pod.needs,
                pod.gang,
                "Worker",
                pod.node,
                ended=pod.ended,
                checkpoint_s=pod.saved_s or None,
            )
        )

    def _deliver(self, fact: f.Fact) -> None:
        """Give a fact to the engine, sometimes twice."""
        times = 2 if self._random.random() < self.faults.fact_repeats else 1
        for _ in range(times):
            self._execute(self._engine.observe(fact, self._now_s))

    def _later(self, event: Callable[[], None]) -> None:
        self._at(self._now_s + self._random.uniform(*self.faults.latency_s), event)

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        self._loop.at(at_s, event)

    # -- orders -------------------------------------------------------------------------------

    def _plan_if_due(self) -> None:
        if self._planning or not self._engine.has_pending_work():
            return
        self._planning = True
        snapshot = self._engine.begin_cycle()
        plan = make_plan(snapshot, self._policies, self._now_s)
        self.outcome.refused += len(plan.refusals)

        def accept() -> None:
            self._planning = False
            self._execute(self._engine.accept(plan, self._now_s))
            if self._random.random() < self.faults.fact_repeats:  # now the plan is stale
                self._execute(self._engine.accept(plan, self._now_s))

        self._at(self._now_s + self._random.uniform(0, self.faults.plan_s), accept)

    def _execute(self, orders: tuple[o.Order, ...]) -> None:
        for order in orders:
            self.outcome.log.append(f"{self._now_s:.6f} {order}")
            match order:
                case o.Reserve(gang_id, assignments):
                    self._later(lambda g=gang_id, a=assignments: self._create(g, a))  # type: ignore[misc]
                case o.Prepare(uid=uid, node=node):
                    self._later(lambda u=uid, n=node: self._prepare(u, n))  # type: ignore[misc]
                case o.Bind(uid=uid, node=node):
                    self._later(lambda u=uid, n=node: self._bind(u, n))  # type: ignore[misc]
                case o.Evict(uid=uid):
                    self._later(lambda u=uid: self._evict(u))  # type: ignore[misc]
                case o.AnnounceStop():
                    self._announced(order)
                case o.WithdrawStop(gang_id) if order.pods:
                    self._notices.pop(gang_id, None)
                    self.outcome.withdrawn += 1
                case o.Preempt(gang_id) if not order.pods:
                    self._preempted(gang_id)
                case o.Report(reason=o.ReportReason.BROKEN):
                    self.outcome.broken += 1
                case o.Report(reason=o.ReportReason.PLACED):
                    self.outcome.placed += 1
                case _:
                    pass

    def _announced(self, order: o.AnnounceStop) -> None:
        """Have a gang answer after a while, in time or too late; sometimes it does not answer."""
        if order.gang in self._notices:
            return
        self._notices[order.gang] = order
        self.outcome.announced += 1
        if self._random.random() < self.faults.answer_fails:
            return
        uid = self._random.choice(order.pods)[0]
        self._at(self._now_s + self._random.uniform(0.1, 12.0), lambda: self._answer(order, uid))

    def _answer(self, order: o.AnnounceStop, uid: PodUid) -> None:
        pod = self._pods.get(uid)
        if pod is not None and not pod.ended:
            pod.saved_s = self._now_s
            self._deliver_pod(pod)

    def _preempted(self, gang_id: GangId) -> None:
        """Check that a gang that asks for time had it."""
        self.outcome.preempted += 1
        gang, notice = self._gangs[gang_id], self._notices.pop(gang_id, None)
        if gang.checkpoint_grace_s is None:
            return
        members = [pod for pod in self._pods.values() if pod.gang == gang_id]
        whole = sum(pod.node is not None for pod in members) >= gang.min_member
        saved = notice is not None and any(p.saved_s >= notice.since_s - 1.0 for p in members)
        if whole and (notice is None or not (saved or self._now_s >= notice.stop_by_s)):
            raise ViolationError(f"seed {self.seed}: {gang_id} is stopped before its time")

    def _create(self, gang_id: GangId, assignments: o.Assignments) -> None:
        """Create the missing pods of a gang that was planned before creation."""
        gang = self._gangs[gang_id]
        state = self._engine.view.gangs.get(gang_id)
        if not gang.planned_before_creation or gang_id in self._done or state is None:
            return
        existing = {pod.name for pod in self._pods.values() if pod.gang == gang_id}
        needs = gang.roles[0].needs
        assert needs is not None, "planned before creation"  # noqa: S101
        for name, node in assignments:
            member = state.members.get(name)
            if name not in existing and member is not None and member.assigned_node == node:
                self._pod_comes(gang_id, name, needs)

    def _prepare(self, uid: PodUid, node: NodeName) -> None:
        if uid not in self._pods:
            return
        if node not in self._nodes or self._random.random() < self.faults.prepare_fails:
            self._deliver(f.PrepareFailed(uid, node, "a filter said no"))
        else:
            self._deliver(f.Prepared(uid, node))

    def _bind(self, uid: PodUid, node: NodeName) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        if node not in self._nodes or self._random.random() < self.faults.bind_fails:
            self._deliver(f.BindFailed(uid, node, "the API refused"))
            return
        self.outcome.binds += 1
        pod.node = node
        self._later(lambda: self._deliver_pod(pod) if uid in self._pods else None)
        self._at(self._now_s + pod.runtime_s, lambda: self._ends(pod))

    def _evict(self, uid: PodUid) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            self._pod_leaves(pod)

    def _pod_leaves(self, pod: _Pod) -> None:
        """Delete a pod; its owner creates it again unless its gang is planned before creation."""
        del self._pods[pod.uid]
        self._deliver(f.PodGone(pod.uid))
        gang = self._gangs[pod.gang]
        if pod.gang not in self._done and not gang.planned_before_creation:
            self._later(lambda: self._pod_comes(pod.gang, pod.name, pod.needs))

    def _ends(self, pod: _Pod) -> None:
        """End the job of a pod if its whole gang runs; else try again after the run time."""
        if pod.uid not in self._pods or pod.gang in self._done:
            return
        members = [other for other in self._pods.values() if other.gang == pod.gang]
        bound = [other for other in members if other.node is not None]
        if len(bound) < self._gangs[pod.gang].min_member:
            self._at(self._now_s + pod.runtime_s, lambda: self._ends(pod))
            return
        self._done[pod.gang] = None
        self.outcome.finished += 1
        for other in members:
            del self._pods[other.uid]
            self._deliver(f.PodGone(other.uid))
        self._deliver(f.GangGone(pod.gang))

    # -- checks -------------------------------------------------------------------------------

    def _check(self) -> None:
        running = [
            BoundPod(pod.name, pod.gang, pod.node, pod.needs)
            for pod in self._pods.values()
            if pod.node is not None and not pod.ended
        ]
        allocatable = {name: dict(node.allocatable) for name, node in self._nodes.items()}
        check_no_overcommit(allocatable, running, self._now_s)
        gangs = {
            gang_id: gang for gang_id, gang in self._gangs.items() if gang_id not in self._done
        }
        check_all_or_none(gangs, running, {}, self._partial, self._now_s, grace_s=5.0)
