"""Rules of queues beside quotas: limits, budgets, GPU types, reservations, readiness."""

import json

import pytest
from builders import an_engine, gang, needs, node, pod, templated

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine, Limits, State
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.pods import GpuShare, PodRequirements
from gangsched.core.model.queues import (
    AdvanceReservation,
    GpuBudget,
    GpuWeights,
    Preemption,
    Queue,
    Quota,
    Stop,
    charged_amounts,
)
from gangsched.core.model.runtime import EstimateSource
from gangsched.core.planning.forecast import Effort, forecast
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.core.quota.ledger import Allocation, Ledger
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.runtime_history import RuntimeHistory, job_name_prefix
from gangsched.core.quota.usage import Usage
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from simulator.jobs import GPU, Job
from simulator.virtual.job_run import JobRun

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
G = GangId("ns/g")


def plan(engine, now_s=0.0):
    return engine.accept(make_plan(engine.begin_cycle(now_s=now_s), POLICIES, now_s), now_s)


def run(engine, name, members=1, wants=None, now_s=0.0, on="n", **more):
    """Have a gang run; its pods are bound to one node."""
    engine.observe(f.GangSeen(gang(name, members, **more)), now_s)
    for index in range(members):
        fact = pod(f"{name}-{index}", name, wants or needs(8), node=NodeName(on), started_s=now_s)
        engine.observe(fact, now_s)
    assert engine.view.gangs[GangId(f"ns/{name}")].state is State.PLACED


def reason(engine, name="g"):
    return engine.view.refusals[GangId(f"ns/{name}")].reason.value


def message(engine, name="g"):
    return engine.view.refusals[GangId(f"ns/{name}")].message


# -- the tree -------------------------------------------------------------------------------------


def test_what_is_wrong_with_a_tree():
    tree = QueueTree(
        [
            Queue("a", "b"),
            Queue("b", "a"),
            Queue("c", "nowhere"),
        ]
    )
    assert "circle: a > b > a" in tree.problems["a"]
    assert "'nowhere', parent of 'c', does not exist" in tree.problems["c"]
    assert "default" in tree


def test_borrowing_follows_limits_at_every_level():
    tree = QueueTree(
        [
            Queue("org", quotas=(Quota(GPU, 10_000),)),
            Queue("a", "org", (Quota(GPU, 6000, lending=2000),)),
            Queue("b", "org", (Quota(GPU, 4000, borrowing=3000),)),
        ]
    )
    usage = Usage(tree)
    key = (GPU, "")
    assert usage.available("b", key) == 6000, "2 of a's are lent"
    usage.charge("b", ((key, 6000),))
    assert usage.available("b", key) == 0
    assert usage.available("a", key) == 4000, "a keeps what it does not lend"
    usage.charge("b", ((key, 6000),), -1)
    usage.charge("a", ((key, 10_000),))
    assert usage.available("a", key) == 0
    assert usage.borrowed("a") == {key: 4000}


def test_mig_and_shares_draw_on_the_gpu_quota():
    assert dict(charged_amounts(needs(0, share=GpuShare(milli=500))))[(GPU, "")] == 500
    assert (GPU, "") not in dict(charged_amounts(needs(0)))
    assert (
        dict(charged_amounts(PodRequirements((("nvidia.com/mig-3g.20gb", 2),))))[(GPU, "")] == 1000
    )


# -- admission ------------------------------------------------------------------------------------


def test_limits_of_a_user():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", user_limits=((GPU, 4000),))), 0.0)
    run(engine, "a", 1, needs(4), queue="q", user="ann")
    engine.observe(f.GangSeen(templated("g", 1, needs(2), queue="q", user="ann")), 1.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(2), queue="q", user="bob")), 1.0)
    plan(engine, 1.0)
    assert reason(engine) == "UserLimit"
    assert "User ann may have 4 nvidia.com/gpu in queue q and has 4" in message(engine)
    assert engine.view.gangs[GangId("ns/h")].state is State.RESERVED


def test_limits_of_a_user_count_what_starts_in_the_same_cycle():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", user_limits=((GPU, 4000),))), 0.0)
    for name in "abc":
        engine.observe(f.GangSeen(templated(name, 1, needs(2), queue="q", user="ann")), 1.0)
    plan(engine, 1.0)
    states = [engine.view.gangs[GangId(f"ns/{name}")].state for name in "abc"]
    assert states == [State.RESERVED, State.RESERVED, State.PENDING]
    assert reason(engine, "c") == "UserLimit"


