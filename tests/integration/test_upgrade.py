"""From the released version to this one: gangs in every state, two versions of kinds, storage.

The released version is its own code, from the repository's history, and its own CRDs.
"""

import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from conftest import KWOK, a_plane
from kubernetes.client.exceptions import ApiException
from reading import Reader
from waiting import patience_s, until

from gangsched.api import names
from gangsched.local.bootstrap import bootstrap, wait_for_policies
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions

RELEASED = "0bee859"
OLD = "v1alpha1"
ROOT = Path(__file__).parents[2]
CRDS = sorted((Path(__file__).parent / "released").glob("*.yaml"))
BOTH = ("gangsched", "gangsched-standby")
NODES = NodeFile(nodes=(KWOK,))

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: %s}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: %d
      template:
        spec:
          schedulerName: gangsched
          nodeSelector: {gangsched.io/node-kind: kwok}
          containers:
          - name: pytorch
            image: none
            resources: {limits: {nvidia.com/gpu: "%d"}}
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    """The released version's code."""
    folder = tmp_path_factory.mktemp("released")
    packed = folder / "code.tar"
    command = ["git", "-C", str(ROOT), "archive", "-o", str(packed), RELEASED]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip(f"the repository has no history here, and so no {RELEASED}")
    with tarfile.open(packed) as code:
        code.extractall(folder, filter="data")
    return folder


class Upgraded(Cluster):
    """A control plane whose schedulers are replaced one after the other."""

    def run(self, name: str, code: Path) -> None:
        """Start one of two schedulers, of some version."""
        command = [sys.executable, "-m", "gangsched", "run", "--binding", "direct"]
        command += ["--kubeconfig", str(self.plane.folder / "gangsched.kubeconfig")]
        settings = self.plane.folder / "settings.yaml"
        # What fits may pass those that wait; a slow machine loses no Lease by chance.
        settings.write_text(f"backfill: greedy\nlease_s: {patience_s(4)}\n")
        command += ["--config", str(settings), "--leader-elect", "--metrics-port", "0"]
        environment = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(code)}
        self.plane.programs.start(name, command, environment)
        self.wait(lambda: "gangsched" in self.plane.programs.tail(name), f"{name} to begin")

    def group_in(self, version: str, namespace: str, name: str) -> dict:
        """Read a PodGroup as a client of some version does."""
        return self.custom.get_namespaced_custom_object(
            names.GROUP, version, namespace, "podgroups", name
        )

    def tails(self) -> str:
        """Return the last words of both schedulers."""
        return "\n".join(f"{name}:\n{self.plane.programs.tail(name, 25)}" for name in BOTH)

    def phase(self, namespace: str, name: str) -> str:
        """Return a group's phase; nothing where its controller did not create it yet."""
        try:
            return (self.group_in(OLD, namespace, name).get("status") or {}).get("phase", "")
        except ApiException as error:
            if error.status != 404:
                raise
            return ""

    def uids(self, namespace: str) -> dict[str, tuple[str, str]]:
        """Return uid and node of every bound pod, by name."""
        return {
            pod.metadata.name: (pod.metadata.uid, pod.spec.node_name)
            for pod in self.core.list_namespaced_pod(namespace).items
            if pod.spec.node_name
        }


@pytest.fixture(scope="module")
def cluster(released):
    """A control plane with the released CRDs, and two schedulers of the released version."""
    with a_plane("test-upgrade", NODES, PlaneOptions(binding="off", operators=False)) as plane:
        found = Upgraded(plane, "direct")
        for path in CRDS:
            crd = path.stem.replace("gangsched.io_", "") + ".gangsched.io"
            found.kubectl("delete", "crd", crd, "--wait=false")
            left = partial(found.kubectl, "get", "crd", crd, "--ignore-not-found", "-o", "yaml")
            until(lambda left=left: not left(), f"{crd} to be gone", 60.0, shown=left)
            found.kubectl("create", "-f", str(path))
        for name in BOTH:
            found.run(name, released)
        yield found


