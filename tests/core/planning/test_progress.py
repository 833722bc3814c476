"""Progress reports of a computation, and a failure of one gang leaves the snapshot unchanged."""

from dataclasses import replace

import pytest
from builders import POLICIES, an_engine, gang, needs, node, plan, pod

from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.engine import Engine, State
from gangsched.core.facts import AdvanceReservationSeen, GangSeen, NodeSeen, PlanFailed
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import AdvanceReservation
from gangsched.core.planning.forecast import forecast
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import PolicyError
from gangsched.core.progress import Progress, StoppedError
from gangsched.recording.journal import Journal, RecordingEngine
from gangsched.recording.replay import Replayed, replay
from policies.pack import Pack

BAD, GOOD = GangId("ns/bad"), GangId("ns/good")
WRONG = needs(3)


def two_gangs(engine=None):
    """Return an engine with two gangs that wait."""
    engine = engine or an_engine(node("n"))
    for name, wants in (("bad", WRONG), ("good", needs(1))):
        engine.observe(GangSeen(gang(name, 1)), 0.0)
        engine.observe(pod(f"{name}-0", name, wants), 0.0)
    return engine


class Watched:
    """Looks which gang a plan is at, and may have it stopped there."""

    def __init__(self, stop_at: GangId | None = None) -> None:
        self.seen, self.stop_at = [], stop_at

    def place(self, waiting, snapshot):
        self.seen.append(snapshot.progress.gang)
        if waiting.gang.id == self.stop_at:
            snapshot.progress.stopped = True
        return Pack().place(waiting, snapshot)


def test_a_plan_reports_the_gang_that_it_plans():
    placer, snapshot = Watched(), two_gangs().begin_cycle(1.0)
    make_plan(snapshot, replace(POLICIES, placer=placer), 1.0)
    assert placer.seen == [BAD, GOOD]
    assert snapshot.progress.turns == 2


@pytest.mark.parametrize("gang_id", [BAD, GOOD])
def test_a_stopped_plan_names_its_gang(gang_id):
    policies = replace(POLICIES, placer=Watched(gang_id))
    with pytest.raises(StoppedError) as stopped:
        make_plan(two_gangs().begin_cycle(1.0), policies, 1.0)
    assert stopped.value.gang == gang_id


def test_a_forecast_stops_too():
    snapshot = two_gangs().view.snapshot_all(1.0)
    with pytest.raises(StoppedError):
        forecast(snapshot, replace(POLICIES, placer=Watched(GOOD)), 1.0)


def test_a_stopped_computation_starts_with_no_further_gang():
    progress = Progress()
    progress.turn(BAD)
    progress.stopped = True
    with pytest.raises(StoppedError):
        progress.turn(GOOD)
    assert (progress.gang, progress.turns) == (BAD, 1)


def test_a_gang_is_set_aside_until_a_moment_or_until_it_changes():
    engine = two_gangs()
    engine.observe(PlanFailed(BAD, "planning is slow", 1000.0), 10.0)
    assert engine.view.refusals[BAD].message == (
        "Planning of gang ns/bad failed (planning is slow); the scheduler tries again when the "
        "gang's request changes, or in 990 s."
    )
    plan(engine, 11.0)
    assert engine.view.gangs[GOOD].state is State.RESERVED
    engine.tick(999.0)
    assert not engine.view.gangs[BAD].is_plannable()
    engine.tick(1000.0)
    assert engine.view.gangs[BAD].is_plannable()
    engine.observe(PlanFailed(BAD, "planning is slow", 2000.0), 1001.0)
    engine.observe(GangSeen(gang("bad", 1, priority=5)), 1002.0)
    assert engine.view.gangs[BAD].is_plannable()


def test_a_gang_that_cannot_be_shown_to_planners_is_set_aside(monkeypatch):
    engine = two_gangs()
    views = engine.parts.views
    made = views.make
    monkeypatch.setattr(
        views, "make", lambda gang: {}["a defect"] if gang.id == BAD else made(gang)
    )
    plan(engine, 1.0)
    assert engine.view.gangs[GOOD].state is State.RESERVED
    assert "KeyError: 'a defect'" in engine.view.refusals[BAD].message


@pytest.mark.parametrize("in_line", [False, True])
def test_a_plan_names_the_gang_that_cannot_be_counted(in_line, monkeypatch):
    engine = two_gangs()
    if in_line:
        engine.begin_cycle(0.5)
        engine.observe(AdvanceReservationSeen(AdvanceReservation("b", 900.0, 999.0)), 0.5)
    count = Cluster.capacity

    def fails(cluster, needs):
        return {}["a defect"] if needs == WRONG else count(cluster, needs)

    monkeypatch.setattr(Cluster, "capacity", fails)
    with pytest.raises(PolicyError) as caught:
        plan(engine, 1.0)
    assert caught.value.gang == BAD
    engine.observe(PlanFailed(BAD, caught.value.problem), 1.0)
    plan(engine, 1.0)
    assert engine.view.gangs[GOOD].state is State.RESERVED
    assert "KeyError: 'a defect'" in engine.view.refusals[BAD].message


class Deadly:
    """Must not be asked about one gang."""

    def place(self, waiting, snapshot):
        assert waiting.gang.id != BAD
        return Pack().place(waiting, snapshot)


def test_a_replay_does_not_plan_what_did_not_end_then(tmp_path):
    path = tmp_path / "journal.jsonl"
    with path.open("w") as file:
        engine = two_gangs(RecordingEngine(Engine(an_engine().limits, None), Journal(file)))
        engine.observe(NodeSeen(node("n")), 0.0)
        engine.begin_cycle(1.0)  # nothing came of it
        engine.observe(PlanFailed(BAD, "planning took longer than 20 s", 100.0), 1.0)
        engine.accept(make_plan(engine.begin_cycle(2.0), POLICIES, 2.0), 2.0)
        assert engine.view.gangs[GOOD].state is State.RESERVED
        engine.begin_cycle(200.0)  # nothing came of it: the process ended
    done = Replayed()
    assert list(replay(path, replace(POLICIES, placer=Deadly()), done)) == []
    assert (done.plans, done.placed) == (1, 1)