def test_a_spent_budget_waits_for_the_next_period():
    engine = an_engine(node("n"), node("m"))
    engine.observe(f.QueueSeen(Queue("q", budgets=(GpuBudget(3600.0, 86_400.0),))), 0.0)
    run(engine, "a", 1, needs(8), queue="q")
    engine.observe(f.GangSeen(templated("g", 1, needs(1), queue="q")), 449.0)
    plan(engine, 449.0)
    assert engine.view.gangs[G].state is State.RESERVED, "3592 of 3600 GPU-seconds"
    engine.observe(f.GangSeen(templated("h", 1, needs(1), queue="q")), 500.0)
    plan(engine, 500.0)
    assert reason(engine, "h") == "BudgetSpent"
    assert "has spent 1.1" in message(engine, "h")
    engine.tick(86_400.0)
    plan(engine, 86_500.0)
    assert engine.view.gangs[GangId("ns/h")].state is State.RESERVED, "a new day"


def test_gpu_kinds_have_quotas_of_their_own():
    def of(name, model):
        return node(name, gpu_model=model, labels={"nvidia.com/gpu.product": model})

    engine = an_engine(of("h", "NVIDIA-H100-80GB"), of("a", "NVIDIA-A100-40GB"))
    quotas = (Quota(GPU, 4000, "H100"), Quota(GPU, 4000, "A100"))
    engine.observe(f.QueueSeen(Queue("q", quotas=quotas)), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(4), queue="q")), 1.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(4), queue="q")), 2.0)
    kinds = Constraints(gpu_types=("H100",))
    engine.observe(f.GangSeen(templated("i", 1, needs(4), queue="q", constraints=kinds)), 3.0)
    plan(engine, 3.0)
    places = [
        m.assigned_node
        for one in "gh"
        for m in engine.view.gangs[GangId(f"ns/{one}")].members.values()
    ]
    assert sorted(places) == ["a", "h"], "the first kind is used up, the second is not"
    assert reason(engine, "i") == "QuotaInUse"
    assert "nvidia.com/gpu (H100)" in message(engine, "i")


def test_exchange_rates_count_for_shares():
    ledger = Ledger(GpuWeights({"H100": 2.0}))
    engine = Engine(Limits(), ledger)
    for name, model in (("h", "NVIDIA-H100-80GB"), ("a", "NVIDIA-A100-40GB")):
        engine.observe(f.NodeSeen(node(name, gpu_model=model)), 0.0)
    engine.observe(f.QueueSeen(Queue("x")), 0.0)
    engine.observe(f.QueueSeen(Queue("y")), 0.0)
    run(engine, "a", 1, needs(4), on="h", queue="x")
    run(engine, "b", 1, needs(4), on="a", queue="y")
    usage = engine.begin_cycle(now_s=1.0).usage
    assert usage.share("x") == pytest.approx(2 * usage.share("y"))
    engine.tick(11.0)
    assert ledger.historical_gpu_s(11.0)["x"] == pytest.approx(
        2 * ledger.historical_gpu_s(11.0)["y"], rel=0.01
    )


def test_a_strict_queue_lets_no_gang_pass():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", strict=True)), 0.0)
    run(engine, "a", 1, needs(4), queue="q")
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="q", created_s=1.0)), 1.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(1), queue="q", created_s=2.0)), 2.0)
    plan(engine, 2.0)
    assert reason(engine, "h") == "BehindHead"


def test_a_drained_queue_is_emptied_and_goes_on_later():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q")), 0.0)
    run(engine, "a", 1, needs(4), queue="q")
    engine.observe(f.QueueSeen(Queue("q", stop=Stop.DRAIN)), 5.0)
    orders = engine.tick(6.0)
    assert [order.name for order in orders if isinstance(order, o.Evict)] == ["ns/a-0"]
    engine.observe(f.PodGone(PodUid("a-0")), 7.0)
    engine.observe(pod("a-0", "a", needs(4), uid="again"), 8.0)
    plan(engine, 8.0)
    assert reason(engine, "a") == "QueueStopped"
    engine.observe(f.QueueSeen(Queue("q")), 9.0)
    plan(engine, 9.0)
    assert engine.view.assigned_node(PodUid("again")) == "n"


