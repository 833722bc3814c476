"""The same scenario in virtual time and on a real control plane with KWOK nodes."""

from itertools import permutations
from pathlib import Path

import pytest

from gangsched.recording.journal import entries, fact_of, placements_of
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
    starts_s = {one.job.name: one.started_s for one in run(scenario, 0).outcomes}
    heard, keys, placed = in_line(journal)
    assert len(starts_s) == len(placed) == JOBS
    for one, other in permutations(starts_s, 2):
        apart_s = starts_s[other] - starts_s[one]
        if apart_s > FASTER and placed[other] < placed[one]:
            # Two that come at once may come in either order to a real API server, and to us.
            assert any(line[other] < line[one] for line in (heard, keys)), (one, other, apart_s)
    # The core decides in virtual time as it did on the real control plane.
    done = Replayed()
    assert list(replay(journal, policies_of(scenario), done)) == []
    assert done.placed >= JOBS


def in_line(journal: Path) -> tuple[dict[str, int], dict[str, tuple[float, str]], dict[str, int]]:
    """Return when the scheduler first heard of each gang, its place in line, when it was placed.

    When a gang was placed is what the scheduler decides. Its pods are created, bound and seen
    later, those of a larger gang perhaps after those of one that was placed after it.
    """
    heard, keys, placed = {}, {}, {}
    for entry in entries(journal):
        if entry.what == "GangSeen":
            gang = fact_of(entry).gang
            name = gang.id.rpartition("/")[2]
            heard.setdefault(name, len(heard))
            keys.setdefault(name, (gang.created_s, gang.id))
        if entry.word == "plan":
            for gang_id in placements_of(entry):
                placed.setdefault(gang_id.rpartition("/")[2], len(placed))
    return heard, keys, placed


@pytest.mark.long
def test_virtual_time_and_kwok_agree_on_the_waits(scenario, tmp_path):
    """Waits in real seconds are compared, so nothing may run beside it."""
    real, late_s = run_on_kwok(scenario, 0, FASTER_WITH_WAITS, tmp_path / "journal.jsonl")
    found = agreement(run(scenario, 0).outcomes, real.outcomes, FASTER_WITH_WAITS)
    assert (found.jobs, found.order) == (JOBS, 1.0), found
    assert 0.9 < found.wait_ratio < 1.1, found
    assert late_s < 1.0
