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


@pytest.mark.alone
def test_virtual_time_and_kwok_agree(tmp_path):
    """Fifty gangs of one queue in strict order: the same order, and nearly the same waits."""
    scenario = load(REHEARSAL, (IN_ORDER,))
    virtual = run(scenario, 0)
    real, late_s = rehearse(scenario, 0, FASTER, tmp_path / "journal.jsonl")
    assert all(fate.ended_s is not None for fate in real.fates)
    found = agreement(virtual.fates, real.fates, FASTER)
    assert found.jobs == 50
    assert found.order == 1.0, found
    assert 0.9 < found.wait_ratio < 1.1, found
    assert late_s < 1.0
    # The core decides in virtual time as it did on the real control plane.
    done = Replayed()
    assert list(replay(tmp_path / "journal.jsonl", policies_of(scenario), done)) == []
    assert done.placed >= 50