def test_a_finished_gang_is_drained_from_a_queue_once():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q")), 0.0)
    run(engine, "a", 1, needs(4), queue="q")
    engine.observe(pod("a-0", "a", needs(4), node=NodeName("n"), ended=True), 4.0)
    engine.observe(f.QueueSeen(Queue("q", stop=Stop.DRAIN)), 5.0)
    assert engine.tick(6.0) == ()
    assert engine.view.gangs[GangId("ns/a")].state is State.PLACED


def test_the_cost_of_a_drain_is_reported_once():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q")), 0.0)
    run(engine, "a", 1, needs(4), queue="q")
    engine.observe(f.QueueSeen(Queue("q", stop=Stop.DRAIN)), 5.0)
    drains = [one for now_s in (6.0, 7.0) for one in engine.tick(now_s) if isinstance(one, o.Drain)]
    started_s = running_view(engine.view.gangs[GangId("ns/a")]).started_s
    assert drains == [o.Drain(GangId("ns/a"), o.DrainReason.QUEUE, "q", 4 * (6.0 - started_s))]


def test_an_eviction_from_reserved_nodes_is_reported():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q")), 0.0)
    run(engine, "a", 1, needs(4), queue="q")
    engine.observe(
        f.AdvanceReservationSeen(
            AdvanceReservation("upgrade", 5.0, 99.0, nodes=(NodeName("n"),), evicts=True)
        ),
        4.0,
    )
    (drain,) = (one for one in engine.tick(6.0) if isinstance(one, o.Drain))
    assert (drain.reason, drain.of) == (o.DrainReason.RESERVATION, "upgrade")


# -- stopping others ------------------------------------------------------------------------------


def two_queues(engine, **rules):
    engine.observe(f.QueueSeen(Queue("org", quotas=(Quota(GPU, 16_000),))), 0.0)
    engine.observe(
        f.QueueSeen(Queue("a", "org", (Quota(GPU, 8000),), preemption=Preemption(**rules))), 0.0
    )
    engine.observe(f.QueueSeen(Queue("b", "org", (Quota(GPU, 8000),))), 0.0)


def stopped(orders):
    return sorted(order.name for order in orders if isinstance(order, o.Evict))


def test_the_cheapest_is_stopped():
    """volcano#5984: of four that would do, the one that loses least, and no second one."""
    engine = an_engine(node("n"), node("m"))
    two_queues(engine)
    run(engine, "old", 1, needs(8), 0.0, "n", queue="b")
    run(engine, "saved", 1, needs(8), 10.0, "m", queue="b", checkpoint_s=990.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(4), queue="a")), 1000.0)
    assert stopped(plan(engine, 1000.0)) == ["ns/saved-0"]


@pytest.mark.parametrize(
    ("protected", "gone"), [((), "saved"), (("saved",), "old"), (("old", "saved"), "saved")]
)
def test_gangs_with_a_disruption_budget_are_preempted_last(protected, gone):
    """As kube-scheduler does: where all are protected, it is the cheapest all the same."""
    engine = an_engine(node("n"), node("m"))
    two_queues(engine)
    run(engine, "old", 1, needs(8), 0.0, "n", queue="b")
    run(engine, "saved", 1, needs(8), 10.0, "m", queue="b", checkpoint_s=990.0)
    engine.observe(f.BudgetsSeen(tuple(GangId(f"ns/{one}") for one in protected)), 20.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(4), queue="a")), 1000.0)
    orders = plan(engine, 1000.0)
    assert stopped(orders) == [f"ns/{gone}-0"]
    (told,) = (one.message for one in orders if isinstance(one, o.Report) and gone in one.gang)
    assert ("despite a PodDisruptionBudget" in told) == (gone in protected)


def test_a_disruption_budget_delays_no_gang_for_good():
    engine = an_engine(node("n"), node("m"))
    engine.observe(f.QueueSeen(Queue("q", preemption=Preemption())), 0.0)
    run(engine, "bare", 1, needs(8), 0.0, "n", queue="q")
    run(engine, "kept", 1, needs(8), 0.0, "m", queue="q")
    engine.observe(f.BudgetsSeen((GangId("ns/kept"),)), 0.0)
    high = templated("high", 2, needs(8), queue="q", priority=9, created_s=100.0)
    engine.observe(f.GangSeen(high), 100.0)
    assert stopped(plan(engine, 100.0)) == ["ns/bare-0", "ns/kept-0"]
    engine.observe(f.BudgetsSeen(()), 101.0)
    assert not engine.view.protected


