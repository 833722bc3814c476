"""The same scenario in virtual time and on a real control plane with KWOK nodes."""

from itertools import permutations
from pathlib import Path

import pytest

from gangsched.recording.journal import entries, fact_of
from gangsched.recording.replay import Replayed, replay
from simulator.experiments.run import policies_of, run
from simulator.kwok.rehearsal import agreement, run_on_kwok
from simulator.scenarios.scenario import load

REHEARSAL = Path(__file__).parents[2] / "examples" / "simulations" / "rehearsal.yaml"
FASTER = 600.0
"""For the order of starts."""
FASTER_WITH_WAITS = FASTER / 6
"""Calls take real time, a few percent of the waits at this pace, on a slow machine too."""

IN_ORDER = "queues=[{name: default, strict: true}]"
JOBS = 25
HALF = f"workload.generators.0.jobs={JOBS}"


@pytest.fixture
def scenario():
    """Half of the fifty gangs, of one queue in strict order."""
    return load(REHEARSAL, (IN_ORDER, HALF))


def test_virtual_time_and_kwok_agree_on_the_order(scenario, tmp_path):
    journal = tmp_path / "journal.jsonl"
    real, _ = run_on_kwok(scenario, 0, FASTER, journal)
    assert all(one.ended_s is not None for one in real.outcomes)
    outcomes = (run(scenario, 0).outcomes, real.outcomes)
    starts_s = [{one.job.name: one.started_s for one in world} for world in outcomes]
    assert len(starts_s[1]) == JOBS
    heard = in_line(journal)
    for one, other in permutations(starts_s[0], 2):
        apart_s = [starts[other] - starts[one] for starts in starts_s]
        if apart_s[0] > FASTER and apart_s[1] < -FASTER:
            # Two that come at once may come in either order to a real API server, and to us.
            assert any(line[other] < line[one] for line in heard), (one, other, apart_s)
    # The core decides in virtual time as it did on the real control plane.
    done = Replayed()
    assert list(replay(journal, policies_of(scenario), done)) == []
    assert done.placed >= JOBS


def in_line(journal: Path) -> tuple[dict[str, int], dict[str, tuple[float, str]]]:
    """Return when the scheduler first heard of each gang, and what its place in line goes by."""
    heard, keys = {}, {}
    for entry in entries(journal):
        if entry.what == "GangSeen":
            gang = fact_of(entry).gang
            name = gang.id.rpartition("/")[2]
            heard.setdefault(name, len(heard))
            keys.setdefault(name, (gang.created_s, gang.id))
    return heard, keys


@pytest.mark.long
def test_virtual_time_and_kwok_agree_on_the_waits(scenario, tmp_path):
    """Waits in real seconds are compared, so nothing may run beside it."""
    real, late_s = run_on_kwok(scenario, 0, FASTER_WITH_WAITS, tmp_path / "journal.jsonl")
    found = agreement(run(scenario, 0).outcomes, real.outcomes, FASTER_WITH_WAITS)
    assert (found.jobs, found.order) == (JOBS, 1.0), found
    assert 0.9 < found.wait_ratio < 1.1, found
    assert late_s < 1.0
