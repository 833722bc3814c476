"""The rules of the engine, one test for each; `lifecycle.py` draws the states."""

import itertools
from dataclasses import replace

from builders import an_engine, gang, needs, node, plan, pod, templated

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import State
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.pods import Expression, NodeTerm
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.fifo import Fifo
from policies.pack import Pack

G = GangId("ns/g")


def of(orders: tuple[o.Order, ...], kind: type) -> list[o.Order]:
    """Return the orders of one kind."""
    return [order for order in orders if isinstance(order, kind)]


def prepared(engine, orders):
    """Answer every Prepare with Prepared; return what follows."""
    result = ()
    for order in of(orders, o.Prepare):
        result += engine.observe(f.Prepared(order.uid, order.node), 1.0)
    return result


def bound(engine, orders):
    """Answer every Bind with Bound."""
    result = ()
    for order in of(orders, o.Bind):
        result += engine.observe(f.Bound(order.uid, order.node), 2.0)
    return result


def a_pair(engine):
    """Bring a gang of two pods to the barrier; return the Bind orders."""
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    return prepared(engine, plan(engine))


def test_a_lost_pod_s_place_is_not_pinned_to_its_old_node():
    engine = an_engine(node("a"), node("b"))
    engine.observe(f.GangSeen(templated("g", 1, needs(8))), 0.0)
    plan(engine)
    here = NodeTerm((), (Expression("metadata.name", "In", ("a",)),))
    pinned = needs(8, required=(here,))
    engine.observe(pod("g-worker-0", "g", pinned), 1.0)
    engine.observe(pod("g-worker-0", "g", pinned, node=NodeName("a")), 1.0)
    engine.observe(pod("other", "x", needs(8), node=NodeName("a"), uid="o"), 2.0)
    engine.observe(f.PodGone(PodUid("g-worker-0")), 2.0)
    plan(engine, 3.0)
    assert [m.assigned_node for m in engine.view.gangs[GangId("ns/g")].members.values()] == ["b"]


def test_a_gang_waits_for_its_members():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    assert not engine.has_pending_work()
    assert engine.view.refusals[G].message == "1 of at least 2 pods exist."
    engine.observe(pod("b", "g"), 0.0)
    assert engine.has_pending_work()


def test_a_gang_waits_for_gates_of_others():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g", gated=True, gated_by="example.com/data"), 0.0)
    engine.observe(pod("b", "g", gated=True), 0.0)
    assert not engine.has_pending_work()
    refusal = engine.view.refusals[G]
    assert (refusal.reason, refusal.wanted, refusal.possible) == ("SchedulingGated", 2, 1)
    assert refusal.message == (
        "1 of at least 2 pods may be scheduled; pod ns/a has the scheduling gate "
        "example.com/data, and the controller that set the gate has to remove it."
    )
    engine.observe(pod("a", "g", gated=True), 1.0)
    assert len(of(plan(engine, 1.0), o.Prepare)) == 2


def test_a_pod_that_comes_with_a_gate_of_others_keeps_its_reserved_place():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 1, needs(8))), 0.0)
    assert not of(plan(engine), o.Prepare)
    assert not of(engine.observe(pod("g-worker-0", "g", needs(8), gated_by="x/y"), 1.0), o.Prepare)
    assert engine.view.gangs[G].state is State.RESERVED
    assert of(engine.observe(pod("g-worker-0", "g", needs(8)), 2.0), o.Prepare)


def test_a_gang_is_planned_once_its_annotations_are_mended():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("a", "g", invalid="pod ns/a: annotation x: 'y' is no number"), 0.0)
    assert not engine.has_pending_work()
    engine.observe(pod("a", "g"), 1.0)
    assert engine.has_pending_work()


def test_no_member_is_bound_before_all_are_at_the_barrier():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    first, second = of(plan(engine), o.Prepare)
    assert not of(engine.observe(f.Prepared(first.uid, first.node), 1.0), o.Bind)
    assert len(of(engine.observe(f.Prepared(second.uid, second.node), 1.0), o.Bind)) == 2


