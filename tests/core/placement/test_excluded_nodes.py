"""Nodes with capacity that taints, selectors or affinity exclude."""

from builders import an_engine, needs, node, on, plan, pod, templated

from gangsched.core.facts import GangSeen
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.pods import Taint

TAINT = Taint("kwok.x-k8s.io/node", "fake", "NoSchedule")


def told(engine, wanted) -> str:
    engine.observe(GangSeen(wanted), 0.0)
    plan(engine)
    return engine.view.refusals[GangId("ns/g")].message


def test_a_taint_is_the_reason_and_not_the_size():
    racks = [node(f"n{number}", taints=(TAINT,)) for number in range(8)]
    engine = an_engine(node("laptop-0", gpus=2), *racks)
    assert told(engine, templated("g", 2, needs(8))) == (
        "Role worker: no node takes one pod of 8 nvidia.com/gpu, 1 cpu; 8 nodes have capacity but "
        "the taint kwok.x-k8s.io/node, which no pod of the gang tolerates."
    )


def test_a_cluster_is_too_small_without_the_nodes_left_out():
    engine = an_engine(node("a"), node("b", taints=(TAINT,)))
    assert told(engine, templated("g", 2, needs(8))) == (
        "Role worker needs 2 pods of 8 nvidia.com/gpu, 1 cpu at once, and the whole cluster takes "
        "1 even when it is empty; 1 node has capacity but the taint kwok.x-k8s.io/node, which no "
        "pod of the gang tolerates."
    )


def test_a_cordoned_node_with_free_capacity_is_counted():
    engine = an_engine(node("a"), node("b"), node("c", unschedulable=True))
    engine.observe(pod("busy", "x", needs(8), node=NodeName("a")), 0.0)
    assert told(engine, templated("g", 2, needs(8))).endswith(
        "and the free capacity takes 1 now. 1 node has capacity but the taint "
        "node.kubernetes.io/unschedulable, which no pod of the gang tolerates."
    )


def test_a_selector_that_leaves_nodes_out():
    label = "kubernetes.io/hostname"
    engine = an_engine(node("a", gpus=2, labels={label: "a"}), node("b", labels={label: "b"}))
    assert told(engine, templated("g", 1, needs(8, selector=(on("a"),)))) == (
        "Role worker: no node takes one pod of 8 nvidia.com/gpu, 1 cpu; 1 node has capacity but "
        "not the labels of its nodeSelector."
    )


def test_nodes_that_are_too_small_as_well_are_not_named():
    engine = an_engine(node("a", gpus=2), node("b", gpus=4, taints=(TAINT,)))
    assert "no node is large enough" in told(engine, templated("g", 1, needs(8)))
