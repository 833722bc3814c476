"""Changes of charge, queue or domain are admitted before they apply; lent quota is returned."""

from dataclasses import replace

import pytest
from builders import GPU, an_engine, gang, needs, node, pod, templated

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.bounds import ASSIGNMENT_WITHOUT_PODS_S, NO_SHOW_S, UNDISTURBED_S
from gangsched.core.engine.engine import State
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.queues import Queue, Quota, Stop
from gangsched.core.model.topology import Level, Topology
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.core.preemption.candidates import preemptible
from gangsched.core.quota.guarantee import nominal_shortfall
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.usage import Usage
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
G = GangId("ns/g")
KEY = (GPU, "")
DC = Topology("default", (Level("dc", "dc"), Level("rack", "rack")))


def plan(engine, now_s=0.0):
    return engine.accept(make_plan(engine.begin_cycle(now_s=now_s), POLICIES, now_s), now_s)


def run(engine, group, now_s=0.0, wants=None, on="n"):
    """Have a gang that comes with its pods start by a plan."""
    name = group.id.split("/", 1)[1]
    engine.observe(f.GangSeen(group), now_s)
    for index in range(group.min_member):
        engine.observe(pod(f"{name}-{index}", name, wants or needs(8)), now_s)
    plan(engine, now_s)
    for index in range(group.min_member):
        engine.observe(f.Prepared(PodUid(f"{name}-{index}"), NodeName(on)), now_s)
        engine.observe(f.Bound(PodUid(f"{name}-{index}"), NodeName(on)), now_s)
    assert engine.view.gangs[group.id].state is State.PLACED
    return group


def used(engine, queue):
    return engine.view.ledger.usage.used(queue, KEY)


def said(orders):
    return [one.message for one in orders if isinstance(one, o.Report)]


def two_queues(**of_mine):
    engine = an_engine(node("n"), node("m"), node("l"))
    mine = Quota(GPU, 8000, borrowing=0)
    for queue in (
        Queue("org", quotas=(Quota(GPU, 24_000),)),
        Queue("mine", "org", (mine,), **of_mine),
        Queue("theirs", "org", (Quota(GPU, 16_000),), namespaces={"x"}, open_to_all=False),
        Queue("open", "org", (Quota(GPU, 0, borrowing=0),)),
    ):
        engine.observe(f.QueueSeen(queue), 0.0)
    return engine


# -- queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ("theirs", "Namespace ns may not use queue theirs"),
        ("nowhere", "Queue 'nowhere' does not exist"),
        ("open", "Queue open"),
    ],
)
def test_a_running_gang_stays_charged_where_it_was(queue, why):
    engine = two_queues()
    group = run(engine, gang("g", 1, queue="mine"))
    told = said(engine.observe(f.GangSeen(replace(group, queue=queue)), 1.0))
    assert len(told) == 1
    assert told[0].startswith("It stays charged to queue mine: ")
    assert why in told[0]
    assert (used(engine, "mine"), used(engine, queue)) == (8000, 0)
    assert not engine.observe(f.GangSeen(replace(group, queue=queue)), 2.0), "told once"
    assert engine.audit(3.0) == {}
    assert [
        one.gang.id
        for one in preemptible(engine.view.running(), engine.view.ledger.usage, 9e9)["mine"]
    ]
    assert said(engine.observe(f.GangSeen(group), 4.0)) == [
        "all 1 pod of the gang are bound, to 1 node."
    ]


def test_a_queue_that_would_admit_a_running_gang_is_charged_for_it():
    engine = two_queues()
    group = run(engine, gang("g", 1, queue="mine"))
    engine.observe(f.QueueSeen(Queue("open", "org", (Quota(GPU, 0),))), 1.0)
    assert not said(engine.observe(f.GangSeen(replace(group, queue="open")), 1.0))
    assert (used(engine, "mine"), used(engine, "open"), used(engine, "org")) == (0, 8000, 8000)


def test_what_is_not_admitted_now_is_once_there_is_quota():
    engine = two_queues()
    group = run(engine, gang("g", 1, queue="mine"))
    engine.observe(f.GangSeen(replace(group, queue="open")), 1.0)
    assert used(engine, "mine") == 8000
    engine.observe(f.QueueSeen(Queue("open", "org", (Quota(GPU, 0),))), 2.0)
    engine.tick(20.0)
    assert (used(engine, "mine"), used(engine, "open")) == (0, 8000)


