"""The parts of the guides around their jobs: data from init containers, metrics, trials."""

import contextlib
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest
import yaml
from test_guides import blocks, needs_guides
from waiting import patience_s

from gangsched.local import commands, components
from gangsched.local.network import answers, free_ports

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
TRAINING = """
apiVersion: v1
kind: Service
metadata: {name: more-metrics, labels: {app: training}}
spec:
  ports: [{port: 8000, name: metrics}]
  selector: {training.kubeflow.org/replica-type: worker}
"""
SECOND_MONITOR = """
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: training-monitor}
spec:
  selector:
    matchLabels: {app: distributed-training}
  endpoints:
  - {port: metrics, interval: 30s}
"""
"""The second guide's, which lost its indentation there."""

SERVE = (
    "import prometheus_client as p; p.Gauge('training_epoch', 'Epoch.').set(3); "
    "p.start_http_server(8000)[1].join()"
)
BRING = "echo $HOSTNAME >> /data/brought"
TRAIN = f'grep -q $HOSTNAME /data/brought && exec {sys.executable} -c "{SERVE}"'


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
        "endpointslices", "-n", namespace, "-l", f"kubernetes.io/service-name={service}"
    )["items"]
    pods = {one["targetRef"]["name"] for s in found for one in s.get("endpoints") or []}
    return pods, {port["name"] for s in found for port in s.get("ports") or []}


def scrape_config(cluster, monitor: dict, namespace: str) -> dict:
    """Return what the Prometheus Operator makes of a ServiceMonitor, but each second.

    A Prometheus outside the network of the pods reaches them by the API server.
    """
    (endpoint,) = monitor["spec"]["endpoints"]
    host = urllib.parse.urlsplit(cluster.plane.info()["server"]).netloc
    found, labels = "__meta_kubernetes_", monitor["spec"]["selector"]["matchLabels"]
    wanted = {re.sub(r"\W", "_", f"{found}service_label_{key}"): labels[key] for key in labels}
    wanted[f"{found}endpointslice_port_name"] = endpoint["port"]
    pod = [f"{found}namespace", f"{found}pod_name", "__address__"]
    path = "/api/v1/namespaces/$1/pods/$2:$3/proxy" + endpoint.get("path", "/metrics")
    rules = [
        *({"source_labels": [k], "regex": v, "action": "keep"} for k, v in wanted.items()),
        {"source_labels": [f"{found}service_name"], "target_label": "service"},
        {"source_labels": [f"{found}pod_name"], "target_label": "pod"},
        {
            "source_labels": pod,
            "regex": r"(.+);(.+);.*:(\d+)",
            "replacement": path,
            "target_label": "__metrics_path__",
        },
        {"replacement": host, "target_label": "__address__"},
    ]
    kubeconfig = str(cluster.plane.kubeconfig)
    sd = {
        "role": "endpointslice",
        "kubeconfig_file": kubeconfig,
        "namespaces": {"names": [namespace]},
    }
    (admin,) = yaml.safe_load(cluster.plane.kubeconfig.read_text())["users"]
    return {
        "job_name": monitor["metadata"]["name"],
        "scheme": "https",
        "tls_config": {"ca_file": str(cluster.plane.folder / "pki" / "ca.crt")},
        "authorization": {"credentials": admin["user"]["token"]},
        "kubernetes_sd_configs": [sd],
        "relabel_configs": rules,
    }


@contextlib.contextmanager
def prometheus(cluster, monitors: list[dict], namespace: str, folder) -> Iterator[str]:
    """Run a Prometheus that scrapes what ServiceMonitors select; yield its address."""
    configs = [scrape_config(cluster, monitor, namespace) for monitor in monitors]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": configs}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    binaries = components.ensure(lambda _: None, components.MONITORING)
    address = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        command = commands.prometheus(binaries, folder, port)
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                cluster.wait(lambda: answers(f"{address}/-/ready"), "Prometheus to be ready")
                yield address
            finally:
                process.terminate()


def scraped(address: str) -> dict[str, set[tuple[str, str]]]:
    """Return the Service and the pod of each metric of the training scripts, by ServiceMonitor."""
    query = f"{address}/api/v1/query?query=training_epoch==3"
    with urllib.request.urlopen(query, timeout=patience_s(10)) as answer:
        result = json.load(answer)["data"]["result"]
    found: dict[str, set[tuple[str, str]]] = {}
    for labels in (one["metric"] for one in result):
        found.setdefault(labels["job"], set()).add((labels["service"], labels["pod"]))
    return found


@needs_guides
def test_data_metrics_and_the_guides_labels(laptop, home, tmp_path):
    laptop.apply(home, CLAIM)
    laptop.apply(home, SERVICE)
    laptop.create_job(home, job())
    laptop.wait(lambda: laptop.is_true(home, JOB, "Running"), "it to run", 60)
    pods = {f"{JOB}-master-0", *(f"{JOB}-worker-{i}" for i in range(3))}

    def named() -> list[dict]:
        return laptop.json("pods", "-n", home, "-l", f"job-name={JOB}")["items"]

    laptop.wait(lambda: {pod["metadata"]["name"] for pod in named()} == pods, "all of its pods")
    for pod in named():  # as the user wrote them: no init container waits for the master
        assert [one["name"] for one in pod["spec"]["initContainers"]] == ["data-downloader"]
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    # The guides' ServiceMonitors look for Services by label, and for a port of that name.
    laptop.wait(
        lambda: slices(laptop, home, "training-metrics") == (pods, {"metrics"}), "the endpoints"
    )
    masters = laptop.json("services", "-n", home, "-l", "training.kubeflow.org/job-role=master")[
        "items"
    ]
    assert [one["metadata"]["name"] for one in masters] == [f"{JOB}-master-0"]
    assert "metrics" in {port["name"] for port in masters[0]["spec"]["ports"]}
    # And Prometheus scrapes what each of the three ServiceMonitors selects, and nothing else.
    laptop.apply(home, TRAINING)
    first, second, third = (
        yaml.safe_load(text)
        for text in (
            blocks("000")["pytorch-servicemonitor.yaml"],
            SECOND_MONITOR,
            blocks("002")["servicemonitor.yaml"],
        )
    )
    master = f"{JOB}-master-0"
    wanted = {
        first["metadata"]["name"]: {(master, master)},
        second["metadata"]["name"]: {("training-metrics", pod) for pod in pods},
        third["metadata"]["name"]: {("more-metrics", pod) for pod in pods - {master}},
    }
    with prometheus(laptop, [first, second, third], home, tmp_path) as address:
        laptop.wait(lambda: scraped(address) == wanted, "Prometheus to have scraped them")


@needs_guides
@pytest.mark.by("direct")  # its controller does not see who binds
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
