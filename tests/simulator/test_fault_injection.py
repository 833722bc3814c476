"""Runs with many faults: no invariant is violated, and the checker finds planted bugs."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
from builders import WrappedEngine
from effort import seeds

from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.reservations import Reservations
from gangsched.core.engine.parts import PartClasses
from gangsched.core.engine.timing.minimum_watch import MinimumWatch
from simulator.experiments import task
from simulator.experiments.run import run
from simulator.experiments.sweep import tasks, variants, work
from simulator.invariants.placement_checks import ViolationError
from simulator.scenarios.scenario import load

UNKIND = Path(__file__).parents[2] / "examples" / "simulations" / "unkind.yaml"
SEEDS = seeds(6)


@cache
def unkind(seed):
    """Return what became of the scenario as it is."""
    return run(load(UNKIND), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_every_job_ends_and_no_invariant_breaks(seed):
    result = unkind(seed)
    assert all(outcome.ended_s is not None for outcome in result.outcomes)


def test_calls_and_restarts_did_go_wrong():
    kind = ("faults.api_errors=0", "faults.restart_mtbf=30d", "faults.node_mtbf=300d")
    calm, hard = run(load(UNKIND, kind), 1), unkind(1)
    assert hard.cycles > calm.cycles
    assert sum(f.stopped for f in hard.outcomes) > sum(f.stopped for f in calm.outcomes)


class FreesAtOnce(MemberSteps):
    """Planted bug: the node of a pod that was evicted is free at once."""

    def evict(self, gang, member, reason, **more):
        super().evict(gang, member, reason, **more)
        if member.pod is not None:
            self._allocations.cluster.release(member.pod)


class CountsNoReservation(Reservations):
    """Planted bug: reserved nodes are not counted."""

    def reserve(self, gang, planned, now_s, **more):
        super().reserve(gang, planned, now_s, **more)
        for member in gang.members.values():
            self._allocations.cluster.release((gang.id, member.name))


class ReturnsNoQuota(Allocations):
    """Planted bug: what a pod held of its queue's quota is not returned."""

    def release(self, key):
        return self.cluster.release(key)


ReleasesTooEarly = partial(Engine, classes=PartClasses(members=FreesAtOnce))
ForgetsReservations = partial(Engine, classes=PartClasses(reservations=CountsNoReservation))
KeepsQuota = partial(Engine, classes=PartClasses(allocations=ReturnsNoQuota))


class WatchesNothing(MinimumWatch):
    """Planted bug: the rest of a gang that lost a member holds its nodes."""

    def is_empty(self, gang, now_s):
        return False


class TearsDownNoRunning(Lifecycle):
    """Planted bug: a gang that has a pod on a node is never torn down."""

    def tear_down(self, gang, *words):
        if not gang.members.bound_count():
            super().tear_down(gang, *words)


LeavesGangsPartial = partial(
    Engine, classes=PartClasses(minimum=WatchesNothing, lifecycle=TearsDownNoRunning)
)


class NeverPlansAgain(WrappedEngine):
    """Planted bug: a gang that was stopped is forgotten."""

    def begin_cycle(self, *args, **settings):
        seen = self.inner.begin_cycle(*args, **settings)
        lines = [
            replace(one, gangs=fresh(one.gangs))
            for one in seen.equivalence_classes
            if fresh(one.gangs)
        ]
        return replace(seen, pending=fresh(seen.pending), equivalence_classes=tuple(lines))


def fresh(gangs):
    return tuple(one for one in gangs if not one.attained_s)


CHANGES = {
    LeavesGangsPartial: ("horizon=2d",),
    NeverPlansAgain: ("faults={}",),  # a scheduler that is restarted has forgotten nothing
}


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        (ReleasesTooEarly, "holds .* of 8"),
        (ForgetsReservations, "holds .* of 8"),
        (KeepsQuota, "pods in the ledger"),
        (LeavesGangsPartial, "has run .* of at least"),
        (NeverPlansAgain, "stays pending"),
    ],
)
def test_the_checker_catches_planted_bugs(bug, found):
    def five_seeds() -> None:
        for seed in (4, 0, 1, 2, 3):  # seed 4 shows each bug
            run(load(UNKIND, CHANGES.get(bug, ())), seed, None, bug)

    with pytest.raises(ViolationError, match=found):
        five_seeds()


def test_a_violation_tells_the_seed_the_moment_and_how_to_see_it_again(tmp_path, monkeypatch):
    def broken(scenario, seed, *_):
        return run(scenario, seed, None, KeepsQuota)

    monkeypatch.setattr("simulator.experiments.run.run", broken)
    listed = tasks(variants(UNKIND, ("workload.checkpoint=5m",), ()), (3,), tmp_path)
    with pytest.raises(ViolationError) as caught:
        list(work(listed, 1))
    said = str(caught.value)
    assert said.startswith("seed 3: t=")
    assert f"{UNKIND} --set workload.checkpoint=5m --set 'seeds=[3]'" in said
    assert not task.Task.done(listed[0])
