"""Owners of pods become gangs once a pod of ours belongs to them, and not before."""

import itertools

import pytest
from builders import written

from gangsched.config import SchedulerConfig
from gangsched.core.policy import Policies
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics
from policies.conservative import Conservative
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), None, Conservative(), None)
OPERATED = "training.kubeflow.org/operator-name"
OF_JOB = "training.kubeflow.org/job-name"


class Cluster:
    """A scheduler that changes nothing, and what its watches tell it."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
        self.pods = self.scheduler.informers.pods
        self.kinds = {one.kind: one for one in self.scheduler.informers.owners.receivers}
        self._uids = itertools.count()

    def owner(
        self, version: str, kind: str, spec: dict, status: object = None, **metadata
    ) -> bytes:
        """Have an object seen that is named `j`; return it."""
        raw = written("j", f"{kind}-uid", spec=spec, status=status or {}, **metadata)
        self.kinds[f"{kind}.{version}"].on_update(raw)
        return raw

    def pod(self, name: str, owner: tuple[str, str, str], scheduler="gangsched", **labels) -> None:
        """Have a pod seen that an owner controls."""
        version, kind, named = owner
        said = {"apiVersion": version, "kind": kind, "name": named, "uid": "o", "controller": True}
        spec = {"schedulerName": scheduler, "containers": [{"name": "main"}]}
        labelled = {key.replace("__", "/"): value for key, value in labels.items()}
        metadata = {"ownerReferences": [said], "labels": labelled}
        raw = written(name, f"pod-{next(self._uids)}", spec=spec, status={}, **metadata)
        self.pods.on_update(raw)

    def gangs(self) -> dict[str, tuple[int | None, int]]:
        """Return the minimum and the members of every gang; no minimum where none is declared."""
        return {
            name: (one.spec.min_member if one.spec else None, len(one.members))
            for name, one in self.scheduler.engine.view.gangs.items()
        }


@pytest.fixture
def cluster():
    return Cluster()


TORCH = ("kubeflow.org/v1", "PyTorchJob", "j")
FOUR = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}


@pytest.mark.parametrize("job_first", [True, False])
def test_pods_of_the_training_operator_are_a_gang(cluster, job_first):
    """Two of four pods, which no group was made for, do not start as two gangs of one."""
    if job_first:
        cluster.owner(*TORCH[:2], FOUR)
        assert cluster.gangs() == {}, "our own controller may run it, whose pods name a group"
    cluster.pod("j-master-0", TORCH)
    cluster.pod("j-worker-0", TORCH)
    if not job_first:
        cluster.owner(*TORCH[:2], FOUR)
    assert cluster.gangs() == {"ns/pytorchjob:j": (4, 2)}
    assert not cluster.scheduler.engine.view.gangs["ns/pytorchjob:j"].is_plannable()


FAILED = {
    "conditions": [
        {"type": "FailureTarget", "status": "True"},
        {"type": "Failed", "status": "True"},
    ]
}
RUNS = {"conditions": [{"type": "Failed", "status": "False"}, "text", {"type": ["Failed"]}]}


@pytest.mark.parametrize(
    ("owner", "spec", "runs", "ended", "outcome"),
    [
        (TORCH, FOUR, RUNS, FAILED, "Failed"),
        (("batch/v1", "Job", "j"), {"parallelism": 1}, {"conditions": "x"}, FAILED, "Failed"),
        (
            ("batch/v1", "Job", "j"),
            {"parallelism": 1},
            {},
            {"conditions": [{"type": "Complete", "status": "True"}]},
            "Succeeded",
        ),
    ],
)
def test_the_end_that_an_object_names_is_known(cluster, owner, spec, runs, ended, outcome):
    cluster.pod("j-0", owner)
    cluster.owner(*owner[:2], spec, runs)
    (gang,) = cluster.scheduler.engine.view.gangs.values()
    assert gang.outcome is None
    cluster.owner(*owner[:2], spec, ended)
    assert gang.outcome == outcome
    later = Cluster()  # one that starts after the end
    later.owner(*owner[:2], spec, ended)
    later.pod("j-0", owner)
    (gang,) = later.scheduler.engine.view.gangs.values()
    assert gang.outcome == outcome


def test_pods_that_name_a_group_are_not_their_owners_gang(cluster):
    cluster.owner(*TORCH[:2], FOUR)
    cluster.pod("j-master-0", TORCH, **{"gangsched.io__pod-group": "j"})
    assert list(cluster.gangs()) == ["ns/j"]


def test_a_launcher_that_is_a_jobs_pod_is_of_its_mpi_jobs_gang(cluster):
    spec = {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}}}
    by_mpi = {OPERATED: "mpi-operator", OF_JOB: "j"}
    cluster.owner("kubeflow.org/v2beta1", "MPIJob", spec)
    cluster.owner("batch/v1", "Job", {"parallelism": 1})
    cluster.pod("j-launcher-x", ("batch/v1", "Job", "j-launcher"), **by_mpi)
    for index in range(2):
        cluster.pod(f"j-worker-{index}", ("kubeflow.org/v2beta1", "MPIJob", "j"), **by_mpi)
    assert cluster.gangs() == {"ns/mpijob:j": (3, 3)}


def test_a_ray_cluster_that_names_us_in_its_pods_alone_is_a_gang(cluster):
    """KubeRay writes the scheduler's name that it was started with into pods."""
    spec = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [{"replicas": 1}]}
    cluster.owner("ray.io/v1", "RayCluster", spec)
    for name in ("j-head", "j-worker"):
        cluster.pod(name, ("ray.io/v1", "RayCluster", "j"), **{"ray.io__cluster": "j"})
    assert cluster.gangs() == {"ns/raycluster:j": (2, 2)}