def test_spare_members_go_before_whole_gangs():
    """kueue#975: shrink what can shrink."""
    engine = an_engine(node("n"), node("m"))
    two_queues(engine)
    run(engine, "fixed", 2, needs(4), 0.0, "n", queue="b")
    engine.observe(f.GangSeen(gang("elastic", 1, queue="b")), 0.0)
    for index in range(4):
        fact = pod(f"e-{index}", "elastic", needs(2), node=NodeName("m"), started_s=0.0)
        engine.observe(fact, 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(4), queue="a")), 100.0)
    orders = plan(engine, 100.0)
    assert stopped(orders) == ["ns/e-1", "ns/e-2", "ns/e-3"]
    assert engine.view.gangs[GangId("ns/elastic")].state is State.PLACED
    assert any(isinstance(x, o.Report) and x.reason == "Shrunk" for x in orders)


def test_minimum_run_time_delay_and_what_may_not_be_stopped():
    engine = an_engine(node("n"), node("m"))
    two_queues(engine, delay_s=30.0)
    run(engine, "x", 1, needs(8), 0.0, "n", queue="b", min_runtime_s=100.0)
    run(engine, "y", 1, needs(8), 0.0, "m", queue="b", preemptible=False)
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="a", created_s=80.0)), 80.0)
    assert not stopped(plan(engine, 80.0)), "the delay"
    engine.tick(99.0)
    assert not stopped(plan(engine, 99.0)), "the minimum run time too"
    engine.tick(120.0)
    assert stopped(plan(engine, 120.0)) == ["ns/x-0"]


def test_a_stale_plan_preempts_no_gang():
    engine = an_engine(node("n"), node("m"))
    two_queues(engine)
    run(engine, "x", 1, needs(8), 0.0, "n", queue="b")
    run(engine, "y", 1, needs(8), 0.0, "m", queue="b", checkpoint_s=99.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="a")), 100.0)
    made = make_plan(engine.begin_cycle(now_s=100.0), POLICIES, 100.0)
    assert made.placements[0].placement.evicts
    engine.observe(f.GangGone(GangId("ns/y")), 100.0)
    engine.observe(f.PodGone(PodUid("y-0")), 100.0)
    assert not stopped(engine.accept(made, 100.0))
    assert engine.view.stale_plans == 1


def test_quota_alone_can_be_taken_back():
    """There is room, but the quota is lent: the lender waits until the loan is given back."""
    engine = an_engine(node("n"), node("m"), node("l"))
    two_queues(engine)
    run(engine, "x", 1, needs(8), 0.0, "n", queue="b")
    run(engine, "y", 1, needs(8), 0.0, "m", queue="b", checkpoint_s=99.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="a")), 100.0)
    orders = plan(engine, 100.0)
    assert stopped(orders) == ["ns/y-0"]
    assert not any(isinstance(order, o.Reserve) for order in orders)
    orders = engine.observe(f.PodGone(PodUid("y-0")), 105.0)
    assert any(isinstance(order, o.Reserve) for order in orders)


def test_a_loop_would_be_seen():
    engine = an_engine()
    assert not engine.parts.preemption_history.record(GangId("ns/a"), GangId("ns/b"), 0.0)
    assert engine.parts.preemption_history.record(GangId("ns/b"), GangId("ns/a"), 10.0)
    assert not engine.parts.preemption_history.record(GangId("ns/b"), GangId("ns/a"), 8000.0)


# -- books ----------------------------------------------------------------------------------------


def test_the_audit_heals_whatever_was_lost():
    engine = an_engine(node("n"))
    run(engine, "a", 2, needs(2))
    assert engine.audit(1.0) == {}
    key = (GPU, "")
    engine.view.ledger.discharge(PodUid("a-0"), 1.0)
    stranger = Allocation(GangId("ns/ghost"), "default", "", charged_amounts(needs(4)))
    engine.view.ledger.charge("ghost", stranger, 1.0)
    engine.view.ledger.usage.subtree_usage["default"][key] += 7
    assert sum(engine.audit(2.0).values()) >= 2
    assert engine.view.ledger.usage.used("default", key) == 4000
    assert engine.audit(3.0) == {}


