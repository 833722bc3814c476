"""Compares an engine at many times of a history with one that was restarted.

The new engine gets the facts that the API server stores, as a process that starts then does. Its
state, its next plan and its refusals must be those of the old engine.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.running_views import evicted_view, running_view
from gangsched.core.engine.limits import Limits
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, PodUid
from gangsched.core.planning.planner import Plan, make_plan
from gangsched.core.planning.queue_order import QueueOrderIterator
from gangsched.core.policy import Policies
from gangsched.core.quota.charges import charge_of
from gangsched.core.snapshot import RunningGang, Snapshot, SolverBudget
from simulator.scenarios.histories import machine, random_jobs, random_tree
from simulator.virtual.api_calls import ApiCallJobRun
from simulator.virtual.api_server import ApiServer

_Gang = TypeVar("_Gang", PendingGang, RunningGang)

_SETTLED = (State.GATHERING, State.PENDING, State.PLACED)


@dataclass(slots=True)
class Comparison:
    """How much was compared, and every difference as a sentence.

    While gangs are starting or ending, some of their state is not stored yet: then only the other
    gangs are compared. The same holds after nodes failed and returned: a planner takes the first of
    equal nodes, and the new engine lists them by name. At all other times (`whole`), the next plans
    with their refusals are compared too.
    """

    moments: int = 0
    whole: int = 0
    gangs: int = 0
    waiting: int = 0
    reservations: int = 0
    backing_off: int = 0
    differences: list[str] = field(default_factory=list)

    def add(
        self, old: SchedulingEngine, new: SchedulingEngine, policies: Policies, now_s: float
    ) -> None:
        """Compare the states and the next plans of two engines at the same time."""
        before, after = _view(old, now_s), _view(new, now_s)
        self.moments += 1
        self.gangs += len(old.view.gangs)
        self.waiting += len(before.pending)
        self.reservations += len(before.backfill_reservations)
        self.backing_off += sum(
            gang.retry.backoff_until_s is not None for gang in old.view.gangs.values()
        )
        differences = [*_gangs(old, new)]
        if not under_way(old) and old.view.cluster.names == new.view.cluster.names:
            self.whole += 1
            plans = make_plan(before, policies, now_s), make_plan(after, policies, now_s)
            differences += _state(old, new)
            orders = (_queue_order(view, policies, now_s) for view in (before, after))
            differences += _difference("the queue order", *orders)
            differences += _plans(*plans)
        self.differences += [f"t={now_s:.1f}: {difference}" for difference in differences]


class RestartRun(ApiCallJobRun):
    """A history that compares the engine with a restarted one at random times.

    Nodes fail and return, calls fail, users add members to running gangs, and the pods of ended
    jobs stay for a while. `build` makes the engine that is compared.
    """

    def __init__(
        self,
        seed: int,
        policies: Policies,
        build: Callable[[Limits], Engine] = Engine,
        *,
        until_s: float = 700.0,
    ) -> None:
        self.comparison = Comparison()
        self._rng = rng = random.Random(seed)  # noqa: S311 -- a seed is to be the same again
        self._by = policies
        self._new = build
        self._until_s = until_s
        self._machines = [machine(index) for index in range(rng.randint(2, 6))]
        queues = random_tree(rng, 8 * len(self._machines))
        api = ApiServer(rng, rng.choice((0.0, 0.0, 0.5)), rng.choice((0.0, 0.1)))
        arrivals = random_jobs(rng, queues, 60)
        super().__init__(api, self._machines, arrivals, policies, queues, checked=False)
        self.at(1.0, self._compare)
        self.at(rng.uniform(5, 50), self._grow)
        self.at(rng.expovariate(1 / 300), self._fail_node)

    def compare(self) -> Comparison:
        """Run the history; return what was compared."""
        self.run(self._until_s)
        return self.comparison

    def _compare(self) -> None:
        self.at(self.now_s + self._rng.uniform(0.5, 30), self._compare)
        old, new = self.engine, self._new(self.engine.limits)
        new.history.merge_json(old.history.to_json())
        for fact in self._api.listed(old, self.now_s):
            new.observe(fact, self.now_s)
        self.comparison.add(old, new, self._by, self.now_s)

    def _grow(self) -> None:
        """Add a member to a running gang."""
        self.at(self.now_s + self._rng.uniform(5, 50), self._grow)
        gang = self._rng.choice([*self._since_s, None])
        if gang is not None:
            outcome = self.outcomes[gang]
            least = None if outcome.job.minimum is None else outcome.job.minimum + 1
            outcome.job = replace(outcome.job, pods=outcome.job.pods + 1, minimum=least)
            self.observe(f.GangSeen(outcome.job.gang()))

    def _fail_node(self) -> None:
        self.at(self.now_s + self._rng.expovariate(1 / 300), self._fail_node)
        node = self._rng.choice(self._machines)
        if node.name in self.engine.view.cluster.rows:
            self.node_fails(node.name)
            back_s = self.now_s + self._rng.uniform(5, 60)
            self.at(back_s, lambda: self.node_returns(node))

    def _over(self, gang: GangId, pods: tuple[PodUid, ...]) -> None:
        lacks = len(pods) < self.outcomes[gang].job.pods  # missing members are still planned
        if lacks or self._rng.random() < 0.5:
            super()._over(gang, pods)
            return
        for uid in pods:
            known = self.engine.view.pod(uid)
            if known is not None:
                self.observe(replace(known, ended=True))
        end = super()._over
        self.at(self.now_s + self._rng.uniform(5, 200), lambda: end(gang, pods))


def under_way(engine: SchedulingEngine) -> bool:
    """Return whether a gang is between its assignment and its start, or is being preempted."""
    return not all(_settled(gang) for gang in engine.view.gangs.values())


def _view(engine: SchedulingEngine, now_s: float) -> Snapshot:
    """Return a snapshot with all pending gangs.

    Two caches are renewed: for which gangs preemption was infeasible, and the estimates of run
    times that were learned from other gangs.
    """
    view = engine.view.snapshot_all(now_s)
    return replace(
        view,
        pending=tuple(_fresh(engine, gang) for gang in sorted(view.pending, key=_name)),
        running=tuple(_fresh(engine, gang) for gang in sorted(view.running, key=_name)),
        preemption_infeasible=frozenset(),
        solver_budget=SolverBudget(),
    )


def _fresh(engine: SchedulingEngine, gang: _Gang) -> _Gang:
    queue = engine.view.queues.get(gang.gang.queue)
    return replace(gang, estimate=engine.history.estimate(gang.gang, queue))


def _name(gang: PendingGang | RunningGang) -> GangId:
    return gang.gang.id


def _queue_order(view: Snapshot, policies: Policies, now_s: float) -> list[GangId]:
    order = QueueOrderIterator(
        view.pending, view.equivalence_classes, view.usage.copy(), policies, now_s, charge_of
    )
    return [pending.gang.id for pending in order]


def _difference(subject: str, before: object, after: object) -> Iterator[str]:
    if before != after:
        yield f"{subject}: {before} before, {after} after"


def _gangs(old: SchedulingEngine, new: SchedulingEngine) -> Iterator[str]:
    yield from _difference("gangs", sorted(old.view.gangs), sorted(new.view.gangs))
    for gang in sorted(old.view.gangs.keys() & new.view.gangs.keys()):
        if _settled(old.view.gangs[gang]):
            before, after = _fields(old.view.gangs[gang]), _fields(new.view.gangs[gang])
            for name in before:
                yield from _difference(f"{name} of {gang}", before[name], after[name])
        elif old.view.gangs[gang].reservation.waits_for_capacity:
            assigned = (engine.view.gangs[gang].assignments() for engine in (old, new))
            yield from _difference(f"the assignment of {gang}", *assigned)


def _settled(gang: GangState) -> bool:
    """Return whether the whole state of a gang is stored: no call about it is in flight."""
    moves = (
        gang.members.in_progress()
        or gang.reservation.waits_for_capacity
        or evicted_view(gang) is not None
    )
    return gang.state in _SETTLED and not moves


def _fields(gang: GangState) -> dict[str, object]:
    """Return the state of a gang that a restart must not change."""
    runs = gang.state is State.PLACED
    return {
        "state": gang.state,
        "declaration": gang.spec and replace(gang.spec, started=False),
        "minimum": gang.minimum(),
        "wait": gang.waits_since_s(),
        "queue": gang.account,
        "start": running_view(gang).started_s if runs and gang.members.bound_count() else None,
        "nodes": sorted((m.name, m.bound_node) for m in gang.members.values() if m.bound_node),
        "back-off": gang.retry.backoff_until_s,
        "tries": (
            gang.retry.attempts,
            gang.retry.no_shows,
            gang.retry.unready_tries,
            gang.retry.failure_message,
        ),
        "excluded nodes": (
            gang.retry.excluded_nodes,
            gang.retry.pods_per_node_max,
            gang.retry.pods_per_node_until_s,
        ),
        "work done": gang.attained_service_s,
        "end": gang.run.end_by_s,
    }


def _state(old: SchedulingEngine, new: SchedulingEngine) -> Iterator[str]:
    yield from _difference("queue usage", *(_held(engine) for engine in (old, new)))
    spent = [
        {
            account: round(time.historical_gpu_s, 3)
            for account, time in sorted(engine.view.ledger.accounts.items())
            if time.historical_gpu_s
        }
        for engine in (old, new)
    ]
    yield from _difference("GPU time", *spent)
    yield from _difference("run times", old.history.to_json(), new.history.to_json())
    yield from _difference(
        "backfill reservations",
        dict(sorted(old.view.backfill_reservations.items())),
        dict(sorted(new.view.backfill_reservations.items())),
    )
    yield from _difference(
        "past preemptions",
        old.view.recent_preemptions(0.0),
        new.view.recent_preemptions(0.0),
    )
    used = [
        {
            name: engine.view.cluster.used[row].tolist()
            for name, row in sorted(engine.view.cluster.rows.items())
        }
        for engine in (old, new)
    ]
    yield from _difference("node usage", *used)


def _held(engine: SchedulingEngine) -> dict[str, dict[object, int]]:
    return {
        queue: {key: n for key, n in sorted(held.items()) if n}
        for queue, held in sorted(engine.view.ledger.usage.subtree_usage.items())
        if any(held.values())
    }


def _plans(before: Plan, after: Plan) -> Iterator[str]:
    for subject, old, new in (
        ("placements", _placements(before), _placements(after)),
        ("reasons", _reasons(before), _reasons(after)),
        ("next backfill reservations", _reservations(before), _reservations(after)),
    ):
        for gang in sorted(old.keys() | new.keys()):
            yield from _difference(f"{subject} of {gang}", old.get(gang), new.get(gang))


def _placements(plan: Plan) -> dict[GangId, object]:
    return {
        planned.gang: (planned.placement.nodes, planned.placement.evicts)
        for planned in plan.placements
    }


def _reasons(plan: Plan) -> dict[GangId, object]:
    return {
        pending.gang.id: (refusal.reason, refusal.message, refusal.starts_s)
        for pending, refusal in plan.refusals
    }


def _reservations(plan: Plan) -> dict[GangId, object]:
    return {
        reserved.gang: (reserved.start_s, reserved.nodes) for reserved in plan.backfill_reservations
    }
