"""Whether a restart changes anything: at a moment, two engines side by side, old and new.

The new one is told what the API server holds, as a process that starts now is. What it would do
next, and what it would say, is compared with what the old one would.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gangsched.core.engine import Engine
from gangsched.core.gangs import GangState
from gangsched.core.members import State
from gangsched.core.model import GangId
from gangsched.core.planner import Plan, make_plan
from gangsched.core.policy import Policies
from gangsched.core.queueing.admission import charge_of
from gangsched.core.queueing.turns import Turns
from gangsched.core.snapshot import Allowance, Asked, Snapshot
from simulator.apiserver import ApiServer

_STILL = (State.GATHERING, State.PENDING, State.PLACED)


def started_anew(api: ApiServer, old: Engine, now_s: float, build: type[Engine] = Engine) -> Engine:
    """Return an engine that knows what is stored at this moment, and no more."""
    new = build(old.limits)
    new.history.load(old.history.data())
    for fact in api.listed(old, now_s):
        new.observe(fact, now_s)
    return new


@dataclass(slots=True)
class Compared:
    """What was compared at one moment, and every difference as a sentence."""

    gangs: int = 0
    waiting: int = 0
    promises: int = 0
    backing_off: int = 0
    differences: list[str] = field(default_factory=list)


def under_way(engine: Engine) -> bool:
    """Tell whether any gang is between its reservation and its start, or is being stopped.

    What is in flight then is known to one process alone.
    """
    return any(
        gang.in_progress() or gang.state not in _STILL or gang.held_back
        for gang in engine.gangs.values()
    ) or bool(engine.leaving())


def compared(old: Engine, new: Engine, policies: Policies, now_s: float) -> Compared:
    """Compare what two engines know of the same moment, and what they would do next."""
    found = Compared()
    found.gangs = len(old.gangs)
    found.differences += _gangs(old, new)
    found.differences += _books(old, new, now_s)
    before, after = _view(old, now_s), _view(new, now_s)
    found.waiting = len(before.waiting)
    found.promises = len(before.promises)
    found.backing_off = sum(gang.not_before_s is not None for gang in old.gangs.values())
    found.differences += _said(
        "the order of turns", _turns(before, policies, now_s), _turns(after, policies, now_s)
    )
    plans = make_plan(before, policies, now_s), make_plan(after, policies, now_s)
    found.differences += _plans(*plans)
    return found


def _view(engine: Engine, now_s: float) -> Snapshot:
    """Return everybody who waits; who could not be helped a moment ago is looked at again."""
    view = engine.snapshot(now_s, who=Asked.ALL)
    waiting = tuple(sorted(view.waiting, key=lambda one: one.gang.id))
    running = tuple(sorted(view.running, key=lambda one: one.gang.id))
    return replace(
        view, waiting=waiting, running=running, unhelped=frozenset(), solving=Allowance()
    )


def _turns(view: Snapshot, policies: Policies, now_s: float) -> list[GangId]:
    turns = Turns(view.waiting, view.lines, view.usage.copy(), policies, now_s, charge_of)
    return [one.gang.id for one in turns]


def _said(what: str, before: object, after: object) -> Iterator[str]:
    if before != after:
        yield f"{what}: {before} before, {after} after"


def _gangs(old: Engine, new: Engine) -> Iterator[str]:
    yield from _said("gangs", sorted(old.gangs), sorted(new.gangs))
    for gang in sorted(old.gangs.keys() & new.gangs.keys()):
        one, other = old.gangs[gang], new.gangs[gang]
        for what in _known(one):
            yield from _said(f"{what} of {gang}", _known(one)[what], _known(other)[what])


def _known(gang: GangState) -> dict[str, object]:
    """Return what must not change of a gang."""
    runs = gang.state is State.PLACED
    return {
        "state": gang.state,
        "declaration": gang.spec,
        "minimum": gang.minimum(),
        "wait": gang.waits_since_s(),
        "queue": gang.account,
        "start": gang.running().started_s if runs else None,
        "nodes": sorted((m.name, m.bound) for m in gang.members.values() if m.bound),
        "back-off": gang.not_before_s,
        "tries": (gang.attempts, gang.no_shows, gang.unready_tries, gang.given_up),
        "excluded nodes": (gang.avoid, gang.most_per_node, gang.most_until_s),
        "work done": gang.attained_s,
        "end": gang.end_by_s,
    }


def _books(old: Engine, new: Engine, now_s: float) -> Iterator[str]:
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
    yield from _said("promises", dict(sorted(old.reserved.items())), dict(sorted(new.reserved.items())))
    yield from _said("who stopped whom", old.loops.recent(now_s), new.loops.recent(now_s))
    used = [
        {name: engine.cluster.used[row].tolist() for name, row in sorted(engine.cluster.rows.items())}
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
