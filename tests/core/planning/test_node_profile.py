"""What gangs are planned on while room is reserved for another, later."""

from dataclasses import replace

from builders import GPU, an_engine, gang, needs, node, pod, templated

from gangsched.core import facts as f
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodNeeds
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
LARGE = GangId("ns/large")
MIG = "nvidia.com/mig-1g.5gb"


def engine_with_a_reservation(*nodes: Node):
    """Return an engine in which a large gang waits for n0, where another runs for a minute."""
    engine = an_engine(node("n0"), *nodes)
    engine.observe(f.GangSeen(gang("run", 1, expected_runtime_s=60.0)), 0.0)
    engine.observe(pod("run-0", "run", needs(8), node=NodeName("n0"), started_s=0.0), 0.0)
    engine.observe(f.GangSeen(templated("large", 1, needs(8))), 1.0)
    return engine


def planned(engine, *gangs):
    """Plan gangs in one cycle, beside the one for which room is reserved."""
    for one in gangs:
        engine.observe(f.GangSeen(replace(one, expected_runtime_s=90.0)), 2.0)
    plan = make_plan(engine.snapshot(2.0), POLICIES, 2.0)
    assert [one.gang for one in plan.reserved] == [LARGE]
    return {one.gang: one.placement for one in plan.placements}


def test_gpus_are_cut_into_what_no_node_has_beside_a_reservation():
    amounts = (("cpu", 64_000), (GPU, 2), ("pods", 110))
    model = "NVIDIA-A100-SXM4-40GB"
    engine = engine_with_a_reservation(
        Node(NodeName("n1"), amounts, gpu_model=model, layouts=((), ()))
    )
    wants = PodNeeds((("cpu", 100), (MIG, 3)))
    found = planned(engine, templated("one", 2, wants), templated("two", 1, wants))
    assert found[GangId("ns/one")].repartitions
    assert GangId("ns/two") not in found, "GPUs are not cut for two gangs at once"
