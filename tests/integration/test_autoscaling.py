"""Whole gangs get nodes by ProvisioningRequests, against a small stand-in for Cluster Autoscaler.

Cluster Autoscaler is on no registry. The stand-in keeps the contract of autoscaling.x-k8s.io/v1: it
reads the templates and counts of a request, creates all nodes or none, and sets conditions.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster import GPU, Cluster
from conftest import a_plane
from kubernetes.client.exceptions import ApiException
from waiting import patience_s

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import PlaneOptions, client_environment

pytestmark = pytest.mark.skipif(
    "AUTOSCALE" not in os.environ, reason="a control plane of its own: make autoscale"
)
API = "autoscaling.x-k8s.io", "v1"
PLURAL = "provisioningrequests"
CONSUMED = "autoscaling.x-k8s.io/consume-provisioning-request"
CRD = Path(__file__).parent / "provisioningrequests.yaml"
NODES = NodeFile(nodes=(NodeGroup(name="head", kind="kwok", count=1, taints=()),))
"""One node without GPUs. Without any, the control plane would have no KWOK."""

SETTINGS = {"provisioning": {"after_s": 0, "retry_s": 1, "attempts": 3}}


class Autoscaler:
    """A pool of nodes of 8 GPUs that is empty, and may grow to `limit` nodes."""

    def __init__(self, cluster, limit: int) -> None:
        self.cluster, self.limit, self.made = cluster, limit, 0

    def requests(self) -> list[dict]:
        return self.cluster.custom.list_cluster_custom_object(*API, PLURAL)["items"]

    def serve(self) -> None:
        """Answer each request once, as a loop of the autoscaler does."""
        for request in self.requests():
            if not request.get("status", {}).get("conditions"):
                self.answer(request)

    def answer(self, request: dict) -> None:
        namespace = request["metadata"]["namespace"]
        nodes = 0
        try:
            for pods in request["spec"]["podSets"]:
                template = self.cluster.core.read_namespaced_pod_template(
                    pods["podTemplateRef"]["name"], namespace
                )
                nodes += pods["count"] * gpus(template.template.spec) / 8
        except ApiException as error:
            if error.status == 404:
                return  # the templates follow; the next loop reads them
            raise
        self.condition(request, "Accepted")
        if self.made + nodes > self.limit:
            self.condition(request, "Failed", "max node group size reached")
            return
        for _ in range(round(nodes)):
            self.made += 1
            self.cluster.core.create_node(node(f"bought-{self.made}"))
        self.condition(request, "Provisioned")

    def condition(self, request: dict, kind: str, message: str = "") -> None:
        metadata = request["metadata"]
        where = *API, metadata["namespace"], PLURAL, metadata["name"]
        now = self.cluster.custom.get_namespaced_custom_object(*where)
        condition = {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        known = now.get("status", {}).get("conditions", [])
        now["status"] = {"conditions": [*known, condition]}
        self.cluster.custom.replace_namespaced_custom_object_status(*where, now)


def gpus(spec) -> int:
    return sum(int(one.resources.limits[GPU]) for one in spec.containers)


def node(name: str) -> dict:
    """Return a KWOK node of the pool."""
    labels = {"gangsched.io/node-kind": "kwok", "kubernetes.io/hostname": name, "pool": "bought"}
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
    }


class Scaled:
    """A control plane without GPUs, and a scheduler that requests nodes."""

    def __init__(self, plane, config: Path) -> None:
        self.cluster = Cluster(plane, "direct")
        self.plane, self.config, self.process = plane, config, None

    def start(self) -> None:
        command = [sys.executable, "-m", "gangsched", "run", "--binding", "direct"]
        own = self.plane.folder / "gangsched.kubeconfig"  # least privilege, as it is deployed
        command += ["--config", str(self.config), "--kubeconfig", str(own)]
        environment = {**os.environ, **client_environment(self.plane)}
        with (self.plane.programs.logs / "gangsched.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(patience_s(30))

    def requests(self, namespace: str) -> list[dict]:
        return self.cluster.custom.list_namespaced_custom_object(*API, namespace, PLURAL)["items"]

    def bound(self, namespace: str, gang: str) -> list:
        pods = self.cluster.core.list_namespaced_pod(
            namespace, label_selector=f"gangsched.io/pod-group={gang}"
        )
        return [pod for pod in pods.items if pod.spec.node_name]

    def clear(self) -> None:
        for one in self.cluster.core.list_node(label_selector="pool=bought").items:
            self.cluster.core.delete_node(one.metadata.name)


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    config = tmp_path_factory.mktemp("autoscaling") / "config.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    options = PlaneOptions(binding="off", operators=False)
    with a_plane("test-autoscaling", NODES, options) as plane:
        made = Scaled(plane, config)
        made.cluster.kubectl("apply", "-f", str(CRD))
        made.cluster.kubectl("wait", "--for=condition=Established", "-f", str(CRD))
        made.start()
        try:
            yield made
        finally:
            made.kill()


@pytest.fixture
def namespace(scaled):
    name = scaled.cluster.new_namespace()
    yield name
    scaled.cluster.remove_namespace(name)
    scaled.cluster.wait(lambda: not scaled.requests(name), "the requests to go")
    scaled.clear()


def test_a_gang_gets_all_its_nodes_and_a_larger_gang_none(scaled, namespace):
    """A pool at zero with a limit of two nodes: `fits` gets both, `large` none and a reason."""
    cluster, autoscaler = scaled.cluster, Autoscaler(scaled.cluster, limit=2)
    cluster.gang(namespace, "large", 3, gpus=8)
    cluster.gang(namespace, "fits", 2, gpus=8)
    cluster.wait(lambda: len(scaled.requests(namespace)) == 2, "a request for each gang")
    counts = sorted(one["spec"]["podSets"][0]["count"] for one in scaled.requests(namespace))
    assert counts == [2, 3]

    def served() -> bool:
        autoscaler.serve()
        return len(scaled.bound(namespace, "fits")) == 2

    cluster.wait(served, "the gang to run on its nodes")
    names = {pod.metadata.annotations[CONSUMED] for pod in scaled.bound(namespace, "fits")}
    assert len(names) == 1
    cluster.wait(
        lambda: names.isdisjoint(one["metadata"]["name"] for one in scaled.requests(namespace)),
        "the request of the placed gang to be deleted",
    )

    def exhausted() -> bool:
        autoscaler.serve()
        last = [one["metadata"]["name"][-2:] for one in scaled.requests(namespace)]
        return last == ["-3"]

    cluster.wait(exhausted, "three attempts for the large gang, and no more")
    assert autoscaler.made == 2
    assert not scaled.bound(namespace, "large")
    events = cluster.core.list_namespaced_event(namespace).items
    assert any("max node group size" in (event.message or "") for event in events)
    templates = lambda: cluster.core.list_namespaced_pod_template(namespace).items  # noqa: E731
    cluster.wait(lambda: len(templates()) == 1, "templates of ended requests to be deleted")


@pytest.mark.parametrize("end", ["BookingExpired", "CapacityRevoked"])
def test_a_request_that_ends_is_followed_by_another(scaled, namespace, end):
    cluster, autoscaler = scaled.cluster, Autoscaler(scaled.cluster, limit=9)
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(lambda: scaled.requests(namespace), "a request")
    (first,) = scaled.requests(namespace)
    for kind in ("Accepted", "Provisioned", end):
        autoscaler.condition(first, kind)

    def served() -> bool:
        autoscaler.serve()
        return len(scaled.bound(namespace, "gang")) == 2

    cluster.wait(served, "the gang to run on the nodes of the second request")
    assert autoscaler.made == 2
    cluster.wait(lambda: not scaled.requests(namespace), "no request")


def test_a_restart_at_each_step_requests_nothing_twice(scaled, namespace):
    cluster, autoscaler = scaled.cluster, Autoscaler(scaled.cluster, limit=9)
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(lambda: scaled.requests(namespace), "a request")
    scaled.kill()
    (request,) = scaled.requests(namespace)
    cluster.kubectl("delete", "podtemplate", "--all", "-n", namespace)
    scaled.start()  # the templates are created again for the same request
    cluster.wait(lambda: cluster.core.list_namespaced_pod_template(namespace).items, "the template")
    scaled.kill()
    autoscaler.serve()
    assert autoscaler.made == 2
    scaled.start()
    cluster.wait(lambda: len(scaled.bound(namespace, "gang")) == 2, "the gang to run")
    (name,) = {pod.metadata.annotations[CONSUMED] for pod in scaled.bound(namespace, "gang")}
    assert name == request["metadata"]["name"]
    cluster.wait(lambda: not scaled.requests(namespace), "no request")
    assert autoscaler.made == 2


def test_a_deleted_gang_leaves_no_request(scaled, namespace):
    cluster = scaled.cluster
    cluster.gang(namespace, "gang", 2, gpus=8)
    cluster.wait(lambda: scaled.requests(namespace), "a request")
    scaled.kill()
    cluster.clear_namespace(namespace)
    scaled.start()
    cluster.wait(lambda: not scaled.requests(namespace), "no request")
    cluster.wait(
        lambda: not cluster.core.list_namespaced_pod_template(namespace).items, "no template"
    )


def test_quota_for_one_gang_is_one_request(scaled, namespace):
    """Each gang alone has quota, both have not: nodes are requested for the older one alone."""
    cluster = scaled.cluster
    queue = {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": f"q-{namespace}"},
        "spec": {"quotas": [{"resource": GPU, "nominal": 16, "borrowingLimit": 0}]},
    }
    cluster.custom.create_cluster_custom_object("gangsched.io", "v1beta1", "queues", queue)
    try:
        for name in ("first", "second"):
            group = {"queue": f"q-{namespace}"}
            cluster.gang(namespace, name, 2, gpus=8, group=group)
        refused = lambda name: cluster.group_status(namespace, name).get("refusal")  # noqa: E731
        cluster.wait(lambda: refused("first") and refused("second"), "both refusals")
        cluster.wait(lambda: scaled.requests(namespace), "a request")
        cluster.stays(lambda: len(scaled.requests(namespace)) == 1, 5, "a second request")
    finally:
        cluster.clear_namespace(namespace)
        cluster.custom.delete_cluster_custom_object(
            "gangsched.io", "v1beta1", "queues", f"q-{namespace}"
        )
