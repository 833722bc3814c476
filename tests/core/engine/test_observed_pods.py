"""Running pods are charged where they run, whatever was planned for them."""

from dataclasses import replace

import pytest
from builders import GPU, POLICIES, an_engine, gang, needs, node, plan, pod, templated

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import State
from gangsched.core.model.gangs import Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.pods import (
    MILLI,
    Expression,
    GpuShare,
    NodeTerm,
    PodRequirements,
    Taint,
    Toleration,
)
from gangsched.core.model.queues import DEFAULT_QUEUE, Queue, Quota
from gangsched.core.planning.planner import make_plan

G = GangId("ns/g")
N = NodeName("n")
TINY = needs(0, cpu=100)


def of(orders, kind):
    """Return the orders of one kind."""
    return [order for order in orders if isinstance(order, kind)]


def queue(gpus: int, name: str = DEFAULT_QUEUE) -> f.QueueSeen:
    """Return a queue with so many GPUs, and no loans."""
    return f.QueueSeen(Queue(name, quotas=(Quota(GPU, gpus * MILLI, borrowing=0),)))


def carried_out(engine, orders, now_s=2.0):
    """Answer what is prepared and bound until nothing more is ordered; return all orders."""
    done = list(orders)
    for order in done:
        if isinstance(order, o.Prepare):
            done += engine.observe(f.Prepared(order.uid, order.node), now_s)
        elif isinstance(order, o.Bind):
            done += engine.observe(f.Bound(order.uid, order.node), now_s)
    return done


def pinned(wants: PodRequirements, name: str = "n") -> PodRequirements:
    """Return what a pod asks that must go to a node, as jobs make them."""
    here = NodeTerm((), (Expression("metadata.name", "In", (name,)),))
    return replace(wants, required=(here,))


def come(engine, wants: PodRequirements, count: int, now_s=1.0, attempt=0):
    """Let the pods of a templated gang come; return what is ordered."""
    orders = []
    for index in range(count):
        uid = f"{index}-{attempt}"
        orders += engine.observe(pod(f"g-worker-{index}", "g", wants, uid=uid), now_s)
    return carried_out(engine, orders, now_s)


MORE = {
    "GPUs": (needs(8, cpu=100), "asks for 8 nvidia.com/gpu, more than the 0 nvidia.com/gpu"),
    "cores": (needs(0, cpu=200), "asks for 0.2 cpu, more than the 0.1 cpu"),
    "a host port": (
        replace(TINY, host_ports=(("TCP", "0.0.0.0", 80),)),
        "takes host port 80/TCP, which was not",
    ),
    "a part of a GPU": (replace(TINY, share=GpuShare(500)), "another part of a GPU"),
    "another node": (pinned(TINY, "other"), "may not run on n, which was planned for it"),
    "a label its node has not": (
        replace(TINY, selector=(Expression("zone", "In", ("a",)),)),
        "may not run on n",
    ),
}


@pytest.mark.parametrize("case", MORE)
def test_a_pod_that_asks_for_more_than_its_role_is_not_bound(case):
    wants, told = MORE[case]
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2, TINY)), 0.0)
    plan(engine)
    orders = come(engine, wants, 2)
    assert not of(orders, o.Bind)
    (broken,) = (one.message for one in of(orders, o.Report) if one.reason == "Broken")
    assert broken.startswith("pod ns/g-worker-0 ")
    assert told in broken


def test_a_gang_that_was_mended_says_that_it_is_whole():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 3, TINY)), 0.0)
    plan(engine)
    come(engine, TINY, 3)
    orders = engine.observe(f.PodGone(PodUid("1-0")), 3.0)
    assert of(orders, o.Report)[-1].reason == "BelowMinimum"
    engine.observe(pod("g-worker-1", "g", TINY, uid="1-1"), 4.0)
    orders = carried_out(engine, plan(engine, 5.0), 6.0)
    assert [one.reason for one in of(orders, o.Report)] == ["Reserved", "Placed"]
    said = of(orders, o.Report)[-1]
    assert said.message == "all 3 pods of the gang are bound, to 1 node."
    assert said.adopted, "it is no new start"


