"""Other operators as shipped, with gangsched: their pods form gangs."""

from functools import partial

import pytest
import yaml
from cluster import Cluster
from conftest import PROCESS, PROCESS_TAINT, a_plane
from pages import Shell
from upstream import MPIS, TRAINING, Operator, create, explained, has_no_room, installing, ready

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import PlaneOptions

SLOTS = NodeGroup(name="k", kind="kwok", count=1, pods=4, taints=())
OWN = PROCESS.model_copy(update={"name": "own", "count": 1, "taints": (PROCESS_TAINT,)})
PLACE = {
    "nodeSelector": {"gangsched.io/node-kind": "process"},
    "tolerations": [{"key": PROCESS_TAINT["key"], "operator": "Exists"}],
}
KINDS = tuple(
    f"{kind}jobs.kubeflow.org" for kind in ("jax", "mpi", "paddle", "pytorch", "tf", "xgboost")
)
MPIJOBS = "mpijobs.v2beta1.kubeflow.org"
GROUPS = ("podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh")
MODES = {"by its owner": "", "by scheduler-plugins' group": "gangsched", "by Volcano's": "volcano"}
"""How pods come to be a gang, and the name of a gang scheduler that the operator is given."""
BY_OWNER, *OTHERS = MODES


@pytest.fixture(scope="module")
def plane():
    """A control plane on which nobody runs jobs yet."""
    with a_plane(
        "test-operators", NodeFile(nodes=(SLOTS, OWN)), PlaneOptions(operators=False)
    ) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture
def install(plane, tmp_path):
    """Install an operator as it is shipped; it is gone after the test."""
    with installing(plane, tmp_path, PLACE) as it:
        yield partial(it, kinds=KINDS)


def named(operator: Operator, path: str, name: str, mode: str, roles: str) -> dict:
    """Return a shipped sample under a name; it names us itself where its operator does not."""
    body = yaml.safe_load((operator.source() / path).read_text())
    body["metadata"] |= {"name": name, "namespace": operator.namespace}
    for role in body["spec"][roles].values():
        if not MODES[mode]:
            role["template"]["spec"]["schedulerName"] = "gangsched"
    return body


def nothing_is_left(cluster, namespace: str, prefix: str) -> None:
    cluster.wait(lambda: not cluster.bound(namespace, prefix), "its pods to go")
    for group in GROUPS:
        found = lambda group=group: cluster.json(group, "-n", namespace)["items"]  # noqa: E731
        cluster.wait(lambda found=found: not found(), f"no {group} to be left")


@pytest.mark.parametrize(
    "mode", [BY_OWNER, *(pytest.param(mode, marks=pytest.mark.long) for mode in OTHERS)]
)
def test_jobs_of_the_training_operator_start_whole_one_after_another(
    plane, install, mode, tmp_path
):
    home, cluster = TRAINING.namespace, plane
    install(TRAINING, *(["--gang-scheduler-name=volcano"] if MODES[mode] == "volcano" else []))
    if MODES[mode] == "gangsched":
        reader = Shell(tmp_path, cluster.plane.kubeconfig)
        reader.walk("docs/jobs/operators.md", "Training Operator")

    def job(name: str, workers: int) -> str:
        place = "examples/pytorch/simple.yaml"
        body = named(TRAINING, place, name, mode, "pytorchReplicaSpecs")
        body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = workers
        return cluster.yaml(body)

    ready(cluster, TRAINING)
    create(cluster, job("first", 2))
    cluster.wait_placed(home, "first-", 3)
    create(cluster, job("second", 2))
    cluster.wait(lambda: "takes 1 now" in explained(cluster, home, "second"), "its reason")
    cluster.restart("gangsched")
    cluster.stays(lambda: not cluster.bound(home, "second-"), 2.0, "a part of a gang")
    assert len(cluster.bound(home, "first-")) == 3
    cluster.kubectl("delete", "pytorchjob", "first", "-n", home)
    cluster.wait_placed(home, "second-", 3)
    cluster.kubectl("delete", "pytorchjob", "second", "-n", home)
    nothing_is_left(cluster, home, "second-")


def succeeded(cluster, home: str) -> bool:
    """Tell whether the MPIJob has ended well: KWOK ends the pods of a Job at once."""
    found = cluster.json(MPIJOBS, "pi", "-n", home).get("status") or {}
    said = found.get("conditions") or []
    return any((one["type"], one["status"]) == ("Succeeded", "True") for one in said)


