"""LeaderWorkerSet and KubeRay as shipped, with gangsched: their pods form gangs."""

import json
from dataclasses import dataclass

import pytest
import yaml
from cluster import Cluster
from conftest import PROCESS, PROCESS_TAINT, a_plane
from pages import Shell
from upstream import (
    KUBERAY,
    LWS,
    Operator,
    create,
    explained,
    has_no_room,
    installing,
    ready,
    running,
)

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import PlaneOptions

pytestmark = pytest.mark.long  # building each operator takes two minutes of CPU

POOL = "cloud.google.com/gke-nodepool"
"""The label of nodes that LeaderWorkerSet's own sample names."""

POOLS = tuple(
    NodeGroup(name=name, kind="kwok", count=1, pods=4, taints=(), labels={POOL: name})
    for name in ("pool-a", "pool-b")
)
POOLS_ALONE = f"""\
apiVersion: gangsched.io/v1beta1
kind: Topology
metadata: {{name: pools}}
spec: {{levels: [{{nodeLabel: {POOL}}}]}}
---
apiVersion: gangsched.io/v1beta1
kind: Queue
metadata: {{name: alone}}
spec: {{exclusive: {POOL}}}
"""
OWN = PROCESS.model_copy(update={"name": "own", "count": 1, "taints": (PROCESS_TAINT,)})
PLACE = {
    "nodeSelector": {"gangsched.io/node-kind": "process"},
    "tolerations": [{"key": PROCESS_TAINT["key"], "operator": "Exists"}],
}
VOLCANO_KEY = "scheduling.k8s.io/group-name"
LEFT = (
    "pods,statefulsets,jobs,services,podgroups.scheduling.volcano.sh,podgroups.scheduling.x-k8s.io"
)


@pytest.fixture(scope="module")
def plane():
    """A control plane on which no operator runs yet: two pools have room for four pods each."""
    with a_plane(
        "test-groups", NodeFile(nodes=(*POOLS, OWN)), PlaneOptions(operators=False)
    ) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture
def home(plane):
    """A namespace of the test's own."""
    name = plane.new_namespace()
    yield name
    plane.remove_namespace(name)


def sample(operator: Operator, path: str, home: str, kind: str) -> dict:
    """Return an object of a sample as it is shipped."""
    documents = yaml.safe_load_all((operator.source() / path).read_text())
    (body,) = [one for one in documents if one["kind"] == kind]
    body["metadata"]["namespace"] = home
    return body


def in_the_way(cluster, home: str, count: int) -> None:
    """Take room, until `out_of_the_way`."""
    for index in range(count):
        cluster.pod(home, f"in-the-way-{index}", gpus=0)
    cluster.wait_placed(home, "in-the-way-", count)


def out_of_the_way(cluster, home: str, *indices: int) -> None:
    for index in indices:
        cluster.core.delete_namespaced_pod(f"in-the-way-{index}", home, grace_period_seconds=0)


def nothing_is_left(cluster, home: str) -> None:
    """Wait until nothing is left of what an operator made."""
    found = lambda: cluster.kubectl("get", LEFT, "-n", home, "-o", "name").split()  # noqa: E731
    cluster.wait(lambda: all("/in-the-way-" in one for one in found()), "nothing to be left")


# -- LeaderWorkerSet ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lws(plane, request, tmp_path_factory):
    """LeaderWorkerSet, as it is shipped; return the name of its provider of gangs."""
    with installing(plane, tmp_path_factory.mktemp("lws"), PLACE) as install:
        install(LWS)
        ready(plane, LWS)
        if request.param == "volcano":
            reader = Shell(tmp_path_factory.mktemp("reader"), plane.plane.kubeconfig)
            reader.walk("docs/jobs/operators.md", "LeaderWorkerSet")
            running(plane, LWS)
        yield request.param