def test_a_gang_that_grew_says_that_all_its_pods_are_bound():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    for name in ("a", "b"):
        engine.observe(pod(name, "g", TINY), 1.0)
    carried_out(engine, plan(engine))
    engine.observe(pod("c", "g", TINY), 4.0)
    orders = carried_out(engine, plan(engine, 5.0), 6.0)
    assert [one.reason for one in of(orders, o.Report)] == ["Reserved", "Placed"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("g", "the pods name PodGroup g, which does not exist in their namespace."),
        (
            "volcano:g",
            "the pods name PodGroup g (volcano), which does not exist in their namespace.",
        ),
        (
            "job:g",
            "the pods are those of Job g, which does not exist in their namespace (any more).",
        ),
    ],
)
def test_pods_without_their_group_are_reported_unless_they_terminate(name, said):
    engine = an_engine(node("n"))
    (told,) = of(engine.observe(pod("a", name, TINY), 1.0), o.Report)
    assert told.message == said
    gone = an_engine(node("n"))
    gone.observe(f.GangSeen(gang(name, 2)), 0.0)
    gone.observe(pod("a", name, TINY), 1.0)
    gone.observe(pod("a", name, TINY, terminating=True), 2.0)
    assert not of(gone.observe(f.GangGone(GangId(f"ns/{name}")), 3.0), o.Report)


def grown_while_it_runs(minimum: int):
    """Return an engine whose gang of 3 runs whole on 4 GPUs; its owner wants 6 meanwhile."""
    engine = an_engine(node("n", gpus=4))
    for name in ("a", "b", "c"):
        engine.observe(pod(name, "g", node=N, minimum=minimum), 0.0)
    engine.observe(f.GangSeen(gang("g", 6)), 0.0)
    for name in ("d", "e", "f"):
        engine.observe(pod(name, "g"), 0.0)
    return engine


def test_a_new_process_leaves_a_gang_alone_that_was_scaled_up_while_it_ran():
    engine = grown_while_it_runs(minimum=3)
    assert engine.view.gangs[G].state is State.PLACED
    carried_out(engine, plan(engine))
    assert engine.view.gangs[G].members.bound_count() == 4  # who comes late is welcome alone
    assert not of(engine.tick(100.0), o.Evict)
    engine.observe(f.PodGone(PodUid("a")), 101.0)
    engine.observe(f.PodGone(PodUid("b")), 101.0)
    assert len(of(engine.tick(200.0), o.Evict)) == 2  # the minimum it started with is kept


def test_a_gang_that_was_bound_in_part_is_no_gang_that_grew():
    engine = grown_while_it_runs(minimum=6)
    assert engine.view.gangs[G].state is not State.PLACED
    assert len(of(engine.tick(100.0), o.Evict)) == 3


@pytest.mark.parametrize("start", [gang("g", 2), templated("g", 2)])
def test_a_declaration_that_grows_asks_no_more_of_what_runs(start):
    engine = an_engine(node("n", gpus=2))
    engine.observe(f.GangSeen(start), 0.0)
    names = [f"g-worker-{index}" for index in range(4)]
    orders = plan(engine)
    for name in names[:2]:
        orders += engine.observe(pod(name, "g", pinned(needs(1))), 0.0)
    binds = of(carried_out(engine, orders + plan(engine)), o.Bind)
    assert [bind.minimum for bind in binds] == [2, 2]  # it is written on the pods
    assert engine.view.gangs[G].state is State.PLACED
    roles = tuple(replace(role, count=4, min_count=4) for role in start.roles)
    engine.observe(f.GangSeen(replace(start, min_member=4, roles=roles)), 1.0)
    plan(engine, 1.0)
    assert not of(engine.tick(500.0), o.Evict)
    engine.observe(f.PodGone(PodUid(names[0])), 501.0)
    assert of(engine.tick(1000.0), o.Evict)


def test_queue_order_is_by_creation_and_not_by_observation():
    engine = an_engine(node("n"))
    said = {"zz": 1.0, "mm": 2.0, "aa": 3.0}
    for name in sorted(said):
        engine.observe(f.GangSeen(templated(name, 1, needs(8), created_s=said[name])), 100.0)
    waiting = {one.gang.id: one.queued_since_s for one in engine.view.snapshot_all(100.0).pending}
    assert waiting == {f"ns/{name}": at_s for name, at_s in said.items()}
    assert [one.gang for one in of(plan(engine, 100.0), o.Reserve)] == ["ns/zz"]


def test_a_gang_of_pods_waits_since_the_first_of_them():
    engine = an_engine(node("n"))
    for name, at_s in (("b", 7.0), ("a", 5.0)):
        engine.observe(pod(name, "g", created_s=at_s), 9.0)
    engine.observe(f.GangSeen(gang("g", 2)), 9.0)
    assert engine.view.pending(G).queued_since_s == 5.0


