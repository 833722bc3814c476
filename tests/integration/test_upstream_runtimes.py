"""Kubeflow's own runtimes of Trainer 2.0 and 2.3, unchanged from their Go module."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from waiting import patience_s

from gangsched.jobs.common.templates import is_contained
from gangsched.local import components

ROOT = Path(__file__).parents[2]
LABEL = "trainer.kubeflow.org/framework"
VERSIONS = ("v2.0.0", "v2.3.0")


def download(version: str) -> Path:
    """Return Trainer's sources; skip where the module proxy cannot be had."""
    go = components.go_toolchain(lambda _: None)
    done = subprocess.run(
        [go, "mod", "download", "-json", f"github.com/kubeflow/trainer/v2@{version}"],
        env=os.environ | {"GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(120),
    )
    if done.returncode:
        pytest.skip(f"Trainer {version} cannot be downloaded: {done.stdout} {done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


@pytest.fixture(scope="module", params=VERSIONS)
def runtimes(request, laptop):
    """The runtimes of one version, in the cluster; ours are back afterwards."""
    folder = download(request.param) / "manifests" / "base" / "runtimes"
    files = [p for p in sorted(folder.rglob("*.yaml")) if p.name != "kustomization.yaml"]
    applied = ("apply", "--server-side", "--force-conflicts", "--validate=strict")
    laptop.kubectl(*applied, "--field-manager=kubectl", *(f"--filename={path}" for path in files))
    documents = [one for path in files for one in yaml.safe_load_all(path.read_text())]
    found = {document["metadata"]["name"]: document for document in documents}
    yield found
    laptop.kubectl("delete", "clustertrainingruntime", *found)
    laptop.kubectl("apply", "-k", str(ROOT / "manifests" / "runtimes"))


@pytest.fixture
def home(laptop):
    """A namespace on process nodes."""
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


def train(laptop, home, name: str, runtime: str, nodes: int, command: list[str]) -> None:
    """Create a TrainJob on a runtime, with a command that a process node can run."""
    trainer = {"numNodes": nodes, "command": command, "args": []}
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer},
    }
    laptop.apply(home, yaml.safe_dump(body))


def state(laptop, home, name: str) -> set[str]:
    """Return the true conditions of a TrainJob."""
    body = laptop.custom.get_namespaced_custom_object(
        "trainer.kubeflow.org", "v1alpha1", home, "trainjobs", name
    )
    listed = (body.get("status") or {}).get("conditions") or []
    return {one["type"] for one in listed if one["status"] == "True"}


def test_they_are_accepted_as_they_are(laptop, runtimes):
    for name, document in runtimes.items():
        kept = laptop.custom.get_cluster_custom_object(
            "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", name
        )
        assert is_contained(document["spec"], kept["spec"]), "more may be there, by default"


def test_the_sdk_lists_them_with_their_frameworks(laptop, home, runtimes):
    from kubeflow.common.types import KubernetesBackendConfig
    from kubeflow.trainer import TrainerClient

    configuration = KubernetesBackendConfig(
        namespace=home, config_file=str(laptop.plane.kubeconfig)
    )
    client = TrainerClient(configuration)

    def torch() -> object:
        return {one.name: one for one in client.list_runtimes()}.get("torch-distributed")

    # Those of 2.0 come without the label that the SDK asks for: it is put on them.
    assert laptop.wait(torch, "the SDK to find it").trainer.framework == "torch"
    listed = {one.name: one.trainer.framework for one in client.list_runtimes()}
    for name, document in runtimes.items():
        framework = (document["metadata"].get("labels") or {}).get(LABEL)
        if name in listed and framework:
            assert listed[name] == framework


def test_two_nodes_train_on_the_torch_runtime(laptop, home, runtimes):
    script = 'test "$PET_NNODES" = 2 && echo "node $PET_NODE_RANK at $PET_MASTER_ADDR"'
    train(laptop, home, "t", "torch-distributed", 2, ["sh", "-c", script])
    # It may be Failed for a moment: until it is known that the runtime is there again.
    laptop.wait(lambda: state(laptop, home, "t") == {"Complete"}, "its end", 60)
    pods = laptop.core.list_namespaced_pod(home).items
    logs = {laptop.kubectl("logs", "-n", home, pod.metadata.name) for pod in pods}
    assert logs == {f"node {rank} at t-node-0-0.t\n" for rank in (0, 1)}


def test_a_launcher_and_its_nodes_are_made_for_the_mpi_runtimes(laptop, home, runtimes):
    """Their images are needed to run; the gang, the keys and the host file are ours."""
    name = next(n for n in ("mpi-distributed", "deepspeed-distributed") if n in runtimes)
    train(laptop, home, "m", name, 2, ["mpirun", "true"])
    jobset = laptop.wait(lambda: laptop.json("jobset", "-n", home)["items"], "the JobSet")[0]
    jobs = {one["name"] for one in jobset["spec"]["replicatedJobs"]}
    assert jobs == {"launcher", "node"}
    (hosts,) = laptop.wait(
        lambda: (
            laptop.core.list_namespaced_config_map(
                home, field_selector="metadata.name=m-mpi-hostfile"
            ).items
        ),
        "the host file",
    )
    first = hosts.data["hostfile"].splitlines()[0]
    assert first.startswith(("m-launcher-0-0.m slots=", "m-node-0-0.m slots="))
    (secret,) = laptop.wait(
        lambda: (
            laptop.core.list_namespaced_secret(
                home, field_selector="metadata.name=m-mpi-ssh-auth"
            ).items
        ),
        "the keys",
    )
    assert secret.type == "kubernetes.io/ssh-auth"
