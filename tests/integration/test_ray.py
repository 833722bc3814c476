"""KubeRay and Ray for real, on process nodes: `make ray` has an environment with Ray for it."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from pages import Shell
from upstream import KUBERAY, create, explained, installing, ready

PAGE = "docs/jobs/ray.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "ray" / "rayjob.yaml"
PROGRAM = EXAMPLE.with_name("scale.py")
LOSS = re.compile(r"epoch (\d+) of 2 workers: loss ([0-9.]+)")
RELEASE = {"name": "RELEASE"}
SERVED = """\
import os

from ray import serve


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Answer:
    async def __call__(self, request):
        return os.environ["RELEASE"]


app = Answer.bind()
"""
OVER = ("Complete", "Failed")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("opencensus") is None,
        reason="Ray's dashboard is not installed; see make ray",
    ),
]


@pytest.fixture(scope="module")
def kuberay(laptop, tmp_path_factory):
    """KubeRay as it is shipped, on process nodes."""
    with installing(laptop, tmp_path_factory.mktemp("kuberay"), {}) as install:
        install(KUBERAY, "--enable-leader-election=false")
        ready(laptop, KUBERAY)
        tried = ("create", "--dry-run=server", "-f", str(EXAMPLE))
        # The API server serves a kind some time after it reports that it is established.
        laptop.wait(
            lambda: "rayjob.ray.io/digits created" in laptop.kubectl(*tried, check=False),
            "the API server to serve RayJobs",
            120,
        )
        yield laptop


@pytest.fixture
def home(kuberay):
    """A namespace on process nodes."""
    name = kuberay.new_namespace()
    yield name
    kuberay.kubectl("delete", "rayjobs,rayservices,rayclusters", "--all", "-n", name)
    kuberay.remove_namespace(name)
    kuberay.kubectl("delete", "queues.gangsched.io", name, "--ignore-not-found")


def test_the_page_trains(kuberay, home, tmp_path):
    """docs/jobs/ray.md: a head, two workers and a submitter are one gang; the loss falls."""
    said = Shell(tmp_path, kuberay.plane.kubeconfig, home).walk(PAGE)
    assert "4 of at least 4 pods" in " ".join(said["gangsched explain digits"].split())
    found = LOSS.findall(said["kubectl logs job/digits"])
    losses = {int(epoch): float(loss) for epoch, loss in found}
    assert sorted(losses) == [0, 1, 2], said
    assert losses[2] < 0.7 * losses[0], losses


def job(home: str, name: str, mode: str, entry: str, **fields) -> dict:
    """Return the example's RayJob, with a smaller cluster and another way of being submitted."""
    body = next(yaml.safe_load_all(EXAMPLE.read_text()))
    body["metadata"] |= {"name": name, "namespace": home}
    spec = body["spec"]
    spec |= {"submissionMode": mode, "entrypoint": entry, **fields}
    if mode != "K8sJobMode":
        del spec["submitterPodTemplate"]
    cluster = spec["rayClusterSpec"]
    cluster["workerGroupSpecs"] = []
    pod = cluster["headGroupSpec"]["template"]["spec"]
    del pod["volumes"], pod["containers"][0]["volumeMounts"]
    cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] = "1"
    if mode == "SidecarMode":
        pod["restartPolicy"] = "Never"
    return body


def status(cluster, home: str, name: str) -> dict:
    """Return the status of a RayJob."""
    return cluster.json("rayjob", name, "-n", home).get("status") or {}


def words(cluster, home: str, name: str) -> str:
    """Return what a user is told of a gang, in one line."""
    return " ".join(explained(cluster, home, name).split())


def wait_over(cluster, home: str, name: str) -> dict:
    """Return the status of a RayJob that has ended."""

    def over() -> dict | None:
        now = status(cluster, home, name)
        return now if now.get("jobDeploymentStatus") in OVER else None

    return cluster.wait(over, f"{name} to end", 240)


@pytest.mark.parametrize("mode", ["HTTPMode", "SidecarMode"])
def test_a_job_without_a_submitter_runs_to_its_end(kuberay, home, mode):
    create(kuberay, kuberay.yaml(job(home, "alone", mode, "python -c 'print(42)'")))
    kuberay.wait(lambda: "1 of at least 1 pod" in words(kuberay, home, "alone"), "its gang", 60)
    assert wait_over(kuberay, home, "alone")["jobStatus"] == "SUCCEEDED"


def test_a_job_that_fails_starts_again_with_a_new_cluster(kuberay, home):
    """Both clusters belong to one gang: the second starts once the pods of the first are gone."""
    body = job(home, "fails", "K8sJobMode", "python -c 'raise SystemExit(3)'", backoffLimit=1)
    create(kuberay, kuberay.yaml(body))
    end = wait_over(kuberay, home, "fails")
    assert (end["jobStatus"], end["failed"]) == ("FAILED", 2)


