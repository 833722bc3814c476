"""The same scenario in virtual time and on a real control plane with KWOK's nodes."""

from pathlib import Path

import pytest

from gangsched.replay import Replayed, replay
from simulator.kwok import agreement, rehearse
from simulator.run import policies_of, run
from simulator.scenario import load

REHEARSAL = Path(__file__).parents[2] / "examples" / "simulations" / "rehearsal.yaml"
FASTER = 300.0
IN_ORDER = "queues=[{name: default, strict: true}]"
JOBS = 25
HALF = f"workload.generators.0.jobs={JOBS}"


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """Half of the fifty gangs, of one queue in strict order, in virtual time and for real."""
    scenario = load(REHEARSAL, (IN_ORDER, HALF))
    journal = tmp_path_factory.mktemp("rehearsal") / "journal.jsonl"
    virtual = run(scenario, 0)
    real, late_s = rehearse(scenario, 0, FASTER, journal)
    assert all(fate.ended_s is not None for fate in real.fates)
    return scenario, journal, agreement(virtual.fates, real.fates, FASTER), late_s


def test_virtual_time_and_kwok_agree_on_the_order(rehearsed):
    scenario, journal, found, _ = rehearsed
    assert found.jobs == JOBS
    assert found.order == 1.0, found
    # The core decides in virtual time as it did on the real control plane.
    done = Replayed()
    assert list(replay(journal, policies_of(scenario), done)) == []
    assert done.placed >= JOBS


@pytest.mark.long
def test_virtual_time_and_kwok_agree_on_the_waits(rehearsed):
    """Waits in real seconds are compared, so nothing may run beside it."""
    _, _, found, late_s = rehearsed
    assert 0.9 < found.wait_ratio < 1.1, found
    assert late_s < 1.0
