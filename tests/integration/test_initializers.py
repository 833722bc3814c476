"""Initializers on process nodes: their data is there when training starts, and for it alone."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

PARTS = ("dataset", "model")
EXAMPLES = Path(__file__).parents[2] / "examples" / "llm"
needs_mpi = pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()),
    reason="Open MPI and sshd are not installed (Debian: openmpi-bin openssh-server)",
)


@pytest.fixture
def home(laptop):
    """A namespace on process nodes."""
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


def claim(laptop, home, name: str) -> Path:
    """Create a volume claim; return the folder of its volume."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": name}, "spec": spec}
    laptop.core.create_namespaced_persistent_volume_claim(home, body)
    volume = laptop.wait(
        lambda: laptop.core.read_namespaced_persistent_volume_claim(name, home).spec.volume_name,
        "its volume",
    )
    return Path(laptop.core.read_persistent_volume(volume).spec.host_path.path)


def trainjob(name: str, runtime: str, patches=(), **spec) -> str:
    """Return a TrainJob with patches of replicated jobs: name and pod spec."""
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": s}}}} for job, s in patches]
    template = {"spec": {"replicatedJobs": jobs}}
    patch = {"manager": "test.io/test", "trainingRuntimeSpec": {"template": template}}
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime}, "runtimePatches": [patch], **spec},
    }
    return yaml.safe_dump(body)


def wait_over(laptop, home, name: str, timeout_s=60.0) -> dict:
    """Wait until a TrainJob is over; return its final condition."""

    def final():
        body = laptop.custom.get_namespaced_custom_object(
            "trainer.kubeflow.org", "v1alpha1", home, "trainjobs", name
        )
        listed = (body.get("status") or {}).get("conditions") or []
        return [
            one
            for one in listed
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        ]

    return laptop.wait(final, f"the end of {name}", timeout_s)[0]


def logs(laptop, home, job: str, step: str) -> str:
    """Return the logs of the pods of a step; one that has not begun has none."""
    selector = f"jobset.sigs.k8s.io/jobset-name={job},jobset.sigs.k8s.io/replicatedjob-name={step}"
    pods = laptop.core.list_namespaced_pod(home, label_selector=selector).items
    names = sorted(pod.metadata.name for pod in pods)
    return "\n".join(laptop.kubectl("logs", "-n", home, name, check=False) for name in names)


TOKEN = "hf_0123456789"  # noqa: S105
FETCH = 'printf %s "$ACCESS_TOKEN" | sha256sum; exec python3 -m gangsched.initializers model'
TRAIN = """cd /workspace
find dataset model -type f | sort
cat dataset/*.json model/*.json
ls -A /mnt/storage 2>&1
env"""


def fine_tuning() -> str:
    """Return a job whose data comes by pvc:// and whose model by file://, with a token."""
    container = {
        "name": "model-initializer",
        "command": ["sh", "-c", FETCH],
        "volumeMounts": [{"name": "models", "mountPath": "/mnt/models"}],
    }
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    pod = {"containers": [container], "volumes": [volume]}
    initializer = {
        "dataset": {"storageUri": "pvc://data/sets"},
        "model": {
            "storageUri": "file:///mnt/models/tiny",
            "env": [
                {"name": "IGNORE_PATTERNS", "value": "*.bin,*.pt"},
                {"name": "ACCESS_TOKEN", "value": TOKEN},
            ],
        },
    }
    trainer = {"command": ["sh", "-c", TRAIN]}
    patches = [("model-initializer", pod)]
    return trainjob("t", "torch-finetuning", patches, initializer=initializer, trainer=trainer)


def test_data_is_there_when_training_starts_and_a_token_is_in_its_own_pod_alone(laptop, home):
    data, models = claim(laptop, home, "data"), claim(laptop, home, "models")
    (data / "sets").mkdir()
    (data / "sets" / "train.json").write_text("the data set\n")
    (data / "other").write_text("not asked for")
    (models / "tiny").mkdir()
    (models / "tiny" / "config.json").write_text("the model\n")
    (models / "tiny" / "weights.bin").write_text("left out")
    laptop.apply(home, fine_tuning())
    said = wait_over(laptop, home, "t")
    dataset, model = (logs(laptop, home, "t", f"{part}-initializer") for part in PARTS)
    assert said["type"] == "Complete", (dataset, model)
    assert "/workspace/dataset of pvc://data/sets: 1 files, 13 bytes" in dataset
    trained = logs(laptop, home, "t", "node")
    files = ["dataset/train.json", "model/config.json", "the data set", "the model"]
    assert trained.splitlines()[:4] == files
    assert "cannot access '/mnt/storage'" in trained, "the claim is its initializer's"
    for name in ("STORAGE_URI", "ACCESS_TOKEN"):
        assert name not in trained

    assert hashlib.sha256(TOKEN.encode()).hexdigest() in model
    assert TOKEN not in dataset + model + trained
    for kind in ("jobsets", "jobs", "pods", "podgroups", "events"):
        assert TOKEN not in json.dumps(laptop.json(kind, "-n", home)), kind
    laptop.wait_event(home, "TokenInSpec", name="t")
    names = {
        secret.metadata.name: secret for secret in laptop.core.list_namespaced_secret(home).items
    }
    (secret,) = (names[name] for name in names if name.startswith("t-tokens-"))
    assert [owner.kind for owner in secret.metadata.owner_references] == ["TrainJob"]


@needs_mpi
def test_mpirun_trains_on_the_nodes_of_a_trainjob(laptop, home):
    """The deepspeed runtime; the machine's own sshd and Open MPI in place of its image."""
    body = {
        "metadata": {"name": "mpi"},
        "data": {"train.py": (EXAMPLES / "mpi_train.py").read_text()},
    }
    laptop.core.create_namespaced_config_map(home, body)
    laptop.apply(home, (EXAMPLES / "deepspeed.yaml").read_text())
    said = wait_over(laptop, home, "deepspeed", 120)
    log = logs(laptop, home, "deepspeed", "launcher")
    assert said["type"] == "Complete", log
    hosts = {"deepspeed-launcher-0-0", "deepspeed-node-0-0"}
    assert all(f"of 2 on {host}" in log for host in hosts), log
    first, last = map(float, log.rpartition("loss ")[2].split("\n")[0].split(" to "))
    assert last < first / 2
