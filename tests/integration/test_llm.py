"""Fine-tuning for real: `make llm` has an environment with transformers, TRL and PEFT for it."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from pages import Shell
from test_initializers import claim, logs, trainjob, wait_over
from waiting import patience_s

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "llm"
PROGRAMS = Path(__file__).parent / "llm"
PAGE = "docs/jobs/llm.md"
LOSS = re.compile(r"'loss': '?([0-9.]+)")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("trl") is None, reason="trl is not installed; see make llm"
    ),
]


@pytest.fixture
def home(laptop):
    """A namespace on process nodes."""
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


@pytest.fixture
def sdk(laptop, home):
    """The SDK's client, in the test's namespace."""
    from kubeflow.common.types import KubernetesBackendConfig  # takes two seconds to import
    from kubeflow.trainer import TrainerClient

    configuration = KubernetesBackendConfig(
        namespace=home, config_file=str(laptop.plane.kubeconfig)
    )
    return TrainerClient(configuration)


def outputs(laptop, home, job: str) -> set[str]:
    """Return the files that a job saved."""
    name = laptop.core.read_namespaced_persistent_volume_claim(
        f"initializer-{job}", home
    ).spec.volume_name
    folder = Path(laptop.core.read_persistent_volume(name).spec.host_path.path)
    return {path.name for path in (folder / "output").iterdir()}


def test_the_page_fine_tunes_by_the_sdk(laptop, home, sdk, tmp_path):
    """docs/jobs/llm.md: SFT and LoRA by BuiltinTrainer, a function, and ranks of two nodes."""
    Shell(tmp_path, laptop.plane.kubeconfig, home).walk(PAGE)
    jobs = {job.name: job for job in sdk.list_jobs()}
    assert {job.status for job in jobs.values()} == {"Complete"}
    tuned = {}
    for name, job in jobs.items():
        if not job.runtime.name.endswith("-finetuning"):
            continue
        assert [step.name for step in job.steps][-1] == "node-0"
        losses = [float(text) for text in LOSS.findall(logs(laptop, home, name, "node"))]
        assert losses[-1] < 0.9 * losses[0], losses
        files = outputs(laptop, home, name)
        kind = "adapter" if "adapter_model.safetensors" in files else "model"
        assert f"{kind}{'_model' if kind == 'adapter' else ''}.safetensors" in files
        tuned.setdefault((job.runtime.name, kind), []).append(name)
    assert {key: len(names) for key, names in tuned.items()} == {
        ("trl-finetuning", "model"): 1,
        ("trl-finetuning", "adapter"): 1,
        ("torch-finetuning", "model"): 1,
    }


SECRET = "hf_0123456789abcdef"  # noqa: S105


def served(laptop, home, name: str, program: str, port: int) -> None:
    """Run a program as a pod with the claim `llm`, behind a Service of the same name."""
    container = {
        "name": name,
        "image": "none",
        "command": ["python3", f"/code/{program}", SECRET],
        "volumeMounts": [
            {"name": "code", "mountPath": "/code"},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "volumes": [
                {"name": "code", "configMap": {"name": "programs"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "llm"}},
            ],
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": port}]},
    }
    laptop.apply(home, yaml.safe_dump_all([pod, service]))
    laptop.wait(
        lambda: "is ready" in laptop.kubectl("logs", "-n", home, name, check=False),
        f"the {name}",
        patience_s(60),
    )


@pytest.fixture
def stores(laptop, home):
    """A store with the interface of S3 and a hub, with the example's model and data set."""
    import subprocess
    import sys

    folder = claim(laptop, home, "llm")
    make = [sys.executable, EXAMPLES / "make_model.py", folder]
    subprocess.run(make, check=True, timeout=patience_s(120))
    data = {path.name: path.read_text() for path in PROGRAMS.glob("*.py")}
    laptop.core.create_namespaced_config_map(home, {"metadata": {"name": "programs"}, "data": data})
    laptop.core.create_namespaced_secret(
        home,
        {
            "metadata": {"name": "keys"},
            "stringData": {
                "ACCESS_TOKEN": SECRET,
                "ACCESS_KEY_ID": "key",
                "SECRET_ACCESS_KEY": SECRET,
            },
        },
    )
    served(laptop, home, "store", "store.py", 9000)
    served(laptop, home, "hub", "hub.py", 8080)
    return folder


def fetched(name: str, dataset: dict, model: dict) -> str:
    """Return a job that lists what its initializers fetched."""
    command = ["sh", "-c", "cd /workspace && ls dataset model && wc -l dataset/*.json"]
    initializer = {"dataset": dataset, "model": model}
    trainer = {"command": command}
    return trainjob(name, "torch-finetuning", initializer=initializer, trainer=trainer)


HUB = {"name": "HF_ENDPOINT", "value": "http://hub:8080"}
STORE = [
    {"name": "ENDPOINT", "value": "http://store:9000"},
    {"name": "REGION", "value": "us-east-1"},
]
KEYS = {"secretRef": {"name": "keys"}}


def test_a_store_and_a_hub_with_keys_of_a_secret(laptop, home, stores):
    parts = {
        "s3": (
            {"storageUri": "s3://models/tiny/dataset", "env": STORE, **KEYS},
            {"storageUri": "s3://models/tiny/model", "env": STORE, **KEYS},
        ),
        "hf": (
            {"storageUri": "hf://team/questions", "env": [HUB], **KEYS},
            {"storageUri": "hf://team/tiny", "env": [HUB], **KEYS},
        ),
    }
    for name, (dataset, model) in parts.items():
        laptop.apply(home, fetched(name, dataset, model))
    for name in parts:
        said = wait_over(laptop, home, name, 120)
        shown = [logs(laptop, home, name, f"{part}-initializer") for part in ("dataset", "model")]
        assert said["type"] == "Complete", shown
        log = logs(laptop, home, name, "node")
        assert {"train.json", "config.json", "model.safetensors", "tokenizer.json"} <= set(
            log.split()
        )
        assert "144 dataset/train.json" in log
        assert SECRET not in "".join(shown) + log
        assert logs(laptop, home, name, "model-initializer").count("files, ") == 1


def test_a_hub_that_refuses_a_token_ends_the_initializer_without_showing_it(laptop, home, stores):
    wrong = "hf_wrong_0123456789"
    dataset = {"storageUri": "hf://team/questions", "env": [HUB, token(wrong)]}
    model = {"storageUri": "pvc://llm/model"}
    laptop.apply(home, fetched("refused", dataset, model))
    text = laptop.wait(
        lambda: re.search(
            r"the hub refuses team/questions: .*401",
            logs(laptop, home, "refused", "dataset-initializer"),
        ),
        "the reason",
        60,
    )
    assert wrong not in text.string


def token(value: str) -> dict:
    """Return the variable of a token."""
    return {"name": "ACCESS_TOKEN", "value": value}
