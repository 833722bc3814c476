"""The cheapest nodes for a whole gang."""

import itertools
from dataclasses import replace

from builders import an_engine, gang, needs, node, templated, waiting
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.core.cluster.node_filters import PRODUCT
from gangsched.core.facts import TopologySeen
from gangsched.core.model.constraints import Constraints, LevelRequest
from gangsched.core.model.gangs import Role
from gangsched.core.model.ids import NodeName
from gangsched.core.model.node_pools import NodePool, NoPurchase, Purchase
from gangsched.core.model.pods import Taint
from gangsched.core.model.topology import Level, Topology
from gangsched.core.placement.fill import is_feasible
from gangsched.core.placement.known_purchases import KnownPurchases
from gangsched.core.placement.purchases import cheapest_purchase, purchase_remedy


def pool(name, gpus=8, price=98.25, nodes_left=16, arrival_s=360.0, **more):
    template = node("template", gpus, **more.pop("shape", {}))
    return NodePool(name, template, nodes_left, price, arrival_s=arrival_s, **more)


def bought(wanted, *pools, nodes=()):
    snapshot = an_engine(*nodes).view.snapshot_all(0.0)
    found = cheapest_purchase(wanted, snapshot, pools, 0.0)
    return found.nodes if isinstance(found, Purchase) else found.why


def eights(count, **more):
    return waiting(templated("g", count, needs(8), **more))


def test_a_gang_gets_all_its_nodes():
    assert bought(eights(4), pool("p5")) == (("p5", 4),)


def test_free_nodes_cost_nothing():
    assert bought(eights(4), pool("p5"), nodes=[node("a"), node("b")]) == (("p5", 2),)


def test_nodes_for_half_a_gang_are_not_bought():
    why = bought(eights(4), pool("p5", nodes_left=3))
    assert why == "all 3 nodes that its pools may make would not suffice, with its constraints"


def test_pools_are_mixed_where_that_is_cheaper():
    nine = waiting(templated("g", 9, needs(1)))
    small, large = pool("small", 1, 5.0), pool("large", 8, 30.0)
    assert bought(nine, small, large) == (("large", 1), ("small", 1))
    assert bought(nine, small, replace(large, price=42.0)) == (("small", 9),)


def test_of_one_price_the_fewest_nodes_are_bought():
    eight = waiting(templated("g", 8, needs(1)))
    assert bought(eight, pool("a", 1, 5.0), pool("b", 8, 40.0)) == (("b", 1),)


def test_pools_without_room_or_that_take_no_pods():
    assert bought(eights(1), pool("p5", nodes_left=0)) == "no pool may make more nodes for it"
    assert bought(eights(1), pool("a10", 4)) == "no pool makes nodes that take its pods"
    taint = Taint("only", "others", "NoSchedule")
    tainted = pool("p5", shape={"taints": (taint,)})
    assert bought(eights(1), tainted) == "no pool makes nodes that take its pods"


def test_all_pods_get_gpus_of_one_accepted_type():
    wanted = eights(2, constraints=Constraints(gpu_types=("H100", "A100")))
    pools = [
        pool("l4", price=1.0, shape={"labels": {PRODUCT: "NVIDIA-L4"}}),
        pool("h100", price=90.0, nodes_left=1, shape={"labels": {PRODUCT: "NVIDIA-H100"}}),
        pool("a100", price=50.0, shape={"labels": {PRODUCT: "NVIDIA-A100"}}),
    ]
    assert bought(wanted, *pools) == (("a100", 2),)
    assert bought(wanted, *pools[:2]).startswith("all 1 node that its pools may make would not")
    assert bought(wanted, *pools[:2], nodes=[node("a", labels={PRODUCT: "NVIDIA-H100"})]) == (
        ("h100", 1),
    )
    assert bought(wanted, pools[0]) == "no pool makes nodes that take its pods"


