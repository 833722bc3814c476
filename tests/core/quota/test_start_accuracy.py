"""Forecast ranges of starts: drawn from run times, and widened by past errors."""

import pytest
from builders import POLICIES, an_engine, gang, needs, node, plan, pod, templated

from gangsched.core import facts as f
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.queues import Queue
from gangsched.core.model.runtime import Estimate, EstimateSource
from gangsched.core.model.topology import Level, Topology
from gangsched.core.planning.forecast import Effort, forecast, ranges, with_observed_ranges
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.quota.start_accuracy import StartAccuracy, StartRecord

G = GangId("ns/g")


def estimate(middle_s=None):
    return Estimate(1000.0, 500.0, 4000.0, EstimateSource.DECLARED, middle_s)


def test_one_run_in_ten_is_beyond_either_percentile():
    drawn = [round(estimate().drawn_s(level)) for level in (0.02, 0.1, 0.5, 0.9, 0.98)]
    assert drawn[1:4] == [500, 1000, 4000]
    assert drawn[0] < 400
    assert drawn[4] > 8000


def test_who_says_too_much_is_drawn_by_what_runs_really_take():
    assert estimate(600.0).drawn_s(0.5) == pytest.approx(600.0)
    assert estimate(600.0).runtime_s == 1000.0, "plans still keep to the owner's word"


def test_a_run_that_outlived_much_is_drawn_from_what_is_left():
    halves = [estimate().drawn_left_s(ran_s, 0.5) for ran_s in (0.0, 1000.0, 4000.0)]
    assert halves == sorted(halves)
    assert estimate().drawn_left_s(1000.0, 0.5) == pytest.approx(estimate().drawn_s(0.75) - 1000.0)
    same = Estimate(10.0, 10.0, 10.0, EstimateSource.LEARNED)
    assert 30.0 < same.drawn_left_s(100.0, 0.5) < 60.0, "nothing is known: some part of it again"
    assert same.drawn_left_s(100.0, 0.95) < 400.0


def test_a_range_grows_by_how_late_starts_were():
    starts = StartRecord()
    before = starts.punctuality(0.0)
    for index in range(200):
        late = 6 if index % 10 == 0 else 1  # one in ten starts much later than was drawn
        gang = GangId(f"ns/g{index}")
        starts.record_predictions([(gang, 100.0, 970.0)], 0.0, {gang})
        starts.record_start(gang, 970.0 * late)
    after = starts.punctuality(0.0)
    assert after.late > before.late > 1.0
    assert 5.0 < after.late < 7.0
    assert after.range_s(0.0, 100.0, 970.0)[1] > 970.0 * 5


def test_who_is_late_and_waits_still_counts():
    starts = StartRecord()
    gangs = [GangId(f"ns/g{index}") for index in range(50)]
    starts.record_predictions([(gang, 10.0, 100.0) for gang in gangs], 0.0, gangs)
    early = starts.punctuality(100.0)
    assert starts.punctuality(2000.0).late > 5 * early.late
    starts.record_predictions([], 2000.0, ())
    assert starts.punctuality(2000.0) == early, "who is gone is forgotten"


def test_a_gang_counts_each_time_that_it_has_waited_twice_as_long():
    starts, seen = StartRecord(), []
    for now_s in range(0, 1000, 10):
        starts.record_predictions([(G, now_s + 100.0, now_s + 200.0)], float(now_s), {G})
    starts.record_start(G, 1000.0)
    seen = [one for one in starts.late if one not in StartRecord().late]
    assert len(seen) == 6


def test_what_was_learnt_is_kept_for_the_next_process():
    history = RuntimeHistory()
    history.starts.record_predictions([(G, 100.0, 200.0)], 0.0, {G})
    history.starts.record_start(G, 1000.0)
    other = RuntimeHistory()
    other.merge_json(history.to_json())
    assert other.starts.punctuality(0.0) == history.starts.punctuality(0.0)
    assert other.to_json() == history.to_json()
    other.merge_json({"starts": [["late", float("inf")]]})
    assert other.starts.punctuality(0.0).late == 1000.0


def test_the_engine_learns_when_gangs_start():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("g-0", "g", needs(8)), 0.0)
    engine.history.starts.record_predictions([(G, 10.0, 20.0)], 0.0, engine.view.gangs)
    plan(engine, 400.0)
    engine.observe(pod("g-0", "g", needs(8), node=NodeName("n")), 400.0)
    assert engine.history.starts.late[-1] == pytest.approx(430 / 50)


def test_a_prediction_is_stretched_and_its_middle_stays():
    engine = waiting_for("n0")
    drawn = forecast(engine.view.snapshot_all(10.0), POLICIES, 10.0)
    told = with_observed_ranges(drawn, StartAccuracy(0.5, 2.0), 10.0)
    assert told[G].start_s == drawn[G].start_s
    assert told[G].low_s < drawn[G].low_s < drawn[G].high_s < told[G].high_s
    assert list(ranges(drawn)) == [(G, drawn[G].low_s, drawn[G].high_s)]


def test_a_prediction_names_the_gang_that_it_waits_for():
    engine = waiting_for("n0", "n1")
    found = forecast(engine.view.snapshot_all(10.0), POLICIES, 10.0)
    assert found[G].after in (GangId("ns/n0"), GangId("ns/n1"))
    free = an_engine(node("n"))
    free.observe(f.GangSeen(templated("g", 1, needs(8))), 10.0)
    found = forecast(free.view.snapshot_all(10.0), POLICIES, 10.0)
    assert (found[G].start_s, found[G].after) == (10.0, None)


def waiting_for(*names):
    engine = an_engine(*(node(name, labels={"rack": "a"}) for name in names))
    engine.observe(f.TopologySeen(Topology("default", (Level("rack", "rack"),))), 0.0)
    for name in names:
        engine.observe(f.GangSeen(gang(name, 1, expected_runtime_s=100.0)), 0.0)
        wants = needs(8)
        engine.observe(pod(f"{name}-0", name, wants, node=NodeName(name), started_s=0.0), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(8), expected_runtime_s=50.0)), 10.0)
    return engine


def test_who_is_to_have_a_rack_alone_has_it_in_forecasts_too():
    engine = waiting_for("n0", "n1")
    engine.observe(f.QueueSeen(Queue("default", exclusive="rack")), 0.0)
    alone = Constraints(exclusive="rack")
    mine = templated("g", 1, needs(8), expected_runtime_s=50.0, constraints=alone)
    engine.observe(f.GangSeen(mine), 10.0)
    after = templated("h", 1, needs(8), expected_runtime_s=50.0, created_s=11.0)
    engine.observe(f.GangSeen(after), 11.0)
    found = forecast(engine.view.snapshot_all(12.0), POLICIES, 12.0, Effort(1))
    assert found[G].start_s is not None
    assert found[GangId("ns/h")].start_s >= found[G].start_s + 50.0