def test_a_gang_that_is_found_with_a_member_too_few_is_made_whole_before_it_is_placed():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    first = engine.observe(pod("a", "g", node=N), 0.0)
    assert [report.reason for report in of(first, o.Report)] == ["TooFewPods", "BelowMinimum"]
    engine.observe(pod("b", "g"), 0.0)
    assert engine.view.gangs[G].state is State.PENDING
    told = [one.reason for one in of(carried_out(engine, plan(engine)), o.Report)]
    assert told == ["Reserved", "Placed"]


def test_what_direct_binding_does_not_check_has_to_be_in_the_template():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 1, TINY)), 0.0)
    plan(engine)
    engine.driver_checks_unmodelled = False
    orders = come(engine, replace(TINY, unmodelled_constraints=("PersistentVolumeClaim d",)), 1)
    assert not of(orders, o.Bind)


LESS = {
    "as planned": TINY,
    "pinned": pinned(TINY),
    "fewer cores": needs(0, cpu=50),
    "more taints tolerated": replace(TINY, tolerations=(Toleration("", "Exists", "", ""),)),
}


@pytest.mark.parametrize("case", LESS)
def test_a_pod_that_asks_for_no_more_is_bound(case):
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2, TINY)), 0.0)
    plan(engine)
    assert len(of(come(engine, LESS[case], 2), o.Bind)) == 2
    assert engine.view.gangs[G].state is State.PLACED


def test_a_pod_that_tolerates_less_than_its_role_may_not_go_where_that_matters():
    taint = Taint("gpu", "", "NoSchedule")
    tolerates = PodRequirements(TINY.requests, tolerations=(Toleration("", "Exists", "", ""),))
    engine = an_engine(node("n", taints=(taint,)))
    engine.observe(f.GangSeen(templated("g", 1, tolerates)), 0.0)
    plan(engine)
    assert not of(come(engine, TINY, 1), o.Bind)


def test_quota_and_capacity_are_requested_for_what_the_pods_request():
    engine = an_engine(node("n"))
    engine.observe(queue(8), 0.0)
    engine.observe(f.GangSeen(templated("g", 4, TINY)), 0.0)
    plan(engine)
    come(engine, needs(8), 4)
    for index in range(4):
        engine.observe(f.PodGone(PodUid(f"{index}-0")), 2.0)
    engine.tick(5.0)
    plan(engine, 6.0)
    assert engine.view.refusals[G].reason == "LargerThanQuota"
    assert not engine.view.cluster.overcommitted()


