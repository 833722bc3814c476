"""Gangs that wait for capacity: repartitioned GPUs, and moved gangs."""

from dataclasses import replace

import pytest
from builders import GPU, POLICIES, an_engine, gang, needs, node, plan, pod, templated

from gangsched.core.engine.engine import State
from gangsched.core.facts import GangSeen, NodeSeen, PodGone, QueueSeen, TopologySeen
from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest, Spread
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Eviction
from gangsched.core.model.pods import Expression, NodeTerm, PodRequirements
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.model.topology import HOST, Level, Topology
from gangsched.core.orders import Bind, Evict, Prepare, RepartitionGpus, Report, Reserve
from gangsched.core.planning.planner import Plan, Planned, make_plan, starts_next_cycle
from gangsched.core.preemption.defragmentation import Budget, Defragmenter
from policies.cpsat import Cpsat
from policies.pack import Pack
from simulator.invariants.placement_checks import BoundPod, check_no_overcommit

MIG = "nvidia.com/mig-1g.5gb"
SEVEN = (("1g.5gb", 7),)
SLICE = PodRequirements((("cpu", 100), (MIG, 1)))
RACKS = Topology("default", (Level("rack", "rack"),))


def a100(name: str, layouts, **offers) -> Node:
    """Return a node of A100-40 GPUs with these layouts."""
    amounts = {"cpu": 64_000, "memory": 2**40, "pods": 110} | offers
    return Node(
        NodeName(name),
        tuple(sorted(amounts.items())),
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"},
        gpu_model="NVIDIA-A100-SXM4-40GB",
        layouts=layouts,
    )


def of(orders, kind):
    return [order for order in orders if isinstance(order, kind)]


def test_idle_gpus_are_cut_and_nothing_comes_before_they_are():
    engine = an_engine(a100("n", ((), (), ()), **{GPU: 3}))
    engine.observe(GangSeen(templated("g", 9, SLICE)), 0.0)
    orders = plan(engine)
    (cut,) = of(orders, RepartitionGpus)
    assert sorted(cut.layouts, key=len) == [(), SEVEN, SEVEN]  # two of three GPUs are enough
    assert not of(orders, Reserve)
    assert of(orders, Report)[-1].reason == "MakingRoom"
    assert engine.view.gangs[GangId("ns/g")].state is State.RESERVED
    # The GPUs being cut belong to nobody meanwhile.
    engine.observe(GangSeen(templated("whole", 2, needs(1))), 1.0)
    plan(engine, 1.0)
    assert engine.view.gangs[GangId("ns/whole")].state is State.PENDING
    between = a100("n", (), **{GPU: 1})
    assert not of(engine.observe(NodeSeen(between), 2.0), Reserve)
    done = a100("n", cut.layouts, **{GPU: 1, MIG: 14})
    orders = engine.observe(NodeSeen(done), 3.0)
    assert len(of(orders, Reserve)[0].assignments) == 9
    orders = [o for i in range(9) for o in engine.observe(pod(f"g-worker-{i}", "g", SLICE), 4.0)]
    assert len(of(orders, Prepare)) == 9


def test_a_gpu_in_use_is_never_cut():
    engine = an_engine(a100("n", ((), ()), **{GPU: 2}))
    engine.observe(pod("busy", "other", needs(1), node=NodeName("n")), 0.0)
    engine.observe(GangSeen(templated("g", 1, SLICE)), 0.0)
    assert not of(plan(engine), RepartitionGpus)
    assert "no node is large enough" in engine.view.refusals[GangId("ns/g")].message


def test_pools_of_one_node_are_judged_apart():
    layouts = (SEVEN, ())
    engine = an_engine(a100("n", layouts, **{GPU: 1, MIG: 7}))
    engine.observe(pod("busy", "other", SLICE, node=NodeName("n")), 0.0)
    engine.observe(GangSeen(templated("g", 9, SLICE)), 0.0)
    (cut,) = of(plan(engine), RepartitionGpus)
    assert cut.layouts == (SEVEN, SEVEN)


def test_mig_gpus_become_whole_again():
    engine = an_engine(a100("n", (SEVEN, SEVEN), **{MIG: 14}))
    engine.observe(GangSeen(templated("g", 2, needs(1, 100))), 0.0)
    (cut,) = of(plan(engine), RepartitionGpus)
    assert cut.layouts == ((), ())