def test_gpu_time_survives_a_restart():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", budgets=(GpuBudget(1e9, 1000.0),))), 5000.0)
    engine.observe(f.UsageRestored("q", "", 5000.0, 800.0, ((1000.0, 5, 300.0),)), 5000.0)
    assert engine.view.ledger.historical_gpu_s(5000.0)["q"] == pytest.approx(800.0)
    assert engine.view.ledger.budget_usage(("q", ""), GpuBudget(1e9, 1000.0), 5000.0) == 300.0


# -- time -----------------------------------------------------------------------------------------


def test_maintenance_drains_by_run_times():
    """Nothing starts that would still run when the nodes are booked; short work does."""
    booking = AdvanceReservation("upgrade", 100.0, 200.0, nodes=(NodeName("n"),))
    jobs = [
        Job("long", 0.0, 150.0, estimate_s=150.0),
        Job("short", 0.0, 50.0, estimate_s=50.0),
    ]
    job_run = JobRun([node("n")], jobs, POLICIES, bookings=[booking]).run()
    assert job_run.outcomes[GangId("ns/short")].started_s == 0.0
    assert job_run.outcomes[GangId("ns/long")].started_s >= 200.0


def test_a_booking_recurs_and_is_for_its_queues():
    booking = AdvanceReservation(
        "daily", 100.0, 150.0, count=1, queues=frozenset({"q"}), every_s=1000.0
    )
    assert booking.window(0.0) == (100.0, 150.0)
    assert booking.window(120.0) == (100.0, 150.0)
    assert booking.window(150.0) == (1100.0, 1150.0)
    assert booking.window(1149.0) == (1100.0, 1150.0)
    jobs = [
        Job("in", 110.0, 10.0, queue="q", estimate_s=10.0),
        Job("out", 110.0, 10.0, estimate_s=10.0),
    ]
    job_run = JobRun([node("n")], jobs, POLICIES, [Queue("q")], bookings=[booking]).run()
    assert job_run.outcomes[GangId("ns/in")].started_s == 110.0
    assert job_run.outcomes[GangId("ns/out")].started_s >= 150.0


def test_gangs_on_reserved_nodes_are_evicted_if_the_reservation_says_so():
    booking = AdvanceReservation("now", 50.0, 90.0, nodes=(NodeName("n"),), evicts=True)
    jobs = [Job("a", 0.0, 60.0, estimate_s=10.0)]
    job_run = JobRun(
        [node("n")], jobs, POLICIES, bookings=[booking], limits=Limits(retry_interval_s=1.0)
    )
    job_run.at(50.0, lambda: None)
    job_run.run()
    outcome = job_run.outcomes[GangId("ns/a")]
    assert outcome.stopped == 1
    assert outcome.runs[1][0] >= 90.0


def test_estimates_say_where_they_come_from():
    history = RuntimeHistory()
    one = gang("train-7f9c2", 1, user="ann")
    assert history.estimate(one).source is EstimateSource.ASSUMED
    assert history.estimate(one, Queue("q", default_runtime_s=60.0)).source is EstimateSource.QUEUE
    for runtime_s in (100.0, 110.0, 120.0):
        history.record(gang("train-1", 1, user="ann"), runtime_s)
    learnt = history.estimate(one, Queue("q", default_runtime_s=60.0))
    assert (learnt.source, learnt.runtime_s) == (EstimateSource.LEARNED, 110.0)
    assert history.estimate(gang("train-2", 1, user="bob")).source is EstimateSource.ASSUMED
    declared = gang("train-3", 1, user="ann", expected_runtime_s=5.0)
    assert history.estimate(declared).source is EstimateSource.DECLARED
    assert learnt.left_s(40.0) == 70.0
    assert learnt.left_s(130.0) == 20.0, "who outlives an estimate is late by as much again"
    for _ in range(5):
        history.record(gang("eval-1", 1, user="ann", expected_runtime_s=100.0), 80.0)
    eighty = history.estimate(gang("eval-2", 1, user="ann", expected_runtime_s=10.0))
    assert (eighty.runtime_s, eighty.low_s, eighty.high_s) == (10.0, 8.0, 8.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ns/train-12", "ns/train"),
        ("ns/train-x7f3k2", "ns/train"),
        ("ns/bert", "ns/bert"),
        ("ns/bert-large", "ns/bert-large"),
    ],
)
def test_names_without_what_tells_runs_apart(name, expected):
    assert job_name_prefix(GangId(name)) == expected


