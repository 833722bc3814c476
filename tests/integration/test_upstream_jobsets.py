"""The real JobSet, as it is shipped, beside gangsched: its examples start whole."""

import pytest
import yaml
from cluster import Cluster
from conftest import PROCESS, PROCESS_TAINT, a_plane
from upstream import HERE, JOBSETS, create, explained, installing, ready

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Options

pytestmark = pytest.mark.long  # building each operator takes two minutes of CPU

POOL = "cloud.google.com/gke-nodepool"
"""The label of nodes that JobSet's own example names."""

POOLS = tuple(
    NodeGroup(name=f"pool-{name}", kind="process", count=1, pods=3, labels={POOL: name})
    for name in "abc"
)
OWN = PROCESS.model_copy(update={"name": "own", "count": 1, "taints": (PROCESS_TAINT,)})
PLACE = {
    "nodeSelector": {"kubernetes.io/hostname": "own-0"},
    "tolerations": [{"key": PROCESS_TAINT["key"], "operator": "Exists"}],
}
LEFT = "jobsets,jobs,pods,podgroups.gangsched.io"


@pytest.fixture(scope="module")
def plane():
    """A control plane with room for nine pods, on which nobody runs JobSets yet."""
    nodes = NodeFile(nodes=(*POOLS, OWN))
    with a_plane("test-jobsets", nodes, Options(operators=False)) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture(scope="module", params=JOBSETS)
def jobset(plane, request, tmp_path_factory):
    """JobSet as it is shipped."""
    with installing(plane, tmp_path_factory.mktemp("jobset"), PLACE) as install:
        operator = JOBSETS[request.param]
        install(operator)
        ready(plane, operator)
        yield plane


@pytest.fixture
def namespace(plane):
    """A namespace of the test's own; everything in it is gone afterwards."""
    name = plane.new_namespace()
    yield name
    plane.remove_namespace(name)


def example(namespace: str, path: str, name: str, labels: dict[str, str] | None = None) -> str:
    """Return an example of JobSet's under a name: its pods name us, and end at once."""
    body = yaml.safe_load((HERE / "jobset-examples" / f"{path}.yaml").read_text())
    body["metadata"] |= {"name": name, "namespace": namespace}
    for job in body["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        template["spec"] |= {"schedulerName": "gangsched", "terminationGracePeriodSeconds": 0}
        if labels:
            template["metadata"] = {"labels": labels}
    return yaml.safe_dump(body)


def labelled(name: str, count: int) -> dict[str, str]:
    """Return the labels that make so many pods a gang."""
    return {"gangsched.io/pod-group": name, "gangsched.io/min-member": str(count)}


def pods(cluster, namespace: str, job: str) -> list:
    """Return the pods of one of a JobSet's replicated jobs."""
    selector = f"jobset.sigs.k8s.io/replicatedjob-name={job}"
    return cluster.core.list_namespaced_pod(namespace, label_selector=selector).items


def delete(cluster, namespace: str, name: str) -> None:
    cluster.kubectl("delete", "jobset", name, "-n", namespace)


def nothing_is_left(cluster, namespace: str) -> None:
    found = lambda: cluster.json("get", LEFT, "-n", namespace)["items"]  # noqa: E731
    cluster.wait(lambda: not found(), "nothing to be left")


def test_jobsets_start_whole_one_after_another(jobset, namespace):
    cluster = jobset
    create(cluster, example(namespace, "paralleljobs", "first", labelled("first", 5)))
    cluster.wait_placed(namespace, "first-", 5)
    create(cluster, example(namespace, "paralleljobs", "second", labelled("second", 5)))
    cluster.wait(lambda: "room for 4" in explained(cluster, namespace, "second"), "its reason")
    cluster.restart("gangsched")
    cluster.stays(lambda: not cluster.bound(namespace, "second-"), 2.0, "a part of a gang")
    assert len(cluster.bound(namespace, "first-")) == 5
    delete(cluster, namespace, "first")
    cluster.wait_placed(namespace, "second-", 5)
    delete(cluster, namespace, "second")
    nothing_is_left(cluster, namespace)


def test_jobs_that_start_in_order_start_one_after_another(jobset, namespace):
    cluster = jobset
    create(cluster, example(namespace, "startup-driver-ready", "ordered"))
    cluster.wait_placed(namespace, "ordered-", 5)
    (driver,) = pods(cluster, namespace, "driver")
    ready_at = max(one.last_transition_time for one in driver.status.conditions)
    born = [one.metadata.creation_timestamp for one in pods(cluster, namespace, "workers")]
    assert len(born) == 4
    assert min(born) >= ready_at
    delete(cluster, namespace, "ordered")
    nothing_is_left(cluster, namespace)


def test_jobs_start_once_those_they_depend_on_are_done(jobset, namespace):
    cluster = jobset
    create(cluster, example(namespace, "depends-on", "chain"))
    cluster.wait_placed(namespace, "chain-", 6, 60)
    (initializer,), (launcher,) = (
        pods(cluster, namespace, name) for name in ("initializer", "launcher")
    )
    (container,) = initializer.status.container_statuses
    assert launcher.metadata.creation_timestamp >= container.state.terminated.finished_at
    delete(cluster, namespace, "chain")
    nothing_is_left(cluster, namespace)
