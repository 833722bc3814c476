"""Node filters, filling, and the reasons of refusals."""

import numpy as np
import pytest
from builders import GPU, gang, needs, node, templated, waiting

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import Expression, NodeTerm, Taint, Toleration
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.snapshot import Snapshot
from policies.pack import Pack
from policies.spread import SpreadPlacer


def cluster(*nodes: Node) -> Cluster:
    """Return a cluster of these nodes."""
    made = Cluster()
    for one in nodes:
        made.put_node(one)
    return made


def room(made: Cluster, wants) -> dict[str, int]:
    """Return capacity by node name."""
    counts = made.capacity(wants)
    return {name: int(counts[row]) for name, row in made.rows.items()}


def placed(placer, group, *nodes: Node, **more) -> dict[str, int] | Refusal:
    """Place a gang and count its members by node."""
    result = placer.place(waiting(group, **more), Snapshot(cluster(*nodes), ()))
    if isinstance(result, Refusal):
        return result
    counts: dict[str, int] = {}
    for _, name in result.nodes:
        counts[name] = counts.get(name, 0) + 1
    return counts


TAINT = Taint("dedicated", "gpu", "NoSchedule")
FILTERS = {
    "room by the scarcest resource": (node("n", gpus=8, cpu=3000), needs(1, 1000), 3),
    "no room for what the node does not have": (node("n", gpus=0), needs(1), 0),
    "pod count": (node("n", pods=2), needs(0, 1), 2),
    "an untolerated taint": (node("n", taints=(TAINT,)), needs(), 0),
    "a tolerated taint": (
        node("n", taints=(TAINT,)),
        needs(tolerations=(Toleration("dedicated", "Equal", "gpu", "NoSchedule"),)),
        8,
    ),
    "a toleration of every taint": (
        node("n", taints=(TAINT,)),
        needs(tolerations=(Toleration("", "Exists", "", ""),)),
        8,
    ),
    "a preference taint does not filter": (
        node("n", taints=(Taint("a", "b", "PreferNoSchedule"),)),
        needs(),
        8,
    ),
    "NoExecute filters too": (node("n", taints=(Taint("a", "b", "NoExecute"),)), needs(), 0),
    "unschedulable": (node("n", unschedulable=True), needs(), 0),
    "unschedulable, tolerated": (
        node("n", unschedulable=True),
        needs(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists", "", ""),)),
        8,
    ),
    "selector that matches": (
        node("n", labels={"a": "x"}),
        needs(selector=(Expression("a", "In", ("x",)),)),
        8,
    ),
    "selector that does not": (
        node("n", labels={"a": "y"}),
        needs(selector=(Expression("a", "In", ("x",)),)),
        0,
    ),
    "NotIn matches an absent label": (
        node("n"),
        needs(required=(NodeTerm((Expression("a", "NotIn", ("x",)),)),)),
        8,
    ),
    "Exists": (
        node("n", labels={"a": "1"}),
        needs(required=(NodeTerm((Expression("a", "Exists"),)),)),
        8,
    ),
    "DoesNotExist": (
        node("n", labels={"a": "1"}),
        needs(required=(NodeTerm((Expression("a", "DoesNotExist"),)),)),
        0,
    ),
    "Gt": (
        node("n", labels={"a": "7"}),
        needs(required=(NodeTerm((Expression("a", "Gt", ("6",)),)),)),
        8,
    ),
    "Lt": (
        node("n", labels={"a": "7"}),
        needs(required=(NodeTerm((Expression("a", "Lt", ("6",)),)),)),
        0,
    ),
    "one term of several": (
        node("n", labels={"a": "1"}),
        needs(
            required=(
                NodeTerm((Expression("b", "Exists"),)),
                NodeTerm((Expression("a", "Exists"),)),
            )
        ),
        8,
    ),
    "an empty term matches nothing": (node("n"), needs(required=(NodeTerm(),)), 0),
    "pinned by name": (
        node("n"),
        needs(required=(NodeTerm((), (Expression("metadata.name", "In", ("n",)),)),)),
        8,
    ),
    "pinned elsewhere": (
        node("n"),
        needs(required=(NodeTerm((), (Expression("metadata.name", "In", ("m",)),)),)),
        0,
    ),
    "one pod a node with a host port": (node("n"), needs(host_ports=(("TCP", "0.0.0.0", 80),)), 1),
}


@pytest.mark.parametrize("case", FILTERS)
def test_filters_of_kube_scheduler_are_foreseen(case):
    one, wants, expected = FILTERS[case]
    assert room(cluster(one), wants) == {"n": expected}


PORTS = {
    "same port": (("TCP", "0.0.0.0", 80), ("TCP", "0.0.0.0", 80), False),
    "other protocol": (("TCP", "0.0.0.0", 80), ("UDP", "0.0.0.0", 80), True),
    "other address": (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), True),
    "any address clashes": (("TCP", "10.0.0.1", 80), ("TCP", "0.0.0.0", 80), False),
}


