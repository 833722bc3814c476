"""Moves that let bought nodes be given back."""

from dataclasses import replace

import pytest
from builders import an_engine, needs, node, templated

from gangsched.core.model.runtime import Estimate, EstimateSource
from gangsched.core.preemption.defragmentation import Budget, Defragmenter
from gangsched.core.preemption.shrinking import find_shrinking
from gangsched.core.snapshot import PodPlacement, RunningGang
from gangsched.core.what_if import WhatIf
from policies.pack import Pack

HOUR = 3600.0
NOW_S = 2 * HOUR


def running(name, *on, gpus=1, runtime_s=12 * HOUR, saved_ago_s=0.0, **more):
    """Return a gang with one pod on each node, which ends at hour twelve unless given."""
    places = tuple(PodPlacement(f"{name}-{at}", "worker", one, needs(gpus))
                   for at, one in enumerate(on))  # fmt: skip
    estimate = Estimate(runtime_s, runtime_s, runtime_s, EstimateSource.DECLARED)
    known = {"movable": True, "save_s": 3600.0, "last_checkpoint_s": NOW_S - saved_ago_s}
    return RunningGang(
        templated(name, len(on), needs(gpus)), places, 0.0, estimate=estimate, **known | more
    )


def found(names, gangs, prices, *, settled_s=0.0, budget=None, protected=frozenset(), **more):
    """Return which gangs move and which nodes become free; nodes have 8 GPUs."""
    what_if = WhatIf(an_engine(*map(node, names)).view.snapshot_all(NOW_S))
    held = tuple(what_if.hold(gang) for gang in gangs)
    snapshot = replace(what_if.snapshot(), running=held, **more)
    mover = Defragmenter(snapshot, Pack(), NOW_S, budget or Budget(), protected)
    plan = find_shrinking(mover, prices, settled_s)
    if plan is None:
        return None
    assert plan.saved > plan.lost
    return [move.gang[3:] for move in plan.moves], list(plan.nodes)


def test_a_gang_leaves_a_bought_node_for_a_free_place():
    gangs = [running("a", "p5"), running("b", "own")]
    assert found(["p5", "own"], gangs, {"p5": 98.0}) == (["a"], ["p5"])


def test_two_half_used_nodes_become_one():
    gangs = [running("a", "x", gpus=4), running("b", "y", gpus=4)]
    assert found(["x", "y"], gangs, {"x": 10.0, "y": 98.0}) == (["b"], ["y"])
    assert found(["x", "y"], [running("a", "x", gpus=5), gangs[1]], {"x": 9.0, "y": 9.0}) is None


def test_idle_nodes_that_are_given_back_are_no_places():
    assert found(["x", "y"], [running("a", "x")], {"x": 10.0, "y": 10.0}) is None


def test_gangs_that_share_nodes_move_together():
    gangs = [running("a", "x", "y"), running("b", "y")]
    free = ["own-0", "own-1"]
    assert found(["x", "y", *free], gangs, {"x": 9.0, "y": 9.0}) == (["a", "b"], ["x", "y"])


def test_a_move_costs_the_work_since_the_last_checkpoint():
    prices, nodes = {"p5": 98.0}, ["p5", "own"]
    old = running("a", "p5", saved_ago_s=2 * HOUR, save_s=2 * HOUR, runtime_s=3.5 * HOUR)
    assert found(nodes, [old], prices) is None
    assert found(nodes, [replace(old, last_checkpoint_s=NOW_S)], prices) is not None
    assert found(nodes, [running("a", "p5", runtime_s=NOW_S + 30.0)], prices) is None


@pytest.mark.parametrize(
    "why", [{"movable": False}, {"save_s": None}, {"terminating": True}], ids=str
)
def test_gangs_that_may_not_move_stay(why):
    assert found(["p5", "own"], [running("a", "p5", **why)], {"p5": 98.0}) is None


def test_gangs_that_started_just_now_stay():
    nodes, gangs = ["p5", "own"], [running("a", "p5")]
    assert found(nodes, gangs, {"p5": 98.0}, settled_s=NOW_S + 1) is None
    assert found(nodes, gangs, {"p5": 98.0}, settled_s=NOW_S) is not None


def test_limits_and_disruption_budgets_hold():
    nodes, gangs = ["p5", "own"], [running("a", "p5")]
    assert found(nodes, gangs, {"p5": 98.0}, budget=Budget(gangs=0)) is None
    assert found(nodes, gangs, {"p5": 98.0}, protected={"ns/a"}) is None


def test_a_node_for_which_a_gang_starts_is_kept():
    """What starts there has its assignment, and is no gang that runs."""
    what_if = WhatIf(an_engine(node("p5"), node("own")).view.snapshot_all(NOW_S))
    first, second = (what_if.hold(running(name, "p5")) for name in "ab")
    snapshot = replace(what_if.snapshot(), running=(first,), starting=(second,))
    assert find_shrinking(Defragmenter(snapshot, Pack(), NOW_S), {"p5": 98.0}, 0.0) is None
    mover = Defragmenter(snapshot, Pack(), NOW_S)
    assert mover.free_nodes(["p5"]) is None


def test_without_prices_nothing_moves():
    assert found(["a", "b"], [running("a", "a")], {}) is None
