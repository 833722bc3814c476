"""The free nodes over time that planning uses beside backfill reservations."""

from dataclasses import replace

import pytest
from builders import GPU, an_engine, gang, needs, node, pod, templated

from gangsched.core import facts as f
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GpuShare, PodRequirements
from gangsched.core.model.queues import Preemption, Queue, Within
from gangsched.core.model.topology import HOST
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.batch import Batch
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


def planned(engine, *gangs, by=POLICIES):
    """Plan gangs in one cycle, beside the one for which room is reserved."""
    for one in gangs:
        engine.observe(f.GangSeen(replace(one, expected_runtime_s=90.0)), 2.0)
    plan = make_plan(engine.begin_cycle(2.0), by, 2.0)
    assert [one.gang for one in plan.backfill_reservations] == [LARGE]
    return {one.gang: one.placement for one in plan.placements}


def test_gpus_are_cut_into_what_no_node_has_beside_a_reservation():
    amounts = (("cpu", 64_000), (GPU, 2), ("pods", 110))
    model = "NVIDIA-A100-SXM4-40GB"
    engine = engine_with_a_reservation(
        Node(NodeName("n1"), amounts, gpu_model=model, layouts=((), ()))
    )
    wants = PodRequirements((("cpu", 100), (MIG, 3)))
    found = planned(engine, templated("one", 2, wants), templated("two", 1, wants))
    assert found[GangId("ns/one")].repartitions
    assert GangId("ns/two") not in found, "GPUs are not cut for two gangs at once"


def test_gpus_are_shared_one_gang_after_the_other_beside_a_reservation():
    engine = engine_with_a_reservation(node("n1", gpus=4))
    wants = needs(0, share=GpuShare(milli=400))
    found = planned(engine, *(templated(name, 2, wants) for name in ("one", "two")))
    assert [on for gang in sorted(found) for _, on in found[gang].devices] == [
        (0,), (0,), (1,), (1,),
    ]  # fmt: skip


def test_ports_of_nodes_are_given_once_beside_a_reservation():
    engine = engine_with_a_reservation(node("n1", gpus=4), node("n2", gpus=4))
    wants = needs(1, host_ports=(("", "TCP", 8080),))
    found = planned(engine, *(templated(name, 1, wants) for name in ("one", "two", "x")))
    assert len({node for one in found.values() for _, node in one.nodes}) == 2
    assert GangId("ns/x") not in found


def test_domains_that_a_gang_has_for_itself_stay_its_own_beside_a_reservation():
    engine = engine_with_a_reservation(node("n1", gpus=4), node("n2", gpus=4))
    engine.observe(f.QueueSeen(Queue("default", exclusive=HOST)), 0.0)
    alone = templated("one", 1, needs(2), constraints=Constraints(exclusive=HOST))
    found = planned(engine, alone, templated("two", 1, needs(2)), templated("x", 1, needs(3)))
    (own,) = (node for _, node in found[GangId("ns/one")].nodes)
    assert own not in {node for _, node in found[GangId("ns/two")].nodes}
    assert GangId("ns/x") not in found


BATCH = replace(POLICIES, order=Batch())


@pytest.mark.parametrize("reserved_before", [False, True])
def test_peers_share_what_is_left_beside_a_reservation(reserved_before):
    engine = engine_with_a_reservation(node("n1", gpus=4))
    if reserved_before:
        engine.accept(make_plan(engine.begin_cycle(1.0), BATCH, 1.0), 1.0)
    found = planned(engine, *(templated(name, 1, needs(4)) for name in ("one", "two")), by=BATCH)
    assert list(found) == [GangId("ns/one")]


@pytest.mark.parametrize("reserved_before", [False, True])
def test_peers_that_outlive_a_reservation_leave_it_what_it_needs(reserved_before):
    """The large gang is to have 8 GPUs of n0 once these are free, and 4 of the 8 of n1."""
    engine = an_engine(node("n0"), node("n1"))
    engine.observe(f.GangSeen(gang("run", 1, expected_runtime_s=60.0)), 0.0)
    engine.observe(pod("run-0", "run", needs(8), node=NodeName("n0"), started_s=0.0), 0.0)
    engine.observe(f.GangSeen(templated("large", 3, needs(4))), 1.0)
    if reserved_before:
        engine.accept(make_plan(engine.begin_cycle(1.0), BATCH, 1.0), 1.0)
    found = planned(engine, *(templated(name, 1, needs(4)) for name in ("one", "two")), by=BATCH)
    assert list(found) == [GangId("ns/one")]
    assert {node for _, node in found[GangId("ns/one")].nodes} == {NodeName("n1")}


def test_peers_leave_a_preempting_gang_what_it_was_planned():
    """The first of three peers preempts on n0 and takes n1 as well: n1 is no peer's any more."""
    engine = an_engine(node("n0", gpus=4), node("n1", gpus=4))
    engine.observe(f.QueueSeen(Queue("default", preemption=Preemption(Within.LOWER))), 0.0)
    engine.observe(f.GangSeen(gang("run", 1, priority=-1)), 0.0)
    engine.observe(pod("run-0", "run", needs(4), node=NodeName("n0"), started_s=0.0), 0.0)
    for name, members in (("large", 2), ("one", 1), ("two", 1)):
        engine.observe(f.GangSeen(templated(name, members, needs(4))), 1.0)
    plan = make_plan(engine.begin_cycle(2.0), replace(BATCH, backfill=None), 2.0)
    assert [one.gang for one in plan.placements] == [LARGE]


def test_what_ended_on_a_row_is_forgotten_by_a_view():
    cluster = Cluster()
    cluster.put_node(node("n0", gpus=4))
    wants = needs(1, host_ports=(("", "TCP", 8080),))
    cluster.add_pods(0, wants, 1, GangId("ns/one"))
    view = cluster.copy()
    cluster.remove_pods(0, wants, 1, GangId("ns/one"))
    view.mirror(cluster, [0], cluster.used[[0]])
    assert not view.gangs_by_row.get(0)
    assert view.fits(0, wants)