def test_a_gang_is_planned_with_what_the_api_server_adds_to_its_pods():
    """A LimitRange fills requests in, a webhook adds a container: the second try knows."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2, TINY)), 0.0)
    plan(engine)
    completed = pinned(needs(0, cpu=150))
    come(engine, completed, 2)
    for index in range(2):
        engine.observe(f.PodGone(PodUid(f"{index}-0")), 2.0)
    engine.tick(5.0)
    plan(engine, 6.0)
    assert len(of(come(engine, completed, 2, 7.0, attempt=1), o.Bind)) == 2
    assert engine.view.cluster.used[engine.view.cluster.rows["n"]][1] == 300


def test_a_template_that_grows_under_a_reservation_is_admitted_again():
    engine = an_engine(node("n"))
    engine.observe(queue(8), 0.0)
    engine.observe(f.GangSeen(templated("g", 2, TINY)), 0.0)
    plan(engine)
    orders = engine.observe(f.GangSeen(templated("g", 2, needs(8, cpu=100))), 1.0)
    assert of(orders, o.Report)[0].message.startswith("role worker asks for 8 nvidia.com/gpu")
    assert of(orders, o.Release)
    assert not of(come(engine, needs(8), 2), o.Bind)
    assert engine.audit(2.0) == {}


def test_a_pod_that_changes_while_its_gang_is_on_its_way_is_looked_at_again():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g", needs(1)), 0.0)
    engine.observe(pod("b", "g", needs(1)), 0.0)
    first, _ = of(plan(engine), o.Prepare)
    engine.observe(f.Prepared(first.uid, first.node), 1.0)
    orders = engine.observe(pod("b", "g", needs(8)), 1.0)
    assert "pod ns/b asks for 8 nvidia.com/gpu" in of(orders, o.Report)[0].message
    assert engine.view.gangs[G].state is not State.RESERVED


def test_a_plan_made_before_a_pod_changed_is_stale():
    engine = an_engine(node("n"))
    engine.observe(queue(4), 0.0)
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("a", "g", needs(1)), 0.0)
    made = make_plan(engine.begin_cycle(), POLICIES, 0.0)
    engine.observe(pod("a", "g", needs(8)), 0.0)
    assert not of(engine.accept(made, 0.0), o.Reserve)


def test_a_late_member_that_asks_for_more_is_planned_as_what_it_is():
    engine = an_engine(node("n"))
    engine.observe(queue(4), 0.0)
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("a", "g", needs(1)), 0.0)
    carried_out(engine, plan(engine))
    engine.observe(pod("b", "g", needs(1)), 3.0)
    (late,) = of(plan(engine, 3.0), o.Prepare)
    orders = engine.observe(pod("b", "g", needs(8)), 4.0)
    assert of(orders, o.Report)[0].message.startswith("pod ns/b asks for 8")
    assert of(orders, o.RejectPod)[0].uid == late.uid
    assert engine.view.gangs[G].state is State.PLACED
    plan(engine, 5.0)
    assert engine.view.refusals[G].reason in ("QuotaInUse", "LargerThanQuota")


def test_a_running_gang_gets_back_what_it_lost_and_no_more():
    engine = an_engine(node("n"))
    engine.observe(queue(8), 0.0)
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    for name in "ab":
        engine.observe(pod(name, "g", needs(2)), 0.0)
    carried_out(engine, plan(engine))
    engine.observe(f.PodGone(PodUid("b")), 3.0)
    engine.observe(f.GangSeen(gang("other", 1)), 3.0)
    engine.observe(pod("o", "other", needs(6)), 3.0)
    carried_out(engine, plan(engine, 3.0))
    engine.observe(pod("b", "g", needs(2, cpu=5000), uid="large"), 4.0)
    plan(engine, 4.0)
    assert engine.view.refusals[G].reason == "QuotaInUse"
    engine.observe(f.PodGone(PodUid("large")), 5.0)
    engine.observe(pod("b", "g", needs(2), uid="same"), 5.0)
    plan(engine, 5.0)
    assert engine.view.refusals[G].reason != "QuotaInUse", "it was admitted as a whole"


def test_pods_free_what_they_used():
    """Whoever plans with a gang's end must not count on more than its pods have."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 1, needs(8))), 0.0)
    plan(engine)
    come(engine, needs(1), 1)
    ((place,),) = (one.places for one in engine.view.running())
    assert dict(place.needs.requests)[GPU] == 1


def test_a_reservation_of_before_is_not_adopted_for_pods_that_ask_for_more():
    engine = an_engine(node("n"))
    engine.observe(queue(1), 0.0)
    engine.observe(pod("g-worker-0", "g", needs(8)), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, TINY)), 0.0)
    engine.observe(f.AssignmentsRestored(G, ((PodName("ns/g-worker-0"), N),)), 0.0)
    assert engine.view.gangs[G].state is State.PENDING
    plan(engine)
    assert engine.view.refusals[G].reason == "LargerThanQuota"


def test_a_place_that_a_pod_filled_before_a_restart_stays_a_place():
    engine = an_engine(node("n"))
    engine.observe(pod("g-worker-1", "g", pinned(TINY), node=N), 0.0)
    engine.observe(pod("g-worker-0", "g", pinned(TINY), node=N), 0.0)
    engine.observe(f.GangSeen(templated("g", 2, TINY)), 0.0)
    assert list(engine.view.gangs[G].members) == ["ns/g-worker-0", "ns/g-worker-1"]
    engine.observe(f.PodGone(PodUid("g-worker-1")), 1.0)
    ((name, where),) = make_plan(engine.begin_cycle(), POLICIES, 1.0).placements[0].placement.nodes
    assert (name, where) == ("ns/g-worker-1", "n")


# -- labels ----------------------------------------------------------------------------------------


