"""JobSet, Trainer and Kueue as shipped: their jobs start whole."""

import copy
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from conftest import PROCESS, PROCESS_TAINT, a_plane
from pages import Shell
from upstream import JOBSETS, KUEUE, TRAINERS, create, explained, installing, ready

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import PlaneOptions

pytestmark = pytest.mark.long  # building each operator takes two minutes of CPU

POOL = "cloud.google.com/gke-nodepool"
"""A label whose domains a JobSet may ask for; clouds give it to pools of nodes."""

POOLS = tuple(
    NodeGroup(name=f"pool-{name}", kind="process", count=1, pods=3, labels={POOL: name})
    for name in "abc"
)
OWN = PROCESS.model_copy(update={"name": "own", "count": 1, "taints": (PROCESS_TAINT,)})
PLACE = {
    "nodeSelector": {"kubernetes.io/hostname": "own-0"},
    "tolerations": [{"key": PROCESS_TAINT["key"], "operator": "Exists"}],
}
LEFT = "jobsets,jobs,pods,podgroups.gangsched.io,podgroups.scheduling.x-k8s.io"
OLD, NEW = "0.10", "0.11"
TRAINER_FOR = {OLD: TRAINERS["2.1"], NEW: TRAINERS["2.2"]}
"""Which Trainer is built on which JobSet."""

POLICIES = {"by their JobSets": {}, "by scheduler-plugins' groups": {"coscheduling": {}}}
"""How the pods of a TrainJob come to be a gang, and the podGroupPolicy of its runtime."""


@pytest.fixture(scope="module")
def plane():
    """A control plane with room for nine pods, on which nobody runs JobSets yet."""
    nodes = NodeFile(nodes=(*POOLS, OWN))
    with a_plane("test-jobsets", nodes, PlaneOptions(operators=False)) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture(scope="module", params=JOBSETS)
def jobset(plane, request, tmp_path_factory):
    """Return a JobSet that is installed, as it is shipped: its version."""
    with installing(plane, tmp_path_factory.mktemp("jobset"), PLACE) as install:
        operator = JOBSETS[request.param]
        install(operator)
        ready(plane, operator)
        yield request.param


@pytest.fixture(scope="module")
def trainer(plane, jobset, tmp_path_factory):
    """Return a Trainer that is installed, as it is shipped."""
    with installing(plane, tmp_path_factory.mktemp("trainer"), PLACE) as install:
        operator = TRAINER_FOR[jobset]
        install(operator)
        ready(plane, operator)
        yield operator


@pytest.fixture(scope="module")
def kueue(plane, jobset, tmp_path_factory):
    """Kueue as it is shipped, and a ClusterQueue for ten pods."""
    with installing(plane, tmp_path_factory.mktemp("kueue"), PLACE) as install:
        install(KUEUE)
        ready(plane, KUEUE)
        create(plane, kueues("ResourceFlavor", "any", {}))
        resources = [{"name": "pods", "nominalQuota": 10}]
        group = {"coveredResources": ["pods"], "flavors": [{"name": "any", "resources": resources}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group]}
        create(plane, kueues("ClusterQueue", "ten", spec))
        plane.wait(lambda: available(plane), "the API that Kueue serves", 60)
        yield


def kueues(kind: str, name: str, spec: dict, namespace: str | None = None) -> str:
    """Return an object of Kueue's."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata}
    return yaml.safe_dump(body | {"spec": spec})


def available(cluster) -> bool:
    """Tell whether the API server reaches the API that Kueue's pod serves."""
    found = cluster.json("apiservice", "v1beta2.visibility.kueue.x-k8s.io")
    said = (found.get("status") or {}).get("conditions") or []
    return any((one["type"], one["status"]) == ("Available", "True") for one in said)


@pytest.fixture
def namespace(plane):
    """A namespace of the test's own; everything in it is gone afterwards."""
    name = plane.new_namespace()
    yield name
    plane.remove_namespace(name)


