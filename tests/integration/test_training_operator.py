"""Kubeflow's Training Operator, as it is shipped: its pods are gangs of their jobs."""

import copy

import pytest
import yaml
from cluster import Cluster
from conftest import PROCESS, PROCESS_TAINT, a_plane
from upstream import TRAINING

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Options

pytestmark = pytest.mark.long  # building the operator takes two minutes of CPU

SLOTS = NodeGroup(name="k", kind="kwok", count=1, pods=4, taints=())
OWN = PROCESS.model_copy(update={"name": "own", "count": 1, "taints": (PROCESS_TAINT,)})
PLACE = {
    "nodeSelector": {"gangsched.io/node-kind": "process"},
    "tolerations": [{"key": PROCESS_TAINT["key"], "operator": "Exists"}],
}
KINDS = ("jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs")
NAMESPACE = TRAINING.namespace
MODES = {
    "by its owner": (),
    "by scheduler-plugins' group": ("--gang-scheduler-name=gangsched",),
    "by Volcano's group": ("--gang-scheduler-name=volcano",),
}


@pytest.fixture(scope="module")
def plane():
    """A control plane on which nobody runs training jobs yet; webhooks are called by their pods."""
    flags = (("kube-apiserver", "--enable-aggregator-routing=true"),)
    options = Options(operators=False, flags=flags)
    with a_plane("test-operators", NodeFile(nodes=(SLOTS, OWN)), options) as plane:
        cluster = Cluster(plane, "extender")
        cluster.kubectl("delete", *(f"crd/{kind}.kubeflow.org" for kind in KINDS))
        yield cluster


@pytest.fixture(params=MODES)
def operated(request, plane, tmp_path):
    """The same with the Training Operator, started in one of its ways."""
    folder = TRAINING.manifests(tmp_path, MODES[request.param], PLACE)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    plane.wait(lambda: _certified(plane), "the Training Operator to make its certificate", 120)
    # A kubelet brings a mounted Secret up to date; process nodes mount it as it is at the start.
    plane.kubectl("rollout", "restart", f"deployment/{TRAINING.deployment}", "-n", NAMESPACE)
    plane.wait(lambda: _ready(plane), "the Training Operator to be ready", 120)
    plane.mode = request.param
    trial = plane.yaml(sample(plane, "trial", 1))
    create = ("create", "--dry-run=server", "-f", "-")
    plane.wait(  # process nodes do not ask a pod whether it is ready
        lambda: "created" in plane.kubectl(*create, stdin=trial, check=False),
        "its webhooks to answer",
        120,
    )
    yield plane
    plane.kubectl("delete", "pytorchjobs", "--all", "-n", NAMESPACE)
    plane.kubectl("delete", "deployment", TRAINING.deployment, "-n", NAMESPACE)


def _certified(cluster) -> bool:
    secret = cluster.json("get", "secret", f"{TRAINING.name}-webhook-cert", "-n", NAMESPACE)
    return "tls.crt" in (secret.get("data") or {})


def _ready(cluster) -> bool:
    found = cluster.json("get", "deployment", TRAINING.deployment, "-n", NAMESPACE)
    status = found["status"]
    seen = status.get("observedGeneration") == found["metadata"]["generation"]
    return seen and status.get("readyReplicas") == status.get("updatedReplicas") == 1


def sample(cluster, name: str, workers: int) -> dict:
    """Return the shipped sample under a name; it names us itself where its operator does not."""
    text = (TRAINING.source() / "examples/pytorch/simple.yaml").read_text()
    body = copy.deepcopy(yaml.safe_load(text))
    body["metadata"]["name"] = name
    roles = body["spec"]["pytorchReplicaSpecs"]
    roles["Worker"]["replicas"] = workers
    if not MODES[cluster.mode]:
        for role in roles.values():
            role["template"]["spec"]["schedulerName"] = "gangsched"
    return body


def test_jobs_start_whole_one_after_another(operated):
    cluster = operated
    cluster.kubectl("create", "-f", "-", stdin=cluster.yaml(sample(cluster, "first", 2)))
    cluster.wait_placed(NAMESPACE, "first-", 3)
    cluster.kubectl("create", "-f", "-", stdin=cluster.yaml(sample(cluster, "second", 2)))
    listed = lambda: len(cluster.core.list_namespaced_pod(NAMESPACE).items)  # noqa: E731
    cluster.wait(lambda: listed() == 7, "the pods of both jobs, and of the operator")
    told = lambda: cluster.gangsched("explain", f"{NAMESPACE}/second")[1]  # noqa: E731
    cluster.wait(lambda: "room for 1" in told(), "the reason of the second")
    cluster.restart("gangsched")
    cluster.stays(lambda: not cluster.bound(NAMESPACE, "second-"), 2.0, "a part of a gang")
    assert len(cluster.bound(NAMESPACE, "first-")) == 3
    cluster.kubectl("delete", "pytorchjob", "first", "-n", NAMESPACE)
    cluster.wait_placed(NAMESPACE, "second-", 3)
    cluster.kubectl("delete", "pytorchjob", "second", "-n", NAMESPACE)
    cluster.wait(lambda: not cluster.bound(NAMESPACE, "second-"), "its pods to go")
    for group in ("podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh"):
        cluster.wait(
            lambda group=group: not cluster.json("get", group, "-n", NAMESPACE)["items"],
            f"no {group} to be left",
        )
