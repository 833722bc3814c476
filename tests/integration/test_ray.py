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
LOSS = re.compile(r"epoch (\d+) of 2 workers: loss ([0-9.]+)")
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
        laptop.kubectl("wait", "--for=condition=Established", "crd/rayjobs.ray.io")
        ready(laptop, KUBERAY)
        yield laptop


@pytest.fixture
def home(kuberay):
    """A namespace on process nodes."""
    name = kuberay.new_namespace()
    yield name
    kuberay.kubectl("delete", "rayjobs,rayclusters", "--all", "-n", name)
    kuberay.remove_namespace(name)


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
    return cluster.json("get", "rayjob", name, "-n", home).get("status") or {}


def wait_over(cluster, home: str, name: str) -> dict:
    """Return the status of a RayJob that has ended."""

    def over() -> dict | None:
        now = status(cluster, home, name)
        return now if now.get("jobDeploymentStatus") in OVER else None

    return cluster.wait(over, f"{name} to end", 240)


@pytest.mark.parametrize("mode", ["HTTPMode", "SidecarMode"])
def test_a_job_without_a_submitter_runs_to_its_end(kuberay, home, mode):
    create(kuberay, kuberay.yaml(job(home, "alone", mode, "python -c 'print(42)'")))
    kuberay.wait(lambda: "1 of at least 1 pod" in explained(kuberay, home, "alone"), "its gang", 60)
    assert wait_over(kuberay, home, "alone")["jobStatus"] == "SUCCEEDED"


def test_a_job_that_fails_starts_again_with_a_new_cluster(kuberay, home):
    """Both clusters belong to one gang: the second starts once the pods of the first are gone."""
    body = job(home, "fails", "K8sJobMode", "python -c 'raise SystemExit(3)'", backoffLimit=1)
    create(kuberay, kuberay.yaml(body))
    end = wait_over(kuberay, home, "fails")
    assert (end["jobStatus"], end["failed"]) == ("FAILED", 2)
