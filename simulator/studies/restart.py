"""Whether a restart changes anything: a history in which the engine is compared with a new one.

At many moments a new engine is told what the API server holds, as a process that starts then is.
What it would do next, and what it would say, is compared with what the old one would.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.gangs.gang_views import GangState, Limits
from gangsched.core.engine.gangs.member import State
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.planning.planner import Plan, make_plan
from gangsched.core.planning.queue_order import QueueOrderIterator
from gangsched.core.policy import Policies
from gangsched.core.quota.charges import charge_of
from gangsched.core.snapshot import Asked, RunningGang, Snapshot, SolverBudget
from simulator.jobs import GPU
from simulator.scenarios.histories import a_tree, jobs
from simulator.virtual.api_calls import ApiCallJobRun
from simulator.virtual.api_server import ApiServer

_Gang = TypeVar("_Gang", PendingGang, RunningGang)

_STILL = (State.GATHERING, State.PENDING, State.PLACED)


@dataclass(slots=True)
class Compared:
    """How much was compared, and every difference as a sentence.

    At `moments` on which gangs are under way, some of what is known is in flight: there only those
    that are not are compared. The same where nodes were lost and came back: of nodes that are
    equally good the first is taken, and they are listed by name. All other moments are compared
    `whole`, with the next plan and everything it says.
    """

    moments: int = 0
    whole: int = 0
    gangs: int = 0
    waiting: int = 0
    promises: int = 0
    backing_off: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, old: Engine, new: Engine, policies: Policies, now_s: float) -> None:
        """Compare what two engines know of the same moment, and what they would do next."""
        before, after = _view(old, now_s), _view(new, now_s)
        self.moments += 1
        self.gangs += len(old.gangs)
        self.waiting += len(before.waiting)
        self.promises += len(before.promises)
        self.backing_off += sum(gang.not_before_s is not None for gang in old.gangs.values())
        found = [*_gangs(old, new)]
        if not under_way(old) and old.cluster.names == new.cluster.names:
            self.whole += 1
            plans = make_plan(before, policies, now_s), make_plan(after, policies, now_s)
            found += _books(old, new)
            turns = (_turns(view, policies, now_s) for view in (before, after))
            found += _said("the order of turns", *turns)
            found += _plans(*plans)
        self.differences += [f"t={now_s:.1f}: {one}" for one in found]


class Watched(ApiCallJobRun):
    """A history in which at any moment an engine that starts then is compared with the old one.

    Nodes are lost and come back, calls fail, owners ask for more members while their gangs run,
    and pods of jobs that ended stay for a while. `build` makes the engine that is compared.
    """

    def __init__(
        self,
        seed: int,
        policies: Policies,
        build: Callable[[Limits], Engine] = Engine,
        *,
        until_s: float = 700.0,
    ) -> None:
        self.found = Compared()
        self._rng = rng = random.Random(seed)  # noqa: S311 -- a seed is to be the same again
        self._by = policies
        self._new = build
        self._until_s = until_s
        self._machines = [_machine(index) for index in range(rng.randint(2, 6))]
        queues = a_tree(rng, 8 * len(self._machines))
        api = ApiServer(rng, rng.choice((0.0, 0.0, 0.5)), rng.choice((0.0, 0.1)))
        come = jobs(rng, queues, 60)
        super().__init__(api, self._machines, come, policies, queues, checked=False)
        self.at(1.0, self._look)
        self.at(rng.uniform(5, 50), self._grow)
        self.at(rng.expovariate(1 / 300), self._lose_one)

    def compare(self) -> Compared:
        """Run the history; return all that was compared."""
        self.run(self._until_s)
        return self.found

    def _look(self) -> None:
        self.at(self.now_s + self._rng.uniform(0.5, 30), self._look)
        old, new = self.engine, self._new(self.engine.limits)
        new.history.load(old.history.data())
        for fact in self._api.listed(old, self.now_s):
            new.observe(fact, self.now_s)
        self.found.add(old, new, self._by, self.now_s)

    def _grow(self) -> None:
        """Have the owner of a gang that runs ask for one more member."""
        self.at(self.now_s + self._rng.uniform(5, 50), self._grow)
        gang = self._rng.choice([*self._since_s, None])
        if gang is not None:
            outcome = self.outcomes[gang]
            least = None if outcome.job.minimum is None else outcome.job.minimum + 1
            outcome.job = replace(outcome.job, pods=outcome.job.pods + 1, minimum=least)
            self.observe(f.GangSeen(outcome.job.gang()))

    def _lose_one(self) -> None:
        self.at(self.now_s + self._rng.expovariate(1 / 300), self._lose_one)
        node = self._rng.choice(self._machines)
        if node.name in self.engine.cluster.rows:
            self.node_fails(node.name)
            back_s = self.now_s + self._rng.uniform(5, 60)
            self.at(back_s, lambda: self.node_returns(node))

    def _over(self, gang: GangId, pods: tuple[PodUid, ...]) -> None:
        lacks = len(pods) < self.outcomes[gang].job.pods  # what it lacks would be planned still
        if lacks or self._rng.random() < 0.5:
            super()._over(gang, pods)
            return
        for uid in pods:
            known = self.engine.pod(uid)
            if known is not None:
                self.observe(replace(known, ended=True))
        end = super()._over
        self.at(self.now_s + self._rng.uniform(5, 200), lambda: end(gang, pods))


def _machine(index: int) -> Node:
    return Node(NodeName(f"n{index}"), (("cpu", 64_000), (GPU, 8), ("pods", 110)))


def under_way(engine: Engine) -> bool:
    """Tell whether any gang is between its reservation and its start, or is being stopped."""
    return not all(_still(gang) for gang in engine.gangs.values())


def _view(engine: Engine, now_s: float) -> Snapshot:
    """Return everybody who waits.

    Two things are looked at again that a process does not look at each time: who could not be
    helped a moment ago, and how long gangs run by what others did.
    """
    view = engine.snapshot(now_s, who=Asked.ALL)
    return replace(
        view,
        waiting=tuple(_fresh(engine, one) for one in sorted(view.waiting, key=_name)),
        running=tuple(_fresh(engine, one) for one in sorted(view.running, key=_name)),
        unhelped=frozenset(),
        solving=SolverBudget(),
    )


def _fresh(engine: Engine, one: _Gang) -> _Gang:
    queue = engine.queues.get(one.gang.queue)
    return replace(one, estimate=engine.history.estimate(one.gang, queue))


def _name(one: PendingGang | RunningGang) -> GangId:
    return one.gang.id


def _turns(view: Snapshot, policies: Policies, now_s: float) -> list[GangId]:
    turns = QueueOrderIterator(
        view.waiting, view.lines, view.usage.copy(), policies, now_s, charge_of
    )
    return [one.gang.id for one in turns]


def _said(what: str, before: object, after: object) -> Iterator[str]:
    if before != after:
        yield f"{what}: {before} before, {after} after"


def _gangs(old: Engine, new: Engine) -> Iterator[str]:
    yield from _said("gangs", sorted(old.gangs), sorted(new.gangs))
    for gang in sorted(old.gangs.keys() & new.gangs.keys()):
        if _still(old.gangs[gang]):
            before, after = _known(old.gangs[gang]), _known(new.gangs[gang])
            for what in before:
                yield from _said(f"{what} of {gang}", before[what], after[what])
        elif old.gangs[gang].held_back:
            rooms = (engine.gangs[gang].assignments() for engine in (old, new))
            yield from _said(f"the room that is made for {gang}", *rooms)


def _still(gang: GangState) -> bool:
    """Tell whether all that is known of a gang is stored: nothing of it is in flight."""
    moves = gang.in_progress() or gang.held_back or gang.leaving() is not None
    return gang.state in _STILL and not moves


def _known(gang: GangState) -> dict[str, object]:
    """Return what must not change of a gang."""
    runs = gang.state is State.PLACED
    return {
        "state": gang.state,
        "declaration": gang.spec and replace(gang.spec, started=False),
        "minimum": gang.minimum(),
        "wait": gang.waits_since_s(),
        "queue": gang.account,
        "start": gang.running().started_s if runs and gang.bound_count() else None,
        "nodes": sorted((m.name, m.bound) for m in gang.members.values() if m.bound),
        "back-off": gang.not_before_s,
        "tries": (gang.attempts, gang.no_shows, gang.unready_tries, gang.given_up),
        "excluded nodes": (gang.avoid, gang.most_per_node, gang.most_until_s),
        "work done": gang.attained_s,
        "end": gang.end_by_s,
    }


def _books(old: Engine, new: Engine) -> Iterator[str]:
    yield from _said("what queues hold", *(_held(engine) for engine in (old, new)))
    spent = [
        {
            account: round(time.decayed, 3)
            for account, time in sorted(engine.ledger.accounts.items())
            if time.decayed
        }
        for engine in (old, new)
    ]
    yield from _said("GPU time", *spent)
    yield from _said("run times", old.history.data(), new.history.data())
    yield from _said(
        "promises", dict(sorted(old.reserved.items())), dict(sorted(new.reserved.items()))
    )
    yield from _said("who stopped whom", old.loops.all(0.0), new.loops.all(0.0))
    used = [
        {
            name: engine.cluster.used[row].tolist()
            for name, row in sorted(engine.cluster.rows.items())
        }
        for engine in (old, new)
    ]
    yield from _said("what nodes have left", *used)


def _held(engine: Engine) -> dict[str, dict[object, int]]:
    return {
        queue: {key: n for key, n in sorted(held.items()) if n}
        for queue, held in sorted(engine.ledger.usage.held.items())
        if any(held.values())
    }


def _plans(before: Plan, after: Plan) -> Iterator[str]:
    for what, one, other in (
        ("placements", _placements(before), _placements(after)),
        ("reasons", _reasons(before), _reasons(after)),
        ("promises of the next plan", _promises(before), _promises(after)),
    ):
        for gang in sorted(one.keys() | other.keys()):
            yield from _said(f"{what} of {gang}", one.get(gang), other.get(gang))


def _placements(plan: Plan) -> dict[GangId, object]:
    return {one.gang: (one.placement.nodes, one.placement.evicts) for one in plan.placements}


def _reasons(plan: Plan) -> dict[GangId, object]:
    return {
        one.gang.id: (refusal.reason, refusal.message, refusal.starts_s)
        for one, refusal in plan.refusals
    }


def _promises(plan: Plan) -> dict[GangId, object]:
    return {one.gang: (one.start_s, one.nodes) for one in plan.reserved}