def test_two_profiles_share_the_fewest_gpus():
    wants = PodRequirements(
        (("cpu", 100), ("nvidia.com/mig-2g.10gb", 1), ("nvidia.com/mig-3g.20gb", 1))
    )
    engine = an_engine(a100("n", ((), (), ()), **{GPU: 3}))
    engine.observe(GangSeen(templated("g", 2, wants)), 0.0)
    (cut,) = of(plan(engine), RepartitionGpus)
    assert cut.layouts.count(()) == 1


def test_a_node_that_cannot_be_cut_breaks_the_gang_and_frees_its_gpus():
    engine = an_engine(a100("n", ((), ()), **{GPU: 2}))
    engine.observe(GangSeen(templated("g", 2, SLICE)), 0.0)
    plan(engine)
    failed = Node(
        NodeName("n"),
        a100("n", (), **{GPU: 2}).allocatable,
        gpu_model="NVIDIA-A100-SXM4-40GB",
        mig_failed=True,
    )
    orders = engine.observe(NodeSeen(failed), 1.0)
    assert "failed to repartition its GPUs" in of(orders, Report)[0].message
    engine.observe(GangSeen(templated("whole", 2, needs(1))), 2.0)
    assert of(plan(engine, 2.0), Reserve)


def test_a_cut_that_never_comes_is_given_up():
    engine = an_engine(a100("n", ((),), **{GPU: 1}), repartition_s=60.0)
    engine.observe(GangSeen(templated("g", 2, SLICE)), 0.0)
    plan(engine)
    orders = engine.tick(61.0)
    assert "was not freed in time" in of(orders, Report)[0].message
    assert not engine.view.cluster.used[engine.view.cluster.rows[NodeName("n")]].any()


def in_rack(name: str, rack: str) -> Node:
    return node(name, labels={"rack": rack})


def fragmented(*, movable=True):
    """Two racks of two nodes; a small gang sits in each, so no rack is whole."""
    nodes = (in_rack("a0", "a"), in_rack("a1", "a"), in_rack("b0", "b"), in_rack("b1", "b"))
    engine = an_engine(*nodes)
    engine.observe(TopologySeen(RACKS), 0.0)
    for name, place in (("x", "a0"), ("y", "b0")):
        engine.observe(GangSeen(gang(name, 1, movable=movable)), 0.0)
        engine.observe(
            pod(f"{name}-0", name, needs(4), node=NodeName(place), started_s=100.0), 100.0
        )
    constraints = Constraints(near=LevelRequest(required="rack"))
    engine.observe(GangSeen(templated("big", 2, needs(8), constraints=constraints)), 200.0)
    plan(engine, 200.0)
    return engine


def moves_for(engine, now_s=400.0, budget=None, protected=frozenset()):
    waiting = engine.view.pending(GangId("ns/big"))
    snapshot = engine.view.snapshot_all()

    def would(gang, on, _):
        return starts_next_cycle(gang, on, POLICIES, now_s)

    mover = Defragmenter(snapshot, Pack(), now_s, budget or Budget(), protected, would)
    return waiting, mover.find_moves(waiting)


def test_the_cheapest_move_frees_capacity():
    engine = fragmented()
    assert engine.view.refusals[GangId("ns/big")].reason == "TopologyDoesNotFit"
    _, moves = moves_for(engine)
    assert [move.gang for move in moves.moves] == ["ns/x"]
    assert moves.moves[0].target == ("b0",)
    assert moves.lost_gpu_s == 4 * 300.0


def test_pods_pinned_to_their_node_can_go_elsewhere():
    nodes = (in_rack("a0", "a"), in_rack("a1", "a"), in_rack("b0", "b"))
    engine = an_engine(*nodes)
    engine.observe(TopologySeen(RACKS), 0.0)
    engine.observe(GangSeen(templated("x", 1, needs(4), movable=True)), 0.0)
    here = NodeTerm((), (Expression("metadata.name", "In", ("a0",)),))
    pinned = needs(4, required=(here,))
    engine.observe(pod("x-worker-0", "x", pinned, node=NodeName("a0"), role="worker"), 1.0)
    constraints = Constraints(near=LevelRequest(required="rack"))
    engine.observe(GangSeen(templated("big", 2, needs(8), constraints=constraints)), 2.0)
    plan(engine, 2.0)
    _, moves = moves_for(engine)
    assert moves.moves[0].target == ("b0",)