def test_what_another_scheduler_has_is_nothing_to_us(cluster):
    cluster.owner(*TORCH[:2], FOUR)
    cluster.pod("j-master-0", TORCH, scheduler="default-scheduler")
    assert cluster.gangs() == {}


WRONG = {"pytorchReplicaSpecs": {"Worker": {"replicas": "many"}}}


def test_an_error_is_reported_once_the_object_is_ours(cluster, caplog):
    cluster.owner(*TORCH[:2], WRONG)
    assert not caplog.records, "it may be anybody's"
    cluster.pod("j-worker-0", TORCH)
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("skipped: PyTorchJob ns/j")
    assert "many" in line
    cluster.owner(*TORCH[:2], FOUR)
    assert cluster.gangs() == {"ns/pytorchjob:j": (4, 1)}


def test_an_object_that_went_before_its_pods_came_declares_nothing(cluster):
    raw = cluster.owner(*TORCH[:2], FOUR)
    cluster.kinds["PyTorchJob.kubeflow.org/v1"].on_delete("PyTorchJob-uid", raw)
    cluster.pod("j-master-0", TORCH)
    assert cluster.gangs() == {"ns/pytorchjob:j": (None, 1)}


def test_a_priority_class_that_comes_later_is_read_then(cluster):
    policy = {"schedulingPolicy": {"priorityClass": "high", "queue": "team"}}
    cluster.owner(*TORCH[:2], FOUR | {"runPolicy": policy})
    cluster.pod("j-master-0", TORCH)
    assert cluster.gangs() == {"ns/pytorchjob:j": (None, 1)}
    cluster.scheduler.cluster.priorities["high"] = 7
    cluster.kinds["PyTorchJob.kubeflow.org/v1"].classes_changed()
    gang = cluster.scheduler.engine.view.gangs["ns/pytorchjob:j"].spec
    assert (gang.min_member, gang.priority, gang.queue) == (4, 7, "team")


TEMPLATE = {"spec": {"schedulerName": "gangsched", "containers": [{"name": "main"}]}}
JOB = ("batch/v1", "Job", "j-x")


def replicated(name: str, pods: int, **fields) -> dict:
    spec = {"parallelism": pods, "template": TEMPLATE}
    return {"name": name, "template": {"spec": spec}, **fields}


def of_jobset(job: str) -> dict[str, str]:
    return {"jobset.sigs.k8s.io/jobset-name": "j", "jobset.sigs.k8s.io/replicatedjob-name": job}


