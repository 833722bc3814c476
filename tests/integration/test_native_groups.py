"""Kubernetes' own PodGroups on API servers with them: 1.36 (v1alpha2), 1.37 (v1beta1)."""

import pytest
from apiservers import api_server
from cluster import Cluster
from conftest import KWOK, a_plane

from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions

pytestmark = pytest.mark.long

GROUP = "scheduling.k8s.io"
GATES = {
    "v1.36": ("v1alpha2", "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true"),
    "v1.37": (
        "v1beta1",
        "GenericWorkload=true,PodGroupPreemptionPolicy=true,WorkloadWithJob=true",
    ),
}
STARTED = {"v1alpha2": "PodGroupScheduled", "v1beta1": "PodGroupInitiallyScheduled"}
WHOLE = {"v1alpha2": "PodGroup", "v1beta1": {"all": {}}}
NEVER = {"v1alpha2": {}, "v1beta1": {"preemptionPolicy": "Never"}}
"""For such a class: 1.36 has that for pods only."""
CLASSES = (("low", 10, "PreemptLowerPriority"), ("high", 95, "PreemptLowerPriority"))
MEEK = ("meek", 90, "Never")


class Native:
    """A cluster with groups of its own."""

    def __init__(self, cluster: Cluster, served: str) -> None:
        self.cluster = cluster
        self.served = served
        self.namespace = cluster.new_namespace()
        for name, value, policy in (*CLASSES, MEEK):
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "preemptionPolicy": policy,
            }
            cluster.apply("default", cluster.yaml(body))

    def create(self, name: str, count: int, minimum: int, **spec) -> None:
        """Create a group and its pods, each of which takes a node of its own."""
        body = {
            "apiVersion": f"{GROUP}/{self.served}",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}, **spec},
        }
        self.cluster.custom.create_namespaced_custom_object(
            GROUP, self.served, self.namespace, "podgroups", body
        )
        own = {key: spec[key] for key in ("priorityClassName",) if key in spec}
        for index in range(count):
            group = {"podGroupName": name}
            self.cluster.pod(self.namespace, f"{name}-{index}", schedulingGroup=group, **own)

    def conditions(self, name: str) -> dict[str, dict]:
        """Return the conditions of a group by type."""
        found = self.cluster.custom.get_namespaced_custom_object(
            GROUP, self.served, self.namespace, "podgroups", name
        )
        return {one["type"]: one for one in (found.get("status") or {}).get("conditions") or []}

    def wait(self, name: str, kind: str, status: str, reason: str) -> dict:
        """Wait for a condition of a group, and return it."""
        wanted = {"status": status, "reason": reason}
        return self.cluster.wait(
            lambda: (
                found
                if wanted.items() <= (found := self.conditions(name).get(kind, {})).items()
                else None
            ),
            f"the condition {kind} of {name}: {wanted}",
        )


@pytest.fixture(scope="module", params=GATES)
def native(request):
    """A control plane of a version that serves groups of its own."""
    served, gates = GATES[request.param]
    flags = f"--feature-gates={gates} --runtime-config={GROUP}/{served}=true"
    options = PlaneOptions(
        binding="direct", api_server=api_server(request.param), flags=(("kube-apiserver", flags),)
    )
    name = f"test-native-{request.param.replace('.', '-')}"
    with a_plane(name, NodeFile(nodes=(KWOK,)), options) as plane:
        yield Native(Cluster(plane, "direct"), served)


def test_a_native_gang_starts_whole_and_says_so_to_its_end(native):
    """Four nodes: one gang fills them, is stopped for another as a whole, and was scheduled."""
    cluster, namespace, started = native.cluster, native.namespace, STARTED[native.served]
    native.create("large", 5, 5)
    native.wait("large", started, "False", "Unschedulable")
    assert not cluster.bound(namespace)
    whole = WHOLE[native.served]
    native.create("low", 4, 2, priorityClassName="low", disruptionMode=whole)
    cluster.wait_placed(namespace, "low-", 4)
    first = native.wait("low", started, "True", "Scheduled")
    assert "DisruptionTarget" not in native.conditions("low")
    native.create("meek", 1, 1, priorityClassName="meek", **NEVER[native.served])
    native.wait("meek", started, "False", "Unschedulable")
    assert len(cluster.bound(namespace, "low-")) == 4
    native.create("high", 1, 1, priorityClassName="high")
    cluster.wait_placed(namespace, "high-", 1)
    target = native.wait("low", "DisruptionTarget", "True", "PreemptionByScheduler")
    assert f"{namespace}/scheduling.k8s.io:high" in target["message"]
    cluster.wait(lambda: not cluster.bound(namespace, "low-"), "all of it to go")
    assert native.conditions("low")[started] == first