def test_what_may_not_move_stays():
    assert moves_for(fragmented(movable=False))[1] is None
    assert moves_for(fragmented(), budget=Budget(gpu_s=100.0))[1] is None
    both = frozenset({GangId("ns/x"), GangId("ns/y")})
    assert moves_for(fragmented(), protected=both)[1] is None
    _, other = moves_for(fragmented(), protected=frozenset({GangId("ns/x")}))
    assert [move.gang for move in other.moves] == ["ns/y"]


def test_no_gang_moves_for_a_gang_without_quota():
    engine = fragmented()
    engine.observe(QueueSeen(Queue("default", quotas=(Quota(GPU, 16_000),))), 300.0)
    assert moves_for(engine)[1] is None, "12 of 16 GPUs are taken by then"
    engine.observe(QueueSeen(Queue("default", quotas=(Quota(GPU, 24_000),))), 300.0)
    assert moves_for(engine)[1] is not None


def test_a_gang_that_would_not_start_again_is_not_moved():
    engine = fragmented()
    closed = Queue("default", namespaces=frozenset({"other"}), open_to_all=False)
    for name in ("x", "y"):
        engine.observe(GangSeen(gang(name, 1, movable=True, queue="closed")), 300.0)
    engine.observe(QueueSeen(replace(closed, name="closed")), 300.0)
    assert moves_for(engine)[1] is None


@pytest.mark.parametrize("preemptible", [True, False])
def test_who_is_moved_is_planned_as_it_is_declared(preemptible):
    """What runs on a loan and may not be stopped, as it says now, is let in like that no more."""
    engine = fragmented()
    engine.observe(QueueSeen(Queue("top", quotas=(Quota(GPU, 32_000),))), 300.0)
    engine.observe(QueueSeen(Queue("lent", "top", quotas=(Quota(GPU, 0),))), 300.0)
    for name in ("x", "y"):
        declared = gang(name, 1, movable=True, queue="lent")
        engine.observe(GangSeen(declared), 300.0)
        engine.observe(GangSeen(replace(declared, preemptible=preemptible)), 301.0)
    assert (moves_for(engine)[1] is not None) == preemptible


def test_a_gang_behind_others_frees_no_capacity():
    engine = fragmented()
    first = templated("first", 2, needs(8), created_s=150.0, priority=9)
    engine.observe(GangSeen(first), 300.0)
    assert moves_for(engine)[1] is None, "that one takes a node of either rack"


def test_a_whole_domain_can_be_freed():
    engine = fragmented()
    mover = Defragmenter(engine.view.snapshot_cluster(), Pack(), 400.0)
    freed = mover.free_domain("", 0)
    assert freed.domain == "a"
    assert [move.gang for move in freed.moves] == ["ns/x"]


def test_moved_gangs_leave_before_the_other_comes():
    engine = fragmented()
    waiting, moves = moves_for(engine)
    from dataclasses import replace

    placement = replace(moves.placement, evicts=(Eviction(GangId("ns/x")),))
    orders = engine.accept(Plan((Planned(waiting.gang.id, waiting.version, placement),)), 400.0)
    assert [order.name for order in of(orders, Evict)] == ["ns/x-0"]
    assert not of(orders, Reserve)
    assert not of(orders, Bind)
    orders = engine.observe(PodGone(PodUid("x-0")), 401.0)
    assert len(of(orders, Reserve)[0].assignments) == 2
    # The moved gang is queued again, and lands where there is room.
    orders = engine.observe(pod("x-0", "x", needs(4), uid="x-0b"), 402.0)
    engine.tick(410.0)
    plan(engine, 410.0)
    assert engine.view.assigned_node(PodUid("x-0b")) == "b0"
    held = [
        BoundPod(name[1], charge.holder, charge.node, charge.needs)
        for name, charge in engine.view.cluster.allocations().items()
        if isinstance(name, tuple)
    ]
    allocatable = {n: dict(in_rack(n, "").allocatable) for n in ("a0", "a1", "b0", "b1")}
    check_no_overcommit(allocatable, held, 410.0)


def test_a_stale_move_preempts_no_gang():
    engine = fragmented()
    waiting, moves = moves_for(engine)
    from dataclasses import replace

    engine.observe(PodGone(PodUid("x-0")), 401.0)  # the victim ended by itself
    engine.observe(pod("z", "z", needs(8), node=NodeName("a1")), 401.0)
    placement = replace(moves.placement, evicts=(Eviction(GangId("ns/x")),))
    orders = engine.accept(Plan((Planned(waiting.gang.id, waiting.version, placement),)), 402.0)
    assert not of(orders, Evict)
    assert engine.view.stale_plans == 1