@pytest.mark.parametrize("first", [True, False])
def test_jobs_of_a_jobset_are_one_gang(cluster, first):
    spec = {"replicatedJobs": [replicated("driver", 1), replicated("w", 2)]}
    if first:
        cluster.owner("jobset.x-k8s.io/v1alpha2", "JobSet", spec)
    cluster.pod("j-driver-0-0-x", JOB, **of_jobset("driver"))
    for index in (0, 1):
        cluster.pod(f"j-w-0-{index}-y", JOB, **of_jobset("w"))
    if not first:
        cluster.owner("jobset.x-k8s.io/v1alpha2", "JobSet", spec)
    assert cluster.gangs() == {"ns/jobset:j": (3, 3)}


@pytest.mark.parametrize("first", [True, False])
def test_what_starts_after_others_have_ended_is_a_gang_of_its_own(cluster, first):
    after = [{"name": "fetch", "status": "Complete"}]
    spec = {"replicatedJobs": [replicated("fetch", 1), replicated("w", 2, dependsOn=after)]}
    if first:
        cluster.owner("jobset.x-k8s.io/v1alpha2", "JobSet", spec)
    cluster.pod("j-fetch-0-0-x", JOB, **of_jobset("fetch"))
    if not first:
        cluster.owner("jobset.x-k8s.io/v1alpha2", "JobSet", spec)
    assert cluster.gangs() == {"ns/jobset:j.fetch": (1, 1)}
    cluster.pod("j-w-0-0-x", JOB, **of_jobset("w"))
    assert cluster.gangs() == {"ns/jobset:j.fetch": (1, 1), "ns/jobset:j": (2, 1)}
    cluster.kinds["JobSet.jobset.x-k8s.io/v1alpha2"].on_delete("JobSet-uid", None)
    assert cluster.gangs() == {"ns/jobset:j.fetch": (None, 1), "ns/jobset:j": (None, 1)}


LWS = "leaderworkerset.sigs.k8s.io"


@pytest.mark.parametrize("first", [True, False])
def test_every_group_of_a_leaderworkerset_is_a_gang_that_its_leader_starts(cluster, first):
    """With LeaderReady no worker is made before its leader runs: they waited for each other."""
    spec = {
        "replicas": 2,
        "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE},
    }
    if first:
        cluster.owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
    for index in ("0", "1"):
        labels = {f"{LWS}/name": "j", f"{LWS}/group-index": index, f"{LWS}/worker-index": "0"}
        cluster.pod(f"j-{index}", ("apps/v1", "StatefulSet", "j"), **labels)
    if not first:
        cluster.owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
    assert cluster.gangs() == {"ns/lws:j-0": (3, 3), "ns/lws:j-1": (3, 3)}
    gangs = cluster.scheduler.engine.view.gangs
    assert all(gang.is_plannable() for gang in gangs.values())
    cluster.pods.on_delete("pod-0", None)
    assert list(cluster.gangs()) == ["ns/lws:j-1"], "a group goes with its pods"


def test_a_status_is_no_news_of_how_pods_start(crowded, monkeypatch):
    """The controller writes it for each pod; all groups of the object would be read again."""
    receiver = crowded.kinds["LeaderWorkerSet.leaderworkerset.x-k8s.io/v1"]
    declared = []
    monkeypatch.setattr(receiver, "accept", lambda _, gang: declared.append(gang.id))
    receiver.on_update(written("j", "LeaderWorkerSet-uid", spec=LED, status={"readyReplicas": 1}))
    assert declared == []
    receiver.on_update(
        written("j", "LeaderWorkerSet-uid", spec=LED, labels={"gangsched.io/queue": "x"})
    )
    assert declared == ["ns/lws:j-0"], "a key that means nothing is told"


RAY_JOB = {
    "rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}},
    "submitterPodTemplate": TEMPLATE,
}


def controlled(kind: str) -> dict:
    said = {"apiVersion": "ray.io/v1", "kind": kind, "name": "j", "uid": "o", "controller": True}
    return {"ownerReferences": [said]}


