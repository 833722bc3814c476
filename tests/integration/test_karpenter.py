"""Whole gangs get nodes from the real Karpenter, with its provider of KWOK nodes, or none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster import GPU, Cluster
from conftest import a_plane
from upstream import KARPENTER
from waiting import patience_s

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import PlaneOptions, client_environment

pytestmark = pytest.mark.skipif(
    "KARPENTER" not in os.environ, reason="a control plane of its own: make karpenter"
)
API = "karpenter.sh", "v1"
WAITS = 3
"""The exit code of `explain` for a gang that waits."""
NODES = NodeFile(nodes=(NodeGroup(name="head", kind="kwok", count=1, taints=()),))
"""One node without GPUs. Without any, the control plane would have no KWOK."""

LABELS = {"bought": "true", "gangsched.io/node-kind": "kwok"}
RESOURCES = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}


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


def node_pool(name: str, gpus: int) -> dict:
    """Return a NodePool at zero that may have so many GPUs."""
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    key = "node.kubernetes.io/instance-type"
    spec = {
        "nodeClassRef": node_class,
        "requirements": [{"key": key, "operator": "In", "values": ["h100", "a100"]}],
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
            "limits": {GPU: str(gpus)},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized",
                           "consolidateAfter": "0s"},
        },
    }  # fmt: skip


def instance_type(name: str, price: float) -> dict:
    requirements = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (
            ("karpenter.sh/capacity-type", "on-demand"),
            ("topology.kubernetes.io/zone", "zone-a"),
        )
    ]
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": RESOURCES,
        "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
    }


class Bought:
    """A control plane without GPUs, with Karpenter, and a scheduler that buys nodes."""

    def __init__(self, plane, folder: Path) -> None:
        self.cluster, self.plane, self.folder = Cluster(plane, "direct"), plane, folder
        self.scheduler = self.karpenter = None
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(SETTINGS))
        types = [instance_type("h100", 98.25), instance_type("a100", 40.0)]
        (folder / "types.json").write_text(json.dumps(types))

    def install(self) -> None:
        """Create Karpenter's kinds as they are in its module, two pools, and start it."""
        source = KARPENTER.source()
        crds = [*(source / "pkg/apis/crds").iterdir(), *(source / "kwok/apis/crds").iterdir()]
        for path in crds:
            self.cluster.kubectl("apply", "--server-side", "-f", str(path))
        self.cluster.kubectl("wait", "--for=condition=Established", "--all", "crd")
        node_class = {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "spec": {"nodeRegistrationDelay": "1s"},
        }
        for body in (node_class, node_pool("gpu", 16), node_pool("small", 8)):
            self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        environment = {
            **os.environ,
            **client_environment(self.plane),
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": "0",
            "HEALTH_PROBE_PORT": "0",
            "KARPENTER_SERVICE": "karpenter",
            "SYSTEM_NAMESPACE": "default",
            "INSTANCE_TYPES_FILE_PATH": str(self.folder / "types.json"),
        }
        self.karpenter = self._run([str(KARPENTER.program())], environment, "karpenter")

    def start(self) -> None:
        own = self.plane.folder / "gangsched.kubeconfig"  # least privilege, as it is deployed
        command = [sys.executable, "-m", "gangsched", "run", "--binding", "direct"]
        command += ["--config", str(self.config), "--kubeconfig", str(own)]
        environment = {**os.environ, **client_environment(self.plane)}
        self.scheduler = self._run(command, environment, "gangsched")

    def _run(self, command, environment, name):
        with (self.plane.programs.logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait(patience_s(30))

    def stop(self) -> None:
        for process in (self.scheduler, self.karpenter):
            if process is not None:
                process.kill()
                process.wait(patience_s(30))

    def claims(self) -> list[dict]:
        return self.cluster.custom.list_cluster_custom_object(*API, "nodeclaims")["items"]

    def nodes(self) -> list:
        return self.cluster.core.list_node(label_selector="bought=true").items

    def bound(self, namespace: str, gang: str) -> set[str]:
        """Return the nodes on which pods of a gang are."""
        pods = self.cluster.core.list_namespaced_pod(
            namespace, label_selector=f"gangsched.io/pod-group={gang}"
        )
        return {pod.spec.node_name for pod in pods.items if pod.spec.node_name}


@pytest.fixture(scope="module")
def bought(tmp_path_factory):
    options = PlaneOptions(binding="off", operators=False)
    with a_plane("test-karpenter", NODES, options) as plane:
        made = Bought(plane, tmp_path_factory.mktemp("karpenter"))
        try:
            made.install()
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def namespace(bought):
    name = bought.cluster.new_namespace()
    yield name
    bought.cluster.remove_namespace(name)
    bought.cluster.wait(lambda: not bought.claims(), "all claims to be given back", 120)
    bought.cluster.wait(lambda: not bought.nodes(), "all nodes to be gone", 120)


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
