"""Jobs in virtual time, through the production engine and planner.

A run has arrivals, run times, queues, preemption with checkpoints, failing nodes, and the reports
that users read. Pods are bound as soon as their gang has an assignment. In `api_calls.py`, calls
that take time and may fail create and bind them. The invariants are checked after every event.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import AdvanceReservation, Queue
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from simulator.invariants.placement_checks import ViolationError
from simulator.invariants.run_checker import RunChecker
from simulator.jobs import Job, JobOutcome
from simulator.virtual.api_server import Writes
from simulator.virtual.event_loop import EventLoop
from simulator.virtual.usage_meter import Meter

_LIMITS = Limits()
_IDLE_MAX_S = 2 * 86_400.0
"""A run ends when nothing ran for this long and no job will arrive."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What takes time in a run; without values, everything is instant.

    `start_s` draws the time from binding to running. `writes` limits the calls to the API server.
    """

    plan_interval_s: float = 0.0
    start_s: Callable[[], float] = lambda: 0.0
    writes: Writes | None = None


_AT_ONCE = Timing()


@dataclass(slots=True)
class Observers:
    """What follows a run: a meter of GPUs, and calls at each fact, plan, refusal and report."""

    meter: Meter | None = None
    on_plan: Callable[[float], None] | None = None
    on_report: Callable[[o.Report], None] | None = None
    on_fact: Callable[[f.Fact], None] | None = None
    on_refusals: Callable[[], None] | None = None
    """Called after a plan that refused gangs."""


class JobRun:
    """One run. `outcomes` has a record of every job; `checked` runs are checked at each event."""

    def __init__(
        self,
        nodes: Iterable[Node],
        jobs: Iterable[Job],
        policies: Policies,
        queues: Iterable[Queue] = (),
        *,
        bookings: Iterable[AdvanceReservation] = (),
        limits: Limits = _LIMITS,
        timing: Timing = _AT_ONCE,
        observers: Observers | None = None,
        checked: bool = True,
        engine: Callable[[Limits], SchedulingEngine] = Engine,
    ) -> None:
        self._new_engine = engine
        self.engine = engine(limits)
        self.outcomes: dict[GangId, JobOutcome] = {job.id: JobOutcome(job) for job in jobs}
        self._loop = EventLoop()
        self.preemptions: list[o.Preempt] = []
        queues = tuple(queues)
        self.checker = RunChecker(self.engine, queues) if checked else None
        self.observers = observers or Observers()
        self._policies = policies
        self._timing = timing
        self.cycles = self.events = 0
        self._plan_next_s = 0.0
        self._pods: dict[GangId, dict[PodName, PodUid]] = {}
        self._bound: dict[GangId, set[PodUid]] = {}
        self._since_s: dict[GangId, float] = {}
        self._announced: dict[GangId, float] = {}
        """Jobs with an announced stop, and its time: no work is done from then on."""
        self._saved: dict[GangId, float] = {}
        """Until when the work of a job is saved after its stop was announced."""
        self._waits: dict[GangId, None] = {}
        self._left = self._coming = 0
        self._uids = 0
        for node in nodes:
            self.observe(f.NodeSeen(node))
        for queue in queues:
            self.observe(f.QueueSeen(queue))
        for booking in bookings:
            self.observe(f.AdvanceReservationSeen(booking))
        for outcome in self.outcomes.values():
            self._left += 1
            self._coming += 1
            self.at(outcome.job.at_s, lambda outcome=outcome: self._arrive(outcome))  # type: ignore[misc]

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
        beat_s, last_s = self.engine.limits.retry_interval_s, self.now_s
        while self._left:
            tick_s = self.engine.next_deadline_s()
            next_s = min(self._loop.next_s(), tick_s if tick_s is not None else float("inf"))
            if self.engine.view.has_pending_gangs():
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
            if self.checker is not None:
                self.checker.check(self.now_s)
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
            scheduled or self._since_s or self.engine.has_pending_work() or self._awaits_a_moment()
        )

    def _awaits_a_moment(self) -> bool:
        """Return whether a deadline or an advance reservation may change what can start."""
        due_s = self.engine.next_deadline_s()
        return due_s is not None or any(
            b.window(self.now_s) for b in self.engine.view.bookings.values()
        )

    def _plan(self) -> None:
        if self.now_s < self._plan_next_s:
            return
        interval_s, writes = self._timing.plan_interval_s, self._timing.writes
        for undecided in range(100):
            if not self.engine.has_pending_work():
                return
            if interval_s and self.now_s >= self._plan_next_s:
                self._plan_next_s = self.now_s + interval_s
                self.at(self._plan_next_s, lambda: None)
            starts = None if writes is None else writes.available(self.now_s)
            if starts is not None and starts <= 0:
                return
            snapshot = self.engine.begin_cycle(now_s=self.now_s, pods_max=starts)
            plan = make_plan(snapshot, self._policies, self.now_s)
            self.cycles += 1
            if undecided == 99 and not (plan.placements or plan.refusals or plan.class_refusals):
                raise ViolationError(
                    f"t={self.now_s:.3f} gangs are planned again and again, to no decision"
                )
            if self.observers.on_plan is not None:
                self.observers.on_plan(self.now_s)
            self._execute(self.engine.accept(plan, self.now_s))
            if self.observers.on_refusals is not None and (plan.refusals or plan.class_refusals):
                self.observers.on_refusals()

    # -- questions ----------------------------------------------------------------------------

    def waiting(self) -> Iterator[JobOutcome]:
        """Yield the pending jobs: those that never ran, and those that were preempted."""
        return (self.outcomes[gang] for gang in self._waits)

    def busy(self) -> bool:
        """Return whether a job has not ended."""
        return self._left > 0

    def close(self) -> None:
        """Count jobs that still run up to now."""
        for gang, since_s in self._since_s.items():
            self.outcomes[gang].runs.append((since_s, self.now_s))
        self._since_s.clear()

    # -- jobs ---------------------------------------------------------------------------------

    def _arrive(self, outcome: JobOutcome) -> None:
        self._coming -= 1
        self._waits[outcome.job.id] = None
        self.observe(f.GangSeen(outcome.job.gang()))

    def _reserved(self, gang: GangId, places: o.Assignments) -> None:
        """Bind the pods of a gang that has its assignment; with API calls, create them first."""
        state = self.engine.view.gangs.get(gang)
        if state is None or self.outcomes[gang].ended_s is not None:
            return
        for name, node in places:
            member = state.members.get(name)
            if name in self._pods.get(gang, {}) or member is None or member.assigned_node != node:
                continue
            self._make(gang, name, node)

    def _make(self, gang: GangId, name: PodName, node: NodeName) -> None:
        """Create a pod on its assigned node."""
        self._pod(gang, name, node)

    def _pod(self, gang: GangId, name: PodName, node: NodeName | None = None) -> None:
        """Create a pod; bind it if it has a node."""
        self._uids += 1
        uid = self._pods.setdefault(gang, {})[name] = PodUid(str(self._uids))
        if node is None:
            member = self.engine.view.gangs[gang].members[name]
            self.observe(f.PodSeen(uid, name, member.needs, gang, member.role))
        else:
            self._bind(gang, name, uid, node)

    def _bind(self, gang: GangId, name: PodName, uid: PodUid, node: NodeName) -> None:
        self._bound.setdefault(gang, set()).add(uid)
        state = self.engine.view.gangs[gang]
        member, minimum = state.members[name], state.minimum()
        pod = f.PodSeen(uid, name, member.needs, gang, member.role, node, minimum=minimum)
        self.observe(replace(pod, started_s=self.now_s))
        if gang not in self._since_s and len(self._bound[gang]) >= self.outcomes[gang].job.least():
            self._starts(gang)

    def resume(self, gang: GangId, seats: Iterable[tuple[str, NodeName]], started_s: float) -> None:
        """Start a job that ran before this run began; `seats` are roles and nodes of its pods."""
        self.outcomes[gang].started_s = started_s
        for role, node in seats:
            free = (
                member.name
                for member in self.engine.view.gangs[gang].members.values()
                if member.role == role and member.name not in self._pods.get(gang, {})
            )
            self._pod(gang, next(free), node)

    def _starts(self, gang: GangId) -> None:
        """Start a job: enough of its pods are bound."""
        outcome = self.outcomes[gang]
        self._since_s[gang] = self.now_s
        self._waits.pop(gang, None)
        outcome.started_s = self.now_s if outcome.started_s is None else outcome.started_s
        left_s = outcome.job.runtime_s - outcome.done_s + self._timing.start_s()
        run = len(outcome.runs) + outcome.stopped
        self.at(self.now_s + left_s, lambda: self._ends(gang, run))
        self._saves(gang, run)

    def _saves(self, gang: GangId, run: int) -> None:
        """Write checkpoints at the interval of the job."""
        job = self.outcomes[gang].job
        if job.checkpoint_s is None:
            return

        def save() -> None:
            outcome = self.outcomes[gang]
            if gang in self._since_s and run == len(outcome.runs) + outcome.stopped:
                self.observe(f.GangSeen(outcome.job.gang(self.now_s)))
                self.at(self.now_s + job.checkpoint_s, save)  # type: ignore[operator]

        self.at(self.now_s + job.checkpoint_s, save)

    def _ends(self, gang: GangId, run: int) -> None:
        outcome = self.outcomes[gang]
        if gang not in self._since_s or run != len(outcome.runs) + outcome.stopped:
            return  # this run was preempted
        outcome.runs.append((self._since_s.pop(gang), self.now_s))
        outcome.ended_s = self.now_s
        self._left -= 1
        self._bound.pop(gang, None)
        self._over(gang, tuple(self._pods.pop(gang, {}).values()))

    def _over(self, gang: GangId, pods: tuple[PodUid, ...]) -> None:
        """Delete a finished job and its remaining pods."""
        for uid in pods:
            self.observe(f.PodGone(uid))
        self.observe(f.GangGone(gang))

    def _stopped(self, gang: GangId) -> None:
        """Record the end of a run before the job's work was done."""
        since_s = self._since_s.pop(gang, None)
        if since_s is None:
            return
        self._waits[gang] = None
        outcome = self.outcomes[gang]
        ran_s = self.now_s - since_s
        every_s = outcome.job.checkpoint_s
        kept_s = ran_s // every_s * every_s if every_s else 0.0
        kept_s = max(kept_s, self._saved.pop(gang, since_s) - since_s)
        ran_s = min(ran_s, self._announced.pop(gang, self.now_s) - since_s)
        outcome.done_s += kept_s
        outcome.lost_gpu_s += (ran_s - kept_s) * outcome.job.all_gpus()
        outcome.runs.append((since_s, self.now_s))
        outcome.stopped += 1

    def _stop_announced(self, order: o.AnnounceStop) -> None:
        """Save the work of a job when its stop is announced, and answer."""
        gang, outcome = order.gang, self.outcomes[order.gang]
        if gang in self._announced or gang not in self._since_s:
            return
        self._announced[gang] = at_s = self.now_s

        def saved() -> None:
            if self._announced.get(gang) == at_s and gang in self._since_s:
                self._saved[gang] = at_s
                self.observe(f.GangSeen(outcome.job.gang(self.now_s)))

        self.at(self.now_s + outcome.job.save_s, saved)

    def _leaves(self, gang: GangId, name: PodName, uid: PodUid) -> None:
        if self._pods.get(gang, {}).get(name) == uid:
            self._lose(gang, name, uid)

    def _lose(self, gang: GangId, name: PodName, uid: PodUid) -> None:
        del self._pods[gang][name]
        self._bound.get(gang, set()).discard(uid)
        self.observe(f.PodGone(uid))

    def node_returns(self, node: Node) -> None:
        """Add a repaired node without pods."""
        self.observe(f.NodeSeen(node))

    def node_fails(self, name: str) -> None:
        """Remove a node and the pods on it."""
        lost = [pod for pod in self.engine.view.pods() if pod.node == name and pod.gang is not None]
        self.observe(f.NodeGone(NodeName(name)))
        for pod in lost:
            gang = pod.gang
            if gang is not None and self._pods.get(gang, {}).get(pod.name) == pod.uid:
                self._lose(gang, pod.name, pod.uid)
                if len(self._bound.get(gang, ())) < self.outcomes[gang].job.least():
                    self._stopped(gang)

    # -- orders -------------------------------------------------------------------------------

    def observe(self, fact: f.Fact) -> None:
        """Give the engine a fact and carry out its orders."""
        if self.checker is not None:
            self.checker.observe(fact)
        if self.observers.meter is not None:
            self.observers.meter.observe(fact, self.now_s)
        if self.observers.on_fact is not None:
            self.observers.on_fact(fact)
        self._execute(self.engine.observe(fact, self.now_s))

    def _execute(self, orders: tuple[o.Order, ...]) -> None:
        if self.observers.on_report is not None:  # first: orders lead to later reports
            for order in orders:
                if isinstance(order, o.Report):
                    self.observers.on_report(order)
        for order in orders:
            match order:
                case o.Reserve(gang, places):
                    if self.checker is not None:
                        self.checker.assigned(gang)
                    if self._timing.writes is None:
                        self._reserved(gang, places)
                        continue
                    when_s = self._timing.writes.when(self.now_s)
                    self.at(when_s, lambda g=gang, p=places: self._reserved(g, p))  # type: ignore[misc]
                case o.Preempt():
                    self.preemptions.append(order)
                    if self.checker is not None:
                        self.checker.assigned(order.by)
                case o.AnnounceStop():
                    self._stop_announced(order)
                case o.Report(gang, state=State.RESERVED.value):  # perhaps while others save
                    if self.checker is not None:
                        self.checker.assigned(gang)
                case o.WithdrawStop(gang):
                    if order.pods:
                        self._saved.pop(gang, None)
                        self._announced.pop(gang, None)
                case o.Evict(gang, uid, name):
                    if not self._keeps_minimum(gang):
                        self._stopped(gang)
                    grace_s = self.outcomes[gang].job.grace_s
                    leave = lambda g=gang, n=name, u=uid: self._leaves(g, n, u)  # noqa: E731
                    self.at(self.now_s + grace_s, leave)
                case _:
                    self._other(order)

    def _other(self, order: o.Order) -> None:
        """Carry out orders about unbound pods; without API calls there are none."""

    def _keeps_minimum(self, gang: GangId) -> bool:
        state = self.engine.view.gangs.get(gang)
        return state is not None and state.state is State.PLACED