def test_no_member_is_bound_before_the_barrier_whatever_is_observed():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    first, _ = of(plan(engine), o.Prepare)
    engine.observe(f.Prepared(first.uid, first.node), 1.0)
    heard = engine.observe(f.GangSeen(replace(gang("g", 2), schedule_timeout_s=90.0)), 1.0)
    assert not of(heard, o.Bind)


def test_a_gang_with_a_deleted_bound_member_is_not_placed():
    engine = an_engine(node("n"))
    first, second = of(a_pair(engine), o.Bind)
    engine.observe(f.Bound(first.uid, first.node), 2.0)
    engine.observe(f.PodGone(first.uid), 2.0)
    orders = engine.observe(f.Bound(second.uid, second.node), 3.0)
    assert engine.view.gangs[G].state is State.BROKEN
    assert [one.uid for one in of(orders, o.Evict)] == [second.uid]


def test_a_whole_gang_is_placed_and_says_so():
    engine = an_engine(node("n"))
    orders = bound(engine, a_pair(engine))
    assert [r.reason for r in of(orders, o.Report)] == ["Placed"]
    assert engine.view.gangs[G].state is State.PLACED


def test_settle_rule_a_broken_gang_keeps_capacity_until_every_bind_is_answered():
    """Releasing at the first refusal would over-commit: the other bind is still in flight."""
    engine = an_engine(node("n", gpus=2))
    first, second = of(a_pair(engine), o.Bind)
    engine.observe(f.BindFailed(first.uid, first.node, "no"), 2.0)
    assert engine.view.gangs[G].state is State.BROKEN
    engine.observe(f.GangSeen(gang("other", 2)), 2.0)
    engine.observe(pod("x", "other"), 2.0)
    engine.observe(pod("y", "other"), 2.0)
    assert not of(plan(engine, 2.0), o.Reserve), "one GPU is still spoken for"
    orders = engine.observe(f.Bound(second.uid, second.node), 3.0)
    assert [e.uid for e in of(orders, o.Evict)] == [second.uid]
    assert not of(plan(engine, 3.0), o.Reserve), "the bound pod still sits there"
    engine.observe(f.PodGone(second.uid), 4.0)
    assert of(plan(engine, 4.0), o.Reserve), "now the room is really free"


def test_settle_rule_holds_for_a_bind_that_never_answers():
    engine = an_engine(node("n", gpus=2))
    first, _ = of(a_pair(engine), o.Bind)
    engine.observe(f.BindFailed(first.uid, first.node, "no"), 2.0)
    engine.tick(10_000.0)
    assert engine.view.gangs[G].state is State.BROKEN


def test_a_node_that_refused_a_lone_member_is_avoided():
    engine = an_engine(node("n1"), node("n2"))
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    (order,) = of(plan(engine), o.Prepare)
    engine.observe(f.PrepareFailed(order.uid, order.node, "volume zone"), 1.0)
    engine.tick(3.0)
    (again,) = of(plan(engine, 3.0), o.Prepare)
    assert (order.node, again.node) == ("n1", "n2"), "what was learnt is used"


def test_the_only_node_is_tried_again_after_the_back_off():
    """A minute's wait for a node that refused for a moment would be an empty minute."""
    engine = an_engine(node("n1"))
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    now_s, tried = 0.0, []
    while now_s < 70.0:
        for order in of(plan(engine, now_s), o.Prepare):
            tried.append(now_s)
            engine.observe(f.PrepareFailed(order.uid, order.node, "not heard of"), now_s)
        now_s += 0.5
        engine.tick(now_s)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == [2.0, 4.0, 8.0, 16.0, 32.0], "back-off before the plan, and after it"