def test_the_autoscaler_adds_a_worker_and_removes_it(kuberay, home):
    """The gang starts with minReplicas; a worker beyond the minimum joins it, and leaves."""
    # The second worker stays long enough to be seen on a busy machine.
    body = job(home, "scales", "K8sJobMode", "python /code/scale.py 45")
    cluster = body["spec"]["rayClusterSpec"]
    cluster |= {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"version": "v2", "idleTimeoutSeconds": 5},
        "workerGroupSpecs": next(yaml.safe_load_all(EXAMPLE.read_text()))["spec"]["rayClusterSpec"][
            "workerGroupSpecs"
        ],
    }
    cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] = "0"
    (workers,) = cluster["workerGroupSpecs"]
    workers |= {"replicas": 1, "minReplicas": 1, "maxReplicas": 2}
    for group in (cluster["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        pod |= {
            "restartPolicy": "Never",
            "volumes": [{"name": "code", "configMap": {"name": "scale"}}],
        }
        pod["containers"][0]["volumeMounts"] = [{"name": "code", "mountPath": "/code"}]
    data = {"scale.py": PROGRAM.read_text()}
    kuberay.core.create_namespaced_config_map(home, {"metadata": {"name": "scale"}, "data": data})
    create(kuberay, kuberay.yaml(body))
    kuberay.wait(lambda: "3 of at least 3 pods" in words(kuberay, home, "scales"), "its gang", 90)
    kuberay.wait(lambda: "4 of at least 3 pods" in words(kuberay, home, "scales"), "to grow", 90)
    assert wait_over(kuberay, home, "scales")["jobStatus"] == "SUCCEEDED"
    log = kuberay.kubectl("logs", "job/scales", "-n", home)
    assert "ran on 2 workers" in log
    assert "then 1 worker" in log


QUEUE = """\
apiVersion: gangsched.io/v1beta1
kind: Queue
metadata: {{name: {name}}}
spec:
  quotas: [{{resource: cpu, nominal: {cpus}}}]
"""


def service(home: str) -> dict:
    """Return a RayService: a head that answers with a variable, and one worker."""
    body = job(home, "serves", "K8sJobMode", "")
    cluster = body["spec"]["rayClusterSpec"]
    workers = next(yaml.safe_load_all(EXAMPLE.read_text()))["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"] = workers["workerGroupSpecs"]
    group["replicas"] = 1
    for one in (cluster["headGroupSpec"], group):
        pod = one["template"]["spec"]
        pod["volumes"] = [{"name": "code", "configMap": {"name": "serve"}}]
        (container,) = pod["containers"]
        container["volumeMounts"] = [{"name": "code", "mountPath": "/code"}]
        container["env"] = [{"name": "PYTHONPATH", "value": "/code"}, RELEASE | {"value": "one"}]
    application = {"name": "answer", "import_path": "answer:app", "route_prefix": "/"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": body["metadata"] | {"labels": {"gangsched.io/queue-name": home}},
        "spec": {
            "serveConfigV2": yaml.safe_dump({"applications": [application]}),
            "rayClusterConfig": cluster,
        },
    }


def test_an_upgraded_service_serves_until_its_second_cluster_has_capacity(kuberay, home):
    """Each cluster is a gang: the second one waits whole, and does not stop the first."""
    data = {"answer.py": SERVED}
    kuberay.core.create_namespaced_config_map(home, {"metadata": {"name": "serve"}, "data": data})
    kuberay.apply(home, QUEUE.format(name=home, cpus=3))
    body = service(home)
    create(kuberay, kuberay.yaml(body))

    def cluster(which: str) -> str:
        now = kuberay.json("rayservice", "serves", "-n", home).get("status") or {}
        return (now.get(f"{which}ServiceStatus") or {}).get("rayClusterName", "")

    first = kuberay.wait(lambda: cluster("active"), "the service to be ready", 240)
    head = body["spec"]["rayClusterConfig"]["headGroupSpec"]
    head["template"]["spec"]["containers"][0]["env"][1]["value"] = "two"
    kuberay.apply(home, kuberay.yaml(body))
    second = kuberay.wait(lambda: cluster("pending"), "a second cluster", 60)
    kuberay.wait(lambda: f"Queue {home} " in words(kuberay, home, second), "its reason", 60)
    assert not kuberay.bound(home, second)
    assert len(kuberay.bound(home, first)) == 2
    kuberay.apply(home, QUEUE.format(name=home, cpus=4))
    kuberay.wait(lambda: cluster("active") == second, "the second cluster to serve", 240)
