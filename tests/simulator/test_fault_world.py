"""The fault world: many seeds without a violation, repeatable, and planted bugs are found."""

import hashlib
import os
import subprocess
import sys
from functools import partial

import pytest
from effort import seeds

from gangsched.core.engine.engine import Engine, Stage, State
from gangsched.core.engine.lifecycle.barrier import Barrier
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.reservations import Reservations
from gangsched.core.engine.lifecycle.teardown import Teardown
from gangsched.core.engine.lifecycle.transition import Cause, Transition
from gangsched.core.engine.parts import PartClasses
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from policies.spread import SpreadPlacer
from simulator.invariants.placement_checks import ViolationError
from simulator.virtual.fault_world import FaultRates, FaultWorld, GeneratedWorkload

UNKIND = FaultRates(bind_fails=0.05, prepare_fails=0.05, node_mtbf_s=200.0)
PLACERS = {"pack": Pack(), "spread": SpreadPlacer()}


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("seed", seeds(4))
def test_every_gang_runs_whatever_fails(seed, placer):
    outcome = FaultWorld(seed, Policies(Fifo(), PLACERS[placer]), faults=UNKIND).run()
    assert outcome.finished == GeneratedWorkload().gangs
    assert outcome.broken > 0, "the faults must really strike"


def test_the_same_seed_gives_the_same_orders_under_another_hash_seed():
    program = (
        "import hashlib\n"
        "from simulator.virtual.fault_world import FaultWorld\n"
        "from gangsched.core.policy import Policies\n"
        "from policies.fifo import Fifo\n"
        "from policies.pack import Pack\n"
        "log = FaultWorld(5, Policies(Fifo(), Pack())).run().log\n"
        "print(len(log), hashlib.sha256('\\n'.join(log).encode()).hexdigest())\n"
    )
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    log = FaultWorld(5, Policies(Fifo(), Pack())).run().log
    assert said.split() == [str(len(log)), hashlib.sha256("\n".join(log).encode()).hexdigest()]


class ReleasesTooEarly(Teardown):
    """Planted bug: a broken gang frees the nodes of binds that are in flight."""

    def enter(self, gang, why, now_s):
        for member in gang.members.values():
            if member.stage is Stage.BINDING:
                self._members.settle(gang, member)
        return super().enter(gang, why, now_s)


class SkipsTheBarrier(Barrier):
    """Planted bug: a member is bound as soon as it is prepared, whether the others are or not."""

    def step(self, gang, after, now_s):
        if not gang.reservation.waits_for_capacity:
            self._members.bind_prepared(gang, self._members.prepare_reserved(gang))
            if gang.members.before_barrier() == 0:
                return super().step(gang, after, now_s)
        return None


class LeavesBrokenGangs(Lifecycle):
    """Planted bug: what was bound of a gang that broke runs on."""

    def tear_down(self, gang, cause, reason, now_s):
        if gang.state in (State.RESERVED, State.BINDING):
            self.move(gang, Transition(State.PLACED, Cause.BOUND), now_s)


class ForgetsReservations(Reservations):
    """Planted bug: reserved nodes are not counted."""

    def reserve(self, gang, planned, now_s, **more):
        super().reserve(gang, planned, now_s, **more)
        for member in gang.members.values():
            self._allocations.cluster.release((gang.id, member.name))


OVERCOMMITTED, PARTIAL = "holds .* of 8", "has run .* of at least"
BUGS = [
    (PartClasses(teardown=ReleasesTooEarly), OVERCOMMITTED),
    (PartClasses(barrier=SkipsTheBarrier, lifecycle=LeavesBrokenGangs), PARTIAL),
    (PartClasses(reservations=ForgetsReservations), OVERCOMMITTED),
]


@pytest.mark.parametrize(("classes", "found"), BUGS)
def test_the_checkers_catch_planted_bugs(classes, found):
    engine = partial(Engine, classes=classes)

    def many_seeds() -> None:
        for seed in range(20):
            FaultWorld(seed, Policies(Fifo(), Pack()), faults=UNKIND, engine=engine).run(5_000.0)

    with pytest.raises(ViolationError, match=found):
        many_seeds()


@pytest.mark.parametrize("seed", [3, 5])
def test_gangs_that_ask_are_not_stopped_before_their_time(seed):
    policies = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
    load = GeneratedWorkload(nodes=4, gangs=25, asks=0.7)
    outcome = FaultWorld(seed, policies, load).run()
    assert outcome.finished == 25
    assert outcome.announced
    assert outcome.preempted