def test_a_refused_member_sends_the_others_back():
    engine = an_engine(node("n1"), node("n2"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    first, second = of(plan(engine), o.Prepare)
    engine.observe(f.Prepared(first.uid, first.node), 1.0)
    orders = engine.observe(f.PrepareFailed(second.uid, second.node, "volume zone"), 1.0)
    assert [r.uid for r in of(orders, o.RejectPod)] == [first.uid]
    assert not of(orders, o.Bind)


def test_a_stale_plan_is_dropped_whole():
    engine = an_engine(node("n", gpus=2))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    late = make_plan(engine.begin_cycle(), Policies(Fifo(), Pack()), 0.0)
    engine.observe(pod("intruder", node=NodeName("n")), 0.0)
    assert not of(engine.accept(late, 1.0), o.Reserve)
    assert engine.view.stale_plans == 1


def test_a_plan_that_lands_twice_reserves_once():
    engine = an_engine(node("n", gpus=2))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    twice = make_plan(engine.begin_cycle(), Policies(Fifo(), Pack()), 0.0)
    assert of(engine.accept(twice, 0.0), o.Reserve)
    assert not of(engine.accept(twice, 0.0), o.Reserve)
    assert (
        engine.view.cluster.used[0].sum() == engine.view.cluster.request_vector(needs()).sum() * 2
    )


def test_a_node_lost_between_plan_and_bind_breaks_the_gang():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    plan(engine)
    orders = engine.observe(f.NodeGone(NodeName("n")), 1.0)
    assert of(orders, o.Release)
    assert "node n went away" in of(orders, o.Report)[0].message
    engine.tick(5.0)
    engine.observe(f.NodeSeen(node("m")), 5.0)
    assert of(plan(engine, 5.0), o.Reserve)


def test_pods_created_for_a_broken_reservation_are_deleted_before_a_new_plan():
    engine = an_engine(node("n"), node("m"))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    plan(engine)
    engine.observe(pod("g-worker-0", "g"), 1.0)
    home = engine.view.assigned_node(PodUid("g-worker-0"))
    orders = engine.observe(f.NodeGone(home), 1.0)
    assert [e.uid for e in of(orders, o.Evict)] == ["g-worker-0"]
    engine.tick(60.0)
    assert not of(plan(engine, 60.0), o.Reserve), "the pinned pod is still there"
    engine.observe(f.PodGone(PodUid("g-worker-0")), 60.0)
    engine.tick(100.0)
    assert of(plan(engine, 100.0), o.Reserve)


def test_members_that_never_come_break_the_reservation_at_its_deadline():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    plan(engine)
    assert not engine.tick(29.0)
    orders = engine.tick(31.0)
    assert "did not come to the barrier within 30 s" in of(orders, o.Report)[0].message


def test_a_member_that_leaves_half_way_breaks_the_gang():
    engine = an_engine(node("n"))
    binds = of(a_pair(engine), o.Bind)
    engine.observe(f.Bound(binds[0].uid, binds[0].node), 2.0)
    orders = engine.observe(f.PodGone(binds[1].uid), 2.0)
    assert [e.uid for e in of(orders, o.Evict)] == [binds[0].uid]


def test_a_running_gang_below_its_minimum_gets_its_timeout_then_stops():
    engine = an_engine(node("n"))
    binds = a_pair(engine)
    bound(engine, binds)
    engine.observe(f.PodGone(PodUid("a")), 10.0)
    assert engine.view.gangs[G].run.below_minimum_since_s == 10.0
    assert not of(engine.tick(39.0), o.Evict)
    assert [e.uid for e in of(engine.tick(41.0), o.Evict)] == ["b"]


def test_tries_to_be_whole_again_do_not_give_it_more_time():
    engine = an_engine(node("n"))
    bound(engine, a_pair(engine))
    engine.observe(f.PodGone(PodUid("a")), 10.0)
    engine.observe(pod("c", "g"), 30.0)
    (bind,) = of(prepared(engine, plan(engine, 30.0)), o.Bind)
    engine.observe(f.BindFailed(bind.uid, bind.node, "no"), 31.0)
    assert not of(engine.tick(39.0), o.Evict)
    assert [e.uid for e in of(engine.tick(41.0), o.Evict)] == ["b"]


def test_a_late_member_of_a_running_gang_is_placed_alone():
    engine = an_engine(node("n"))
    bound(engine, a_pair(engine))
    engine.observe(pod("c", "g"), 5.0)
    orders = prepared(engine, plan(engine, 5.0))
    assert [b.uid for b in of(orders, o.Bind)] == ["c"]


def test_a_deleted_group_releases_its_waiting_pods_and_says_why():
    engine = an_engine(node("n", gpus=0))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    plan(engine)
    orders = engine.observe(f.GangGone(G), 1.0)
    assert "does not exist" in of(orders, o.Report)[0].message
    assert not engine.has_pending_work()


def test_a_written_reservation_is_adopted_after_a_restart():
    engine = an_engine(node("n"), node("m"))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    places = (("ns/g-worker-0", "m"), ("ns/g-worker-1", "m"))
    engine.observe(f.AssignmentsRestored(G, places), 0.0)
    assert engine.view.gangs[G].assignments() == places
    assert not engine.has_pending_work()


def test_a_written_reservation_that_no_longer_fits_is_released():
    engine = an_engine(node("n", gpus=1))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    places = (("ns/g-worker-0", "n"), ("ns/g-worker-1", "n"))
    orders = engine.observe(f.AssignmentsRestored(G, places), 0.0)
    assert of(orders, o.Release)


def test_a_gang_that_ran_already_is_no_news_and_one_that_was_started_is():
    engine = an_engine(node("n"))
    engine.observe(pod("a", "g", node=NodeName("n")), 0.0)
    (found,) = of(engine.observe(f.GangSeen(gang("g", 1)), 0.0), o.Report)
    assert (found.reason, found.adopted) == ("Placed", True)
    engine = an_engine(node("n"))
    (started,) = [
        one for one in of(bound(engine, a_pair(engine)), o.Report) if one.state == "Placed"
    ]
    assert not started.adopted


def test_a_half_bound_gang_found_at_start_is_completed():
    """A process killed between two binds leaves a partial gang; the next one finishes it."""
    engine = an_engine(node("n"))
    engine.observe(pod("a", "g", node=NodeName("n")), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    orders = prepared(engine, plan(engine))
    assert [b.uid for b in of(orders, o.Bind)] == ["b"]


def test_a_half_bound_gang_that_cannot_be_completed_is_stopped_at_its_deadline():
    engine = an_engine(node("n", gpus=1))
    engine.observe(pod("a", "g", node=NodeName("n")), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    plan(engine)
    assert [e.uid for e in of(engine.tick(31.0), o.Evict)] == ["a"]


def a_running_pair():
    """Return an engine whose node n runs the two pods of gang g."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    for name in ("a", "b"):
        engine.observe(pod(name, "g", node=NodeName("n")), 1.0)
    return engine


def test_a_member_that_leaves_politely_has_not_done_its_work():
    """Whoever told it to, a drain say: ending with 0 leaves the gang as incomplete as with 1."""
    engine = a_running_pair()
    engine.observe(pod("b", "g", node=NodeName("n"), terminating=True), 2.0)
    (said,) = of(
        engine.observe(pod("b", "g", node=NodeName("n"), terminating=True, ended=True), 3.0),
        o.Report,
    )
    assert said.reason == "BelowMinimum"
    engine.observe(f.PodGone(PodUid("b")), 4.0)
    assert [order.uid for order in of(engine.tick(1000.0), o.Evict)] == ["a"]


def test_a_member_that_is_cleaned_up_has_done_its_work():
    engine = a_running_pair()
    for fact in (
        pod("b", "g", node=NodeName("n"), ended=True),
        pod("b", "g", node=NodeName("n"), ended=True, terminating=True),
        f.PodGone(PodUid("b")),
    ):
        assert not of(engine.observe(fact, 2.0), o.Report)
    assert not of(engine.tick(1000.0), o.Evict)


def test_a_bind_to_another_node_is_accepted():
    """The world is right: a pod bound by somebody else counts where it is."""
    engine = an_engine(node("n"), node("m"))
    first, _ = of(a_pair(engine), o.Bind)
    engine.observe(pod("a", "g", uid=first.uid, node=NodeName("m")), 2.0)
    assert engine.view.cluster.used[engine.view.cluster.rows[NodeName("m")]].sum() > 0


def test_ended_pods_free_their_capacity():
    engine = an_engine(node("n", gpus=1))
    engine.observe(pod("x", node=NodeName("n")), 0.0)
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    assert not of(plan(engine), o.Reserve)
    engine.observe(pod("x", node=NodeName("n"), ended=True), 1.0)
    assert of(plan(engine, 1.0), o.Reserve)


def test_pods_that_outlive_their_group_stay_charged_where_they_were():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(replace(gang("g", 1), user="alice")), 0.0)
    engine.observe(pod("a", "g", node=NodeName("n")), 0.0)
    engine.observe(f.GangGone(G), 1.0)
    assert engine.audit(2.0) == {}
    assert engine.view.ledger.allocation(PodUid("a")).user == "alice"
    engine.observe(f.GangSeen(replace(gang("g", 1), user="bob")), 3.0)
    assert engine.view.ledger.allocation(PodUid("a")).user == "alice", "whoever declares it anew"
    assert engine.audit(4.0) == {}


def test_refused_gangs_are_not_planned_again_until_capacity_is_freed():
    engine = an_engine(node("n", gpus=1))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    plan(engine)
    assert not engine.has_pending_work()
    engine.observe(f.NodeSeen(node("m")), 1.0)
    assert engine.has_pending_work()


def test_an_ended_and_deleted_member_does_not_make_a_gang_incomplete():
    engine = an_engine(node("n"))
    bound(engine, a_pair(engine))
    engine.observe(pod("a", "g", node=NodeName("n"), ended=True), 5.0)
    engine.observe(f.PodGone(PodUid("a")), 6.0)
    assert not engine.tick(100.0)


def test_backoff_doubles_with_each_break():
    engine = an_engine(node("n"), backoff_s=1.0)
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    now_s = 0.0
    for expected_s in (1.0, 2.0, 4.0):
        plan(engine, now_s)
        engine.tick(now_s + 31.0)
        now_s += 31.0
        assert engine.view.gangs[G].retry.backoff_until_s == now_s + expected_s
        now_s += expected_s
        engine.tick(now_s)


def test_members_that_repel_each_other_are_spread_after_a_refusal():
    engine = an_engine(node("n1"), node("n2"))
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    engine.observe(pod("a", "g"), 0.0)
    engine.observe(pod("b", "g"), 0.0)
    first, second = of(plan(engine), o.Prepare)
    assert first.node == second.node
    engine.observe(f.PrepareFailed(second.uid, second.node, "anti-affinity"), 1.0)
    engine.tick(3.0)
    assert {order.node for order in of(plan(engine, 3.0), o.Prepare)} == {"n1", "n2"}


def test_a_failed_member_has_not_done_its_work():
    engine = an_engine(node("n"))
    bound(engine, a_pair(engine))
    orders = engine.observe(pod("a", "g", node=NodeName("n"), ended=True, failed=True), 5.0)
    assert [r.reason for r in of(orders, o.Report)] == ["BelowMinimum"]


def test_a_recreated_group_gets_no_plan_of_its_predecessor():
    """Found by the state machine: the versions of both began at zero."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    late = make_plan(engine.begin_cycle(), Policies(Fifo(), Pack()), 0.0)
    engine.observe(f.GangGone(G), 0.0)
    engine.observe(f.GangSeen(templated("g", 1)), 0.0)
    assert not engine.accept(late, 0.0)
