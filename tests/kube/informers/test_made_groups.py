"""PodGroups that an operator creates for its objects: the object's own fields count too."""

import pytest
from builders import written

from gangsched.config import SchedulerConfig
from gangsched.core import bounds
from gangsched.core.policy import Policies
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics
from policies.conservative import Conservative
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), None, Conservative(), None)
PLUGINS, VOLCANO = "scheduling.x-k8s.io", "scheduling.volcano.sh"
TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}
LWS = "leaderworkerset.sigs.k8s.io"


class Cluster:
    """A scheduler that changes nothing, and what its watches tell it of a namespace."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
        owners = self.scheduler.informers.owners
        self.kinds = {one.kind: one for one in (*owners.receivers, *owners.groups)}
        self.pods = self.scheduler.informers.pods

    def see(self, version: str, kind: str, spec: dict, **metadata) -> None:
        """Have an object seen that is named `j`."""
        self.kinds[f"{kind}.{version}"].on_update(written("j", f"{kind}-uid", spec, **metadata))

    def group(self, whose: str, minimum: int, maker: tuple[str, str] | None = None, **metadata):
        """Have a PodGroup seen; its maker refers to its object as KubeRay does, without control."""
        if maker is not None:
            version, kind = maker
            said = {"apiVersion": version, "kind": kind, "name": "j", "uid": "o"}
            metadata["ownerReferences"] = [said]
        version = {PLUGINS: "v1alpha1", VOLCANO: "v1beta1"}[whose]
        self.see(f"{whose}/{version}", "PodGroup", {"minMember": minimum}, **metadata)

    def pod(self, name: str) -> None:
        """Have a pod of scheduler-plugins' group seen."""
        spec = {"schedulerName": "gangsched", **TEMPLATE["spec"]}
        labels = {f"{PLUGINS}/pod-group": "j"}
        self.pods.on_update(written(name, name, spec, status={}, labels=labels))

    def gang(self, whose: str = PLUGINS):
        """Return the gang of its group."""
        return self.scheduler.engine.view.gangs[f"ns/{whose}:j"]


@pytest.fixture
def cluster():
    return Cluster()


RAY = ("ray.io/v1", "RayCluster")
MPI = ("kubeflow.org/v2beta1", "MPIJob")


def ray(workers: int) -> dict:
    group = {"replicas": workers, "template": TEMPLATE}
    return {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [group]}


@pytest.mark.parametrize("group_first", [True, False])
def test_a_ray_cluster_that_is_scaled_down_needs_fewer_pods_than_its_group_says(
    cluster, group_first
):
    """KubeRay leaves the group of scheduler-plugins as it was: the rest would be stopped."""
    steps = [lambda: cluster.group(PLUGINS, 3, RAY), lambda: cluster.see(*RAY, ray(2))]
    for step in steps if group_first else reversed(steps):
        step()
    assert cluster.gang().spec.min_member == 3
    cluster.see(*RAY, ray(1))
    assert cluster.gang().spec.min_member == 2
    cluster.see(*RAY, ray(5))
    assert cluster.gang().spec.min_member == 3, "it may start with as many as the group says"


def test_a_group_that_was_made_for_nothing_that_is_known_stays_as_it_is(cluster):
    cluster.group(PLUGINS, 3)
    cluster.see(*RAY, ray(0))
    assert cluster.gang().spec.min_member == 3
    cluster.group(PLUGINS, 4, ("batch/v1", "Job"))
    cluster.see("batch/v1", "Job", {"parallelism": 1, "template": TEMPLATE})
    assert cluster.gang().spec.min_member == 4, "several Jobs may share a group"


def test_a_launcher_that_waits_for_its_workers_comes_late_in_its_group_too(cluster):
    """The MPI Operator counts the launcher in the group, and makes it once the workers run."""
    parts = {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": parts}
    cluster.see(*MPI, spec)
    cluster.group(PLUGINS, 3, MPI)
    for index in (0, 1):
        cluster.pod(f"j-worker-{index}")
    gang = cluster.gang()
    assert (gang.spec.min_member, gang.spec.late) == (3, 1)
    assert gang.is_plannable()


def test_a_leader_has_capacity_for_workers_that_its_group_does_not_count(cluster):
    """LeaderWorkerSet makes a group of one with LeaderReady, and names itself in labels."""
    template = {"size": 3, "workerTemplate": TEMPLATE}
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": template}
    labels = {f"{LWS}/name": "j", f"{LWS}/group-index": "0"}
    cluster.group(VOLCANO, 1, labels=labels)
    assert cluster.gang(VOLCANO).spec.min_member == 1
    cluster.see("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
    gang = cluster.gang(VOLCANO)
    assert (gang.spec.min_member, gang.spec.late) == (3, 2)


def test_a_group_that_is_gone_is_declared_no_more(cluster):
    cluster.group(PLUGINS, 3, RAY)
    cluster.kinds[f"PodGroup.{PLUGINS}/v1alpha1"].on_delete("PodGroup-uid", None)
    cluster.see(*RAY, ray(1))
    assert not cluster.scheduler.engine.view.gangs


def test_an_object_has_only_so_many_groups_that_are_read_again_with_it(cluster, monkeypatch):
    """A tenant may make thousands of them, and change the object all the time."""
    bound = bounds.GROUPS_OF_OBJECT._replace(most=0)
    monkeypatch.setattr("gangsched.kube.informers.external_groups.GROUPS_OF_OBJECT", bound)
    cluster.see(*RAY, ray(1))
    cluster.group(PLUGINS, 3, RAY)
    assert cluster.gang().spec.min_member == 3
