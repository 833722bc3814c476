"""Forecasts know the nodes that come and that can be bought."""

from dataclasses import replace

from builders import an_engine, node, templated
from builders import needs as asks

from gangsched.core import facts as f
from gangsched.core.model.ids import GangId
from gangsched.core.model.node_pools import ComingNodes, NodePool, NodeSupply
from gangsched.core.model.pods import GPU, MILLI
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.placement.known_purchases import KnownPurchases
from gangsched.core.planning.forecast import Effort, forecast
from gangsched.core.planning.node_arrivals import NodeArrivals
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


def pool(name="p5", nodes_left=16, price=98.0, arrival_s=360.0, gpus=8):
    return NodePool(name, node("template", gpus), nodes_left, price, arrival_s=arrival_s)


def starts(*gangs, supply, nodes=(), queues=(), at_s=1.0, runs=1):
    """Return when gangs are expected to start."""
    engine = an_engine(*nodes)
    for queue in queues:
        engine.observe(f.QueueSeen(queue), 0.0)
    engine.observe(f.NodeSupplySeen(supply), 0.0)
    for at, one in enumerate(gangs):
        engine.observe(f.GangSeen(one), at / 10)
    found = forecast(engine.view.snapshot_all(at_s), POLICIES, at_s, Effort(runs))
    return {gang[3:]: one.start_s for gang, one in found.items()}


def eights(name, count, **more):
    return templated(name, count, asks(8), expected_runtime_s=1000.0, **more)


def test_a_gang_starts_once_the_nodes_that_it_can_buy_are_there():
    supply = NodeSupply((pool(),), after_s=10.0)
    assert starts(eights("a", 4), supply=supply) == {"a": 371.0}
    assert starts(eights("a", 4), supply=supply, runs=5) == {"a": 371.0}
    assert starts(eights("a", 4), supply=NodeSupply()) == {"a": None}


def test_gangs_share_what_pools_may_make():
    supply = NodeSupply((pool(nodes_left=5),))
    found = starts(eights("a", 4), eights("b", 4), eights("c", 6), supply=supply)
    # c is larger than the pool
    assert found == {"a": 361.0, "b": 1361.0, "c": None}


def test_nodes_that_are_given_back_may_be_made_again():
    supply = NodeSupply((pool(nodes_left=2, arrival_s=60.0),), after_s=10.0)
    engine = an_engine()
    engine.observe(f.NodeSupplySeen(supply), 0.0)
    for name in "ab":
        engine.observe(f.GangSeen(eights(name, 2)), 0.0)
    snapshot = engine.view.snapshot_all(0.0)
    nodes = NodeArrivals(snapshot, KnownPurchases(), 0.0)
    refused = make_plan(snapshot, POLICIES, 0.0).refusals
    nodes.buy(refused, snapshot, 0.0)  # for a: nothing is left for b
    assert nodes.next_s() == 70.0
    nodes.arrive(snapshot.cluster, 69.0)
    assert not snapshot.cluster.rows
    nodes.arrive(snapshot.cluster, 70.0)
    assert set(snapshot.cluster.rows) == {"p5/0", "p5/1"}
    nodes.give_back(snapshot.cluster, {GangId("ns/a"), GangId("ns/b")})
    nodes.buy(refused, snapshot, 100.0)
    assert nodes.next_s() is None
    nodes.give_back(snapshot.cluster, {GangId("ns/b")})
    assert not snapshot.cluster.rows
    nodes.buy(refused[1:], snapshot, 100.0)
    assert nodes.next_s() == 170.0


def test_nodes_of_a_gang_that_ended_are_used_before_they_are_given_back():
    supply = NodeSupply((pool(nodes_left=4),))
    found = starts(eights("a", 4), eights("b", 2), supply=supply)
    assert found == {"a": 361.0, "b": 1361.0}


def test_nodes_that_come_are_not_bought_again():
    coming = ComingNodes(GangId("ns/a"), (("p5", 4),), 100.0)
    supply = NodeSupply((pool(nodes_left=0),), (coming,))
    assert starts(eights("a", 4), supply=supply) == {"a": 100.0}
    assert starts(eights("a", 4), supply=supply, at_s=500.0) == {"a": 560.0}  # they are overdue


def test_a_pool_that_failed_is_tried_again():
    failed = replace(pool(nodes_left=0), nodes_later=4, retry_s=120.0)
    assert starts(eights("a", 4), supply=NodeSupply((failed,), after_s=10.0)) == {"a": 490.0}
    assert starts(eights("a", 5), supply=NodeSupply((failed,))) == {"a": None}


def test_many_nodes_are_expected_later_than_one():
    supply = NodeSupply((replace(pool(), arrival_spread=0.2),))
    found = starts(eights("a", 1), eights("b", 12), supply=supply)
    assert found["a"] == 361.0
    assert found["b"] > 450.0


def test_the_cheaper_pool_is_waited_for():
    supply = NodeSupply((pool("slow", price=10.0, arrival_s=900.0), pool("fast", price=20.0)))
    assert starts(eights("a", 1), supply=supply) == {"a": 901.0}


def test_no_nodes_are_bought_beyond_the_quota_of_a_queue():
    queue = Queue("team", quotas=(Quota(GPU, 32 * MILLI, borrowing=0),))
    gangs = [eights("a", 4, queue="team"), eights("b", 4, queue="team")]
    found = starts(*gangs, supply=NodeSupply((pool(),)), queues=[queue])
    assert found == {"a": 361.0, "b": 1361.0}


def test_a_gang_with_a_price_limit_gets_no_dearer_nodes():
    found = starts(eights("a", 4, price_max=100.0), supply=NodeSupply((pool(),)))
    assert found == {"a": None}


def test_a_queue_waits_for_what_it_may_spend():
    queue = Queue("team", price_max=400.0)
    gangs = [eights("a", 4, queue="team"), eights("b", 2, queue="team"), eights("c", 1)]
    supply = NodeSupply((pool(),), spent=(("default", 1e6),))
    found = starts(*gangs, supply=supply, queues=[queue])
    assert found == {"a": 361.0, "b": 1361.0, "c": 361.0}
    spent = NodeSupply((pool(),), spent=(("team", 10.0),))
    assert starts(*gangs, supply=spent, queues=[queue])["a"] is None


def test_many_gangs_of_one_request_are_searched_for_once():
    gangs = [eights(f"g{number:03}", 1) for number in range(200)]
    found = starts(*gangs, supply=NodeSupply((pool(nodes_left=1000),)))
    assert set(found.values()) == {361.0}