class Groups:
    """The groups of a LeaderWorkerSet of four pods each, made from a sample."""

    def __init__(self, cluster: Cluster, provider: str, home: str, path: str) -> None:
        self.cluster, self.home = cluster, home
        self._provider = provider
        self.body = sample(LWS, f"docs/examples/sample/{path}.yaml", home, "LeaderWorkerSet")
        pods = self.body["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
        pods["schedulerName"] = "volcano" if provider == "volcano" else "gangsched"
        self.name = self.body["metadata"]["name"]

    def create(self) -> None:
        create(self.cluster, self.cluster.yaml(self.body))

    def bound(self) -> dict[str, list[str]]:
        """Return the nodes of the pods of each group that are bound."""
        found: dict[str, list[str]] = {}
        for pod, node in self.cluster.bound(self.home, f"{self.name}-").items():
            index = pod.removeprefix(f"{self.name}-").split("-")[0]
            found.setdefault(index, []).append(node)
        return found

    def run(self, *indices: str) -> bool:
        """Tell whether these run whole, and no pod of another."""
        counts = {index: len(nodes) for index, nodes in self.bound().items()}
        return counts == dict.fromkeys(indices, 4)

    def first(self, *indices: str) -> str:
        """Wait until one of some groups runs, which has all its pods first; return it."""
        alone = lambda: [one for one in indices if self.run(one)]  # noqa: E731
        return self.cluster.wait(alone, "one whole group to run", 60)[0]

    def reason(self, index: str) -> str:
        """Return what a user is told of a group."""
        return explained(self.cluster, self.home, self.gang(index))

    def gang(self, index: str) -> str:
        """Return the name of a group's gang: its own, or that of its PodGroup of Volcano."""
        leader = f"{self.name}-{index}"
        if self._provider != "volcano":
            return leader
        pod = self.cluster.json("pod", leader, "-n", self.home)
        return pod["metadata"]["annotations"][VOLCANO_KEY]

    def scale(self, replicas: int) -> None:
        self.cluster.kubectl("scale", "lws", self.name, "-n", self.home, f"--replicas={replicas}")

    def delete(self) -> None:
        self.cluster.kubectl("delete", "lws", self.name, "-n", self.home)
        nothing_is_left(self.cluster, self.home)


def one_after_another(groups: Groups) -> None:
    """Start two groups where one and a half have room, the second once the other half comes."""
    cluster, home = groups.cluster, groups.home
    in_the_way(cluster, home, 2)
    groups.create()
    first = groups.first("0", "1")
    second = "1" if first == "0" else "0"
    cluster.wait(lambda: "takes 2 now" in groups.reason(second), "its reason")
    cluster.restart("gangsched")
    cluster.stays(lambda: groups.run(first), 2.0, "a part of a group, or a leader alone")
    out_of_the_way(cluster, home, 0, 1)
    cluster.wait(lambda: groups.run("0", "1"), "the second group")


@pytest.mark.parametrize("lws", ["no provider", "volcano"], indirect=True)
def test_each_group_of_a_leaderworkerset_starts_whole(plane, lws, home):
    cluster = plane
    groups = Groups(cluster, lws, home, "gang-scheduling/lws-sample-volcano")
    one_after_another(groups)
    groups.scale(3)
    cluster.wait(lambda: "takes 0 now" in groups.reason("2"), "its reason")
    assert groups.run("0", "1")
    groups.scale(1)
    cluster.wait(lambda: groups.run("0"), "one group to be left")
    groups.scale(2)
    cluster.wait(lambda: groups.run("0", "1"), "the second group again")
    groups.delete()


@pytest.mark.parametrize("lws", ["no provider", "volcano"], indirect=True)
def test_a_leader_has_capacity_for_workers_that_come_once_it_is_ready(plane, lws, home):
    groups = Groups(plane, lws, home, "lws")
    groups.body["spec"] |= {"startupPolicy": "LeaderReady", "replicas": 2}
    one_after_another(groups)
    groups.delete()


@pytest.mark.parametrize("lws", ["no provider"], indirect=True)
def test_each_group_has_a_pool_of_its_own(plane, lws, home):
    cluster = plane
    groups = Groups(cluster, lws, home, "lws-exclusive-placement")
    groups.body["metadata"]["labels"] = {"gangsched.io/queue-name": "alone"}
    cluster.apply("default", POOLS_ALONE)
    groups.create()
    cluster.wait(lambda: len(groups.bound()) == 2 and groups.run(*groups.bound()), "two groups")
    assert sorted(sorted(nodes) for nodes in groups.bound().values()) == [
        ["pool-a-0"] * 4,
        ["pool-b-0"] * 4,
    ]
    (waits,) = {"0", "1", "2"} - set(groups.bound())
    cluster.wait(lambda: "takes 0 now" in groups.reason(waits), "its reason")
    groups.delete()
    cluster.kubectl("delete", "-f", "-", stdin=POOLS_ALONE)


# -- KubeRay --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RayMode:
    """One way to make a gang of a RayCluster.

    `sample` is KubeRay's own for it, `queue` what that names, and `group` is how its PodGroup is
    called, where there is one, for the name of a RayCluster.
    """

    batch_scheduler: str
    sample: str
    queue: str = ""
    group: str = "{}"


RAY = {
    "without a batch scheduler": RayMode("", "ray-cluster.sample"),
    "scheduler-plugins": RayMode("scheduler-plugins", "ray-cluster.scheduler-plugins"),
    "kai-scheduler": RayMode("kai-scheduler", "ray-cluster.kai-scheduler", "team-a"),
    "volcano": RayMode(
        "volcano", "ray-cluster.volcano-scheduler-queue", "kuberay-test-queue", "ray-{}-pg"
    ),
}


@pytest.fixture(scope="module")
def kuberay(plane, request, tmp_path_factory):
    """KubeRay, as it is shipped, in one of the ways; return that."""
    mode = RAY[request.param]
    # With one replica nobody else leads; the next has not to wait for the lease of this one.
    arguments = ["--enable-leader-election=false"]
    if mode.batch_scheduler:
        arguments.append(f"--batch-scheduler={mode.batch_scheduler}")
    with installing(plane, tmp_path_factory.mktemp("kuberay"), PLACE) as install:
        install(KUBERAY, *arguments)
        reader = Shell(tmp_path_factory.mktemp("reader"), plane.plane.kubeconfig)
        reader.walk("docs/jobs/operators.md", "KubeRay")
        if mode.queue:
            queue = {"apiVersion": "gangsched.io/v1beta1", "kind": "Queue", "spec": {}}
            plane.apply("default", plane.yaml(queue | {"metadata": {"name": mode.queue}}))
        ready(plane, KUBERAY)
        yield mode
        plane.kubectl("delete", "clusterrole,clusterrolebinding", "kuberay-podgroups")


def ray(mode: RayMode, path: str, home: str, kind: str) -> dict:
    """Return a sample of KubeRay; it names us itself where KubeRay does not."""
    body = sample(KUBERAY, f"config/samples/{path}.yaml", home, kind)
    spec = body["spec"].get("rayClusterSpec", body["spec"])
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        if not mode.batch_scheduler:
            group["template"]["spec"]["schedulerName"] = "gangsched"
    return body


@pytest.mark.parametrize("kuberay", ["without a batch scheduler", "volcano"], indirect=True)
def test_a_rayjob_runs_until_ray_itself_is_asked(plane, kuberay, home):
    """Its cluster starts whole, its submitter runs; KWOK nodes have no Ray that knows the job."""
    cluster, mode = plane, kuberay
    sampled = "ray-job.volcano-scheduler-queue" if mode.batch_scheduler else "ray-job.sample"
    body = ray(mode, sampled, home, "RayJob")
    name = body["metadata"]["name"]
    size = 1 + body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"]
    in_the_way(cluster, home, 8 - (size - 1))
    create(
        cluster, cluster.yaml(sample(KUBERAY, f"config/samples/{sampled}.yaml", home, "ConfigMap"))
    )
    create(cluster, cluster.yaml(body))
    gang = f"ray-{name}-pg" if mode.batch_scheduler else name
    cluster.wait(lambda: has_no_room(explained(cluster, home, gang)), "its reason")
    cluster.restart("gangsched")
    cluster.stays(lambda: not cluster.bound(home, f"{name}-"), 2.0, "a part of its cluster")
    out_of_the_way(cluster, home, 0, 1)

    def far() -> bool:
        job = cluster.json("rayjob", name, "-n", home).get("status") or {}
        submitted = cluster.json("job", "-n", home)["items"]
        done = [one for one in submitted if one["status"].get("succeeded") == 1]
        return job.get("jobDeploymentStatus") == "Running" and len(done) == 1

    cluster.wait(far, "its submitter to have run", 60)
    cluster.kubectl("delete", "rayjob", name, "-n", home)
    nothing_is_left(cluster, home)


def workers(cluster, home: str, name: str, count: int) -> None:
    """Scale the workers of a RayCluster."""
    at = "/spec/workerGroupSpecs/0"
    fields = {"replicas": count, "minReplicas": count, "maxReplicas": count}
    patch = [{"op": "replace", "path": f"{at}/{key}", "value": n} for key, n in fields.items()]
    cluster.kubectl(
        *("patch", "raycluster", name, "-n", home, "--type", "json", "-p", json.dumps(patch))
    )


@pytest.mark.parametrize("kuberay", RAY, indirect=True)
def test_rayclusters_start_whole_one_after_another(plane, kuberay, home):
    cluster, mode = plane, kuberay
    body = ray(mode, mode.sample, home, "RayCluster")
    body["spec"]["workerGroupSpecs"][0].setdefault("maxReplicas", 9)
    size = 1 + body["spec"]["workerGroupSpecs"][0]["replicas"]
    in_the_way(cluster, home, 8 - 2 * size)

    def submit(name: str) -> None:
        body["metadata"]["name"] = name
        create(cluster, cluster.yaml(body))

    def explain(name: str) -> str:
        return explained(cluster, home, mode.group.format(name))

    def runs(name: str) -> int:
        return len(cluster.bound(home, f"{name}-"))

    submit("first")
    cluster.wait(lambda: runs("first") == size, "the first to run", 60)
    workers(cluster, home, "first", size)
    cluster.wait(lambda: runs("first") == size + 1, "another worker")
    submit("second")
    cluster.wait(lambda: has_no_room(explain("second")), "its reason")
    cluster.restart("gangsched")
    cluster.stays(lambda: (runs("first"), runs("second")) == (size + 1, 0), 2.0, "a part of it")
    workers(cluster, home, "first", size - 2)
    cluster.wait(lambda: runs("second") == size, "the second to run where workers left")
    least = f"{size - 1} of at least {size - 1} "
    cluster.wait(
        lambda: least in explain("first"), "the first to be whole with those that are left"
    )
    for name in ("first", "second"):
        cluster.kubectl("delete", "raycluster", name, "-n", home)
    nothing_is_left(cluster, home)
