"""Commands ask what would be if a pool of an autoscaler could make more nodes."""

import pytest
from builders import POLICIES, an_engine, needs, node, templated

from gangsched.cli import queries
from gangsched.cli.cluster.view import ClusterView
from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.model.node_pools import NodePool, NodeSupply

P5 = NodePool("p5", node("template"), 2, 98.0, arrival_s=360.0)


def view(*pools):
    engine = an_engine()
    engine.observe(f.NodeSupplySeen(NodeSupply(pools)), 0.0)
    engine.observe(f.GangSeen(templated("a", 4, needs(8))), 0.0)
    return ClusterView(engine, POLICIES, 10.0)


def compared(text):
    return queries.what_if(view(P5), view(P5), queries.Changes(pools=[text]))


def test_more_nodes_of_a_pool_let_a_gang_start():
    (row,) = compared("p5=2")
    assert (row["gang"], row["now"], row["then"]) == ("ns/a", None, "1970-01-01T00:06:10Z")
    (row,) = compared("p5=1")
    assert row["then"] is None


@pytest.mark.parametrize("text", ["p5", "p5=", "=3", "p5=-1", "p5=0", "p5=10001"])
def test_a_malformed_change_is_refused(text):
    with pytest.raises(ConfigError, match=r"--pool: .* must be POOL=COUNT, as in p5=8"):
        compared(text)


def test_an_unknown_pool_is_refused_with_the_pools_that_are():
    with pytest.raises(ConfigError, match="there is no pool 'p6'; the pools are: p5"):
        compared("p6=2")
    with pytest.raises(ConfigError, match="no pool can make nodes now"):
        queries.what_if(view(), view(), queries.Changes(pools=["p6=2"]))
