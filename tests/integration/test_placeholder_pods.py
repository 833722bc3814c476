"""Placeholder pods and CapacityBuffers let the real Karpenter make nodes by its own choice."""

import json
import os

import pytest
import yaml
from cluster import GPU
from karpenter_plane import karpenter_plane

pytestmark = pytest.mark.skipif(
    "KARPENTER" not in os.environ, reason="a control plane of its own: make karpenter"
)
PLACE = "gangsched-placeholders"
SETTINGS = {"placeholders": {"after_s": 0, "retry_s": 600}}


@pytest.fixture(scope="module")
def autoscaled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("placeholders")
    with karpenter_plane("test-placeholders", folder, SETTINGS) as made:
        yield made


@pytest.fixture
def namespace(autoscaled):
    name = autoscaled.cluster.new_namespace()
    yield name
    autoscaled.cluster.remove_namespace(name)
    autoscaled.cluster.wait(lambda: not placeholders(autoscaled), "no placeholder", 60)
    autoscaled.wait_until_given_back()


def placeholders(autoscaled) -> list:
    return autoscaled.cluster.core.list_namespaced_pod(PLACE).items


def test_a_gang_gets_the_nodes_that_its_placeholders_ask_for(autoscaled, namespace):
    cluster = autoscaled.cluster
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait_event(namespace, "NodesRequested", "2 placeholder pods ask", name="gang")
    cluster.wait(lambda: len(autoscaled.bound(namespace, "gang")) == 2, "the gang to run", 60)
    cluster.wait(lambda: not placeholders(autoscaled), "no placeholder", 30)
    made = {node.metadata.name for node in autoscaled.nodes()}
    assert made == autoscaled.bound(namespace, "gang")
    cluster.stays(lambda: len(autoscaled.claims()) == 2, 10, "no further node")


def test_a_gang_that_gets_no_nodes_gives_them_back(autoscaled, namespace):
    """Karpenter makes nodes for a part of a gang; its placeholders are deleted after a time."""
    cluster = autoscaled.cluster
    autoscaled.kill()
    settings = {**SETTINGS["placeholders"], "late_s": 8}
    autoscaled.config.write_text(yaml.safe_dump({"placeholders": settings}))
    autoscaled.start()
    try:
        cluster.gang(namespace, "large", 5, gpus=8)
        cluster.wait(lambda: len(placeholders(autoscaled)) == 5, "the placeholders", 60)
        cluster.wait(autoscaled.claims, "a node of Karpenter", 60)
        cluster.wait_event(namespace, "NodesNotProvisioned", "asked for again in", name="large")
        cluster.wait(lambda: not placeholders(autoscaled), "no placeholder", 30)
        autoscaled.wait_until_given_back()
        assert not autoscaled.bound(namespace, "large")
    finally:
        autoscaled.kill()
        autoscaled.config.write_text(yaml.safe_dump(SETTINGS))
        autoscaled.start()


def test_a_gang_with_a_price_limit_gets_no_placeholders(autoscaled, namespace):
    cluster = autoscaled.cluster
    cluster.gang(namespace, "dear", 2, gpus=8, group={"maxPricePerHour": 50})
    cluster.wait_event(namespace, "NodesNotRequested", "would cost is unknown", name="dear")
    assert not placeholders(autoscaled)


@pytest.mark.parametrize("step", ["created", "claimed"])
def test_a_killed_scheduler_leaves_no_placeholder_and_creates_none_twice(
    autoscaled, namespace, step
):
    cluster = autoscaled.cluster
    reached = {"created": lambda: placeholders(autoscaled), "claimed": autoscaled.claims}
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(reached[step], step, 60)
    autoscaled.kill()
    autoscaled.start()
    cluster.wait(lambda: len(autoscaled.bound(namespace, "gang")) == 2, "the gang to run", 60)
    cluster.wait(lambda: not placeholders(autoscaled), "no placeholder", 30)
    assert len(autoscaled.nodes()) == 2


def test_a_gang_that_is_deleted_while_no_scheduler_runs_leaves_no_placeholder(
    autoscaled, namespace
):
    cluster = autoscaled.cluster
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(lambda: placeholders(autoscaled), "the placeholders", 60)
    autoscaled.kill()
    cluster.clear_namespace(namespace)
    autoscaled.start()
    cluster.wait(lambda: not placeholders(autoscaled), "no placeholder", 60)


def test_placeholders_belong_to_nobody_else(autoscaled, namespace):
    """Pods that others create in their namespace stay."""
    cluster = autoscaled.cluster
    labels = {"gangsched.io/placeholder": "true"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": PLACE, "labels": labels},
        "spec": {"schedulerName": "none", "containers": [{"name": "c", "image": "none"}]},
    }
    cluster.apply("default", json.dumps(body))
    try:
        cluster.gang(namespace, "gang", 1, gpus=8)
        cluster.wait(lambda: len(autoscaled.bound(namespace, "gang")) == 1, "the gang to run", 60)
        cluster.wait(lambda: len(placeholders(autoscaled)) == 1, "the other pod alone", 30)
    finally:
        cluster.kubectl("delete", "pod", "other", "-n", PLACE, "--grace-period=0", "--force")


def test_a_guarantee_is_warm_before_its_gangs_come(autoscaled, namespace):
    """What a queue has and does not use is ready; what it uses is not kept twice."""
    cluster = autoscaled.cluster
    queue = {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "warm"},
        "spec": {"quotas": [{"resource": GPU, "nominal": 16}]},
    }
    cluster.apply("default", json.dumps(queue))
    entry = {
        "name": "warm-gpus",
        "queue": "warm",
        "resources": {GPU: "8", "cpu": "1"},
        "node_selector": {"gangsched.io/node-kind": "kwok"},
    }
    autoscaled.kill()
    autoscaled.config.write_text(yaml.safe_dump({**SETTINGS, "warm": [entry]}))
    autoscaled.start()
    try:
        cluster.wait(lambda: len(autoscaled.nodes()) == 2, "the nodes of the guarantee", 90)
        ready = {node.metadata.name for node in autoscaled.nodes()}
        cluster.gang(namespace, "gang", 1, gpus=8, group={"queue": "warm"})
        cluster.wait(lambda: autoscaled.bound(namespace, "gang"), "the gang to run", 30)
        assert autoscaled.bound(namespace, "gang") <= ready

        def replicas() -> int:
            found = cluster.json("capacitybuffers", "-n", PLACE)["items"]
            return found[0]["spec"]["replicas"]

        cluster.wait(lambda: replicas() == 1, "the rest of the guarantee", 30)
        cluster.stays(lambda: len(autoscaled.nodes()) == 2, 5, "no further node")
    finally:
        autoscaled.kill()
        autoscaled.config.write_text(yaml.safe_dump(SETTINGS))
        autoscaled.start()
        cluster.kubectl("delete", "queue.gangsched.io", "warm")
