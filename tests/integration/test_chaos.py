"""One seed of faults on a real control plane; `make chaos SEEDS=n` runs many.

It has a fault of every kind, jobs and users' own pods, and binds through kube-scheduler: what binds
directly is killed and restarted by test_faults, stopped by test_failover, and refused by
sim/test_unkind.
"""

from typing import get_args

from waiting import FACTOR

from simulator.chaos.plan import Kind, plan
from simulator.chaos.run import run

SEED = 43


def test_the_seed_has_every_fault():
    found = plan(SEED)
    assert {fault.kind for fault in found.faults} == set(get_args(Kind))
    assert {gang.job for gang in found.gangs} == {True, False}
    assert {gang.job for gang in found.line} == {True, False}
    assert found.binding == "extender"


async def test_gangs_stay_whole_whatever_happens():
    said: list[str] = []
    bad = await run([SEED], said.append, FACTOR)
    assert not bad, "\n".join(said)
