"""The virtual-time world: many seeds without a violation, repeatable, and able to catch bugs."""

import subprocess
import sys

import pytest
from effort import seeds

from gangsched.core.engine.engine import Engine, State
from gangsched.core.policy import Policies
from policies.fifo import Fifo
from policies.pack import Pack
from policies.spread import Spread
from simulator.invariants.placement_checks import ViolationError
from simulator.virtual.fault_world import Faults, FaultWorld, Workload

UNKIND = Faults(bind_fails=0.05, prepare_fails=0.05, node_mtbf_s=200.0)
PLACERS = {"pack": Pack(), "spread": Spread()}


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("seed", seeds(4))
def test_every_gang_runs_whatever_fails(seed, placer):
    outcome = FaultWorld(seed, Policies(Fifo(), PLACERS[placer]), faults=UNKIND).run()
    assert outcome.finished == Workload().gangs
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
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


class ReleasesTooEarly(Engine):
    """Planted bug: a broken gang gives all its room back at once."""

    def _break(self, gang, reason, now_s):
        for member in gang.members.values():
            self.cluster.discharge((gang.id, member.name))
        self._room_grew = True
        super()._break(gang, reason, now_s)


class SkipsTheBarrier(Engine):
    """Planted bug: members are bound one by one, and a broken gang is left as it is."""

    def _advance(self, gang, now_s):
        state, gang.state = gang.state, State.PLACED
        super()._advance(gang, now_s)
        gang.state = state

    def _break(self, gang, reason, now_s):
        gang.state = State.PLACED


class ForgetsReservations(Engine):
    """Planted bug: reserved room is not counted."""

    def _reserve(self, gang, planned, now_s, **more):
        super()._reserve(gang, planned, now_s, **more)
        for member in gang.members.values():
            self.cluster.discharge((gang.id, member.name))


@pytest.mark.parametrize("bug", [ReleasesTooEarly, SkipsTheBarrier, ForgetsReservations])
def test_the_checkers_catch_planted_bugs(bug):
    def many_seeds() -> None:
        for seed in range(20):
            FaultWorld(seed, Policies(Fifo(), Pack()), faults=UNKIND, engine=bug).run(5_000.0)

    with pytest.raises(ViolationError):
        many_seeds()