def job(name: str, pods: int, seconds: int, replicas: int = 1, **fields) -> dict:
    """Return one of a JobSet's replicated jobs, whose pods run for a while."""
    container = {"name": "main", "image": "busybox", "command": ["sleep", f"{seconds}s"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


def after(name: str, status: str) -> dict:
    """Return what makes a replicated job wait for another one."""
    return {"dependsOn": [{"name": name, "status": status}]}


PARALLEL = {"replicatedJobs": [job("workers", 4, 100), job("driver", 1, 100)]}
IN_ORDER = {
    "startupPolicy": {"startupPolicyOrder": "InOrder"},
    "replicatedJobs": [job("driver", 1, 1000), job("workers", 4, 100)],
}
CHAIN = {
    "replicatedJobs": [
        job("initializer", 1, 5),
        job("launcher", 1, 20, **after("initializer", "Complete")),
        job("worker", 4, 20, **after("launcher", "Ready")),
    ]
}
APART = {"replicatedJobs": [job("workers", 3, 1000, replicas=3)]}
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": POOL}


def example(
    namespace: str,
    spec: dict,
    name: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> str:
    """Return a JobSet whose pods name us, and end at once when they are told to."""
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    body["metadata"] = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    body["spec"] = copy.deepcopy(spec)
    for template in ours(body["spec"]):
        if labels:
            template["metadata"] = {"labels": labels}
    return yaml.safe_dump(body)


def ours(spec: dict) -> list[dict]:
    """Let the pods of a JobSet name us, and end at once; return their templates."""
    templates = [job["template"]["spec"]["template"] for job in spec["replicatedJobs"]]
    for template in templates:
        template["spec"] |= {"schedulerName": "gangsched", "terminationGracePeriodSeconds": 0}
    return templates


def labelled(name: str, count: int) -> dict[str, str]:
    """Return the labels that make so many pods a gang."""
    return {"gangsched.io/pod-group": name, "gangsched.io/min-member": str(count)}


def pods(cluster, namespace: str, job: str) -> list:
    """Return the pods of one of a JobSet's replicated jobs."""
    selector = f"jobset.sigs.k8s.io/replicatedjob-name={job}"
    return cluster.core.list_namespaced_pod(namespace, label_selector=selector).items


def delete(cluster, namespace: str, name: str, kind: str = "jobset") -> None:
    cluster.kubectl("delete", kind, name, "-n", namespace)


def nothing_is_left(cluster, namespace: str) -> None:
    found = lambda: cluster.json(LEFT, "-n", namespace)["items"]  # noqa: E731
    cluster.wait(lambda: not found(), "nothing to be left")


def one_after_another(cluster, namespace, kind: str, first: str, second: str) -> None:
    """Start two of five pods each where nine have room."""
    create(cluster, first)
    cluster.wait_placed(namespace, "first-", 5)
    create(cluster, second)
    cluster.wait(lambda: "takes 4 now" in explained(cluster, namespace, "second"), "its reason")
    cluster.restart("gangsched")
    cluster.stays(lambda: not cluster.bound(namespace, "second-"), 2.0, "a part of a gang")
    assert len(cluster.bound(namespace, "first-")) == 5
    delete(cluster, namespace, "first", kind)
    cluster.wait_placed(namespace, "second-", 5)
    delete(cluster, namespace, "second", kind)
    nothing_is_left(cluster, namespace)


@pytest.mark.parametrize("labels", [labelled, None], ids=["by labels", "by the JobSet"])
def test_jobsets_start_whole_one_after_another(plane, jobset, namespace, labels):
    first, second = (
        example(namespace, PARALLEL, name, labels and labels(name, 5))
        for name in ("first", "second")
    )
    one_after_another(plane, namespace, "jobset", first, second)


def test_jobs_that_start_in_order_have_capacity_for_all(plane, jobset, namespace):
    cluster = plane
    create(cluster, example(namespace, PARALLEL, "first"))
    cluster.wait_placed(namespace, "first-", 5)
    create(cluster, example(namespace, IN_ORDER, "ordered"))
    cluster.wait(lambda: "takes 4 now" in explained(cluster, namespace, "ordered"), "its reason")
    cluster.stays(lambda: not cluster.bound(namespace, "ordered-"), 2.0, "a driver alone")
    delete(cluster, namespace, "first")
    cluster.wait_placed(namespace, "ordered-", 5)
    (driver,) = pods(cluster, namespace, "driver")
    ready_at = max(one.last_transition_time for one in driver.status.conditions)
    born = [one.metadata.creation_timestamp for one in pods(cluster, namespace, "workers")]
    assert len(born) == 4
    assert min(born) >= ready_at
    delete(cluster, namespace, "ordered")
    nothing_is_left(cluster, namespace)


def test_jobs_start_once_those_they_depend_on_are_done(plane, jobset, namespace):
    cluster = plane
    create(cluster, example(namespace, CHAIN, "chain"))
    cluster.wait_placed(namespace, "chain-", 6, 60)
    (initializer,), (launcher,) = (
        pods(cluster, namespace, name) for name in ("initializer", "launcher")
    )
    (container,) = initializer.status.container_statuses
    assert launcher.metadata.creation_timestamp >= container.state.terminated.finished_at
    delete(cluster, namespace, "chain")
    nothing_is_left(cluster, namespace)


@pytest.fixture
def domains(plane):
    """Let gangs have pools of nodes to themselves."""
    level = {"nodeLabel": POOL}
    queue, topology = (
        {"apiVersion": "gangsched.io/v1beta1", "kind": kind, "metadata": {"name": "default"}}
        for kind in ("Queue", "Topology")
    )
    create(plane, yaml.safe_dump(topology | {"spec": {"levels": [level]}}))
    create(plane, yaml.safe_dump(queue | {"spec": {"exclusive": POOL}}))
    yield
    plane.kubectl("delete", "queues.gangsched.io,topologies.gangsched.io", "default")


def test_every_job_has_a_pool_of_nodes_to_itself(plane, jobset, domains, namespace):
    cluster = plane
    create(cluster, example(namespace, APART, "apart", annotations=EXCLUSIVE))
    cluster.wait_placed(namespace, "apart-", 9, 60)  # its controller waits longer each time
    nodes: dict[str, set[str]] = {}
    for pod in pods(cluster, namespace, "workers"):
        job = pod.metadata.labels["batch.kubernetes.io/job-name"]
        nodes.setdefault(job, set()).add(pod.spec.node_name)
    assert sorted(nodes) == [f"apart-workers-{index}" for index in range(3)]
    assert sorted(nodes.values(), key=min) == [{f"pool-{name}-0"} for name in "abc"]
    delete(cluster, namespace, "apart")
    nothing_is_left(cluster, namespace)


def runtime(cluster, operator, policy: dict, folder: Path) -> None:
    """Bring Trainer's own runtime, and let it name us as the page says."""
    shipped = operator.source() / "manifests/base/runtimes/torch_distributed.yaml"
    body = yaml.safe_load(shipped.read_text())
    for template in ours(body["spec"]["template"]["spec"]):
        del template["spec"]["schedulerName"]
    if policy:
        body["spec"]["podGroupPolicy"] = policy
    name = ("clustertrainingruntime", body["metadata"]["name"])
    cluster.kubectl("delete", "--ignore-not-found", *name)
    create(cluster, yaml.safe_dump(body))
    Shell(folder, cluster.plane.kubeconfig).walk("docs/jobs/operators.md", "Kubeflow Trainer")


def train_job(namespace: str, name: str) -> str:
    """Return a TrainJob of five nodes."""
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 5, "command": ["sleep"], "args": ["100s"]},
    }
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    return yaml.safe_dump(body)


@pytest.mark.parametrize("policy", POLICIES)
def test_train_jobs_start_whole_one_after_another(plane, trainer, namespace, policy, tmp_path):
    runtime(plane, trainer, POLICIES[policy], tmp_path)
    first, second = (train_job(namespace, name) for name in ("first", "second"))
    one_after_another(plane, namespace, "trainjob", first, second)


def queued(namespace: str, kind: str, name: str) -> str:
    """Return a Job or a JobSet of five pods that Kueue's LocalQueue admits."""
    body = yaml.safe_load(example(namespace, PARALLEL, name))
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "user-queue"}
    if kind == "job":
        spec = body["spec"]["replicatedJobs"][0]["template"]["spec"]
        spec |= {"parallelism": 5, "completions": 5}
        spec["template"]["spec"]["restartPolicy"] = "Never"
        body |= {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
    return yaml.safe_dump(body)


@pytest.mark.parametrize("jobset", [NEW], indirect=True)
@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_what_kueue_admits_starts_whole_and_needs_no_queue_of_ours(plane, kueue, namespace, kind):
    cluster = plane
    create(cluster, kueues("LocalQueue", "user-queue", {"clusterQueue": "ten"}, namespace))

    def admitted() -> set[str]:
        found = cluster.json(kind, "-n", namespace)["items"]
        return {one["metadata"]["name"] for one in found if not one["spec"]["suspend"]}

    create(cluster, queued(namespace, kind, "first"))
    cluster.wait_placed(namespace, "first-", 5)
    create(cluster, queued(namespace, kind, "second"))
    cluster.wait(lambda: "takes 4 now" in explained(cluster, namespace, "second"), "its reason")
    create(cluster, queued(namespace, kind, "third"))
    cluster.restart("gangsched")
    cluster.stays(lambda: not cluster.bound(namespace, "second-"), 2.0, "a part of a gang")
    assert admitted() == {"first", "second"}
    assert "suspended" in explained(cluster, namespace, "third").lower()
    delete(cluster, namespace, "first", kind)
    cluster.wait_placed(namespace, "second-", 5)
    cluster.wait(lambda: "takes 4 now" in explained(cluster, namespace, "third"), "its reason")
    delete(cluster, namespace, "second", kind)
    cluster.wait_placed(namespace, "third-", 5)
    delete(cluster, namespace, "third", kind)
    nothing_is_left(cluster, namespace)