def test_a_forecast_is_the_scheduler_run_forward():
    engine = an_engine(node("n"))
    run(engine, "a", 1, needs(8), expected_runtime_s=100.0)
    for index, name in enumerate(("g", "h")):
        one = templated(name, 1, needs(8), expected_runtime_s=50.0, created_s=1.0 + index)
        engine.observe(f.GangSeen(one), 10.0)
    snapshot = engine.view.snapshot_all(10.0)
    found = forecast(snapshot, POLICIES, 10.0)
    first, second = found[G], found[GangId("ns/h")]
    assert (first.position, second.position) == (1, 2)
    assert first.low_s <= first.start_s <= first.high_s <= 100.0
    assert first.start_s < second.start_s <= 150.0
    assert forecast(snapshot, POLICIES, 10.0) == found


def on_its_way():
    """Return an engine: one runs, a large gang has a promise, a short one is not bound yet."""
    engine = an_engine(*(node(f"n{index}") for index in range(4)))
    run(engine, "run", 2, on="n0", wants=needs(4), expected_runtime_s=60.0)
    arrive(engine, "large", 4, 60.0)
    plan(engine)
    arrive(engine, "short", 1, 20.0)
    plan(engine, 1.0)
    assert engine.view.gangs[GangId("ns/short")].state is State.RESERVED
    assert engine.view.backfill_reservations[GangId("ns/large")].start_s == 60.0
    return engine


def arrive(engine, name, members, runtime_s):
    engine.observe(f.GangSeen(gang(name, members, expected_runtime_s=runtime_s)), 0.0)
    for index in range(members):
        engine.observe(pod(f"{name}-{index}", name, needs(8)), 0.0)


def test_released_assignments_free_capacity_as_well():
    """Whoever is planned while others are being bound passes nobody by for that."""
    engine = on_its_way()
    arrive(engine, "long", 1, 3600.0)
    plan(engine, 2.0)
    assert reason(engine, "long") == "BehindReservation"
    assert engine.view.backfill_reservations[GangId("ns/large")].start_s == 60.0


def test_who_is_being_bound_is_reckoned_with_in_forecasts():
    engine = on_its_way()
    found = forecast(engine.view.snapshot_all(now_s=2.0), POLICIES, 2.0, Effort(1))
    assert found[GangId("ns/large")].start_s == 60.0


def test_late_members_leave_with_their_gang():
    """A running gang's further pod, reserved and not bound yet, ends when the others do."""
    engine = an_engine(node("n0"), node("n1"))
    run(engine, "run", 1, on="n0", expected_runtime_s=60.0)
    engine.observe(pod("run-1", "run", needs(8)), 1.0)
    plan(engine, 1.0)
    assert engine.view.gangs[GangId("ns/run")].members.in_progress() == 1
    arrive(engine, "large", 2, 60.0)
    plan(engine, 2.0)
    assert engine.view.backfill_reservations[GangId("ns/large")].start_s == 60.0
    found = forecast(engine.view.snapshot_all(now_s=2.0), POLICIES, 2.0, Effort(1))
    assert found[GangId("ns/large")].start_s == 60.0


def test_quota_that_is_reserved_comes_free_as_well():
    engine = an_engine(node("n0"), node("n1"), node("n2"))
    engine.observe(f.QueueSeen(Queue("q", quotas=(Quota(GPU, 8000, borrowing=0),))), 0.0)
    engine.observe(f.GangSeen(gang("a", 1, queue="q", expected_runtime_s=60.0)), 0.0)
    engine.observe(pod("a-0", "a", needs(8)), 0.0)
    plan(engine)
    engine.observe(f.GangSeen(gang("b", 1, queue="q", expected_runtime_s=60.0)), 0.0)
    engine.observe(pod("b-0", "b", needs(8)), 0.0)
    plan(engine, 1.0)
    assert engine.view.gangs[GangId("ns/a")].state is State.RESERVED
    assert engine.view.backfill_reservations[GangId("ns/b")].start_s == 60.0