def test_a_restarted_gang_has_its_present_declaration():
    engine = two_queues()
    group = run(engine, gang("g", 1, queue="mine"))
    engine.observe(f.GangSeen(replace(group, queue="theirs")), 1.0)
    engine.observe(f.PodGone(PodUid("g-0")), 2.0)
    engine.observe(pod("g-0", "g", needs(8), uid="again"), 3.0)
    plan(engine, 4.0)
    assert "may not use queue theirs" in engine.view.refusals[G].message


def test_a_deleted_queue_leaves_its_gangs_to_the_default_one():
    engine = two_queues()
    run(engine, gang("g", 1, queue="mine"))
    engine.observe(f.QueueGone("mine"), 1.0)
    assert used(engine, "default") == 8000
    assert [
        one.gang.id
        for one in preemptible(engine.view.running(), engine.view.ledger.usage, 9e9)["default"]
    ]
    engine.observe(f.QueueSeen(Queue("mine", "org", (Quota(GPU, 8000),))), 2.0)
    assert (used(engine, "mine"), used(engine, "default")) == (8000, 0)


@pytest.mark.parametrize("first", ["pod", "group"])
def test_a_gang_that_is_met_is_charged_where_it_was_or_may_be(first):
    for queue, charged, home in (
        ("theirs", "mine", "mine"),
        ("theirs", "", "default"),
        ("nowhere", "", "default"),
        ("mine", "", "mine"),
        ("open", "mine", "mine"),
        ("mine", "open", "mine"),
    ):
        engine = two_queues()
        facts = [
            f.GangSeen(gang("g", 1, queue=queue, charged=charged)),
            pod("g-0", "g", needs(8), node=NodeName("n")),
        ]
        for fact in facts if first == "group" else reversed(facts):
            engine.observe(fact, 0.0)
        assert used(engine, home) == 8000, (queue, charged)
        assert engine.audit(1.0) == {}


def test_a_reservation_is_taken_over_where_its_queue_still_admits_it():
    for queue, state in (("mine", State.RESERVED), ("theirs", State.PENDING)):
        engine = two_queues()
        engine.observe(f.GangSeen(templated("g", 1, needs(8), queue=queue)), 0.0)
        places = ((next(iter(engine.view.gangs[G].members)), NodeName("n")),)
        engine.observe(f.AssignmentsRestored(G, places), 0.0)
        assert engine.view.gangs[G].state is state


def test_who_asked_for_a_running_gang_does_not_change():
    engine = two_queues()
    group = run(engine, gang("g", 1, queue="mine", user="ann"))
    engine.observe(f.GangSeen(replace(group, user="bob")), 1.0)
    assert engine.view.ledger.allocation(PodUid("g-0")).user == "ann"


# -- loans ----------------------------------------------------------------------------------------


def guests(**of_guest):
    engine = an_engine(node("n"), node("m"))
    for queue in (
        Queue("org", quotas=(Quota(GPU, 16_000),)),
        Queue("owner", "org", (Quota(GPU, 16_000),)),
        Queue("guest", "org", (Quota(GPU, 0),), **of_guest),
    ):
        engine.observe(f.QueueSeen(queue), 0.0)
    return engine


def test_what_may_not_be_stopped_may_not_borrow():
    engine = guests()
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="guest", preemptible=False)), 0.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(8), queue="guest")), 0.0)
    plan(engine)
    assert engine.view.refusals[G].reason.value == "LargerThanQuota"
    assert "A gang with preemptible: false may not borrow quota" in engine.view.refusals[G].message
    assert engine.view.gangs[GangId("ns/h")].state is State.RESERVED


def test_a_queue_may_let_what_may_not_be_stopped_borrow():
    engine = guests(non_preemptible_may_borrow=True)
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="guest", preemptible=False)), 0.0)
    plan(engine)
    assert engine.view.gangs[G].state is State.RESERVED


def test_gangs_that_may_be_stopped_do_not_take_the_guarantee_of_those_that_may_not():
    engine = an_engine(node("n"), node("m"))
    for queue in (
        Queue("org", quotas=(Quota(GPU, 16_000),)),
        Queue("a", "org", (Quota(GPU, 8000),)),
        Queue("b", "org", (Quota(GPU, 8000),)),
    ):
        engine.observe(f.QueueSeen(queue), 0.0)
    for name, firm in (("x", False), ("g", True), ("h", True)):
        group = templated(name, 1, needs(8), queue="a", preemptible=not firm)
        engine.observe(f.GangSeen(group), 0.0)
        plan(engine)
    assert engine.view.gangs[G].state is State.RESERVED
    assert engine.view.refusals[GangId("ns/h")].reason.value == "MayNotBorrow"


