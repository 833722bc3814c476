"""Remedies of a refused gang: each works, and is the smallest of its kind."""

from dataclasses import replace

from builders import GPU, POLICIES, an_engine, gang, needs, node, plan, pod, templated

from gangsched.core.engine.engine import State
from gangsched.core.facts import GangSeen, NodeSeen, PodGone, QueueSeen, TopologySeen
from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest, Spread
from gangsched.core.model.gangs import Role
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.node_pools import ComingNodes, NodePool, NodeSupply
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.model.topology import Fabric, Level, Topology
from gangsched.core.placement.advice import advise
from gangsched.core.planning.cycle import Refused
from gangsched.core.planning.planner import Plan, make_plan, starts_next_cycle
from gangsched.core.preemption.defragmentation import as_pending
from policies.easy import Easy

TREE = Topology("default", (Level("block", "block", Fabric.INFINIBAND), Level("rack", "rack")))
G = GangId("ns/g")


def cluster(count=8, **more):
    """Four racks of two nodes with eight GPUs, in two blocks."""
    engine = an_engine()
    engine.observe(TopologySeen(TREE), 0.0)
    for index in range(count):
        labels = {"block": "ab"[index // 4], "rack": f"r{index // 2}"}
        engine.observe(NodeSeen(node(f"n{index}", labels=labels, **more)), 0.0)
    return engine


def starts_at(now_s):
    """Return what tells whether a gang would start."""
    return lambda one, view, at_s: starts_next_cycle(
        one, view, POLICIES, now_s if at_s is None else at_s
    )


def remedies(engine, wanted, now_s=0.0, pools=(), coming=()) -> dict[str, list[str]]:
    """Refuse a gang, and return what would help by kind."""
    engine.observe(GangSeen(wanted), now_s)
    plan(engine, now_s)
    waiting = engine.view.pending(G)
    snapshot, refusal = engine.view.snapshot_all(), engine.view.refusals[G]
    snapshot = replace(snapshot, node_supply=NodeSupply(tuple(pools), tuple(coming)))
    refusal = advise(waiting, snapshot, refusal, starts_at(now_s), now_s)
    found: dict[str, list[str]] = {}
    for remedy in refusal.remedies:
        found.setdefault(remedy.kind, []).append(remedy.message)
    return found


def test_nodes_to_buy_come_first():
    pools = [NodePool("p5", node("p5"), 9, 98.25, arrival_s=340.0)]
    found = remedies(cluster(2), templated("g", 6, needs(8)), pools=pools)
    assert next(iter(found.items())) == (
        "pool",
        ["4 more nodes of pool p5: about 6 min, 393 $/h"],
    )
    assert found["members"] == ["2 pods instead of 6"]


def test_nodes_beyond_what_the_queue_may_spend_are_no_remedy():
    engine = cluster(2)
    engine.observe(QueueSeen(Queue("default", price_max=390.0)), 0.0)
    pools = [NodePool("p5", node("p5"), 9, 98.25)]
    assert "pool" not in remedies(engine, templated("g", 6, needs(8)), pools=pools)


def test_nodes_that_were_bought_are_not_named_as_nodes_to_buy():
    pools = [NodePool("p5", node("p5"), 9, 98.25)]
    coming = [ComingNodes(G, (("p5", 4),), 900.0)]
    found = remedies(cluster(2), templated("g", 6, needs(8)), pools=pools, coming=coming)
    assert found["pool"] == ["4 nodes of pool p5, bought for it, are there"]


def test_nodes_that_gangs_before_would_take_are_no_remedy():
    engine = cluster(0)
    engine.observe(GangSeen(templated("first", 1, needs(8), priority=9)), 0.0)
    pools = [NodePool("p5", node("p5"), 1, 98.25)]
    assert remedies(engine, templated("g", 1, needs(8)), pools=pools) == {}


def test_one_level_up():
    near = Constraints(near=LevelRequest(required="rack"))
    found = remedies(cluster(), templated("g", 4, needs(8), constraints=near))
    assert found == {"level": ["block instead of rack"], "members": ["2 pods instead of 4"]}


def test_two_levels_up_only_where_one_is_not_enough():
    near = Constraints(near=LevelRequest(required="rack"))
    found = remedies(cluster(), templated("g", 6, needs(8), constraints=near))
    assert found["level"] == ["more than one rack"]


def test_a_fabric_that_is_too_small():
    near = Constraints(fabric="infiniband", fabric_required=True)
    found = remedies(cluster(), templated("g", 6, needs(8), constraints=near))
    assert found["level"] == ["more than one block"]
    assert found["members"] == ["4 pods instead of 6"]


def test_slices_and_spread():
    near = Constraints(near=LevelRequest(slices=(SliceRequest("rack", 4),)))
    assert remedies(cluster(), templated("g", 4, needs(8), constraints=near)) == {
        "level": ["slices of 4 across racks"]
    }
    apart = Constraints(spread=(Spread("rack", 1),))
    assert remedies(cluster(), templated("g", 5, constraints=apart)) == {
        "spread": ["more than 1 pod in one rack"],
        "members": ["4 pods instead of 5"],
    }


def test_kinds_of_gpu_and_nodes_to_avoid():
    engine = cluster(2)
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    engine.observe(NodeSeen(node("h", gpus=1, labels=labels)), 0.0)
    asked = Constraints(gpu_types=("H100",), avoid=(NodeName("n0"),))
    found = remedies(engine, templated("g", 4, constraints=asked))
    assert found["gpu-kind"] == ["any GPU type"]
    assert found["members"] == ["1 pod instead of 4"]


def test_one_hca_more_on_one_node():
    hca = "rdma/hca"
    engine = an_engine(node("a"), node("b"))
    for name, count in (("a", 1), ("b", 0)):
        plain = node(name)
        amounts = tuple(sorted((*plain.allocatable, (hca, count))))
        engine.observe(NodeSeen(replace(plain, allocatable=amounts)), 0.0)
    engine.observe(pod("busy", "other", PodRequirements(((hca, 1),)), node=NodeName("a")), 0.0)
    wants = PodRequirements((("cpu", 1000), (GPU, 8), (hca, 1)))
    found = remedies(engine, templated("g", 1, wants))
    assert found["node"] == ["1 rdma/hca more on node a"]


def test_gangs_that_end_soon_enough():
    engine = cluster(2)
    for name, runtime_s, place in (("late", 900.0, "n0"), ("soon", 300.0, "n1")):
        engine.observe(GangSeen(gang(name, 1, expected_runtime_s=runtime_s)), 0.0)
        fact = pod(f"{name}-0", name, needs(8), node=NodeName(place), started_s=100.0)
        engine.observe(fact, 100.0)
    engine.observe(GangSeen(templated("g", 1, needs(8))), 200.0)
    plan(engine, 200.0)
    waiting = engine.view.pending(G)
    snapshot = engine.view.snapshot_all()
    refusal = engine.view.refusals[G]
    (one,) = advise(waiting, snapshot, refusal, starts_at(200.0), 200.0).remedies
    assert (one.kind, one.message, one.at_s) == ("wait", "8 GPUs of gang ns/soon end", 400.0)
    engine.observe(GangSeen(templated("g", 2, needs(8))), 201.0)
    plan(engine, 201.0)
    waiting = engine.view.pending(G)
    refusal = engine.view.refusals[G]
    (one,) = advise(waiting, snapshot, refusal, starts_at(200.0), 200.0).remedies
    assert one.message == "8 GPUs of gang ns/late end and 1 other gang before it"
    assert one.at_s == 1000.0


def test_advice_is_given_once_and_again_when_it_is_old():
    engine = cluster(2)
    engine.observe(GangSeen(templated("g", 5, needs(8))), 0.0)
    plan(engine)
    ((waiting, refusal),) = engine.take_advice_requests(8, 1.0)
    assert not engine.take_advice_requests(8, 2.0)
    advised = advise(waiting, engine.view.snapshot_all(), refusal, starts_at(1.0), 1.0)
    (report,) = engine.accept(Plan((), (Refused(waiting, advised),), advice=True), 2.0)
    assert report.refusal == advised
    engine.observe(GangSeen(templated("other", 1)), 3.0)
    assert not [o for o in plan(engine, 3.0) if getattr(o, "gang", "") == G]  # nothing new to say
    assert engine.take_advice_requests(8, 40.0)


def test_late_advice_takes_no_gang_out_of_line():
    """Advice on the old room must not undo that more room put its gang in line again."""
    engine = cluster(2)
    engine.observe(pod("busy", "x", needs(8), node=NodeName("n0")), 0.0)
    engine.observe(GangSeen(templated("g", 2, needs(8))), 0.0)
    plan(engine)
    ((waiting, refusal),) = engine.take_advice_requests(8, 1.0)
    advised = advise(waiting, engine.view.snapshot_all(), refusal, starts_at(1.0), 1.0)
    engine.observe(PodGone(PodUid("busy")), 2.0)
    assert engine.has_pending_work()
    late = Plan((), (Refused(waiting, advised),), advice=True)
    assert not engine.accept(late, 3.0)
    assert engine.has_pending_work()
    plan(engine, 3.0)
    assert engine.view.gangs[G].state is State.RESERVED


def test_capacity_freed_during_planning_is_not_forgotten():
    engine = cluster(2)
    engine.observe(pod("busy", "x", needs(8), node=NodeName("n0")), 0.0)
    engine.observe(GangSeen(templated("g", 2, needs(8))), 0.0)
    made = make_plan(engine.begin_cycle(), POLICIES, 0.0)
    engine.observe(PodGone(PodUid("busy")), 1.0)
    engine.view.snapshot_cluster()  # somebody looks at the cluster for advice
    engine.has_pending_work()
    engine.accept(made, 2.0)
    assert engine.has_pending_work()
    plan(engine, 3.0)
    assert engine.view.gangs[G].state is State.RESERVED


def test_the_binding_constraint_is_named():
    engine = cluster()
    for index in range(0, 8, 2):
        engine.observe(pod(f"busy{index}", "x", needs(8), node=NodeName(f"n{index}")), 0.0)
    near = Constraints(near=LevelRequest(required="rack"))
    engine.observe(GangSeen(templated("g", 12, needs(1), constraints=near)), 0.0)
    plan(engine)
    assert engine.view.refusals[G].message == (
        "The gang needs 12 pods of 1 nvidia.com/gpu, 1 cpu in one rack, which no domain offers "
        "now; the rack with most capacity, a/r0, takes 8, the whole cluster 32."
    )
    assert engine.view.refusals[G].proved


def test_a_required_level_that_can_never_hold_the_gang_is_reported_at_once():
    near = Constraints(near=LevelRequest(required="rack"))
    engine = cluster()
    engine.observe(GangSeen(templated("g", 3, needs(8), constraints=near)), 0.0)
    plan(engine)
    assert engine.view.refusals[G].reason == "LargerThanCluster"
    assert (
        "in one rack, which no domain offers even in an empty cluster"
        in engine.view.refusals[G].message
    )


def test_roles_with_their_own_levels():
    roles = (
        Role("server", 1, 1, needs(1)),
        Role("worker", 4, 4, needs(8), LevelRequest(required="rack")),
    )
    found = remedies(cluster(), gang("g", 5, roles=roles))
    assert "more than one rack for role worker" in found["level"]
    assert POLICIES.placer is not None


def queue(name, gpus, **more) -> QueueSeen:
    return QueueSeen(Queue(name, quotas=(Quota(GPU, gpus * 1000),), **more))


def test_fewer_pods_are_as_many_as_the_quota_allows():
    engine = cluster()
    engine.observe(queue("vision", 48), 0.0)
    found = remedies(engine, templated("g", 8, needs(8), queue="vision"))
    assert engine.view.refusals[G].reason == "LargerThanQuota"
    assert found == {"members": ["6 pods instead of 8"]}


def test_a_limit_further_up_the_tree_bounds_what_would_help():
    engine = cluster()
    engine.observe(queue("above", 16), 0.0)
    engine.observe(QueueSeen(Queue("below", parent="above")), 0.0)
    found = remedies(engine, templated("g", 8, needs(8), queue="below"))
    assert found == {"members": ["2 pods instead of 8"]}


def test_quota_is_freed_with_the_capacity():
    engine = cluster()
    engine.observe(queue("vision", 8), 0.0)
    engine.observe(GangSeen(gang("there", 1, queue="vision", expected_runtime_s=100.0)), 0.0)
    engine.observe(pod("there-0", "there", needs(8), node=NodeName("n0"), started_s=0.0), 0.0)
    found = remedies(engine, templated("g", 1, needs(8), queue="vision"))
    assert engine.view.refusals[G].reason == "QuotaInUse"
    assert found == {"wait": ["8 GPUs of gang ns/there end"]}


def test_capacity_of_another_queue_does_not_lift_a_quota():
    engine = cluster(2)
    engine.observe(queue("vision", 8), 0.0)
    engine.observe(GangSeen(gang("big", 1, queue="vision")), 0.0)
    engine.observe(pod("big-0", "big", needs(8), node=NodeName("n0"), started_s=0.0), 0.0)
    engine.observe(GangSeen(gang("small", 1)), 0.0)
    engine.observe(pod("small-0", "small", needs(1), node=NodeName("n1"), started_s=0.0), 0.0)
    found = remedies(engine, templated("g", 1, needs(8), queue="vision"))
    assert found == {"wait": ["8 GPUs of gang ns/big come free"]}


def test_nothing_helps_where_the_namespace_may_not_use_the_queue():
    engine = cluster(2)
    engine.observe(
        QueueSeen(Queue("vision", namespaces=frozenset({"vision"}), open_to_all=False)), 0.0
    )
    engine.observe(pod("busy", "x", needs(8), node=NodeName("n0")), 0.0)
    found = remedies(engine, templated("g", 2, needs(8), queue="vision"))
    assert engine.view.refusals[G].message == (
        "Namespace ns may not use queue vision; namespace ns may use: default."
    )
    assert found == {}


def test_earlier_gangs_start_first():
    engine = cluster(1)
    engine.observe(pod("busy", "x", needs(8), node=NodeName("n0")), 0.0)
    engine.observe(GangSeen(gang("x", 1)), 0.0)
    engine.observe(GangSeen(templated("first", 1, needs(8), created_s=-5.0)), 0.0)
    assert remedies(engine, templated("g", 1, needs(8))) == {}


def test_a_gang_does_not_wait_for_itself():
    engine = cluster(1)
    engine.observe(GangSeen(gang("g", 2)), 0.0)
    for number in (0, 1):
        fact = pod(f"g-{number}", "g", needs(4), node=NodeName("n0"), started_s=0.0)
        engine.observe(fact, 0.0)
    snapshot = engine.view.snapshot_all()
    assert [one.gang.id for one in snapshot.running] == [G]
    waiting = replace(as_pending(snapshot.running[0]), is_refill=True)
    refusal = Refusal(G, Reason.NOT_ENOUGH_FREE, "there is no room.")
    assert advise(waiting, snapshot, refusal, starts_at(0.0), 0.0).remedies == ()


def test_a_gang_with_a_reservation_that_requests_less_is_planned_at_once():
    policies = replace(POLICIES, backfill=Easy())
    engine = cluster(2)
    engine.observe(GangSeen(gang("x", 1, expected_runtime_s=900.0)), 0.0)
    engine.observe(pod("x-0", "x", needs(8), node=NodeName("n0"), started_s=0.0), 0.0)
    engine.observe(GangSeen(templated("g", 2, needs(8))), 0.0)
    engine.accept(make_plan(engine.begin_cycle(), policies, 0.0), 0.0)
    assert G in engine.view.backfill_reservations
    engine.observe(GangSeen(templated("g", 1, needs(8))), 1.0)
    assert engine.has_pending_work()
    engine.accept(make_plan(engine.begin_cycle(1.0), policies, 1.0), 1.0)
    assert engine.view.gangs[G].state is State.RESERVED
