"""Pods pay for the share of a node that they use."""

import pytest
from builders import an_engine, needs, node

from gangsched.core.cluster.node_prices import price_of_pods
from gangsched.core.model.ids import NodeName

A, B, FREE = NodeName("a"), NodeName("b"), NodeName("free")


@pytest.mark.parametrize(
    ("pods", "price"),
    [
        ([(A, needs(8))], 80.0),
        ([(A, needs(2))], 20.0),
        ([(A, needs(1))] * 8, 80.0),
        ([(A, needs(1, cpu=32_000))] * 4, 80.0),  # cores for two such pods: not more than all
        ([(A, needs(1, cpu=32_000))], 40.0),
        ([(A, needs(4)), (B, needs(4)), (FREE, needs(8))], 40.0 + 20.0),
        ([(FREE, needs(8))], None),
        ([(NodeName("gone"), needs(8))], None),
        ([], None),
    ],
)
def test_the_price_of_pods(pods, price):
    nodes = node("a", price=80.0), node("b", price=40.0), node("free")
    assert price_of_pods(pods, an_engine(*nodes).view.cluster) == price