def test_a_queue_without_quota_has_what_is_guaranteed_to_no_other():
    tree = QueueTree(
        [
            Queue("org", quotas=(Quota(GPU, 16_000),)),
            Queue("a", "org", (Quota(GPU, 6000),)),
            Queue("b", "org"),
            Queue("c", "b", (Quota(GPU, 2000),)),
            Queue("alone"),
        ]
    )
    usage = Usage(tree)
    assert nominal_shortfall(usage, "b", ((KEY, 8000),)) is None
    assert nominal_shortfall(usage, "b", ((KEY, 8001),)).available == 8000
    usage.charge("b", ((KEY, 8000),), firm=True)
    assert nominal_shortfall(usage, "b", ((KEY, 1),)) is not None
    assert nominal_shortfall(usage, "c", ((KEY, 2000),)) is None
    usage.charge("a", ((KEY, 16_000),))
    assert nominal_shortfall(usage, "a", ((KEY, 6000),)) is None, (
        "what may be stopped does not count"
    )
    assert nominal_shortfall(usage, "alone", ((KEY, 1),)) is not None, (
        "all of it is guaranteed to others"
    )
    assert nominal_shortfall(usage, "alone", ((("cpu", ""), 1),)) is None
    assert nominal_shortfall(Usage(QueueTree()), "default", ((KEY, 1),)) is None


def test_a_gang_on_borrowed_quota_stays_preemptible():
    engine = guests()
    group = run(engine, gang("g", 1, queue="guest"))
    (told,) = said(engine.observe(f.GangSeen(replace(group, preemptible=False)), 1.0))
    assert told.startswith("The gang stays preemptible. A gang with preemptible: false may not")
    engine.observe(f.GangSeen(templated("o", 2, needs(8), queue="owner")), 2.0)
    evicted = [one.name for one in plan(engine, 100.0) if isinstance(one, o.Evict)]
    assert evicted == ["ns/g-0"]


def test_a_gang_within_its_guarantee_may_say_that_it_may_not_be_stopped():
    engine = guests()
    group = run(engine, gang("g", 1, queue="owner"))
    assert not said(engine.observe(f.GangSeen(replace(group, preemptible=False)), 1.0))
    assert engine.view.ledger.usage.firm["owner"][KEY] == 8000
    assert engine.audit(2.0) == {}


def test_borrowed_quota_is_kept_from_its_queue_for_a_bounded_time():
    engine = guests()
    run(engine, gang("g", 1, queue="guest", min_runtime_s=1e12))
    engine.observe(f.GangSeen(templated("o", 2, needs(8), queue="owner")), 2.0)
    most_s = UNDISTURBED_S.most
    assert not [one for one in plan(engine, most_s - 1.0) if isinstance(one, o.Evict)]
    engine.tick(most_s + 10.0)
    assert [one for one in plan(engine, most_s + 10.0) if isinstance(one, o.Evict)]


def test_a_gang_without_its_group_is_preemptible_and_drained():
    engine = guests()
    run(engine, gang("g", 1, queue="guest"))
    engine.observe(f.GangGone(G), 1.0)
    assert engine.view.gangs[G].state is State.PLACED
    engine.observe(f.GangSeen(templated("o", 2, needs(8), queue="owner")), 2.0)
    assert [one.name for one in plan(engine, 100.0) if isinstance(one, o.Evict)] == ["ns/g-0"]
    engine.observe(f.PodGone(PodUid("g-0")), 101.0)
    assert G not in engine.view.gangs

    engine = guests()
    run(engine, gang("g", 1, queue="guest"))
    engine.observe(f.GangGone(G), 1.0)
    engine.observe(f.QueueSeen(Queue("guest", "org", stop=Stop.DRAIN)), 2.0)
    assert [one.name for one in engine.tick(20.0) if isinstance(one, o.Evict)] == ["ns/g-0"]


