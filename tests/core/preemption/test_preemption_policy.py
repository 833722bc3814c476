"""Preemption rules of a gang: whether it preempts others, and is preempted only as a whole."""

from dataclasses import replace

import pytest
from builders import an_engine, gang, needs, node, pod, templated

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


def plan(engine, now_s, policies=POLICIES):
    return engine.accept(make_plan(engine.begin_cycle(now_s=now_s), policies, now_s), now_s)


def stopped(orders) -> list[str]:
    """Return which pods are stopped."""
    return sorted(order.name for order in orders if isinstance(order, o.Evict))


def running(members: int, minimum: int, **fields):
    """Return an engine with one node, full of a gang's pods."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("low", minimum, priority=0, **fields)), 0.0)
    for index in range(members):
        fact = pod(f"low-{index}", "low", needs(8 // members), node=NodeName("n"), started_s=0.0)
        engine.observe(fact, 0.0)
    return engine


@pytest.mark.parametrize(("preempts", "gone"), [(True, ["ns/low-0"]), (False, [])])
def test_for_a_gang_that_preempts_never_no_other_is_stopped(preempts, gone):
    engine = running(1, 1)
    engine.observe(f.GangSeen(gang("high", 1, priority=9, preempts=preempts)), 1.0)
    engine.observe(pod("high-0", "high", needs(8)), 1.0)
    assert stopped(plan(engine, 1.0)) == gone


@pytest.mark.parametrize(("preempts", "gone"), [(True, ["ns/low-0"]), (False, [])])
def test_the_policy_of_its_pods_counts_too(preempts, gone):
    engine = running(1, 1)
    engine.observe(f.GangSeen(gang("high", 1, priority=9)), 1.0)
    engine.observe(pod("high-0", "high", needs(8), preempts=preempts), 1.0)
    assert stopped(plan(engine, 1.0)) == gone


def test_gangs_that_ask_for_the_same_differ_in_it():
    """What was found for one that stops no others is not taken for the other's answer."""
    engine = running(1, 1)
    for name, preempts in (("a", False), ("b", True)):
        engine.observe(f.GangSeen(templated(name, 1, needs(8), priority=9, preempts=preempts)), 1.0)
    orders = plan(engine, 1.0, replace(POLICIES, backfill=None))
    assert [one.by for one in orders if isinstance(one, o.Preempt)] == [GangId("ns/b")]


@pytest.mark.parametrize(
    ("inseparable", "gone"),
    [(False, ["ns/low-2", "ns/low-3"]), (True, [f"ns/low-{n}" for n in range(4)])],
)
def test_a_gang_that_is_stopped_only_whole_gives_no_member_back(inseparable, gone):
    engine = running(4, 2, inseparable=inseparable)
    engine.observe(f.GangSeen(templated("high", 1, needs(2), priority=9)), 1.0)
    assert stopped(plan(engine, 1.0)) == gone