def test_nodes_outside_a_required_domain_do_not_help():
    """The rack of a new node is not known, unless its pool says so."""
    racks = Topology("default", (Level("rack", "rack"),))
    constraints = Constraints(near=LevelRequest(required="rack"))
    wanted = eights(2, constraints=constraints)
    engine = an_engine(node("a", labels={"rack": "r0"}))
    engine.observe(TopologySeen(racks), 0.0)
    snapshot = engine.view.snapshot_all(0.0)
    found = cheapest_purchase(wanted, snapshot, [pool("p5", nodes_left=4)], 0.0)
    assert isinstance(found, NoPurchase)
    here = pool("r0", nodes_left=4, shape={"labels": {"rack": "r0"}})
    found = cheapest_purchase(wanted, snapshot, [pool("p5", nodes_left=4), here], 0.0)
    assert isinstance(found, Purchase)
    assert found.nodes == (("r0", 1),)


def test_the_price_has_a_limit():
    why = bought(eights(4, price_max=300.0), pool("p5"))
    assert why == "its nodes would cost 393.00 $/h, and 300 are allowed"
    assert bought(eights(4, price_max=393.0), pool("p5")) == (("p5", 4),)


def within(wait_s, *pools, since_s=0.0, now_s=0.0):
    """Buy for a gang of four pods that has waited since some moment and may wait so long."""
    wanted = replace(eights(4, wait_max_s=wait_s), queued_since_s=since_s)
    snapshot = an_engine().view.snapshot_all(now_s)
    found = cheapest_purchase(wanted, snapshot, pools, now_s)
    return found.nodes if isinstance(found, Purchase) else found.why


def test_nodes_in_time_are_preferred_to_cheaper_ones():
    slow, quick = pool("slow", price=50.0, arrival_s=900.0), pool("quick", arrival_s=60.0)
    assert within(None, slow, quick) == (("slow", 4),)
    assert within(900.0, slow, quick) == (("slow", 4),)
    assert within(899.0, slow, quick) == (("quick", 4),)
    assert within(1200.0, slow, quick, since_s=100.0, now_s=400.0) == (("slow", 4),)
    assert within(1200.0, slow, quick, since_s=100.0, now_s=401.0) == (("quick", 4),)
    few = replace(quick, nodes_left=2)
    assert within(899.0, slow, few) == (("slow", 4),)


def test_if_no_nodes_are_in_time_the_first_are_bought():
    slow, quick = pool("slow", price=50.0, arrival_s=900.0), pool("quick", arrival_s=60.0)
    quickest = pool("quickest", price=500.0, nodes_left=3, arrival_s=50.0)
    assert within(10.0, slow, quick) == (("quick", 4),)
    assert within(10.0, slow, quick, quickest) == (("quick", 4),)
    assert within(10.0, slow, quick, now_s=5000.0) == (("quick", 4),)
    assert within(10.0, slow, replace(quick, nodes_left=3), quickest) == (
        ("quick", 3),
        ("quickest", 1),
    )
    assert within(10.0, pool("p5", nodes_left=3)).startswith("all 3 nodes")


def test_fewer_nodes_of_a_pool_may_be_in_time():
    """Many nodes of a pool take longer than one."""
    slow = pool("slow", price=50.0, arrival_s=300.0, arrival_spread=0.5)
    quick = pool("quick", arrival_s=60.0)
    assert slow.arrival_of(1) == 300.0
    assert slow.arrival_of(2) < 400.0 < slow.arrival_of(3)
    assert slow.count_within(400.0) == 2
    assert within(400.0, slow, quick) == (("quick", 2), ("slow", 2))


def test_spot_nodes_are_for_gangs_that_can_be_stopped():
    spot, firm = pool("spot", price=30.0, spot=True), pool("p5")
    assert bought(eights(2), spot, firm) == (("p5", 2),)
    assert bought(eights(2, checkpoint_grace_s=60.0), spot, firm) == (("spot", 2),)
    assert bought(eights(2, checkpoint_grace_s=60.0, preemptible=False), spot, firm) == (("p5", 2),)
    elastic = gang("g", 2, roles=(Role("worker", 4, 2, needs(8)),))
    assert bought(waiting(elastic), spot, firm) == (("spot", 2),)


def test_only_the_minimum_of_an_elastic_gang_is_bought():
    elastic = gang("g", 2, roles=(Role("worker", 4, 2, needs(8)),))
    assert bought(waiting(elastic), pool("p5")) == (("p5", 2),)


def test_pods_of_several_kinds_share_nodes():
    roles = (Role("head", 1, 1, needs(0, 4000)), Role("worker", 2, 2, needs(4)))
    wanted = waiting(gang("g", 3, roles=roles))
    assert bought(wanted, pool("p5"), pool("cpu", 0, 1.0)) == (("p5", 1),)


