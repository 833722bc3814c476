"""The moments of a journal: any of them is what the facts until then say."""

import asyncio
import pickle

import pytest
from builders import POLICIES, an_engine
from web_sources import STEP_S, write_journal

from gangsched.config import ConfigError
from gangsched.core.planning.forecast import Effort
from gangsched.web import moments
from gangsched.web.keeper import PageSource
from gangsched.web.model import QueueRow
from gangsched.web.moments import JournalMoments, JournalReader, ReadingBusyError

GANGS = 40


def queue_rows(engine):
    return (QueueRow("default", 0, len(engine.view.gangs), 0, share=0.5),)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    return write_journal(tmp_path_factory.mktemp("journal") / "journal.jsonl", GANGS)


@pytest.fixture
def reader(journal, monkeypatch):
    monkeypatch.setattr(moments, "_EVERY", 7)
    made = JournalReader(journal, queue_rows)
    made.read()
    return made


def make_source(engine, at_s):
    return PageSource(
        engine,
        POLICIES,
        lambda: at_s,
        "journal",
        live=False,
        queue_rows=lambda: queue_rows(engine),
        redact=lambda text, _: text,
        effort=Effort(2, 5),
    )


def test_every_moment_is_as_the_facts_say(reader):
    assert (reader.first_s, reader.last_s) == (0.0, (GANGS + 2) * STEP_S)
    for number in range(2, GANGS):
        engine = reader.engine_at((number + 1) * STEP_S + 1)
        expected = {f"ns/g{number - 1}", f"ns/g{number}"}
        assert {str(gang) for gang in engine.view.gangs} == expected, number
        assert {state.state.value for state in engine.view.gangs.values()} == {"Placed"}
    assert not reader.engine_at(reader.last_s).view.gangs


def test_a_moment_does_not_depend_on_checkpoints(journal, reader, monkeypatch):
    monkeypatch.setattr(moments, "_EVERY", 10**9)
    plain = JournalReader(journal, queue_rows)
    plain.read()
    for at_s in (0.0, 95.0, 100.0, 250.0, 420.0):
        one, other = (made.engine_at(at_s).view for made in (reader, plain))
        assert one.gangs.keys() == other.gangs.keys()
        assert [s.state for s in one.gangs.values()] == [s.state for s in other.gangs.values()]


def test_checkpoints_are_bounded(reader, monkeypatch):
    kept = reader._checkpoints
    assert 8 <= len(kept) <= 32
    assert [one.lines for one in kept] == sorted(one.lines for one in kept)
    size = len(pickle.dumps(an_engine(), pickle.HIGHEST_PROTOCOL))
    monkeypatch.setattr(moments, "_CHECKPOINT_BYTES", size * 4)
    reader.read()
    assert len(reader._checkpoints) < 8


def test_the_past_of_a_moment_is_what_was_known_then(reader):
    story = [line.text for line in reader.log.story("ns/g5", 61.0)]
    assert story[0] == "1 pod run on a."
    assert "The plan assigns 1 pod to a." in story
    assert len(reader.log.story("ns/g5")) > len(story)
    assert [run.gang for run in reader.log.runs_until(45.0)] == ["ns/g0", "ns/g1"]
    moment = reader.moment(65.0)
    assert (moment.first_s, moment.earlier_s, moment.later_s) == (0.0, 60.0, 70.0)
    samples = reader.samples_until(100.0)["default"]
    assert samples
    assert all(sample.at_s <= 100.0 for sample in samples)


async def test_viewers_of_one_moment_share_it_and_few_are_kept(reader):
    shown = JournalMoments(reader, make_source)
    try:
        keepers = await asyncio.gather(*(shown.keeper(55.0) for _ in range(5)))
        assert len(set(keepers)) == 1
        model = await keepers[0].after(0)
        assert set(model.gangs) == {"ns/g3", "ns/g4"}
        assert model.moment.later_s == 60.0
        for number in range(8):
            await shown.keeper(60.0 + number)
        assert len(shown._keepers) == moments._KEEPERS
        late = await shown.keeper(1e12)
        assert late.source.now_s() == reader.last_s
        waiting = [asyncio.ensure_future(shown.keeper(70.0 + n)) for n in range(40)]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert any(isinstance(answer, ReadingBusyError) for answer in answers)
        assert not any(isinstance(answer, AssertionError) for answer in answers)
    finally:
        await shown.close()


def test_a_line_that_cannot_be_read_is_named(journal, tmp_path):
    broken = tmp_path / "broken"
    lines = journal.read_text().splitlines(keepends=True)
    lines[4] = '{"word":"fact","at_s":1.0,"what":"Nonsense","data":{}}\n'
    broken.write_text("".join(lines))
    with pytest.raises(ConfigError, match=r"broken: line 5: a journal has no fact 'Nonsense'"):
        JournalReader(broken, queue_rows).read()