@pytest.mark.parametrize("case", PORTS)
def test_host_ports_clash_as_in_kubernetes(case):
    taken, wanted, free = PORTS[case]
    made = cluster(node("n"))
    made.allocate("x", NodeName("n"), needs(host_ports=(taken,)))
    assert room(made, needs(host_ports=(wanted,))) == {"n": int(free)}
    made.release("x")
    assert room(made, needs(host_ports=(wanted,))) == {"n": 1}


def test_pack_uses_the_fewest_nodes_and_fills_the_tightest_last():
    nodes = (node("a", 8), node("b", 4), node("c", 8), node("d", 2))
    assert placed(Pack(), templated("g", 10), *nodes) == {"a": 8, "d": 2}


def test_spread_is_even():
    nodes = (node("a", 8), node("b", 8), node("c", 1))
    assert placed(SpreadPlacer(), templated("g", 7), *nodes) == {"a": 3, "b": 3, "c": 1}


def test_preferred_affinity_comes_first():
    likes = needs(preferred=((10, NodeTerm((Expression("fast", "Exists"),))),))
    nodes = (node("a"), node("b", labels={"fast": ""}))
    assert placed(Pack(), templated("g", 2, likes), *nodes) == {"b": 2}


def test_roles_with_different_needs_are_placed_together():
    roles = (Role("launcher", 1, 1, needs(0)), Role("worker", 2, 2, needs(8)))
    group = Gang(GangId("ns/g"), 3, roles)
    assert placed(Pack(), group, node("a"), node("b")) == {"a": 2, "b": 1}


def test_surplus_is_placed_as_far_as_it_fits():
    group = gang("g", 2, roles=(Role("worker", 6, 2, needs()),))
    assert placed(Pack(), group, node("a", 4)) == {"a": 4}


def test_the_snapshot_is_left_as_it_was():
    made = cluster(node("a"), node("b"))
    before = made.used.copy()
    Pack().place(waiting(templated("g", 9)), Snapshot(made, ()))
    assert np.array_equal(before, made.used)


def test_larger_than_the_cluster_is_said_at_once():
    refusal = placed(Pack(), templated("g", 20), node("a"), node("b"))
    assert refusal.reason is Reason.TOO_LARGE
    assert refusal.proved
    assert refusal.message == (
        "Role worker needs 20 pods of 1 nvidia.com/gpu, 1 cpu at once, and the whole cluster "
        "takes 16 even when it is empty."
    )


def test_a_role_that_fits_no_node_names_the_nearest_miss():
    refusal = placed(Pack(), templated("g", 1, needs(12)), node("a", 4), node("b", 8))
    assert refusal.reason is Reason.UNSATISFIABLE
    assert refusal.near_miss.node == "b"
    assert refusal.near_miss.lacks == ((GPU, 4),)
    assert "the closest, b, lacks 4 nvidia.com/gpu" in refusal.message


def test_no_capacity_now_names_what_is_short():
    made = cluster(node("a", 8))
    made.allocate("x", NodeName("a"), needs(7))
    result = Pack().place(waiting(templated("g", 1, needs(3))), Snapshot(made, ()))
    assert isinstance(result, Refusal)
    assert result.reason is Reason.NOT_ENOUGH_FREE
    assert "The closest node, a, lacks 2 nvidia.com/gpu." in result.message


def test_a_selector_without_matches_has_its_own_reason():
    wants = needs(selector=(Expression("zone", "In", ("mars",)),))
    refusal = placed(Pack(), templated("g", 1, wants), node("a"))
    assert "none of 1 node passes nodeSelector" in refusal.message


def test_a_resource_first_seen_in_a_pod_is_no_error():
    wants = needs()
    strange = type(wants)((("example.com/fpga", 1),))
    assert room(cluster(node("a")), strange) == {"a": 0}


def test_a_running_pod_may_hold_what_no_node_offers_any_more():
    made = cluster(node("a"))
    made.allocate("x", NodeName("a"), type(needs())((("example.com/fpga", 1), (GPU, 3))))
    assert room(made, needs()) == {"a": 5}


def test_usage_survives_a_node_that_leaves_and_returns():
    made = cluster(node("a", 8))
    made.allocate("x", NodeName("a"), needs(3))
    made.remove_node(NodeName("a"))
    made.put_node(node("a", 8))
    assert room(made, needs()) == {"a": 5}


def test_result_is_a_placement_of_every_member():
    result = Pack().place(waiting(templated("g", 3)), Snapshot(cluster(node("a")), ()))
    assert isinstance(result, Placement)
    assert [name for name, _ in result.nodes] == [f"ns/g-worker-{i}" for i in range(3)]