def test_the_remedy_reads_as_a_user_would_write_it():
    remedy = purchase_remedy(Purchase((("p5", 4),), 393.0, 340.0))
    assert remedy.message == "4 more nodes of pool p5: about 6 min, 393 $/h"
    remedy = purchase_remedy(Purchase((("a", 1), ("p5", 4)), 1234.5, 0.0))
    assert remedy.message == "1 more node of pool a and 4 more nodes of pool p5: 1,234 $/h"
    assert purchase_remedy(Purchase((("p5", 126),), 12388.3, 0.0)).message.endswith(": 12,388 $/h")
    assert purchase_remedy(Purchase((("cpu", 1),), 3.06, 0.0)).message.endswith(": 3.06 $/h")


def test_nothing_is_left_on_the_cluster():
    engine = an_engine(node("a"))
    snapshot = engine.view.snapshot_all(0.0)
    before = dict(snapshot.cluster.rows), snapshot.cluster.used.copy()
    cheapest_purchase(eights(4), snapshot, [pool("p5")], 0.0)
    assert dict(snapshot.cluster.rows) == before[0]
    assert (snapshot.cluster.used == before[1]).all()


SHAPES = st.tuples(st.integers(0, 8), st.integers(1, 16), st.integers(1, 40), st.integers(0, 2))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(SHAPES, min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=2
    ),
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8)), max_size=2),
    st.sampled_from([None, 25.0]),
)
def test_no_other_counts_are_cheaper(shapes, roles, there, wait_max_s):
    """Each set of counts within the most of the pools is tried; the second pool is slow."""
    pools = [
        NodePool(
            f"p{at}",
            node("t", gpus, cores * 1000),
            most,
            float(price),
            arrival_s=(20.0, 30.0, 10.0)[at],
            arrival_spread=(0.5, 0.0, 2.0)[at],
        )
        for at, (gpus, cores, price, most) in enumerate(shapes)
    ]
    declared = tuple(
        Role(f"r{at}", count, count, needs(gpus, cores * 1000))
        for at, (count, gpus, cores) in enumerate(roles)
    )
    count = sum(role.count for role in declared)
    wanted = waiting(gang("g", count, roles=declared, wait_max_s=wait_max_s))
    nodes = [node(f"n{at}", gpus, cores * 1000) for at, (gpus, cores) in enumerate(there)]
    snapshot = an_engine(*nodes).view.snapshot_all(0.0)
    found = cheapest_purchase(wanted, snapshot, pools, 0.0)
    left_s = wanted.gang.wait_max_s
    prices, in_time = [], []
    for counts in itertools.product(*(range(one.nodes_left + 1) for one in pools)):
        cluster = snapshot.cluster.copy()
        for one, count in zip(pools, counts, strict=True):
            for number in range(count):
                cluster.put_node(replace(one.template, name=NodeName(f"{one.name}-{number}")))
        if is_feasible(wanted, replace(snapshot, cluster=cluster)):
            pairs = list(zip(counts, pools, strict=True))
            prices.append(sum(count * one.price for count, one in pairs))
            if left_s and all(one.arrival_of(count) <= left_s for count, one in pairs if count):
                in_time.append(prices[-1])
    if isinstance(found, NoPurchase):
        assert not prices
    elif in_time:
        assert found.price == min(in_time)
        assert found.arrival_s <= left_s
    elif left_s:
        assert found.price in prices
        assert found.arrival_s > left_s
    else:
        assert found.price == min(prices)
        assert found.proved


def test_a_wait_limit_is_searched_for_again_only_when_other_nodes_are_in_time():
    """A gang that waits long must not use up the searches of other gangs."""
    known = KnownPurchases(searches_max=3)
    slow, quick = pool("slow", price=50.0, arrival_s=900.0), pool("quick", arrival_s=60.0)
    snapshot = an_engine().view.snapshot_all(0.0)
    wanted = eights(4, wait_max_s=1200.0)
    found = [
        known.cheapest(wanted, snapshot, (slow, quick), float(now_s)).nodes
        for now_s in range(0, 1800, 7)
    ]
    assert set(found[:43]) == {(("slow", 4),)}
    assert set(found[43:]) == {(("quick", 4),)}
