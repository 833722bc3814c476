"""The parts of the guides around their jobs: data from init containers, metrics, trials."""

import re

import pytest
import yaml
from test_guides import blocks, needs_guides

JOB = "resnet-distributed-training"
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: imagenet-dataset}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
"""
SERVICE = f"""
apiVersion: v1
kind: Service
metadata: {{name: training-metrics, labels: {{app: distributed-training}}}}
spec:
  ports: [{{port: 8000, name: metrics}}]
  selector: {{job-name: {JOB}}}
  type: ClusterIP
"""
BRING = "echo $HOSTNAME >> /data/brought"
TRAIN = "grep -q $HOSTNAME /data/brought && sleep 1000000"


def job() -> dict:
    """Return the second guide's job, with an init container that brings its data."""
    container = {
        "name": "pytorch",
        "image": "your-registry/distributed-training:v1",
        "command": ["sh", "-c", TRAIN],
        "ports": [{"name": "metrics", "containerPort": 8000}],
        "volumeMounts": [{"name": "dataset", "mountPath": "/data"}],
    }
    bring = container | {"name": "data-downloader", "command": ["sh", "-c", BRING], "ports": []}
    spec = {
        "initContainers": [bring],
        "containers": [container],
        "volumes": [
            {"name": "dataset", "persistentVolumeClaim": {"claimName": "imagenet-dataset"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ],
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"annotations": {"sidecar.istio.io/inject": "false"}}
    roles = {
        role: {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": {"metadata": metadata, "spec": spec},
        }
        for role, count in {"Master": 1, "Worker": 3}.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": JOB},
        "spec": {"pytorchReplicaSpecs": roles},
    }


@pytest.fixture
def home(laptop):
    """A namespace on process nodes."""
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


def slices(laptop, namespace, service) -> tuple[set[str], set[str]]:
    """Return which pods stand behind a Service, and the names of their ports."""
    found = laptop.json(
        "get", "endpointslices", "-n", namespace, "-l", f"kubernetes.io/service-name={service}"
    )["items"]
    pods = {one["targetRef"]["name"] for s in found for one in s.get("endpoints") or []}
    return pods, {port["name"] for s in found for port in s.get("ports") or []}


def test_data_metrics_and_the_guides_labels(laptop, home):
    laptop.apply(home, CLAIM)
    laptop.apply(home, SERVICE)
    laptop.create_job(home, job())
    laptop.wait(lambda: laptop.is_true(home, JOB, "Running"), "it to run", 60)
    pods = {f"{JOB}-master-0", *(f"{JOB}-worker-{i}" for i in range(3))}

    def named() -> list[dict]:
        return laptop.json("get", "pods", "-n", home, "-l", f"job-name={JOB}")["items"]

    laptop.wait(lambda: {pod["metadata"]["name"] for pod in named()} == pods, "all of its pods")
    for pod in named():  # as the user wrote them: no init container waits for the master
        assert [one["name"] for one in pod["spec"]["initContainers"]] == ["data-downloader"]
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    # The guides' ServiceMonitors look for Services by label, and for a port of that name.
    laptop.wait(
        lambda: slices(laptop, home, "training-metrics") == (pods, {"metrics"}), "the endpoints"
    )
    masters = laptop.json(
        "get", "services", "-n", home, "-l", "training.kubeflow.org/job-role=master"
    )["items"]
    assert [one["metadata"]["name"] for one in masters] == [f"{JOB}-master-0"]
    assert "metrics" in {port["name"] for port in masters[0]["spec"]["ports"]}


@needs_guides
def test_a_trial_of_the_guides_experiment_is_a_gang_of_one(cluster, namespace):
    """Katib makes a Job of each trial: its template, with the trial's values."""
    (text,) = (t for t in blocks("002").values() if "cnn-hyperparameter-tuning" in t)
    trial = yaml.safe_load(re.sub(r"\$\{trialParameters\.\w+\}", "1", text))
    job = trial["spec"]["trialTemplate"]["trialSpec"] | {"metadata": {"name": "trial"}}
    spec = job["spec"]["template"]["spec"]
    spec |= {"schedulerName": "gangsched", "terminationGracePeriodSeconds": 0}
    spec["nodeSelector"] = {"gangsched.io/node-kind": "kwok"}
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(job))
    cluster.wait_placed(namespace, "trial-", 1)


@needs_guides
@pytest.mark.by("extender")  # nothing is bound
def test_what_the_guides_run_beside_jobs_is_accepted(cluster):
    found = {n: t for n, t in blocks("002").items() if "mlflow" in n}
    assert found
    for text in found.values():
        for document in yaml.safe_load_all(text):
            document["metadata"].pop("namespace", None)
            cluster.kubectl(
                "create", "--dry-run=server", "--validate=strict", "-f", "-",
                stdin=yaml.safe_dump(document),
            )  # fmt: skip
