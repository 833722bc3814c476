"""A data cache on process nodes: its readers get each row once, whatever happens to its pods."""

import re
from pathlib import Path

import pytest
import yaml
from pages import Shell
from test_initializers import logs, wait_over

EXAMPLES = Path(__file__).parents[2] / "examples" / "cache"
PAGE = "docs/jobs/cache.md"
LOSS = re.compile(r"epoch \d+ loss ([0-9.]+)")
EACH_ONCE = re.compile(r"epoch \d+: 1797 rows, each once")

pytestmark = pytest.mark.long  # make cache


@pytest.fixture
def home(laptop):
    """A namespace on process nodes."""
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


def test_the_page_trains_from_a_cache(laptop, home, tmp_path):
    """docs/jobs/cache.md: by kubectl, and by the SDK's DataCacheInitializer."""
    Shell(tmp_path, laptop.plane.kubeconfig, home).walk(PAGE)
    log = logs(laptop, home, "cached", "node")
    assert len(EACH_ONCE.findall(log)) == 4
    for rank, rows in (0, 898), (1, 899):
        assert f"epoch 0: rank {rank} had {rows} rows" in log
        assert f"epoch 1: rank {rank} had {1797 - rows} rows" in log, "each epoch has other rows"
    losses = [float(text) for text in LOSS.findall(log)]
    assert losses[-1] < losses[0] / 2

    from kubeflow.common.types import KubernetesBackendConfig  # takes two seconds to import
    from kubeflow.trainer import TrainerClient

    configuration = KubernetesBackendConfig(
        namespace=home, config_file=str(laptop.plane.kubeconfig)
    )
    jobs = {job.name: job for job in TrainerClient(configuration).list_jobs()}
    assert {job.status for job in jobs.values()} == {"Complete"}
    (name,) = set(jobs) - {"cached", "make-digits"}
    log = logs(laptop, home, name, "node")
    assert "rank 0 had 898 rows of (64,)" in log
    assert "rank 1 had 899 rows of (64,)" in log
    left = laptop.json("pods", "-n", home, "-l", "jobset.sigs.k8s.io/jobset-name=cached")
    running = [
        pod["metadata"]["name"] for pod in left["items"] if pod["status"]["phase"] == "Running"
    ]
    assert running == [], "the cache ends with its job"


def pod_of(laptop, home, step: str, index: int) -> str:
    """Return the pod of a cache that runs now."""
    selector = (
        f"jobset.sigs.k8s.io/replicatedjob-name={step},"
        f"batch.kubernetes.io/job-completion-index={index}"
    )

    def running():
        pods = laptop.core.list_namespaced_pod(home, label_selector=selector).items
        return [
            pod.metadata.name
            for pod in pods
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
        ]

    return laptop.wait(running, f"{step} {index} to run", 60)[0]


def test_no_row_is_lost_or_repeated_while_pods_of_the_cache_are_killed(laptop, home):
    data = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    laptop.core.create_namespaced_config_map(home, {"metadata": {"name": "cache"}, "data": data})
    laptop.apply(home, (EXAMPLES / "data.yaml").read_text())
    assert wait_over(laptop, home, "make-digits")["type"] == "Complete"
    body = yaml.safe_load((EXAMPLES / "cache.yaml").read_text())
    body["spec"]["trainer"]["env"] = [{"name": "EPOCHS", "value": "150"}]
    laptop.apply(home, yaml.safe_dump(body))

    def epochs() -> int:
        return len(EACH_ONCE.findall(logs(laptop, home, "cached", "node")))

    laptop.wait(lambda: epochs() >= 2, "the first epochs", 60)
    killed = []
    for step, index in ("cache-worker", 0), ("cache-head", 0), ("cache-worker", 1):
        killed.append(pod_of(laptop, home, step, index))
        laptop.core.delete_namespaced_pod(killed[-1], home, grace_period_seconds=0)
        now = epochs()
        assert now < 148, "the job was over before the pod was killed"
        laptop.wait(lambda now=now: epochs() >= now + 2, "epochs after a pod was killed", 90)
        assert pod_of(laptop, home, step, index) not in killed
    said = wait_over(laptop, home, "cached", 180)
    assert said["type"] == "Complete", logs(laptop, home, "cached", "node")
    assert epochs() == 150


STRANGER = """
import sys
from pyarrow import flight
client = flight.FlightClient(f"grpc://{sys.argv[1]}")
for key in ("", "0" * 64):
    options = flight.FlightCallOptions(5.0, headers=[(b"authorization", f"Bearer {key}".encode())])
    try:
        client.get_flight_info(flight.FlightDescriptor.for_path("0", "1"), options)
        print("came in")
    except flight.FlightUnauthenticatedError:
        print("refused")
"""


def test_a_pod_of_another_job_may_not_read(laptop, home):
    data = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    laptop.core.create_namespaced_config_map(home, {"metadata": {"name": "cache"}, "data": data})
    laptop.apply(home, (EXAMPLES / "data.yaml").read_text())
    assert wait_over(laptop, home, "make-digits")["type"] == "Complete"
    body = yaml.safe_load((EXAMPLES / "cache.yaml").read_text())
    body["spec"]["trainer"]["command"] = ["sleep", "600"]
    laptop.apply(home, yaml.safe_dump(body))
    for step, index in ("cache-head", 0), ("cache-worker", 1):
        pod_of(laptop, home, step, index)
    pod_of(laptop, home, "node", 0)
    (group,) = laptop.json(
        "podgroups.gangsched.io", "-n", home, "--field-selector=metadata.name=cached"
    )["items"]
    counts = {role["name"]: role["count"] for role in group["spec"]["roles"]}
    assert counts == {"cache-head": 1, "cache-worker": 2, "node": 2}, "they are one gang"
    command = ["python3", "-c", STRANGER, "cached-cache-head-0-0.cached:50051"]
    stranger = {
        "metadata": {"name": "stranger"},
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "main", "image": "none", "command": command}],
        },
    }
    laptop.core.create_namespaced_pod(home, stranger)
    said = lambda: laptop.kubectl("logs", "-n", home, "stranger", check=False).split()  # noqa: E731
    laptop.wait(lambda: len(said()) == 2, "what the stranger gets", 60)
    assert said() == ["refused", "refused"]