def test_exclusive_domains_are_kept_between_gangs():
    nodes = (in_rack("a0", "a"), in_rack("a1", "a"), in_rack("b0", "b"))
    engine = an_engine(*nodes)
    engine.observe(TopologySeen(RACKS), 0.0)
    engine.observe(QueueSeen(Queue("default", exclusive="rack")), 0.0)
    alone = Constraints(exclusive="rack", near=LevelRequest(required="rack"))
    engine.observe(GangSeen(templated("mine", 1, needs(1), constraints=alone)), 0.0)
    engine.observe(GangSeen(templated("other", 1, needs(8))), 1.0)
    orders = plan(engine, 1.0)
    racks = {order.gang: order.assignments[0][1][0] for order in of(orders, Reserve)}
    assert set(racks.values()) == {"a", "b"}
    engine.observe(GangSeen(templated("third", 1, needs(8))), 2.0)
    plan(engine, 2.0)
    third = engine.view.gangs[GangId("ns/third")]
    assert (third.state is State.RESERVED) == (racks["ns/mine"] == "b")


def test_a_lost_member_comes_back_into_its_slice():
    nodes = [in_rack(f"{rack}{i}", rack) for rack in "abc" for i in range(2)]
    engine = an_engine(*nodes)
    engine.observe(TopologySeen(RACKS), 0.0)
    near = Constraints(near=LevelRequest(slices=(SliceRequest("rack", 2),)))
    engine.observe(GangSeen(gang("g", 4, constraints=near)), 0.0)
    places = ("a0", "a1", "b0", "b1")
    for index, place in enumerate(places):
        fact = pod(f"g-{index}", "g", needs(8), node=NodeName(place), rank=index)
        engine.observe(fact, 1.0)
    engine.observe(PodGone(PodUid("g-2")), 2.0)
    engine.observe(pod("g-2", "g", needs(8), uid="g-2b", rank=2), 3.0)
    plan(engine, 3.0)
    assert engine.view.assigned_node(PodUid("g-2b")) == "b0"


@pytest.mark.parametrize("placer", [Pack(), Cpsat()])
def test_a_late_member_goes_where_no_other_of_a_spread_gang_is(placer):
    """Though its node has less room: so many on one node were asked for at most."""
    engine = an_engine(node("a", 2), node("b", 8))
    apart = Constraints(spread=(Spread(HOST, 1),))
    engine.observe(GangSeen(gang("g", 1, constraints=apart)), 0.0)
    engine.observe(pod("g-0", "g", node=NodeName("a")), 1.0)
    engine.observe(pod("g-1", "g"), 2.0)
    engine.accept(make_plan(engine.begin_cycle(2.0), replace(POLICIES, placer=placer), 2.0), 2.0)
    assert engine.view.assigned_node(PodUid("g-1")) == "b"


@pytest.mark.parametrize("placer", [Pack(), Cpsat()])
def test_a_late_member_waits_until_there_is_a_whole_slice_of_them(placer):
    engine = an_engine(*(in_rack(f"{rack}{i}", rack) for rack in "ab" for i in range(2)))
    engine.observe(TopologySeen(RACKS), 0.0)
    near = Constraints(near=LevelRequest(slices=(SliceRequest("rack", 2),)))
    engine.observe(GangSeen(gang("g", 2, constraints=near)), 0.0)
    for index, place in enumerate(("a0", "a1")):
        engine.observe(pod(f"g-{index}", "g", needs(8), node=NodeName(place), rank=index), 1.0)
    engine.observe(pod("g-2", "g", needs(8), rank=2), 2.0)
    policies = replace(POLICIES, placer=placer)
    engine.accept(make_plan(engine.begin_cycle(2.0), policies, 2.0), 2.0)
    refusal = engine.view.refusals[GangId("ns/g")]
    assert refusal.reason == "TopologyDoesNotFit"
    assert refusal.message == (
        "1 pod of 8 nvidia.com/gpu, 1 cpu cannot be divided into slices of 2; request a "
        "multiple of 2."
    )
    engine.observe(pod("g-3", "g", needs(8), rank=3), 3.0)
    engine.accept(make_plan(engine.begin_cycle(3.0), policies, 3.0), 3.0)
    assert {engine.view.assigned_node(PodUid(f"g-{i}")) for i in (2, 3)} == {"b0", "b1"}
    assert POLICIES.order.peers is not None