def test_pods_of_a_deleted_group_are_not_planned():
    engine = guests()
    run(engine, gang("g", 1, queue="guest"))
    engine.observe(f.GangGone(G), 1.0)
    engine.observe(pod("g-1", "g", needs(1)), 2.0)
    assert not [one for one in plan(engine, 3.0) if isinstance(one, o.Prepare)]
    engine.observe(f.GangSeen(gang("g", 1, queue="owner")), 4.0)
    plan(engine, 5.0)
    assert engine.view.gangs[G].members.in_progress() == 1, "declared anew, it may grow"


def test_a_gang_without_its_group_at_startup_is_preemptible():
    engine = guests()
    engine.observe(pod("g-0", "g", needs(8), node=NodeName("n")), 0.0)
    engine.tick(10.0)
    assert engine.view.gangs[G].state is State.PLACED
    engine.observe(f.GangSeen(templated("o", 2, needs(8), queue="owner")), 11.0)
    assert [one.name for one in plan(engine, 100.0) if isinstance(one, o.Evict)] == ["ns/g-0"]


# -- domains --------------------------------------------------------------------------------------


def a_centre(*queues):
    nodes = [node(f"n{i}", labels={"dc": "a", "rack": f"r{i // 2}"}) for i in range(4)]
    engine = an_engine(*nodes)
    engine.observe(f.TopologySeen(DC), 0.0)
    for queue in queues:
        engine.observe(f.QueueSeen(queue), 0.0)
    return engine


@pytest.mark.parametrize(
    ("allowed", "asked", "starts"),
    [
        ("", "host", False),
        ("rack", "dc", False),
        ("rack", "rack", True),
        ("rack", "host", True),
        ("dc", "dc", True),
        ("other", "rack", False),
    ],
)
def test_a_queue_says_what_gangs_may_have_for_themselves(allowed, asked, starts):
    engine = a_centre(Queue("default", exclusive=allowed))
    alone = Constraints(exclusive=asked)
    engine.observe(f.GangSeen(templated("g", 1, needs(1), constraints=alone)), 0.0)
    plan(engine)
    assert (engine.view.gangs[G].state is State.RESERVED) == starts
    if not starts:
        assert engine.view.refusals[G].reason.value == "NotPermitted"
        assert f"domains of level {asked} for itself" in engine.view.refusals[G].message


@pytest.mark.parametrize("allowed", ["", "dc"])
def test_a_running_gang_does_not_keep_others_out_of_where_they_are(allowed):
    engine = a_centre(Queue("default", exclusive=allowed))
    run(engine, gang("team", 1), wants=needs(8), on="n0")
    group = run(engine, gang("g", 1), wants=needs(1), on="n1")
    alone = replace(group, constraints=Constraints(exclusive="dc"))
    (told,) = said(engine.observe(f.GangSeen(alone), 1.0))
    assert told.startswith("Others are not kept out of its domains of level dc: ")
    assert engine.view.cluster.exclusive_domains == {}
    engine.observe(f.PodGone(PodUid("team-0")), 2.0)
    engine.tick(20.0)
    assert (G in engine.view.cluster.exclusive_domains) == bool(allowed), "once it is alone there"


def test_what_pods_say_of_domains_is_admitted_as_well():
    engine = a_centre(Queue("default", exclusive="dc"))
    run(engine, gang("team", 1), wants=needs(8), on="n0")
    alone = Constraints(exclusive="dc")
    engine.observe(f.GangSeen(gang("g", 1)), 1.0)
    engine.observe(pod("g-0", "g", needs(1), node=NodeName("n1"), constraints=alone), 1.0)
    assert engine.view.gangs[G].state is State.PLACED
    assert engine.view.cluster.exclusive_domains == {}


def test_a_plan_is_dropped_if_other_gangs_came_in_between():
    engine = a_centre(Queue("default", exclusive="dc"))
    alone = Constraints(exclusive="rack")
    engine.observe(f.GangSeen(templated("g", 1, needs(1), constraints=alone)), 0.0)
    made = make_plan(engine.begin_cycle(), POLICIES, 0.0)
    for index in range(4):
        name = f"other-{index}"
        engine.observe(f.GangSeen(gang(name, 1)), 0.0)
        engine.observe(pod(name, name, needs(1), node=NodeName(f"n{index}")), 0.0)
    engine.accept(made, 0.0)
    assert engine.view.gangs[G].state is State.PENDING
    assert engine.view.stale_plans == 1