def test_a_bound_pod_stays_in_its_gang_whatever_its_labels_say_later():
    engine = an_engine(node("n"))
    for name in ("mine", "theirs"):
        engine.observe(queue(8, name), 0.0)
    engine.observe(f.GangSeen(gang("g", 1, queue="mine")), 0.0)
    engine.observe(f.GangSeen(gang("other", 1, queue="theirs")), 0.0)
    engine.observe(pod("a", "g", needs(4), role="worker", node=N), 1.0)
    engine.observe(pod("a", "other", needs(4), role="master", node=N), 2.0)
    usage = engine.view.ledger.usage
    assert (usage.used("mine", (GPU, "")), usage.used("theirs", (GPU, ""))) == (4000, 0)
    assert not engine.view.gangs[GangId("ns/other")].members
    engine.observe(f.PodGone(PodUid("a")), 3.0)
    assert usage.used("mine", (GPU, "")) == 0
    assert engine.view.cluster.used[engine.view.cluster.rows["n"]].sum() == 0


def test_a_pod_that_waits_may_go_to_another_gang_and_leaves_nothing_behind():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 1, implicit=True)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(f.GangSeen(gang("other", 1)), 0.0)
    engine.observe(pod("a", "other"), 1.0)
    assert G not in engine.view.gangs
    assert list(engine.view.gangs[GangId("ns/other")].members) == ["ns/a"]


# -- shared GPUs -----------------------------------------------------------------------------------

HALF = PodRequirements((("cpu", 100),), share=GpuShare(500))


def shares(engine, count, devices, wants=HALF):
    """Let pods be there that say which GPUs they share; return those they are charged."""
    for index in range(count):
        name = f"p{index}"
        engine.observe(pod(name, name, wants, node=N, devices=devices), 1.0)
    charges = engine.view.cluster.allocations()
    return sorted(charges[f"p{index}"].devices for index in range(count))


@pytest.mark.parametrize("said", [(0,), (99,), (2**40,), (0, 0), tuple(range(1000))])
def test_no_annotation_of_a_pod_overcommits_a_gpu(said):
    engine = an_engine(node("n", 4))
    shares(engine, 3, said)
    row = engine.view.cluster.rows["n"]
    assert sorted(engine.view.cluster.shared.of(row).values()) == [500, 1000]
    assert int(engine.view.cluster.capacity(needs(1))[row]) == 2


def test_the_gpus_of_a_pod_are_chosen_once():
    engine = an_engine(node("n", 4))
    shares(engine, 2, (1,))
    assert shares(engine, 2, (3,)) == [(1,), (1,)]


def test_shares_that_were_there_before_their_node_was_known_end_like_others():
    engine = an_engine()
    shares(engine, 3, (0,))
    for index in range(3):
        engine.observe(f.GangSeen(gang(f"p{index}", 1)), 1.0)
    engine.observe(f.NodeSeen(node("n", 4)), 1.0)
    places = [place for one in engine.view.running() for place in one.places]
    charges = engine.view.cluster.allocations()
    assert [p.devices for p in places] == [charges[p.name[3:]].devices for p in places]


def test_a_share_keeps_the_gpu_that_was_reserved_for_it():
    engine = an_engine(node("n", 2))
    wants = PodRequirements((("cpu", 100),), share=GpuShare(600))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    for name in "ab":
        engine.observe(pod(name, "g", wants), 0.0)
    binds = {one.uid: one for one in of(carried_out(engine, plan(engine)), o.Bind)}
    charges = engine.view.cluster.allocations()
    assert {uid: charges[uid].devices for uid in "ab"} == {u: b.devices for u, b in binds.items()}
    assert sorted(engine.view.cluster.shared.of(engine.view.cluster.rows["n"])) == [0, 1]


def test_roles_are_distinguished():
    """A pod that outgrows one role's template says nothing of the others."""
    roles = (Role("worker", 1, 1, TINY), Role("master", 1, 1, TINY))
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2, roles=roles)), 0.0)
    plan(engine)
    engine.observe(pod("g-worker-0", "g", needs(8), role="worker"), 1.0)
    engine.observe(f.PodGone(PodUid("g-worker-0")), 1.0)
    places = engine.view.gangs[G].members
    assert dict(places["ns/g-worker-0"].needs.requests).get(GPU) == 8
    assert places["ns/g-master-0"].needs == TINY


@pytest.mark.parametrize("started", [True, False])
def test_a_new_process_keeps_a_started_gang_with_a_raised_minimum(started):
    """Its owner asks for four members now; two ran when an earlier process said that it did."""
    engine = an_engine(node("n"))
    for name in "ab":
        engine.observe(pod(name, "g", node=N), 0.0)
    engine.observe(f.GangSeen(gang("g", 4, started=started)), 1.0)
    assert (engine.view.gangs[G].state is State.PLACED) == started