def test_a_rolling_upgrade_with_gangs_in_every_state(cluster):
    namespace = cluster.new_namespace()
    old = yaml.safe_load((Path(__file__).parent / "released" / CRDS[0].name).read_text())
    assert [one["name"] for one in old["spec"]["versions"]] == [OLD]
    cluster.apply("default", _queue())
    for name in ("runs", "gone"):
        _gang(cluster, namespace, name, 1)
    cluster.apply(namespace, JOB % ("job-runs", 2, 4))
    cluster.wait_placed(namespace, "", 4)
    cluster.core.delete_namespaced_pod("gone-0", namespace, grace_period_seconds=0)
    _gang(cluster, namespace, "waits", 3)
    cluster.apply(namespace, JOB % ("job-waits", 4, 8))
    _gang(cluster, namespace, "never", 5)
    _group(cluster, namespace, "empty", 2)
    cluster.wait(lambda: cluster.phase(namespace, "waits") == "Pending", "a gang that waits")
    cluster.wait(lambda: cluster.phase(namespace, "job-waits"), "a job that waits")
    before = cluster.uids(namespace)
    assert set(before) == {"runs-0", "job-runs-worker-0", "job-runs-worker-1"}

    # First the kinds, while the old version still leads: it meets what it does not know.
    bootstrap(cluster.plane.kubeconfig, NodeFile(nodes=()), gate=False)
    wait_for_policies(cluster.plane.kubeconfig)
    _add_future_field(cluster)
    cluster.wait(lambda: _knows_future(cluster, namespace), "the changed kind to be served")
    _gang(cluster, namespace, "newer", 1, future="kept")
    cluster.wait_placed(namespace, "newer-", 1)
    for name in ("newer", "runs"):
        cluster.wait(lambda n=name: cluster.phase(namespace, n) == "Placed", f"the phase of {name}")
    for version in (OLD, names.VERSION):
        assert cluster.group_in(version, namespace, "newer")["spec"]["future"] == "kept"
        assert cluster.group_in(version, namespace, "runs")["status"]["phase"] == "Placed"

    # Then one process after the other.
    for name in reversed(BOTH):
        cluster.plane.programs.stop(name)
        cluster.run(name, ROOT)
    _gang(cluster, namespace, "after", 1)
    after = {**before, **cluster.wait(lambda: _with(cluster, namespace, "after-0"), "a new gang")}
    assert {name: after[name] for name in before} == before
    assert not cluster.overcommitted()
    phases = {"runs": "Placed", "job-runs": "Placed", "waits": "Pending", "never": "Pending"}
    cluster.wait(
        lambda: all(cluster.phase(namespace, name) == phase for name, phase in phases.items()),
        f"the phases {phases}",
    )
    assert cluster.uids(namespace).items() >= before.items()
    assert not cluster.job(namespace, "job-runs")["status"].get("gangRestarts")

    # What waited starts when there is room.
    for pod in ("runs-0", "newer-0", "after-0"):
        cluster.core.delete_namespaced_pod(pod, namespace, grace_period_seconds=0)
    cluster.wait_placed(namespace, "waits-", 3)
    cluster.kubectl("delete", "pytorchjob", "job-runs", "-n", namespace)
    for index in range(3):
        cluster.core.delete_namespaced_pod(f"waits-{index}", namespace, grace_period_seconds=0)
    cluster.wait_placed(namespace, "job-waits-", 4)
    cluster.remove_namespace(namespace)


def test_what_is_stored_moves_to_the_new_version(cluster):
    namespace = cluster.new_namespace()
    for index in range(3):
        cluster.group(namespace, f"g{index}", 1)
    cluster.wait(
        lambda: len(cluster.json("podgroups.gangsched.io", "-A")["items"]) == 3,
        "those of other tests to be gone",
    )
    assert _stored(cluster) == [OLD, names.VERSION]
    kubeconfig = ("--kubeconfig", str(cluster.plane.kubeconfig))
    _, said = cluster.gangsched("doctor", *kubeconfig)
    assert "gangsched migrate-storage" in said
    code, said = cluster.gangsched("migrate-storage", *kubeconfig)
    assert code == 0
    assert "podgroups.gangsched.io: 3 written in v1beta1" in said.replace("\n", " ")
    assert _stored(cluster) == [names.VERSION]
    code, said = cluster.gangsched("migrate-storage", *kubeconfig)
    assert "podgroups.gangsched.io: all in v1beta1" in said

    # A later release may now do without the old version, and nothing is lost.
    crd = cluster.json("crd", "podgroups.gangsched.io")
    crd["spec"]["versions"] = [v for v in crd["spec"]["versions"] if v["name"] == names.VERSION]
    cluster.kubectl("replace", "-f", "-", stdin=yaml.safe_dump(crd))
    cluster.reader = Reader(cluster.api)  # it asks again what is served, as a new kubectl does
    listed = cluster.items("podgroups", "-n", namespace)
    assert [one["metadata"]["name"] for one in listed] == ["g0", "g1", "g2"]


def _gang(cluster, namespace: str, name: str, pods: int, **spec) -> None:
    """Create a gang of whole nodes."""
    _group(cluster, namespace, name, pods, **spec)
    for index in range(pods):
        cluster.pod(namespace, f"{name}-{index}", labels={names.POD_GROUP_LABEL: name})


def _group(cluster, namespace: str, name: str, pods: int, **spec) -> None:
    """Create a PodGroup, as a client of the released version does, or of the new one."""
    version = names.VERSION if spec else OLD
    cluster.custom.create_namespaced_custom_object(
        names.GROUP, version, namespace, "podgroups", _body(name, pods, version, **spec)
    )


def _body(name: str, pods: int, version: str, **spec) -> dict:
    return {
        "apiVersion": f"{names.GROUP}/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": pods, **spec},
    }


def _queue() -> str:
    return yaml.safe_dump(
        {
            "apiVersion": f"{names.GROUP}/{OLD}",
            "kind": "Queue",
            "metadata": {"name": "team"},
            "spec": {"quotas": [{"resource": "nvidia.com/gpu", "nominal": 8}]},
        }
    )


def _add_future_field(cluster) -> None:
    """Have the kind as a later release may: with a field that this one does not know."""
    crd = cluster.json("crd", "podgroups.gangsched.io")
    for version in crd["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["future"] = {"type": "string"}
    cluster.kubectl("replace", "-f", "-", stdin=yaml.safe_dump(crd))


def _knows_future(cluster, namespace: str) -> bool:
    body = _body("probe", 1, names.VERSION, future="x")
    try:
        cluster.custom.create_namespaced_custom_object(
            names.GROUP,
            names.VERSION,
            namespace,
            "podgroups",
            body,
            dry_run="All",
            field_validation="Strict",
        )
    except ApiException:
        return False
    return True


def _with(cluster, namespace: str, name: str) -> dict:
    found = cluster.uids(namespace)
    return found if name in found else {}


def _stored(cluster) -> list[str]:
    return cluster.json("crd", "podgroups.gangsched.io")["status"]["storedVersions"]
