"""LeaderWorkerSet and KubeRay, as they are shipped, beside gangsched: what they make is gangs."""

import pytest
import yaml
from cluster import Cluster
from conftest import PROCESS, PROCESS_TAINT, a_plane
from pages import Shell
from upstream import LWS, Operator, create, explained, installing, ready

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Options

pytestmark = pytest.mark.long  # building each operator takes two minutes of CPU

SLOTS = NodeGroup(name="k", kind="kwok", count=1, pods=8, taints=())
OWN = PROCESS.model_copy(update={"name": "own", "count": 1, "taints": (PROCESS_TAINT,)})
PLACE = {
    "nodeSelector": {"gangsched.io/node-kind": "process"},
    "tolerations": [{"key": PROCESS_TAINT["key"], "operator": "Exists"}],
}
VOLCANO_KEY = "scheduling.k8s.io/group-name"
VOLCANO_GROUPS = "podgroups.scheduling.volcano.sh"


@pytest.fixture(scope="module")
def plane():
    """A control plane on which nobody runs jobs yet: room for eight pods."""
    with a_plane("test-groups", NodeFile(nodes=(SLOTS, OWN)), Options(operators=False)) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture
def home(plane):
    """A namespace of the test's own."""
    name = plane.new_namespace()
    yield name
    plane.remove_namespace(name)


def sample(operator: Operator, path: str, home: str) -> dict:
    """Return a sample as it is shipped."""
    body = yaml.safe_load((operator.source() / path).read_text())
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


# -- LeaderWorkerSet ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["no provider", "volcano"])
def lws(plane, request, tmp_path_factory):
    """LeaderWorkerSet, as it is shipped; return the name of its provider of gangs."""
    with installing(plane, tmp_path_factory.mktemp("lws"), PLACE) as install:
        install(LWS)
        ready(plane, LWS)
        if request.param == "volcano":
            reader = Shell(tmp_path_factory.mktemp("reader"), plane.plane.kubeconfig)
            reader.walk("docs/jobs/operators.md", "LeaderWorkerSet")
            ready(plane, LWS)
        yield request.param


def bound_groups(cluster, home: str, name: str) -> dict[str, int]:
    """Return how many pods of each group are bound."""
    found: dict[str, int] = {}
    for pod in cluster.bound(home, f"{name}-"):
        index = pod.removeprefix(f"{name}-").split("-")[0]
        found[index] = found.get(index, 0) + 1
    return found


def gang_of(cluster, home: str, provider: str, group: str) -> str:
    """Return the gang of a group: its own name, or that of its PodGroup of Volcano."""
    if provider != "volcano":
        return group
    return cluster.json("get", "pod", group, "-n", home)["metadata"]["annotations"][VOLCANO_KEY]


def test_each_group_of_a_leaderworkerset_starts_whole(plane, lws, home):
    cluster = plane
    in_the_way(cluster, home, 2)
    path = "docs/examples/sample/gang-scheduling/lws-sample-volcano.yaml"
    body = sample(LWS, path, home)
    if lws != "volcano":
        body["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["schedulerName"] = (
            "gangsched"
        )
    name = body["metadata"]["name"]

    def runs(*groups: str) -> bool:
        return bound_groups(cluster, home, name) == dict.fromkeys(groups, 4)

    def reason(group: str) -> str:
        return explained(cluster, home, gang_of(cluster, home, lws, f"{name}-{group}"))

    def scale(replicas: int) -> None:
        cluster.kubectl("scale", "lws", name, "-n", home, f"--replicas={replicas}")

    create(cluster, cluster.yaml(body))
    # One group has room: that which has all its pods first.
    cluster.wait(lambda: runs("0") or runs("1"), "one whole group to run", 60)
    (first,) = bound_groups(cluster, home, name)
    second = "1" if first == "0" else "0"
    cluster.wait(lambda: "room for 2" in reason(second), "its reason")
    cluster.restart("gangsched")
    cluster.stays(lambda: runs(first), 2.0, "a part of a group")
    out_of_the_way(cluster, home, 0, 1)
    cluster.wait(lambda: runs("0", "1"), "the second group")
    scale(3)
    cluster.wait(lambda: "room for 0" in reason("2"), "its reason")
    assert runs("0", "1")
    scale(1)
    cluster.wait(lambda: runs("0"), "one group to be left")
    scale(2)
    cluster.wait(lambda: runs("0", "1"), "the second group again")
    cluster.kubectl("delete", "lws", name, "-n", home)
    nothing_is_left(cluster, home, name)


def nothing_is_left(cluster, home: str, prefix: str) -> None:
    """Wait until nothing is left of what an operator made."""

    def left() -> list[str]:
        kinds = f"pods,statefulsets,jobs,services,{VOLCANO_GROUPS}"
        names = cluster.kubectl("get", kinds, "-n", home, "-o", "name").split()
        return [one for one in names if one.split("/")[1].startswith(prefix)]

    cluster.wait(lambda: not left(), "nothing to be left")
    cluster.wait(
        lambda: "nobody waits" in cluster.gangsched("queue", "default")[1], "no gang to wait"
    )
