"""A simulation in the pages: the journal that a run writes shows the run."""

import pytest
from builders import POLICIES
from own_commands import run_here

from gangsched.cli.web import page_queues
from gangsched.core.engine.gangs.member import State
from gangsched.web.moments import JournalReader

SCENARIO = "examples/simulations/three-teams.yaml"
DAY_S = 86_400.0


def simulate(out, *options):
    """Run the command; return what it prints."""
    words = ("simulate", SCENARIO, "--seeds", "1", "--set", "horizon=1d", "--out", str(out))
    code, said = run_here((*words, *options), {"COLUMNS": "200"})
    assert code == 0, said
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    simulate(out)
    run = out / "three-teams" / "seed-0"
    assert not (run / "journal.jsonl").exists()
    assert f"to see the run: gangsched web {run}/journal.jsonl" in simulate(out, "--journal")
    return run


def test_the_journal_of_a_run_has_its_jobs_queues_and_runs(folder):
    reader = JournalReader(folder / "journal.jsonl", lambda engine: page_queues(engine, POLICIES))
    reader.read()
    assert reader.first_s == 0.0
    assert 0.9 * DAY_S < reader.last_s <= DAY_S
    assert len(reader.log.runs) > 50
    assert {run.outcome for run in reader.log.runs} <= {"ended", "stopped"}
    noon = reader.engine_at(DAY_S / 2)
    running = [gang for gang in noon.view.gangs.values() if gang.state is State.PLACED]
    assert len(running) > 5
    assert {"research", "vision", "language"} <= set(noon.view.queues)
    for gang in running:
        story = [line.text for line in reader.log.story(str(gang.id), DAY_S / 2)]
        assert any(text.startswith("The plan assigns") for text in story), gang.id
    assert set(reader.samples) >= {"research", "vision"}


def test_a_journal_changes_no_result(folder):
    before = (folder / "run.json").read_text()
    simulate(folder.parents[1])
    assert (folder / "run.json").read_text() == before, "a finished run is not repeated"