def without_room(cluster, install, version: str, mode: str, **spec) -> str:
    """Create the MPI Operator's own sample where two of its pods have room; return where."""
    operator = MPIS[version]
    home = operator.namespace
    install(operator, *([f"--gang-scheduling={MODES[mode]}"] if MODES[mode] else []))
    ready(cluster, operator)
    for name in ("in-the-way-0", "in-the-way-1"):
        cluster.pod(home, name, gpus=0)
    cluster.wait_placed(home, "in-the-way-", 2)
    body = named(operator, "examples/v2beta1/pi/pi.yaml", "pi", mode, "mpiReplicaSpecs")
    body["spec"] |= spec
    create(cluster, cluster.yaml(body))
    return home


@pytest.mark.long  # building each operator takes two minutes of CPU
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", MPIS)
def test_a_launcher_and_its_workers_start_whole(plane, install, version, mode):
    cluster = plane
    home = without_room(cluster, install, version, mode)
    cluster.wait(lambda: "takes 2 now" in explained(cluster, home, "pi"), "its reason")
    cluster.stays(lambda: not cluster.bound(home, "pi-"), 2.0, "a part of a gang")
    cluster.core.delete_namespaced_pod("in-the-way-0", home, grace_period_seconds=0)
    cluster.wait(lambda: succeeded(cluster, home), "the MPIJob to succeed", 60)
    cluster.core.delete_namespaced_pod("in-the-way-1", home, grace_period_seconds=0)
    cluster.kubectl("delete", MPIJOBS, "pi", "-n", home)
    nothing_is_left(cluster, home, "pi-")


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "mode"), [("0.6", "by its owner"), *(("0.7", mode) for mode in MODES)]
)
def test_a_launcher_that_waits_for_its_workers_has_capacity(plane, install, version, mode):
    cluster = plane
    late = {"launcherCreationPolicy": "WaitForWorkersReady"}
    home = without_room(cluster, install, version, mode, **late)
    cluster.wait(lambda: has_no_room(explained(cluster, home, "pi")), "its reason")
    cluster.stays(lambda: not cluster.bound(home, "pi-"), 2.0, "workers without their launcher")
    cluster.core.delete_namespaced_pod("in-the-way-0", home, grace_period_seconds=0)
    cluster.wait(lambda: succeeded(cluster, home), "the MPIJob to succeed", 60)
    cluster.core.delete_namespaced_pod("in-the-way-1", home, grace_period_seconds=0)
    cluster.kubectl("delete", MPIJOBS, "pi", "-n", home)
    nothing_is_left(cluster, home, "pi-")


@pytest.fixture(scope="module")
def shared():
    """A control plane on which gangsched runs jobs too."""
    with a_plane("test-hand-over", NodeFile(nodes=(SLOTS, OWN)), PlaneOptions()) as plane:
        yield Cluster(plane, "extender")


@pytest.mark.long
def test_a_running_job_is_handed_to_the_training_operator_and_back(shared, tmp_path):
    """Four pods have room: two of a job, and the two of the next."""
    cluster, home = shared, TRAINING.namespace
    cluster.core.create_namespace({"metadata": {"name": home}})

    def job(name: str) -> str:
        place = "examples/pytorch/simple.yaml"
        body = named(TRAINING, place, name, "by its owner", "pytorchReplicaSpecs")
        return cluster.yaml(body)

    def pods(name: str) -> dict[str, str]:
        found = cluster.core.list_namespaced_pod(home).items
        uids = {one.metadata.name: one.metadata.uid for one in found}
        return {pod: uid for pod, uid in uids.items() if pod.startswith(f"{name}-")}

    create(cluster, job("ours"))
    cluster.wait_placed(home, "ours-", 2)
    cluster.wait(lambda: cluster.is_true(home, "ours", "Running"), "the job to run")
    ours = pods("ours")

    folder = TRAINING.manifests(tmp_path, (), PLACE)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    cluster.wait(lambda: "roles" not in cluster.get_group(home, "ours")["spec"], "its gang", 120)
    ready(cluster, TRAINING)
    create(cluster, job("theirs"))
    cluster.wait_placed(home, "theirs-", 2)
    cluster.wait(lambda: cluster.is_true(home, "theirs", "Running"), "the operator to say so", 60)
    theirs = pods("theirs")
    assert pods("ours") == ours

    cluster.kubectl("delete", "deployment", TRAINING.deployment, "-n", home)
    webhooks = "validator.training-operator.kubeflow.org"
    cluster.kubectl("delete", "validatingwebhookconfiguration", webhooks)
    cluster.kubectl("delete", "pytorchjob", "ours", "-n", home)
    create(cluster, job("last"))
    cluster.wait_placed(home, "last-", 2)
    assert cluster.group_status(home, "last"), "the gang is ours again"
    assert pods("theirs") == theirs
    assert not cluster.group_status(home, "theirs")
    assert cluster.is_true(home, "theirs", "Running")
