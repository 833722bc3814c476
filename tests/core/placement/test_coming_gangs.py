"""What gangs with nodes to come leave for others."""

from builders import an_engine, needs, node, templated, waiting

from gangsched.core.model.ids import GangId
from gangsched.core.model.node_pools import NodePool, Purchase
from gangsched.core.placement.coming_gangs import ComingGangs, beside_coming_gangs
from gangsched.core.placement.purchases import cheapest_purchase

P5 = NodePool("p5", node("template"), 16, 98.0, arrival_s=360.0)


def eights(name, count, **more):
    return waiting(templated(name, count, needs(8), **more))


def snapshot(*names):
    return an_engine(*(node(name) for name in names)).view.snapshot_all(0.0)


def bought(wanted, left):
    found = cheapest_purchase(wanted, left, [P5], 0.0)
    assert isinstance(found, Purchase)
    return found.nodes


def test_free_nodes_that_a_purchase_counts_on_are_counted_once():
    both = snapshot("a", "b")
    assert bought(eights("one", 3), both) == (("p5", 1),)
    left = beside_coming_gangs(both, [P5], [(eights("one", 3), (("p5", 1),))])
    assert bought(eights("two", 3), left) == (("p5", 3),)
    assert bought(eights("two", 3), both) == (("p5", 1),)  # the snapshot is as before


def test_what_a_gang_does_not_use_of_its_nodes_is_left():
    four = waiting(templated("one", 1, needs(4)))
    left = beside_coming_gangs(snapshot(), [P5], [(four, (("p5", 1),))])
    assert bought(waiting(templated("two", 1, needs(4))), left) == ()
    assert bought(eights("two", 1), left) == (("p5", 1),)


def test_a_gang_that_does_not_fit_takes_nothing():
    left = ComingGangs(snapshot("a"), [P5])
    left.add(eights("one", 4), (("p5", 2),))
    left.add(eights("two", 4), (("unknown", 3),))
    assert set(left.snapshot().cluster.rows) == {"a"}
    assert bought(eights("three", 2), left.snapshot()) == (("p5", 1),)


def test_gangs_are_placed_one_after_the_other():
    left = ComingGangs(snapshot("a"), [P5])
    for name in ("one", "two"):
        left.add(eights(name, 2), (("p5", 1),))
    assert bought(eights("three", 1), left.snapshot()) == (("p5", 1),)
    placed = left.snapshot().cluster.gangs_by_row
    assert {gang for held in placed.values() for gang in held} == {GangId("ns/one")}
