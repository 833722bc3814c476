"""A kind of job moves to another operator and back while gangsched runs."""

import copy
import json

import pytest
from test_pytorchjob import job

pytestmark = pytest.mark.by("extender")  # its controller does not see who binds

NAME = "training-operator"
LABELS = {"app": NAME}
LEFT = "gangsched does not run PyTorchJobs: the Training Operator"


def operator(namespace: str) -> list[dict]:
    """Return a Deployment as the Training Operator's, and what its account may do.

    The images of KWOK's pods do not run: what it would do is done by the test.
    """
    status = {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["*"]}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace}
    pod = {
        "serviceAccountName": NAME,
        "containers": [{"name": "manager", "image": f"kubeflow/{NAME}:v1-0000000"}],
        "nodeSelector": {"gangsched.io/node-kind": "kwok"},
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    rbac = "rbac.authorization.k8s.io/v1"
    within = {"name": NAME, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within},
        {
            "apiVersion": rbac,
            "kind": "ClusterRole",
            "metadata": {"name": namespace},
            "rules": [status],
        },
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": namespace},
            "subjects": [account],
            "roleRef": role,
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": within,
            "spec": {"selector": {"matchLabels": LABELS}, "template": template},
        },
    ]


@pytest.fixture
def comes(cluster, namespace):
    """Let the Training Operator come; it is gone after the test."""

    def it() -> None:
        for body in operator(namespace):
            cluster.apply("default", json.dumps(body))

    yield it
    goes(cluster, namespace)
    for kind in ("clusterrolebinding", "clusterrole"):
        cluster.kubectl("delete", kind, namespace, "--ignore-not-found")


def goes(cluster, namespace) -> None:
    cluster.kubectl("delete", "deployment", NAME, "-n", namespace, "--ignore-not-found")


def made_by_operator(cluster, namespace, body: dict, role: str, index: int) -> None:
    """Create a pod as the Training Operator does."""
    owner = cluster.job(namespace, body["metadata"]["name"])["metadata"]
    name = f"{owner['name']}-{role.lower()}-{index}"
    prefix = "training.kubeflow.org"
    labels = {
        f"{prefix}/operator-name": "pytorchjob-controller",
        f"{prefix}/job-name": owner["name"],
        f"{prefix}/replica-type": role.lower(),
        f"{prefix}/replica-index": str(index),
    }
    reference = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    template = body["spec"]["pytorchReplicaSpecs"][role]["template"]
    pod = {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
        "spec": copy.deepcopy(template["spec"]) | {"restartPolicy": "Never"},
    }
    cluster.core.create_namespaced_pod(namespace, pod)


def named(name: str) -> dict:
    """Return a job of three pods that name us, for KWOK's nodes."""
    body = job(name)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["schedulerName"] = "gangsched"
    return body


def uids(cluster, namespace, prefix: str) -> dict[str, str]:
    """Return the pods there are of a job, and who they are."""
    pods = cluster.core.list_namespaced_pod(namespace).items
    found = {pod.metadata.name: pod.metadata.uid for pod in pods}
    return {name: uid for name, uid in found.items() if name.startswith(prefix)}


def test_jobs_run_on_while_their_kind_changes_hands(cluster, namespace, comes):
    running, late, theirs = named("running"), named("late"), named("theirs")
    cluster.create_job(namespace, running)
    cluster.wait_placed(namespace, "running-", 3)
    cluster.wait(lambda: cluster.is_true(namespace, "running", "Running"), "the job to run")
    began = uids(cluster, namespace, "running-")

    comes()
    cluster.wait(lambda: "roles" not in cluster.get_group(namespace, "running")["spec"], "its gang")
    assert cluster.get_group(namespace, "running")["spec"]["minMember"] == 3
    cluster.create_job(namespace, late)
    cluster.create_job(namespace, theirs)
    explained = lambda: " ".join(cluster.gangsched("explain", f"{namespace}/late")[1].split())  # noqa: E731
    cluster.wait(lambda: LEFT in explained(), "explain to say who runs it")
    said = " ".join(cluster.gangsched("doctor")[1].split())
    assert "not run by gangsched: the Training Operator runs them, by its Deployment" in said

    # The operator recreates a pod that is lost, and it starts beside those that run.
    cluster.core.delete_namespaced_pod("running-worker-1", namespace, grace_period_seconds=0)
    cluster.wait(lambda: cluster.get_group(namespace, "running")["spec"]["minMember"] == 2, "two")
    made_by_operator(cluster, namespace, running, "Worker", 1)
    for role, index in (("Master", 0), ("Worker", 0), ("Worker", 1)):
        made_by_operator(cluster, namespace, theirs, role, index)
    cluster.wait_placed(namespace, "running-", 3)
    cluster.wait_placed(namespace, "theirs-", 3)
    assert not uids(cluster, namespace, "late-")
    now, of_theirs = uids(cluster, namespace, "running-"), uids(cluster, namespace, "theirs-")
    assert {name for name in began if began[name] == now[name]} == {
        "running-master-0",
        "running-worker-0",
    }

    goes(cluster, namespace)
    cluster.wait_placed(namespace, "late-", 3)
    cluster.wait(lambda: cluster.is_true(namespace, "theirs", "Running"), "the job taken over")
    assert uids(cluster, namespace, "running-") == now
    assert uids(cluster, namespace, "theirs-") == of_theirs
    assert not cluster.group_status(namespace, "theirs"), "its pods are the gang of their owner"
    said = " ".join(cluster.gangsched("doctor")[1].split())
    assert "not run by gangsched" not in said
    assert "gangsched runs Experiment, JAXJob" in said
    assert not cluster.overcommitted()
