"""MPIJobs of both versions: real Open MPI where installed, and the rules of the gang."""

import shutil
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.by("direct")  # its controller does not see who binds

EXAMPLES = Path(__file__).parents[2] / "examples" / "mpi"
needs_mpi = pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()),
    reason="Open MPI and sshd are not installed (Debian: openmpi-bin openssh-server)",
)


@pytest.fixture
def home(laptop):
    """A namespace on process nodes, with the program."""
    name = laptop.new_namespace()
    body = {"metadata": {"name": "pi"}, "data": {"pi.py": (EXAMPLES / "pi.py").read_text()}}
    laptop.core.create_namespaced_config_map(name, body)
    yield name
    laptop.remove_namespace(name)


@needs_mpi
@pytest.mark.parametrize("version", ["v2beta1", "v1"])
def test_open_mpi_computes_pi_on_two_workers(laptop, home, version):
    text = (EXAMPLES / f"pi-{version}.yaml").read_text()
    laptop.apply(home, text)
    laptop.wait(
        lambda: {"Succeeded", "Failed"} & set(laptop.conditions(home, "pi", "MPIJob")), "it", 90
    )
    log = laptop.kubectl("logs", "-n", home, "pi-launcher")
    assert laptop.is_true(home, "pi", "Succeeded", "MPIJob"), log
    assert "pi is approximately 3.1415926" in log
    for rank, worker in enumerate((0, 0, 1, 1)):
        assert f"rank {rank} of 4 on pi-worker-{worker}" in log
    for reason in ("MPIJobCreated", "MPIJobSucceeded"):
        laptop.wait_event(home, reason, name="pi")
    laptop.wait(lambda: set(laptop.bound(home)) <= {"pi-launcher"}, "the workers to be cleaned up")
    assert shown(laptop, home) == "Succeeded"


def shown(cluster, namespace: str) -> str:
    """Return the state that kubectl shows."""
    line = cluster.kubectl("get", "mpijob", "-n", namespace, "--no-headers")
    return line.split()[1]


def job(**spec) -> dict:
    """Return a job of a launcher and two workers with a GPU each, in v2beta1."""

    def role(command: str, replicas: int, gpus: int) -> dict:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", command]}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}

    roles = {"Launcher": role("sleep 1000", 1, 0), "Worker": role("sleep 1000", 2, 1)}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "j"},
        "spec": {"mpiReplicaSpecs": roles, **spec},
    }


def test_a_launcher_that_waits_for_its_workers_does_not_hold_them_up(cluster, namespace):
    """A gang that counted a launcher which does not exist yet would wait for ever."""
    body = job(launcherCreationPolicy="WaitForWorkersReady")
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(body))
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Running", "MPIJob"), "all to run", 60)
    cluster.wait_event(namespace, "MPIJobRunning", name="j")
    group = cluster.get_group(namespace, "j")
    assert group["spec"]["minMember"] == 2
    started = {
        p.metadata.name: p.status.start_time
        for p in cluster.core.list_namespaced_pod(namespace).items
    }
    assert set(started) == {"j-launcher", "j-worker-0", "j-worker-1"}
    assert started["j-launcher"] >= max(started["j-worker-0"], started["j-worker-1"])


def test_the_gang_is_all_or_none_and_knows_the_launcher(cluster, namespace):
    body = job()
    body["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 500
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(body))
    cluster.wait(
        lambda: cluster.condition(namespace, "j").get("reason") == "LargerThanCluster", "the reason"
    )
    assert cluster.get_group(namespace, "j")["spec"]["minMember"] == 501
    assert not cluster.core.list_namespaced_pod(namespace).items


def test_suspended_and_resumed_it_gets_its_service_again(cluster, namespace):
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(job()))
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Running", "MPIJob"), "it to run", 60)
    for suspend in (True, False):
        body = {"spec": {"runPolicy": {"suspend": suspend}}}
        cluster.patch_job(namespace, "j", body, "MPIJob")
        state = "Suspended" if suspend else "Running"
        cluster.wait(lambda s=state: cluster.is_true(namespace, "j", s, "MPIJob"), state, 60)
    assert [s.metadata.name for s in cluster.core.list_namespaced_service(namespace).items] == ["j"]


def test_a_successor_of_the_same_name_has_its_own_keys_and_hosts(cluster, namespace):
    text = yaml.safe_dump(job())
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=text)
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Running", "MPIJob"), "the first", 60)
    cluster.kubectl("delete", "mpijob", "j", "-n", namespace)
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=text)
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Running", "MPIJob"), "the second", 60)
    uid = cluster.job(namespace, "j", "MPIJob")["metadata"]["uid"]
    for found in (
        cluster.core.read_namespaced_config_map("j-config", namespace),
        cluster.core.read_namespaced_secret("j-ssh", namespace),
        cluster.core.read_namespaced_service("j", namespace),
    ):
        assert [owner.uid for owner in found.metadata.owner_references] == [uid]
