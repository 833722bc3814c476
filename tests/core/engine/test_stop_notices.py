"""Stops that are announced: the gang saves its work, answers, and only then is it stopped."""

from dataclasses import replace

import pytest
from builders import an_engine, gang, needs, node, pod

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine, Limits, State
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.queues import AdvanceReservation, Queue, Stop
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
LOW, HIGH = GangId("ns/low"), GangId("ns/high")


def plan(engine, now_s):
    return engine.accept(make_plan(engine.begin_cycle(now_s=now_s), POLICIES, now_s), now_s)


def of(orders, kind) -> list:
    return [order for order in orders if isinstance(order, kind)]


def low_pod(index=0, members=1, name="low", **fields):
    """Return a pod that runs on the only node."""
    wants = needs(8 // members)
    fields = {"node": NodeName("n"), "started_s": 0.0, **fields}
    return pod(f"{name}-{index}", name, wants, **fields)


def running(members: int = 1, grace_s: float | None = 60.0, limits=None, **fields) -> Engine:
    """Return an engine with one node, full of a gang that saves its work."""
    engine = an_engine(node("n"), **limits or {})
    engine.observe(f.QueueSeen(Queue("q")), 0.0)
    declared = gang("low", members, priority=0, checkpoint_grace_s=grace_s, **fields)
    engine.observe(f.GangSeen(declared), 0.0)
    for index in range(members):
        engine.observe(low_pod(index, members), 0.0)
    return engine


def urgent(engine, now_s=100.0, name="high"):
    """Let a gang of higher priority come, and plan it."""
    engine.observe(f.GangSeen(gang(name, 1, priority=9)), now_s)
    engine.observe(pod(f"{name}-0", name, needs(8), created_s=now_s), now_s)
    return plan(engine, now_s)


def state(engine, name=LOW):
    return engine.view.gangs[name]


def gpus_used(engine) -> int:
    cluster = engine.view.cluster
    return int(cluster.used[0, cluster.resources.index("nvidia.com/gpu")])


def test_a_gang_that_does_not_ask_is_stopped_at_once():
    orders = urgent(running(grace_s=None))
    assert [one.name for one in of(orders, o.Evict)] == ["ns/low-0"]
    assert not of(orders, o.AnnounceStop)


def test_a_stop_is_announced_and_the_gang_stays_charged():
    engine = running()
    orders = urgent(engine)
    (told,) = of(orders, o.AnnounceStop)
    assert (told.gang, told.since_s, told.stop_by_s) == (LOW, 100.0, 160.0)
    assert told.pods == ((PodUid("low-0"), "ns/low-0"),)
    assert told.reason == "to be preempted by gang ns/high in queue default"
    assert not of(orders, o.Evict)
    assert not of(orders, o.Preempt)
    assert state(engine).state is State.PLACED
    assert state(engine, HIGH).state is State.RESERVED
    assert gpus_used(engine) == 16, "both are charged: no other gang gets the capacity"
    assert not of(engine.tick(159.0), o.Evict)
    assert not engine.view.running(), "it is nobody's next victim"
    assert [one.gang.id for one in engine.view.terminating()] == [LOW]


def test_the_answer_stops_it_and_the_other_starts():
    engine = running()
    urgent(engine)
    engine.tick(110.0)
    orders = engine.observe(low_pod(checkpoint_s=112.0), 112.5)
    assert [one.name for one in of(orders, o.Evict)] == ["ns/low-0"]
    (preempted,) = of(orders, o.Preempt)
    assert (preempted.by, preempted.lost_gpu_s) == (HIGH, 8 * 0.5)
    assert state(engine).state is State.BROKEN
    orders = engine.observe(f.PodGone(PodUid("low-0")), 120.0)
    assert [one.gang for one in of(orders, o.Bind)] or [one.gang for one in of(orders, o.Prepare)]
    assert state(engine, HIGH).state is not State.PENDING
    assert gpus_used(engine) == 8


@pytest.mark.parametrize("saved_s", [100.0, 100.9, 99.5])
def test_only_a_checkpoint_since_the_announcement_is_an_answer(saved_s):
    engine = running()
    urgent(engine, 100.5)
    orders = engine.observe(low_pod(checkpoint_s=saved_s), 112.5)
    assert bool(of(orders, o.Evict)) == (saved_s >= 100.0)


def test_the_declaration_may_answer_too():
    engine = running()
    urgent(engine)
    declared = replace(state(engine).spec, checkpoint_s=101.0)
    assert of(engine.observe(f.GangSeen(declared), 102.0), o.Evict)


def test_without_an_answer_it_is_stopped_at_the_deadline():
    engine = running()
    urgent(engine)
    assert engine.next_deadline_s() <= 160.0
    assert not of(engine.tick(159.9), o.Evict)
    orders = engine.tick(160.0)
    assert of(orders, o.Evict)
    assert of(orders, o.Preempt)[0].lost_gpu_s == 8 * 160.0


@pytest.mark.parametrize(("bound_s", "by_s"), [(20.0, 120.0), (60.0, 160.0), (1e6, 160.0)])
def test_an_administrator_bounds_the_wait(bound_s, by_s):
    engine = running(limits={"checkpoint_grace_max_s": bound_s})
    assert of(urgent(engine), o.AnnounceStop)[0].stop_by_s == by_s


def test_an_administrator_allows_no_wait():
    orders = urgent(running(limits={"checkpoint_grace_max_s": 0.0}))
    assert of(orders, o.Evict)
    assert not of(orders, o.AnnounceStop)


def test_if_the_preemptor_vanishes_the_gang_runs_on():
    engine = running()
    urgent(engine)
    engine.observe(f.PodGone(PodUid("high-0")), 105.0)
    orders = engine.observe(f.GangGone(HIGH), 106.0) + engine.tick(107.0)
    orders += engine.tick(500.0)
    assert not of(orders, o.Evict)
    assert state(engine).state is State.PLACED
    assert state(engine).run.stop is None
    assert [one.gang.id for one in engine.view.running()] == [LOW]
    assert gpus_used(engine) == 8


def test_the_pods_are_told_to_go_on():
    engine = running()
    urgent(engine)
    orders = engine.observe(f.PodGone(PodUid("high-0")), 105.0)
    (told,) = of(orders, o.WithdrawStop)
    assert told.pods == ((PodUid("low-0"), "ns/low-0"),)
    reasons = [one.reason for one in of(orders, o.Report) if one.gang == LOW]
    assert reasons == ["StopWithdrawn"]
    again = urgent(engine, 200.0, "other")
    assert of(again, o.AnnounceStop)[0].stop_by_s == 260.0, "a later stop has its own deadline"


def test_an_answer_to_a_withdrawn_stop_does_not_stop_it():
    engine = running()
    urgent(engine)
    engine.observe(f.PodGone(PodUid("high-0")), 105.0)
    assert not of(engine.observe(low_pod(checkpoint_s=106.0), 107.0), o.Evict)
    assert engine.view.running()[0].last_checkpoint_s == 106.0


def test_capacity_from_elsewhere_lets_it_run_on():
    engine = running()
    urgent(engine)
    orders = engine.observe(f.NodeSeen(node("n", gpus=16)), 110.0)
    assert of(orders, o.WithdrawStop)
    assert state(engine, HIGH).state is not State.PENDING
    assert not of(engine.tick(500.0), o.Evict)


def test_who_ends_by_itself_in_the_wait_is_complete():
    engine = running()
    urgent(engine)
    orders = engine.observe(low_pod(ended=True), 110.0)
    assert not of(orders, o.Evict)
    assert not of(orders, o.Preempt)
    assert engine.view.is_finished(state(engine))
    assert state(engine).run.stop is None
    assert gpus_used(engine) == 8, "the other gang has its capacity"
    assert not of(engine.tick(500.0), o.Evict) or state(engine, HIGH).retry.attempts


def test_who_answers_and_exits_is_stopped_not_complete():
    engine = running(2)
    urgent(engine)
    orders = engine.observe(low_pod(0, 2, checkpoint_s=105.0, ended=True), 106.0)
    assert [one.name for one in of(orders, o.Evict)] == ["ns/low-1"]
    engine.observe(low_pod(1, 2, ended=True), 107.0)
    assert state(engine).members["ns/low-1"].failed, "its exit code says nothing"
    assert not engine.view.is_finished(state(engine))


def test_who_loses_a_member_in_the_wait_is_stopped_at_once():
    engine = running(2)
    urgent(engine)
    orders = engine.observe(low_pod(1, 2, ended=True, failed=True), 110.0)
    assert [one.name for one in of(orders, o.Evict)] == ["ns/low-0"]
    assert of(orders, o.Preempt)
    assert state(engine).retry.attempts == 0, "it did not fail"


def test_a_stop_is_not_withdrawn_while_a_second_gang_waits_for_its_nodes():
    engine = an_engine(node("n"), node("m"))
    for name, where in (("low", "n"), ("next", "m")):
        engine.observe(f.GangSeen(gang(name, 1, priority=0, checkpoint_grace_s=60.0)), 0.0)
        engine.observe(low_pod(name=name, node=NodeName(where)), 0.0)
    urgent(engine, 100.0, "high")
    urgent(engine, 101.0, "second")
    stopped = {gang for gang in (LOW, GangId("ns/next")) if state(engine, gang).run.stop}
    assert len(stopped) == 2
    engine.observe(f.PodGone(PodUid("high-0")), 105.0)
    left = [gang for gang in stopped if state(engine, gang).run.stop]
    assert len(left) == 1
    assert state(engine, left[0]).run.stop.of == "ns/second"


def test_the_cheapest_victim_is_the_one_that_saves_first():
    engine = an_engine(node("n"), node("m"))
    for name, where, grace_s in (("long", "n", None), ("saves", "m", 30.0)):
        engine.observe(f.GangSeen(gang(name, 1, priority=0, checkpoint_grace_s=grace_s)), 0.0)
        engine.observe(low_pod(name=name, node=NodeName(where)), 0.0)
    (told,) = of(urgent(engine, 5000.0), o.AnnounceStop)
    assert told.gang == "ns/saves"


def test_a_gang_without_room_to_save_loses_by_its_last_checkpoint():
    engine = an_engine(node("n"), node("m"))
    engine.observe(f.GangSeen(gang("fresh", 1, priority=0)), 0.0)
    engine.observe(low_pod(name="fresh", node=NodeName("n"), checkpoint_s=4990.0), 4995.0)
    engine.observe(f.GangSeen(gang("saves", 1, priority=0, checkpoint_grace_s=300.0)), 0.0)
    engine.observe(low_pod(name="saves", node=NodeName("m")), 0.0)
    assert [one.name for one in of(urgent(engine, 5000.0), o.Evict)] == ["ns/fresh-0"]


# -- drains ---------------------------------------------------------------------------------------


def test_a_drained_queue_lets_gangs_save_and_may_change_its_mind():
    engine = running(queue="q")
    engine.observe(f.QueueSeen(Queue("q", stop=Stop.DRAIN)), 5.0)
    (told,) = of(engine.tick(6.0), o.AnnounceStop)
    assert (told.stop_by_s, told.reason) == (66.0, "queue q is drained")
    engine.observe(f.QueueSeen(Queue("q")), 7.0)
    assert of(engine.tick(8.0), o.WithdrawStop)
    engine.observe(f.QueueSeen(Queue("q", stop=Stop.DRAIN)), 9.0)
    engine.tick(10.0)
    orders = engine.observe(low_pod(checkpoint_s=11.0), 11.0)
    assert [one.of for one in of(orders, o.Drain)] == ["q"]
    assert of(orders, o.Evict)


def test_reserved_nodes_are_left_after_a_save():
    engine = running()
    booking = AdvanceReservation("upgrade", 5.0, 999.0, nodes=(NodeName("n"),), evicts=True)
    engine.observe(f.AdvanceReservationSeen(booking), 4.0)
    assert of(engine.tick(6.0), o.AnnounceStop)
    assert not of(engine.tick(65.0), o.Evict)
    assert of(engine.tick(66.0), o.Evict)


@pytest.mark.parametrize(("grace_s", "at_s", "by_s"), [(60.0, 500.0, 70.0), (60.0, 30.0, 30.0)])
def test_a_node_that_stops_gives_no_more_time_than_it_has(grace_s, at_s, by_s):
    engine = running(grace_s=grace_s)
    engine.observe(f.NodeSeen(node("n", stop_by_s=at_s, unschedulable=True)), 10.0)
    (told,) = of(engine.tick(10.0), o.AnnounceStop)
    assert told.stop_by_s == by_s
    assert told.reason == "node n is about to stop"
    orders = engine.tick(by_s)
    assert [one.reason for one in of(orders, o.Drain)] == [o.DrainReason.NODE]


def test_a_node_that_stops_changes_nothing_for_others():
    engine = running(grace_s=None)
    engine.observe(f.NodeSeen(node("n", stop_by_s=50.0)), 10.0)
    assert not [one for at_s in (10.0, 60.0) for one in engine.tick(at_s)]


def test_a_node_that_stays_after_all_lets_gangs_run_on():
    engine = running()
    engine.observe(f.NodeSeen(node("n", stop_by_s=50.0)), 10.0)
    engine.tick(10.0)
    engine.observe(f.NodeSeen(node("n")), 20.0)
    assert of(engine.tick(21.0), o.WithdrawStop)
    assert not of(engine.tick(400.0), o.Evict)


# -- restarts -------------------------------------------------------------------------------------


def restarted(engine, now_s, *, marked=True) -> tuple[Engine, list]:
    """Return an engine that learns all that an earlier one can tell, and its orders."""
    after = Engine(Limits())
    orders = []
    for name in ("n",):
        after.observe(f.NodeSeen(node(name)), now_s)
    notice = state(engine).run.stop
    for known in engine.view.pods():
        shown = known.gang == LOW and marked and notice is not None
        fact = replace(known, stop_by_s=notice.by_s) if shown else known
        orders += after.observe(fact, now_s)
    for known in engine.view.gangs.values():
        orders += after.observe(f.GangSeen(known.spec), now_s)
    for past in engine.view.past():
        orders += after.observe(past, now_s)
    return after, orders + list(after.tick(now_s))


def test_a_restart_keeps_the_deadline_and_the_reservation():
    engine = running()
    urgent(engine)
    after, orders = restarted(engine, 130.0)
    assert [one.stop_by_s for one in of(orders, o.AnnounceStop)] == [160.0], "in case it was lost"
    assert not of(orders, o.WithdrawStop)
    assert not of(orders, o.Evict)
    assert state(after).run.stop.of == HIGH
    assert state(after, HIGH).state is State.RESERVED
    assert gpus_used(after) == 16
    assert not of(after.tick(159.0), o.Evict)
    assert of(after.tick(160.0), o.Evict)


def test_an_answer_while_no_scheduler_ran_counts():
    engine = running()
    urgent(engine)
    engine.parts.table.pods[PodUid("low-0")] = low_pod(checkpoint_s=120.0)
    _, orders = restarted(engine, 130.0)
    assert of(orders, o.Evict)


def test_a_restart_after_the_preemptor_left_lets_it_run_on():
    engine = running()
    urgent(engine)
    before = replace(next(one for one in engine.view.past() if one.gang == LOW))
    after = Engine(Limits())
    after.observe(f.NodeSeen(node("n")), 130.0)
    after.observe(f.GangSeen(state(engine).spec), 130.0)
    after.observe(low_pod(stop_by_s=160.0), 130.0)
    after.observe(before, 130.0)
    orders = after.tick(130.2)
    assert of(orders, o.WithdrawStop)[0].pods
    assert state(after).run.stop is None


def test_a_stop_that_no_process_knows_is_taken_back():
    """The earlier process ended between the announcement and writing down what gangs have had."""
    engine = running()
    engine.observe(low_pod(stop_by_s=160.0), 1.0)
    (told,) = of(engine.tick(2.0), o.WithdrawStop)
    assert told.pods == ((PodUid("low-0"), "ns/low-0"),)
    assert not of(engine.tick(3.0), o.WithdrawStop), "once is enough"
