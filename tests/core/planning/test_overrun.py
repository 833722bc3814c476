"""A gang that overtakes a reservation by its declared run time is held to it."""

import pytest
from builders import an_engine, gang, needs, node, pod

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import State
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.core.quota.runtime_history import RuntimeHistory
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
LARGE, SHORT = GangId("ns/large"), GangId("ns/short")


def plan(engine, now_s):
    """Plan, and answer every order; return all of them."""
    engine.tick(now_s)
    done = list(engine.accept(make_plan(engine.begin_cycle(now_s), POLICIES, now_s), now_s))
    for order in done:
        if isinstance(order, o.Prepare):
            done += engine.observe(f.Prepared(order.uid, order.node), now_s)
        elif isinstance(order, o.Bind):
            done += engine.observe(f.Bound(order.uid, order.node), now_s)
    return done


def arrive(engine, name, members, now_s, runtime_s=None, **more):
    """Let a gang of pods come, each of which takes a node."""
    engine.observe(f.GangSeen(gang(name, members, expected_runtime_s=runtime_s, **more)), now_s)
    for index in range(members):
        engine.observe(pod(f"{name}-{index}", name, needs(8)), now_s)


def passed(said_s=20.0, **more):
    """Return an engine: a large gang waits for one that runs, and a short one passed it."""
    engine = an_engine(*(node(f"n{index}") for index in range(3)))
    engine.observe(f.GangSeen(gang("run", 1, expected_runtime_s=60.0)), 0.0)
    engine.observe(pod("run-0", "run", needs(8), node=NodeName("n0"), started_s=0.0), 0.0)
    arrive(engine, "large", 3, 1.0, 60.0)
    plan(engine, 1.0)
    assert engine.view.backfill_reservations[LARGE].start_s == 60.0
    arrive(engine, "short", 1, 2.0, said_s, **more)
    plan(engine, 2.0)
    assert engine.view.gangs[SHORT].state is State.PLACED
    return engine


def stopped(orders) -> list[str]:
    """Return who is stopped."""
    return [order.gang for order in orders if isinstance(order, o.Preempt)]


@pytest.mark.parametrize("preemptible", [True, False])
def test_who_passed_a_reservation_and_runs_for_longer_than_it_said_is_stopped_for_it(preemptible):
    engine = passed(preemptible=preemptible)
    assert not stopped(plan(engine, 30.0)), "the room of the other is not free either"
    engine.observe(f.PodGone(PodUid("run-0")), 60.0)
    orders = plan(engine, 60.0)
    assert stopped(orders) == [SHORT]
    told = next(one.message for one in orders if isinstance(one, o.Report) and one.gang == SHORT)
    assert "has run for more than the expected 20 s" in told
    engine.observe(f.PodGone(PodUid("short-0")), 61.0)
    assert len(engine.view.gangs[LARGE].assignments()) == 3
    assert not engine.view.gangs[LARGE].reservation.waits_for_capacity


def test_who_keeps_its_word_is_left_alone():
    engine = passed(said_s=58.0)
    engine.observe(f.PodGone(PodUid("run-0")), 30.0)
    assert not stopped(plan(engine, 31.0))


def test_a_gang_that_overtook_no_other_may_be_late():
    engine = an_engine(*(node(f"n{index}") for index in range(3)))
    arrive(engine, "early", 1, 0.0, 20.0)
    plan(engine, 0.0)
    arrive(engine, "large", 3, 1.0, 60.0)
    for now_s in (1.0, 30.0, 60.0):
        assert not stopped(plan(engine, now_s))


def test_a_higher_priority_is_not_stopped_for_a_lower_one():
    engine = passed(priority=5)
    engine.observe(f.PodGone(PodUid("run-0")), 60.0)
    assert not stopped(plan(engine, 60.0))


def test_a_user_who_declares_too_little_is_corrected_by_history():
    history = RuntimeHistory()
    short = gang("short", 1, expected_runtime_s=10.0, user="eve")
    assert history.estimate(short).runtime_s == 10.0
    for _ in range(5):
        history.record(short, 300.0)
    assert history.estimate(short).runtime_s == 300.0
    other = gang("other", 1, expected_runtime_s=10.0, user="ann")
    assert history.estimate(other).runtime_s == 10.0, "nobody answers for another"


def test_who_says_too_much_is_taken_at_their_word():
    history = RuntimeHistory()
    long = gang("long", 1, expected_runtime_s=100.0, user="ann")
    for _ in range(5):
        history.record(long, 50.0)
    assert history.estimate(long).runtime_s == 100.0


def test_what_waits_already_is_doubted_as_well():
    engine = an_engine(node("n"))
    engine.observe(pod("run-0", "run", needs(8), node=NodeName("n")), 0.0)
    arrive(engine, "short", 1, 0.0, 10.0, user="eve")
    plan(engine, 0.0)
    for index in range(5):
        name = f"before{index}"
        engine.observe(f.GangSeen(gang(name, 1, expected_runtime_s=1.0, user="eve")), 1.0)
        there = {"node": NodeName("n"), "started_s": 1.0}
        engine.observe(pod(name, name, needs(0), **there), 1.0)
        engine.observe(pod(name, name, needs(0), ended=True, **there), 31.0)
    engine.tick(100.0)
    snapshot = engine.begin_cycle(100.0)
    ((waiting,),) = (line.gangs for line in snapshot.equivalence_classes)
    assert waiting.gang.id == SHORT
    assert waiting.estimate.runtime_s == 300.0
