"""Whole gangs get nodes from the real Karpenter, with its provider of KWOK nodes, or none."""

import json
import os

import pytest
import yaml
from cluster import GPU
from karpenter_plane import RESOURCES, karpenter_plane

pytestmark = pytest.mark.skipif(
    "KARPENTER" not in os.environ, reason="a control plane of its own: make karpenter"
)
WAITS = 3
"""The exit code of `explain` for a gang that waits."""


def pool(name: str, price: float, **more) -> dict:
    found = {"name": name, "node_pool": "gpu", "instance_type": name, "resources": RESOURCES}
    return {**found, "price": price, "arrival_s": 60, **more}


SETTINGS = {
    "karpenter": {
        "pools": [pool("h100", 98.25), pool("a100", 40.0, node_pool="small")],
        "after_s": 0,
        "retry_s": 3,
        "late_s": 60,
        "idle_s": 2,
    }
}


@pytest.fixture(scope="module")
def bought(tmp_path_factory):
    with karpenter_plane("test-karpenter", tmp_path_factory.mktemp("karpenter"), SETTINGS) as made:
        yield made


@pytest.fixture
def namespace(bought):
    name = bought.cluster.new_namespace()
    yield name
    bought.cluster.remove_namespace(name)
    bought.wait_until_given_back()


def test_a_gang_gets_all_its_nodes_and_a_larger_gang_none(bought, namespace):
    """Pools at zero with limits of two nodes and one: `fits` gets both, `large` none."""
    cluster = bought.cluster
    cluster.gang(namespace, "large", 4, gpus=8)
    cluster.wait_event(namespace, "NodesNotRequested", name="large")
    assert not bought.claims()
    cluster.gang(namespace, "fits", 2, gpus=8)
    cluster.wait(lambda: len(bought.bound(namespace, "fits")) == 2, "the gang to run", 60)
    assert len(bought.nodes()) == len(bought.claims()) == 2
    kinds = sorted(
        node.metadata.labels["node.kubernetes.io/instance-type"] for node in bought.nodes()
    )
    assert kinds == ["a100", "h100"], "the one a100 that the limit allows is cheaper"
    assert not bought.bound(namespace, "large")
    cluster.stays(lambda: len(bought.claims()) == 2, 5, "no further node")


def test_a_gang_gets_no_nodes_that_cost_more_than_it_may_pay(bought, namespace):
    cluster = bought.cluster
    group = {"maxPricePerHour": 50}
    cluster.gang(namespace, "dear", 2, gpus=8, group=group)
    cluster.wait_event(namespace, "NodesNotRequested", "50 are allowed", name="dear")

    def remedies():
        found = (cluster.group_status(namespace, "dear").get("refusal") or {}).get("remedies") or []
        return [one["message"] for one in found]

    assert not bought.claims()
    cluster.kubectl("patch", "podgroups.gangsched.io", "dear", "-n", namespace, "--type=merge",
                    "-p", json.dumps({"spec": {"maxPricePerHour": None}}))  # fmt: skip
    cluster.wait(lambda: len(bought.bound(namespace, "dear")) == 2, "the gang to run", 60)
    cluster.wait(lambda: remedies() == [], "the refusal to be withdrawn")


def test_commands_know_what_can_be_bought_and_when_it_is_there(bought, namespace):
    """They read it from the leader, which is stopped here before it buys."""
    cluster = bought.cluster

    def explained() -> dict:
        code, text = cluster.gangsched("explain", f"{namespace}/gang", "-o", "json")
        assert code in (0, WAITS), text
        return json.loads(text)

    def remedies() -> list[str]:
        return [one for one in explained().get("wouldHelp", ()) if "of pool" in one]

    def left() -> list[int]:
        maps = cluster.core.list_namespaced_config_map("gangsched-system").items
        found = [one.data or {} for one in maps if one.metadata.name == "gangsched-history"]
        supply = json.loads(found[0].get("node-supply.json") or "{}") if found else {}
        return [one["nodes_left"] for one in supply.get("pools", ())]

    cluster.wait(lambda: left() == [2, 1], "the leader to write that all nodes are given back")
    bought.kill()
    try:
        cluster.gang(namespace, "gang", 2, gpus=8)
        wanted = "1 more node of pool a100 and 1 more node of pool h100"
        cluster.wait(lambda: any(one.startswith(wanted) for one in remedies()), "the price", 60)
        assert any(one.endswith("138 $/h") for one in remedies())
        start = explained()["start"]
        assert start["expected"] is not None
        assert start["earliest"] <= start["expected"] <= start["latest"]
    finally:
        bought.start()
    cluster.wait(lambda: len(bought.bound(namespace, "gang")) == 2, "the gang to run", 60)