# -- room without pods ----------------------------------------------------------------------------


def test_capacity_is_not_kept_long_for_missing_pods():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2, needs(4), schedule_timeout_s=86_400.0)), 0.0)
    plan(engine)
    first, second = engine.view.gangs[G].members
    assert engine.view.gangs[G].reservation.start_by_s == ASSIGNMENT_WITHOUT_PODS_S.most
    engine.observe(pod(first.split("/")[1], "g", needs(4)), 10.0)
    assert engine.view.gangs[G].reservation.start_by_s == ASSIGNMENT_WITHOUT_PODS_S.most, (
        "one is not all"
    )
    engine.observe(pod(second.split("/")[1], "g", needs(4)), 20.0)
    assert engine.view.gangs[G].reservation.start_by_s == 86_400.0


def test_a_gang_without_pods_backs_off_for_longer_each_time():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 1, needs(8), schedule_timeout_s=86_400.0)), 0.0)
    now_s, waits = 0.0, []
    for _ in range(20):
        plan(engine, now_s)
        assert engine.view.gangs[G].state is State.RESERVED
        now_s += ASSIGNMENT_WITHOUT_PODS_S.most
        engine.tick(now_s)
        waits.append(engine.view.gangs[G].retry.backoff_until_s - now_s)
        now_s = engine.view.gangs[G].retry.backoff_until_s
        engine.tick(now_s)
    assert waits[:4] == [1.0, 600.0, 1200.0, 2400.0]
    assert waits[-1] == NO_SHOW_S.most


def test_a_running_gang_keeps_no_capacity_for_pods_that_are_not_recreated():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2, needs(4), schedule_timeout_s=86_400.0)), 0.0)
    plan(engine)
    names = [name.split("/")[1] for name in engine.view.gangs[G].members]
    for name in names:
        engine.observe(pod(name, "g", needs(4), node=NodeName("n")), 1.0)
    engine.observe(f.PodGone(PodUid(names[1])), 2.0)
    plan(engine, 3.0)
    assert engine.view.gangs[G].members.in_progress() == 1, (
        "it gets its place back before its pod exists"
    )
    engine.tick(3.0 + ASSIGNMENT_WITHOUT_PODS_S.most)
    assert engine.view.gangs[G].members.in_progress() == 0
    assert engine.view.gangs[G].state is State.PLACED
    assert engine.view.gangs[G].retry.backoff_until_s is not None


def test_quotas_of_a_namespace_are_counted_before_an_assignment():
    engine = an_engine(node("n"), node("m"))
    left = ((GPU, 10), ("pods", 100))
    engine.observe(f.NamespaceQuotaSeen("ns", "compute", left), 0.0)
    engine.observe(f.GangSeen(templated("big", 2, needs(8))), 0.0)
    plan(engine)
    refusal = engine.view.refusals[GangId("ns/big")]
    assert refusal.reason.value == "ResourceQuota"
    assert refusal.message == (
        "ResourceQuota compute of namespace ns has 10 nvidia.com/gpu left; the gang's pods, which "
        "do not exist yet, need 16 nvidia.com/gpu."
    )
    engine.observe(f.GangGone(GangId("ns/big")), 1.0)
    for name in "ab":
        engine.observe(f.GangSeen(templated(name, 1, needs(6))), 1.0)
    plan(engine, 1.0)
    states = [engine.view.gangs[GangId(f"ns/{name}")].state for name in "ab"]
    assert states == [State.RESERVED, State.PENDING], "those that start in one cycle count together"
    plan(engine, 2.0)
    assert engine.view.gangs[GangId("ns/b")].state is State.PENDING, "and those that are reserved"
    assert "6 nvidia.com/gpu of it is for gangs" in engine.view.refusals[GangId("ns/b")].message
    engine.observe(f.NamespaceQuotaGone("ns", "compute"), 3.0)
    engine.tick(20.0)
    plan(engine, 20.0)
    assert engine.view.gangs[GangId("ns/b")].state is State.RESERVED


def test_pods_that_exist_are_counted_by_the_quota_itself():
    engine = an_engine(node("n"))
    engine.observe(f.NamespaceQuotaSeen("ns", "compute", ((GPU, 0),)), 0.0)
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.observe(pod("g-0", "g", needs(8)), 0.0)
    plan(engine)
    assert engine.view.gangs[G].state is State.RESERVED
