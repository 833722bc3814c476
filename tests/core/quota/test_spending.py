"""What queues may spend on nodes, with the queues above them."""

import pytest

from gangsched.core.model.queues import Queue
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.spending import spending_refusal

TREE = QueueTree(
    [
        Queue("org", price_max=500.0),
        Queue("a", parent="org", price_max=300.0),
        Queue("b", parent="org"),
        Queue("alone"),
        Queue("lost", parent="nowhere", price_max=1.0),
    ]
)


@pytest.mark.parametrize(
    ("queue", "price", "spent", "exceeded"),
    [
        ("a", 300.0, {}, ""),
        ("a", 300.5, {}, "queue a may spend 300, of which 0.00 are spent"),
        ("a", 100.0, {"a": 250.0}, "queue a may spend 300, of which 250.00 are spent"),
        ("a", 100.0, {"b": 450.0}, "queue org may spend 500, of which 450.00 are spent"),
        ("b", 100.0, {"a": 250.0, "b": 100.0}, ""),
        ("b", 200.0, {"a": 250.0, "b": 100.0}, "queue org may spend 500"),
        ("alone", 1e6, {"a": 250.0}, ""),
        ("unknown", 1e6, {"unknown": 1.0, "a": 250.0}, ""),
    ],
)
def test_a_queue_and_those_above_it_limit_a_purchase(queue, price, spent, exceeded):
    why = spending_refusal(queue, price, spent, TREE)
    assert exceeded in why
    assert bool(why) == bool(exceeded)
