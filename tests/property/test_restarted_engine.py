"""A restart changes nothing: at any time, a new engine acts and reports as the old one."""

from dataclasses import replace
from functools import partial

import pytest
from builders import WrappedEngine
from effort import seeds
from test_queue_histories import POLICIES

from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.lifecycle.running import Running
from gangsched.core.engine.parts import PartClasses
from simulator.studies.restart import RestartRun


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", seeds(3))
def test_a_restart_changes_nothing(seed, name):
    found = RestartRun(seed, POLICIES[name]).compare()
    assert found.differences == []
    assert found.moments > found.whole > 0
    assert found.waiting


class CountsTheirWaitAnew(WrappedEngine):
    """Planted bug: gangs wait since this process heard of them."""

    def observe(self, fact, now_s):
        if isinstance(fact, f.GangSeen):
            fact = f.GangSeen(replace(fact.gang, created_s=now_s))
        return self.inner.observe(fact, now_s)


class TakesThePresentMinimum(WrappedEngine):
    """Planted bug: what runs has to be what its owner asks for now."""

    def observe(self, fact, now_s):
        if isinstance(fact, f.PodSeen):
            fact = replace(fact, minimum=0)
        return self.inner.observe(fact, now_s)


class HasNoPast(WrappedEngine):
    """Planted bug: what gangs have been through is not read."""

    def observe(self, fact, now_s):
        return () if isinstance(fact, f.HistoryRestored) else self.inner.observe(fact, now_s)


class BreaksPromises(WrappedEngine):
    """Planted bug: promises are not read."""

    def observe(self, fact, now_s):
        if isinstance(fact, f.HistoryRestored):
            fact = replace(fact, reserved_start_s=None, reserved_nodes=())
        return self.inner.observe(fact, now_s)


class TriesAtOnce(WrappedEngine):
    """Planted bug: gangs neither back off nor stay away from nodes that refused them."""

    def observe(self, fact, now_s):
        if isinstance(fact, f.HistoryRestored):
            fact = replace(
                fact, backoff_until_s=None, excluded_nodes=(), pods_per_node_until_s=None
            )
        return self.inner.observe(fact, now_s)


class FreesRoomThatIsMade(WrappedEngine):
    """Planted bug: room is not held for whom others are stopped."""

    def observe(self, fact, now_s):
        if isinstance(fact, f.HistoryRestored):
            fact = replace(fact, places=())
        return self.inner.observe(fact, now_s)


class ForgetsGpuTime(WrappedEngine):
    """Planted bug: what queues have used is not read."""

    def observe(self, fact, now_s):
        return () if isinstance(fact, f.UsageRestored) else self.inner.observe(fact, now_s)


class LearnsFromEnded(Running):
    """Planted bug: of a gang that had ended before, it is learned that it ran for no time."""

    def enter(self, gang, why, now_s):
        entered = super().enter(gang, why, now_s)
        gang.run.runtime_recorded = False
        return entered


LearnsOfTheDead = partial(Engine, classes=PartClasses(running=LearnsFromEnded))


class StopsInTurn(WrappedEngine):
    """Planted bug: who stopped whom is not read."""

    def observe(self, fact, now_s):
        return () if isinstance(fact, f.PreemptionRestored) else self.inner.observe(fact, now_s)


@pytest.mark.parametrize(
    "bug",
    [
        CountsTheirWaitAnew,
        TakesThePresentMinimum,
        HasNoPast,
        BreaksPromises,
        TriesAtOnce,
        FreesRoomThatIsMade,
        ForgetsGpuTime,
        LearnsOfTheDead,
        StopsInTurn,
    ],
)
def test_planted_bugs_are_found(bug):
    # Seed 1 shows each bug soonest.
    histories = ((seed, name) for seed in (1, 0, 2, 3, 4, 5) for name in POLICIES)
    assert any(
        RestartRun(seed, POLICIES[name], bug).compare().differences for seed, name in histories
    )