def test_quota_that_is_kept_is_not_taken_by_who_would_run_beyond_that():
    """There is room on nodes: what is short from the sixtieth second on is quota."""
    engine = an_engine(*(node(f"n{index}") for index in range(4)))
    engine.observe(f.QueueSeen(Queue("q", quotas=(Quota(GPU, 16_000, borrowing=0),))), 0.0)
    run(engine, "a", 1, on="n0", queue="q", expected_runtime_s=60.0)
    for name, members, runtime_s in (("large", 2, 60.0), ("long", 1, 600.0), ("short", 1, 30.0)):
        asked = gang(name, members, queue="q", expected_runtime_s=runtime_s)
        engine.observe(f.GangSeen(asked), 0.0)
        for index in range(members):
            engine.observe(pod(f"{name}-{index}", name, needs(8)), 0.0)
    plan(engine)
    assert engine.view.backfill_reservations[GangId("ns/large")].start_s == 60.0
    assert engine.view.gangs[GangId("ns/long")].state is State.PENDING
    assert engine.view.gangs[GangId("ns/short")].state is State.RESERVED


def test_a_reservation_is_kept_when_a_queue_of_a_smaller_share_comes():
    engine = an_engine(node("n"))
    for name in "ab":
        engine.observe(f.QueueSeen(Queue(name)), 0.0)
    run(engine, "runs", 1, on="n", queue="a", expected_runtime_s=60.0)
    for name, at_s in (("a", 1.0), ("b", 2.0)):
        engine.observe(f.GangSeen(gang(name, 1, queue=name, expected_runtime_s=60.0)), at_s)
        engine.observe(pod(f"{name}-0", name, needs(8)), at_s)
        plan(engine, at_s)
        assert engine.view.backfill_reservations[GangId("ns/a")].start_s == 60.0


# -- readiness ------------------------------------------------------------------------------------


def unready(engine, name, uid, now_s):
    fact = pod(f"{name}-0", name, needs(1), node=NodeName("n"), uid=uid, ready=False)
    return engine.observe(fact, now_s)


def test_not_ready_in_time_is_tried_again_and_then_given_up():
    engine = an_engine(node("n"), ready_tries=2)
    engine.observe(f.GangSeen(gang("g", 1, ready_timeout_s=10.0)), 0.0)
    unready(engine, "g", "one", 0.0)
    orders = engine.tick(10.0)
    assert stopped(orders) == ["ns/g-0"]
    engine.observe(f.PodGone(PodUid("one")), 11.0)
    unready(engine, "g", "two", 20.0)
    assert stopped(engine.tick(30.0)) == ["ns/g-0"]
    engine.observe(f.PodGone(PodUid("two")), 31.0)
    engine.observe(pod("g-0", "g", needs(1), uid="three"), 32.0)
    engine.tick(200.0)
    assert not engine.has_pending_work()
    assert reason(engine) == "GivenUp"
    engine.observe(f.GangSeen(gang("g", 1, ready_timeout_s=60.0)), 201.0)
    assert engine.has_pending_work(), "a changed declaration is tried again"


def test_who_was_given_up_is_not_tried_again_by_the_next_process():
    engine, again = (an_engine(node("n"), ready_tries=1) for _ in range(2))
    declared = f.GangSeen(gang("g", 1, ready_timeout_s=10.0, created_s=1.0))
    waits = pod("g-0", "g", needs(1), uid="two")
    engine.observe(declared, 0.0)
    unready(engine, "g", "one", 0.0)
    engine.tick(10.0)
    engine.observe(f.PodGone(PodUid("one")), 11.0)
    engine.observe(waits, 12.0)
    for fact in (waits, declared, *engine.view.past()):
        again.observe(fact, 20.0)
    assert (reason(engine), reason(again)) == ("GivenUp", "GivenUp")
    assert not again.has_pending_work()
    again.observe(f.GangSeen(gang("g", 1, ready_timeout_s=60.0, created_s=1.0)), 21.0)
    assert again.has_pending_work(), "a changed declaration is tried again"


def test_ready_in_time_is_left_alone():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 1, ready_timeout_s=10.0)), 0.0)
    unready(engine, "g", "one", 0.0)
    engine.observe(pod("g-0", "g", needs(1), node=NodeName("n"), uid="one", ready=True), 5.0)
    assert not stopped(engine.tick(60.0))


