"""One seed of faults on a real control plane; `make chaos SEEDS=n` runs many.

It has a fault of every kind, jobs and users' own pods, and binds through kube-scheduler. Each kind
alone is in the tests of every change: test_faults kills and restarts, test_failover stops, and
tests/simulator has all faults together in virtual time.
"""

from typing import get_args

import pytest
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


@pytest.mark.long
async def test_gangs_stay_whole_whatever_happens():
    said: list[str] = []
    bad = await run([SEED], said.append, FACTOR)
    assert not bad, "\n".join(said)