@pytest.mark.parametrize("order", list(itertools.permutations(("job", "cluster", "pod"))))
def test_a_ray_job_has_its_cluster_and_its_submitter(cluster, order):
    def cluster_seen() -> None:
        body = written("c", "c", spec=RAY_JOB["rayClusterSpec"], **controlled("RayJob"))
        cluster.kinds["RayCluster.ray.io/v1"].on_update(body)

    steps = {
        "job": lambda: cluster.owner("ray.io/v1", "RayJob", RAY_JOB),
        "cluster": cluster_seen,
        "pod": lambda: cluster.pod("c-head", ("ray.io/v1", "RayCluster", "c"), ray__io="x"),
    }
    steps["pod"] = lambda: cluster.pod(
        "c-head", ("ray.io/v1", "RayCluster", "c"), **{"ray.io__cluster": "c"}
    )
    for name in order:
        steps[name]()
    assert cluster.gangs() == {"ns/rayjob:j": (2, 2)}
    assert cluster.scheduler.engine.view.gangs["ns/rayjob:j"].is_plannable()
    submitter = {"parallelism": 1, "template": TEMPLATE}
    raw = written("j", "s", spec=submitter, **controlled("RayJob"))
    cluster.kinds["Job.batch/v1"].on_update(raw)
    cluster.pod("j-s", ("batch/v1", "Job", "j"))
    assert cluster.gangs() == {"ns/rayjob:j": (2, 2)}
    assert {"ns/c-head", "ns/j-s"} == set(
        cluster.scheduler.engine.view.gangs["ns/rayjob:j"].members
    )


LED = {
    "startupPolicy": "LeaderReady",
    "leaderWorkerTemplate": {"size": 4, "workerTemplate": TEMPLATE},
}
LWS_KIND = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")


@pytest.fixture
def crowded(cluster):
    """Two groups of four pods each, in a namespace that may have five planned."""
    cluster.scheduler.informers.planned.most = 5
    cluster.owner(*LWS_KIND, LED)
    for index in ("0", "1"):
        labels = {f"{LWS}/name": "j", f"{LWS}/group-index": index}
        cluster.pod(f"j-{index}", ("apps/v1", "StatefulSet", "j"), **labels)
    return cluster


def test_a_namespace_may_not_have_more_pods_planned_than_its_bound(crowded):
    """An object of some bytes would be as many members in memory as it counts."""
    assert crowded.gangs() == {"ns/lws:j-0": (4, 4), "ns/lws:j-1": (None, 1)}


def test_a_group_that_was_kept_back_has_its_turn_when_another_is_gone(crowded):
    crowded.pods.on_delete("pod-0", None)
    crowded.owner(*LWS_KIND, LED | {"replicas": 1})
    assert crowded.gangs() == {"ns/lws:j-1": (4, 4)}


def test_groups_that_are_gone_are_not_counted(crowded):
    for uid in ("pod-1", "pod-0"):
        crowded.pods.on_delete(uid, None)
    crowded.owner(*LWS_KIND, LED | {"replicas": 0})
    receiver = crowded.kinds["LeaderWorkerSet.leaderworkerset.x-k8s.io/v1"]
    receiver.on_delete("LeaderWorkerSet-uid", None)
    assert crowded.scheduler.informers.planned.release("ns/lws:j-1") == [], "it waits no longer"
    receiver.on_update(written("k", "k-uid", spec=LED))
    crowded.pod("k-0", ("apps/v1", "StatefulSet", "k"), **{f"{LWS}/name": "k"})
    assert crowded.gangs() == {"ns/lws:k-0": (4, 4)}


def test_a_jobset_has_no_more_jobs_than_a_gang_has_roles(cluster, caplog):
    """JobSet's own definition has no bound: the scheduler read a chain of 3,000 for 25 s."""
    chain = [
        replicated(f"a{at}", 1, dependsOn=[{"name": f"a{at - 1}", "status": "Complete"}])
        for at in range(65)
    ]
    cluster.owner("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": chain})
    cluster.pod("j-a0-0-0-x", JOB, **of_jobset("a0"))
    assert "JobSet ns/j: there are 65 roles of a gang; 64 are allowed" in caplog.text