@pytest.mark.parametrize("step", ["claimed", "registered", "bound"])
def test_a_killed_scheduler_leaks_no_node_and_buys_none_twice(bought, namespace, step):
    cluster = bought.cluster
    reached = {
        "claimed": bought.claims,
        "registered": bought.nodes,
        "bound": lambda: bought.bound(namespace, "gang"),
    }
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(reached[step], step, 60)
    bought.kill()
    seen = {claim["metadata"]["uid"] for claim in bought.claims()}
    bought.start()
    cluster.wait(lambda: len(bought.bound(namespace, "gang")) == 2, "the gang to run", 60)
    after = {claim["metadata"]["uid"] for claim in bought.claims()}
    assert seen <= after
    assert len(after) == len(bought.nodes()) == 2
    cluster.stays(lambda: len(bought.claims()) == 2, 5, "no further node")


def test_a_gang_that_is_deleted_while_no_scheduler_runs_leaves_no_node(bought, namespace):
    cluster = bought.cluster
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(bought.claims, "the claims", 60)
    bought.kill()
    cluster.clear_namespace(namespace)
    bought.start()
    cluster.wait(lambda: not bought.claims(), "all claims to be given back", 60)
    cluster.wait(lambda: not bought.nodes(), "no node", 60)


def test_nodes_that_do_not_all_come_are_given_back_and_another_pool_is_tried(bought, namespace):
    """One node of two cannot be launched: the other is given back, though it is there."""
    cluster = bought.cluster
    absent = pool("absent", 1.0, node_pool="small", nodes_max=1)
    settings = {**SETTINGS["karpenter"], "pools": [pool("h100", 98.25), absent], "late_s": 5}
    bought.kill()
    bought.config.write_text(yaml.safe_dump({"karpenter": {**settings, "retry_s": 600}}))
    bought.start()
    try:
        cluster.gang(namespace, "gang", 2, gpus=8)
        cluster.wait(bought.nodes, "the node that comes", 60)
        first = {node.metadata.uid for node in bought.nodes()}
        cluster.wait_event(namespace, "NodesNotProvisioned", "absent", name="gang")
        cluster.wait(lambda: len(bought.bound(namespace, "gang")) == 2, "the gang to run", 60)
        cluster.wait(lambda: len(bought.claims()) == 2, "the nodes of the gang alone", 60)
        assert first.isdisjoint(node.metadata.uid for node in bought.nodes())
        for claim in bought.claims():
            assert claim["metadata"]["annotations"]["gangsched.io/purchase"] == "h100=2"
    finally:
        bought.kill()
        bought.config.write_text(yaml.safe_dump(SETTINGS))
        bought.start()


def test_nodes_of_a_running_gang_are_not_consolidated(bought, namespace):
    """Its pool would remove nodes that are hardly used at once."""
    cluster = bought.cluster
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(lambda: len(bought.bound(namespace, "gang")) == 2, "the gang to run", 60)
    on = bought.bound(namespace, "gang")
    for node in bought.nodes():
        assert node.metadata.annotations["karpenter.sh/do-not-disrupt"] == "true"
    cluster.stays(lambda: {node.metadata.name for node in bought.nodes()} == on, 10, "its nodes")


def moving_set(gpus: int) -> dict:
    """Return a StatefulSet of one pod that may be moved, and is asked before."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1"}},
    }
    spec = {
        "schedulerName": "gangsched",
        "containers": [container],
        "nodeSelector": {"gangsched.io/node-kind": "kwok"},
        "terminationGracePeriodSeconds": 0,
    }
    annotations = {"gangsched.io/movable": "true", "gangsched.io/checkpoint-grace-seconds": "2"}
    labels = {"app": "moving"}
    metadata = {"name": "moving", "annotations": annotations}
    template = {"metadata": {"annotations": annotations, "labels": labels}, "spec": spec}
    sizes = {"replicas": 1, "serviceName": "moving", "selector": {"matchLabels": labels}}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
            "spec": {**sizes, "template": template}}  # fmt: skip


def test_a_gang_moves_so_that_a_node_is_given_back(bought, namespace):
    """Once `gone` has left its half of the cheap node, `moving` leaves the dear one for it."""
    cluster = bought.cluster
    settings = {**SETTINGS["karpenter"], "move_after_s": 0}
    bought.kill()
    bought.config.write_text(yaml.safe_dump({"karpenter": settings}))
    bought.start()

    def on(name: str) -> set[str]:
        return set(cluster.bound(namespace, name).values())

    try:
        cluster.gang(namespace, "gone", 1, gpus=4)
        cluster.wait(lambda: on("gone"), "the first gang to run", 60)
        cluster.gang(namespace, "stays", 1, gpus=4)
        cluster.wait(lambda: on("stays") == on("gone"), "two gangs on one node", 60)
        (cheap,) = on("stays")
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(moving_set(4)))
        cluster.wait(lambda: on("moving") and on("moving") != {cheap}, "a node of its own", 60)
        assert len(bought.nodes()) == 2
        cluster.core.delete_namespaced_pod("gone-0", namespace)
        cluster.wait(lambda: on("moving") == {cheap}, "the gang to move", 120)
        cluster.wait(lambda: len(bought.claims()) == 1, "the dear node to be given back", 60)
        assert [node.metadata.name for node in bought.nodes()] == [cheap]
    finally:
        bought.kill()
        bought.config.write_text(yaml.safe_dump(SETTINGS))
        bought.start()