def test_a_gang_ends_after_its_maximum():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", max_runtime_s=100.0)), 0.0)
    run(engine, "g", 1, needs(1), queue="q")
    assert not stopped(engine.tick(99.0))
    assert stopped(engine.tick(100.0)) == ["ns/g-0"]
    engine.observe(f.PodGone(PodUid("g-0")), 101.0)
    engine.observe(pod("g-0", "g", needs(1), uid="again"), 102.0)
    assert reason(engine) == "GivenUp"


def test_a_gang_that_lost_a_node_comes_before_fillers():
    """volcano#5805: the filler does not take the slot of the gang that is below its minimum."""
    engine = an_engine(node("n"), node("m"))
    engine.observe(f.GangSeen(templated("g", 2, needs(8))), 0.0)
    for index, where in enumerate("nm"):
        name = f"g-worker-{index}"
        engine.observe(pod(name, "g", needs(8), node=NodeName(where), role="worker"), 0.0)
    filler = templated("filler", 1, needs(8), created_s=-1.0)
    engine.observe(f.GangSeen(filler), 1.0)
    engine.observe(f.PodGone(PodUid("g-worker-1")), 2.0)
    plan(engine, 2.0)
    assert engine.view.gangs[G].members["ns/g-worker-1"].assigned_node == "m"
    assert engine.view.gangs[GangId("ns/filler")].state is State.PENDING


def test_an_evicted_pod_has_not_done_its_work():
    """A pod that exits with 0 on SIGTERM did not finish: its gang waits, and runs again."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("low", 2, needs(4))), 0.0)
    for index in range(2):
        name = f"low-worker-{index}"
        engine.observe(pod(name, "low", needs(4), node=NodeName("n"), role="worker"), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(8), priority=10)), 1.0)
    assert len(stopped(plan(engine, 1.0))) == 2
    low = engine.view.gangs[GangId("ns/low")]
    for _ in range(2):  # the watch repeats itself
        for index in range(2):
            fact = pod(f"low-worker-{index}", "low", needs(4), node=NodeName("n"), ended=True)
            engine.observe(fact, 2.0)
    assert low.members.ended_count() == 0
    for index in range(2):
        engine.observe(f.PodGone(PodUid(f"low-worker-{index}")), 3.0)
    assert low.state is State.PENDING
    assert len(low.unassigned_members()) == 2


@pytest.mark.parametrize("gone_first", ["pods", "group"])
def test_a_withdrawn_gang_keeps_no_lost_places(gone_first):
    """A suspended job deletes its pods one by one: places kept for the first go with the last."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 3, needs(2))), 0.0)
    for index in range(3):
        name = f"g-worker-{index}"
        engine.observe(pod(name, "g", needs(2), node=NodeName("n"), role="worker"), 0.0)
    left = [f.PodGone(PodUid(f"g-worker-{index}")) for index in range(3)]
    if gone_first == "group":
        left.insert(1, f.GangGone(G))
    else:
        left.append(f.GangGone(G))
    for fact in left:
        engine.observe(fact, 1.0)
        plan(engine, 1.0)
    assert not engine.view.gangs
    assert engine.view.ledger.usage.used("default", (GPU, "")) == 0
    assert engine.view.cluster.used.sum() == 0


def test_a_history_outlives_its_process():
    first, second = RuntimeHistory(), RuntimeHistory()
    for run_s in (100.0, 120.0, 140.0):
        first.record(gang("train-1", 1, expected_runtime_s=200.0), run_s)
    second.record(gang("train-2", 1), 160.0)
    second.merge_json(json.loads(json.dumps(first.to_json())))
    assert list(second.runs[("", "ns/train")]) == [100.0, 120.0, 140.0, 160.0]
    assert list(second.ratios[""]) == [0.5, 0.6, 0.7]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "list in place of an object"),
        ({"runs": 3}, "runs is not a list of lists"),
        ({"runs": [["u", "ns/x", "long"]]}, "in place of run times"),
        ({"runs": [["u", "ns/x", -1]]}, "in place of run times"),
        ({"ratios": [[]]}, "not enough values"),
    ],
)
def test_a_wrong_history_is_refused_whole(data, said):
    history = RuntimeHistory()
    history.record(gang("train-1", 1), 100.0)
    with pytest.raises(ValueError, match=said):
        history.merge_json(data)
    assert list(history.runs) == [("", "ns/train")]
