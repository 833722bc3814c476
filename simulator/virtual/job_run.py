"""A load of jobs in virtual time, through the production engine and planner.

Who starts when: arrivals, run times, queues, preemption with checkpoints, nodes that fail, and
what the owners of the jobs see. Pods are bound as soon as there is room reserved for their gang;
`calls.py` has them created and bound by calls that take time and fail. The invariants are judged
after every event.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import Booking, Queue
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.core.quota.ledger import Ledger
from simulator.invariants.placement_checks import ViolationError
from simulator.invariants.run_checker import RunChecker
from simulator.jobs import Job, JobOutcome
from simulator.virtual.api_server import Writes
from simulator.virtual.event_loop import EventLoop
from simulator.virtual.usage_meter import Meter

_IDLE_MAX_S = 2 * 86_400.0
"""A run ends when nothing ran for this long and no job will arrive."""


class JobRun:
    """One run. `fates` tells what became of every job."""

    def __init__(
        self,
        nodes: Iterable[Node],
        jobs: Iterable[Job],
        policies: Policies,
        queues: Iterable[Queue] = (),
        *,
        bookings: Iterable[Booking] = (),
        writes: Writes | None = None,
        limits: Limits | None = None,
        ledger: Ledger | None = None,
        judge: bool = True,
        meter: Meter | None = None,
        planned: Callable[[float], None] | None = None,
        replan_s: float | None = None,
        plan_interval_s: float = 0.0,
        start_s: Callable[[], float] | None = None,
        told: Callable[[o.Report], None] | None = None,
        engine: type[Engine] = Engine,
    ) -> None:
        self._build = engine
        self.engine = engine(limits or Limits(), ledger)
        self.fates: dict[GangId, JobOutcome] = {job.id: JobOutcome(job) for job in jobs}
        self._loop = EventLoop()
        self.preemptions: list[o.Preempt] = []
        queues = tuple(queues)
        self.judge = RunChecker(self.engine, queues) if judge else None
        self._meter = meter
        self._policies = policies
        self._writes = writes
        self._planned = planned
        self._start_s = start_s or (lambda: 0.0)
        self._told = told
        self.cycles = self.events = 0
        self._interval_s = plan_interval_s
        self._plan_next_s = 0.0
        self._pods: dict[GangId, dict[PodName, PodUid]] = {}
        self._bound: dict[GangId, set[PodUid]] = {}
        self._since_s: dict[GangId, float] = {}
        self._waits: dict[GangId, None] = {}
        self._left = self._coming = 0
        self._uids = 0
        self.engine.limits = replace(self.engine.limits, replan_s=replan_s or 10.0)
        for node in nodes:
            self.observe(f.NodeSeen(node))
        for queue in queues:
            self.observe(f.QueueSeen(queue))
        for booking in bookings:
            self.observe(f.BookingSeen(booking))
        for fate in self.fates.values():
            self._left += 1
            self._coming += 1
            self.at(fate.job.at_s, lambda fate=fate: self._comes(fate))  # type: ignore[misc]

    # -- time ---------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Return the virtual time."""
        return self._loop.now_s

    def at(self, at_s: float, event: Callable[[], None]) -> None:
        """Schedule an event."""
        self._loop.at(at_s, event)

    def run(self, until_s: float = float("inf")) -> "JobRun":
        """Run until all jobs are done, nothing is left to happen, or a moment."""
        beat_s, last_s = self.engine.limits.replan_s, self.now_s
        while self._left:
            tick_s = self.engine.next_due_s()
            next_s = min(self._loop.next_s(), tick_s if tick_s is not None else float("inf"))
            if self.engine.waits():
                next_s = min(next_s, self.now_s + beat_s)
            next_s = max(next_s, self.now_s)
            if next_s > until_s or next_s == float("inf"):
                break
            self._loop.now_s = next_s
            while self._loop.next_s() <= next_s:
                self._loop.run_next()
                self.events += 1
            self._execute(self.engine.tick(self.now_s))
            self._plan()
            if self.judge is not None:
                self.judge.look(self.now_s)
            if self._since_s or self._coming:
                last_s = self.now_s
            elif self.now_s - last_s > _IDLE_MAX_S or self._stuck():
                break
        if until_s != float("inf"):
            self._loop.now_s = max(self.now_s, until_s)
        return self

    def _stuck(self) -> bool:
        """Return whether nothing runs or is scheduled, so that pending jobs wait for ever."""
        scheduled = self._loop.next_s() < float("inf")
        return not (
            scheduled or self._since_s or self.engine.wants_plan() or self._awaits_a_moment()
        )

    def _awaits_a_moment(self) -> bool:
        """Return whether a deadline or an advance reservation may change what can start."""
        due_s = self.engine.next_due_s()
        return due_s is not None or any(b.window(self.now_s) for b in self.engine.bookings.values())

    def _plan(self) -> None:
        if self.now_s < self._plan_next_s:
            return
        for undecided in range(100):
            if not self.engine.wants_plan():
                return
            if self._interval_s and self.now_s >= self._plan_next_s:
                self._plan_next_s = self.now_s + self._interval_s
                self.at(self._plan_next_s, lambda: None)
            starts = None if self._writes is None else self._writes.room(self.now_s)
            if starts is not None and starts <= 0:
                return
            snapshot = self.engine.snapshot(now_s=self.now_s, starts=starts)
            plan = make_plan(snapshot, self._policies, self.now_s)
            self.cycles += 1
            if undecided == 99 and not (plan.placements or plan.refusals or plan.lines):
                raise ViolationError(
                    f"t={self.now_s:.3f} gangs are planned again and again, to no decision"
                )
            if self._planned is not None:
                self._planned(self.now_s)
            self._execute(self.engine.accept(plan, self.now_s))

    # -- questions ----------------------------------------------------------------------------

    def waiting(self) -> Iterator[JobOutcome]:
        """Yield the jobs that wait, for the first time or again."""
        return (self.fates[gang] for gang in self._waits)

    def busy(self) -> bool:
        """Tell whether there is a job that has not ended."""
        return self._left > 0

    def close(self) -> None:
        """Count what runs at the end up to now."""
        for gang, since_s in self._since_s.items():
            self.fates[gang].runs.append((since_s, self.now_s))
        self._since_s.clear()

    # -- jobs ---------------------------------------------------------------------------------

    def _comes(self, fate: JobOutcome) -> None:
        self._coming -= 1
        self._waits[fate.job.id] = None
        self.observe(f.GangSeen(fate.job.gang()))

    def _reserved(self, gang: GangId, places: o.Assignments) -> None:
        """Have the pods of a reserved gang bound, or made where their binding takes calls."""
        state = self.engine.gangs.get(gang)
        if state is None or self.fates[gang].ended_s is not None:
            return
        for name, node in places:
            member = state.members.get(name)
            if name in self._pods.get(gang, {}) or member is None or member.node != node:
                continue
            self._make(gang, name, node)

    def _make(self, gang: GangId, name: PodName, node: NodeName) -> None:
        """Have a pod on the node that was reserved for it."""
        self._pod(gang, name, node)

    def _pod(self, gang: GangId, name: PodName, node: NodeName | None = None) -> None:
        """Make a pod, bound already or not."""
        self._uids += 1
        uid = self._pods.setdefault(gang, {})[name] = PodUid(str(self._uids))
        if node is None:
            member = self.engine.gangs[gang].members[name]
            self.observe(f.PodSeen(uid, name, member.needs, gang, member.role))
        else:
            self._bind(gang, name, uid, node)

    def _bind(self, gang: GangId, name: PodName, uid: PodUid, node: NodeName) -> None:
        self._bound.setdefault(gang, set()).add(uid)
        state = self.engine.gangs[gang]
        member, minimum = state.members[name], state.minimum()
        pod = f.PodSeen(uid, name, member.needs, gang, member.role, node, minimum=minimum)
        self.observe(replace(pod, started_s=self.now_s))
        if gang not in self._since_s and len(self._bound[gang]) >= self.fates[gang].job.least():
            self._starts(gang)

    def resume(self, gang: GangId, seats: Iterable[tuple[str, NodeName]], started_s: float) -> None:
        """Let a job run that ran before this run began: roles and nodes of its pods."""
        self.fates[gang].started_s = started_s
        for role, node in seats:
            free = (
                member.name
                for member in self.engine.gangs[gang].members.values()
                if member.role == role and member.name not in self._pods.get(gang, {})
            )
            self._pod(gang, next(free), node)

    def _starts(self, gang: GangId) -> None:
        """Let a job run: enough of its pods are bound."""
        fate = self.fates[gang]
        self._since_s[gang] = self.now_s
        self._waits.pop(gang, None)
        fate.started_s = self.now_s if fate.started_s is None else fate.started_s
        left_s = fate.job.runtime_s - fate.done_s + self._start_s()
        run = len(fate.runs) + fate.stopped
        self.at(self.now_s + left_s, lambda: self._ends(gang, run))
        self._saves(gang, run)

    def _saves(self, gang: GangId, run: int) -> None:
        """Write a checkpoint now and then."""
        job = self.fates[gang].job
        if job.checkpoint_s is None:
            return

        def save() -> None:
            fate = self.fates[gang]
            if gang in self._since_s and run == len(fate.runs) + fate.stopped:
                self.observe(f.GangSeen(fate.job.gang(self.now_s)))
                self.at(self.now_s + job.checkpoint_s, save)  # type: ignore[operator]

        self.at(self.now_s + job.checkpoint_s, save)

    def _ends(self, gang: GangId, run: int) -> None:
        fate = self.fates[gang]
        if gang not in self._since_s or run != len(fate.runs) + fate.stopped:
            return  # it was stopped meanwhile
        fate.runs.append((self._since_s.pop(gang), self.now_s))
        fate.ended_s = self.now_s
        self._left -= 1
        self._bound.pop(gang, None)
        self._over(gang, tuple(self._pods.pop(gang, {}).values()))

    def _over(self, gang: GangId, pods: tuple[PodUid, ...]) -> None:
        """Remove a job whose work is done, and what is left of its pods."""
        for uid in pods:
            self.observe(f.PodGone(uid))
        self.observe(f.GangGone(gang))

    def _stopped(self, gang: GangId) -> None:
        """Take note that a run of a job was cut short."""
        since_s = self._since_s.pop(gang, None)
        if since_s is None:
            return
        self._waits[gang] = None
        fate = self.fates[gang]
        ran_s = self.now_s - since_s
        every_s = fate.job.checkpoint_s
        kept_s = ran_s // every_s * every_s if every_s else 0.0
        fate.done_s += kept_s
        fate.lost_gpu_s += (ran_s - kept_s) * fate.job.all_gpus()
        fate.runs.append((since_s, self.now_s))
        fate.stopped += 1

    def _leaves(self, gang: GangId, name: PodName, uid: PodUid) -> None:
        if self._pods.get(gang, {}).get(name) == uid:
            self._lose(gang, name, uid)

    def _lose(self, gang: GangId, name: PodName, uid: PodUid) -> None:
        del self._pods[gang][name]
        self._bound.get(gang, set()).discard(uid)
        self.observe(f.PodGone(uid))

    def node_returns(self, node: Node) -> None:
        """Have a node back, empty."""
        self.observe(f.NodeSeen(node))

    def node_fails(self, name: str) -> None:
        """Lose a node and the pods on it."""
        lost = [pod for pod in self.engine.pods() if pod.node == name and pod.gang is not None]
        self.observe(f.NodeGone(NodeName(name)))
        for pod in lost:
            gang = pod.gang
            if gang is not None and self._pods.get(gang, {}).get(pod.name) == pod.uid:
                self._lose(gang, pod.name, pod.uid)
                if len(self._bound.get(gang, ())) < self.fates[gang].job.least():
                    self._stopped(gang)

    # -- orders -------------------------------------------------------------------------------

    def observe(self, fact: f.Fact) -> None:
        """Tell the engine a fact and do what it orders."""
        if self.judge is not None:
            self.judge.observe(fact)
        if self._meter is not None:
            self._meter.observe(fact, self.now_s)
        self._execute(self.engine.observe(fact, self.now_s))

    def _execute(self, orders: tuple[o.Order, ...]) -> None:
        if self._told is not None:  # words first: what follows from an order has words of its own
            for order in orders:
                if isinstance(order, o.Report):
                    self._told(order)
        for order in orders:
            match order:
                case o.Reserve(gang, places):
                    if self.judge is not None:
                        self.judge.promised(gang)
                    if self._writes is None:
                        self._reserved(gang, places)
                        continue
                    when_s = self._writes.when(self.now_s)
                    self.at(when_s, lambda g=gang, p=places: self._reserved(g, p))  # type: ignore[misc]
                case o.Preempt():
                    self.preemptions.append(order)
                    if self.judge is not None:
                        self.judge.promised(order.by)
                case o.Evict(gang, uid, name):
                    if not self._keeps_minimum(gang):
                        self._stopped(gang)
                    grace_s = self.fates[gang].job.grace_s
                    leave = lambda g=gang, n=name, u=uid: self._leaves(g, n, u)  # noqa: E731
                    self.at(self.now_s + grace_s, leave)
                case _:
                    self._other(order)

    def _other(self, order: o.Order) -> None:
        """Do what is ordered of pods that exist and are not bound: here there are none."""

    def _keeps_minimum(self, gang: GangId) -> bool:
        state = self.engine.gangs.get(gang)
        return state is not None and state.state.value == "Placed"
