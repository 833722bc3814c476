"""Gang definitions of other schedulers: PodGroups, Jobs, StatefulSets, pods of Kueue and LWS."""

import pytest
from cluster import GPU
from waiting import patience_s

pytestmark = pytest.mark.by("direct")  # who is in a gang is known before it is bound

FULL = 8
"""GPUs of a KWOK node; there are four."""


def pod(name, scheduler="gangsched", labels=None, annotations=None, gpus=FULL, **more):
    """Return a pod for KWOK nodes that asks for a whole node; `more` are fields of its spec."""
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": spec(scheduler, gpus) | more,
    }


def spec(scheduler="gangsched", gpus=FULL):
    """Return the spec of such a pod."""
    return {
        "schedulerName": scheduler,
        "nodeSelector": {"gangsched.io/node-kind": "kwok"},
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
        ],
    }


PEERS = {
    "volcano": {
        "api": ("scheduling.volcano.sh", "v1beta1"),
        "scheduler": "volcano",
        "link": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
        "waits": {"phase": "Inqueue"},
        "runs": {"phase": "Running", "running": 3},
    },
    "scheduler-plugins": {
        "api": ("scheduling.x-k8s.io", "v1alpha1"),
        "scheduler": "scheduler-plugins-scheduler",
        "link": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        "waits": {"phase": "Scheduling"},
        "runs": {"phase": "Running", "running": 3},
    },
    "kai": {
        "api": ("scheduling.run.ai", "v2alpha2"),
        "scheduler": "kai-scheduler",
        "link": {"annotations": {"pod-group-name": "g"}},
        "waits": {"phase": "Pending"},
        "runs": {"phase": "Running", "running": 3},
    },
    "kubernetes": {
        "api": ("scheduling.k8s.io", "v1alpha2"),
        "scheduler": "gangsched",
        "link": {"schedulingGroup": {"podGroupName": "g"}},
        "waits": {"PodGroupScheduled": "False"},
        "runs": {"PodGroupScheduled": "True"},
    },
}


def status(cluster, namespace, peer):
    """Return the status of a peer's group."""
    group, version = PEERS[peer]["api"]
    body = cluster.custom.get_namespaced_custom_object(group, version, namespace, "podgroups", "g")
    found = body.get("status") or {}
    return found | {one["type"]: one["status"] for one in found.get("conditions") or []}


def create(cluster, namespace, peer, count, minimum):
    """Create a peer's group and its pods."""
    group, version = PEERS[peer]["api"]
    least = {"minMember": minimum}
    if peer == "scheduler-plugins":
        least["scheduleTimeoutSeconds"] = 0  # as the MPI Operator writes it
    if peer == "kubernetes":
        least = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    cluster.custom.create_namespaced_custom_object(
        group,
        version,
        namespace,
        "podgroups",
        {
            "apiVersion": f"{group}/{version}",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": least,
        },
    )
    for index in range(count):
        body = pod(f"g-{index}", PEERS[peer]["scheduler"], **PEERS[peer]["link"])
        cluster.core.create_namespaced_pod(namespace, body)


@pytest.mark.by("direct", "extender")  # kube-scheduler has a profile for each name
@pytest.mark.parametrize("peer", PEERS)
def test_a_peers_group_starts_whole_and_says_so_in_its_words(cluster, namespace, peer):
    create(cluster, namespace, peer, count=2, minimum=3)
    cluster.core.create_namespaced_pod(
        namespace, pod("g-2", PEERS[peer]["scheduler"], **PEERS[peer]["link"])
    )
    cluster.wait_placed(namespace, "g-", 3)
    wanted = PEERS[peer]["runs"]
    cluster.wait(
        lambda: wanted.items() <= status(cluster, namespace, peer).items(), f"the status {wanted}"
    )


@pytest.mark.parametrize("peer", PEERS)
def test_a_peers_group_too_large_starts_not_at_all(cluster, namespace, peer):
    create(cluster, namespace, peer, count=5, minimum=5)
    wanted = PEERS[peer]["waits"]
    cluster.wait(
        lambda: wanted.items() <= status(cluster, namespace, peer).items(), f"the status {wanted}"
    )
    cluster.wait_event(namespace, "LargerThanCluster", name="g")
    assert not cluster.bound(namespace)


def test_an_operator_that_waits_for_inqueue_may_create_its_pods(cluster, namespace):
    create(cluster, namespace, "volcano", count=0, minimum=2)
    cluster.wait(
        lambda: status(cluster, namespace, "volcano").get("phase") == "Inqueue", "the phase Inqueue"
    )


def job(count, scheduler="gangsched", **more):
    """Return an indexed Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work", **more.pop("metadata", {})},
        "spec": {
            "parallelism": count,
            "completions": count,
            "completionMode": "Indexed",
            "template": {"spec": spec(scheduler) | {"restartPolicy": "Never"}},
            **more,
        },
    }


def test_a_job_needs_nothing_but_the_schedulers_name(cluster, namespace):
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=cluster.yaml(job(3)))
    cluster.wait_placed(namespace, "work-", 3)
    cluster.kubectl("delete", "-n", namespace, "job/work")
    cluster.wait(lambda: not cluster.bound(namespace), "the pods to go", 60)
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=cluster.yaml(job(5)))
    cluster.wait_event(namespace, "LargerThanCluster", name="work")
    assert not cluster.bound(namespace)


def test_a_job_may_begin_with_fewer(cluster, namespace):
    few = {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}}
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=cluster.yaml(job(5, metadata=few)))
    cluster.wait_placed(namespace, "work-", 4)


def stateful(policy, count=3):
    """Return a StatefulSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "set"},
        "spec": {
            "replicas": count,
            "podManagementPolicy": policy,
            "serviceName": "set",
            "selector": {"matchLabels": {"app": "set"}},
            "template": {"metadata": {"labels": {"app": "set"}}, "spec": spec()},
        },
    }


def test_a_stateful_set_in_order_does_not_wait_for_pods_that_come_later(cluster, namespace):
    body = cluster.yaml(stateful("OrderedReady"))
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=body)
    cluster.wait_placed(namespace, "set-", 3)


def test_a_parallel_stateful_set_is_a_gang(cluster, namespace):
    body = cluster.yaml(stateful("Parallel", 5))
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=body)
    cluster.wait_event(namespace, "LargerThanCluster", name="set")
    assert not cluster.bound(namespace)


PLAIN = {
    "kueue": {
        "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
    },
    "leader and workers": {
        "labels": {
            "leaderworkerset.sigs.k8s.io/name": "g",
            "leaderworkerset.sigs.k8s.io/group-index": "0",
        },
        "annotations": {"leaderworkerset.sigs.k8s.io/size": "3"},
    },
}


@pytest.mark.parametrize("case", PLAIN)
def test_pods_that_name_their_group_alone(cluster, namespace, case):
    for index in range(2):
        cluster.core.create_namespaced_pod(namespace, pod(f"g-{index}", **PLAIN[case]))
    cluster.wait_event(namespace, "TooFewPods")
    assert not cluster.bound(namespace)
    cluster.core.create_namespaced_pod(namespace, pod("g-2", **PLAIN[case]))
    cluster.wait_placed(namespace, "g-", 3)


RAY_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rayclusters.ray.io"},
    "spec": {
        "group": "ray.io",
        "scope": "Namespaced",
        "names": {"kind": "RayCluster", "plural": "rayclusters", "singular": "raycluster"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
"""KubeRay's definition without its schema; its operator is not here, so the test makes its pods."""


@pytest.mark.by("extender")  # how many there are is read off the RayCluster whoever binds
def test_head_and_workers_of_a_ray_cluster_start_together(cluster, namespace):
    cluster.apply("default", cluster.yaml(RAY_CRD))
    patience = f"--timeout={patience_s(30):.0f}s"
    cluster.kubectl("wait", "--for=condition=Established", "crd/rayclusters.ray.io", patience)
    try:
        body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": "ray"},
            "spec": {
                "headGroupSpec": {"template": {}},  # KubeRay writes our name into pods alone
                "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 1}],
            },
        }
        create = ("create", "-n", namespace, "-f", "-")
        cluster.wait(  # established, and served a moment later
            lambda: (
                "raycluster.ray.io/ray created"
                in cluster.kubectl(*create, stdin=cluster.yaml(body), check=False)
            ),
            "the kind to be served",
        )
        labels = {"ray.io/cluster": "ray"}
        for name in ("ray-head", "ray-worker-0"):
            cluster.core.create_namespaced_pod(namespace, pod(name, labels=labels))
        cluster.wait_event(namespace, "TooFewPods")
        assert not cluster.bound(namespace)
        cluster.core.create_namespaced_pod(namespace, pod("ray-worker-1", labels=labels))
        cluster.wait_placed(namespace, "ray-", 3)
    finally:
        cluster.kubectl("delete", "crd/rayclusters.ray.io")


def replicated(name: str, count: int) -> dict:
    """Return one of a JobSet's replicated jobs, with a Job of so many pods."""
    job = {"parallelism": count, "completions": count, "template": {"spec": spec()}}
    job["template"]["spec"]["restartPolicy"] = "Never"
    return {"name": name, "replicas": 1, "template": {"spec": job}}


def test_waiting_jobs_of_a_jobset_have_capacity_from_the_start(cluster, namespace):
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "late"},
        "spec": {
            "managedBy": "example.com/another",  # the test makes its pods
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": [replicated("driver", 1), replicated("workers", 3)],
        },
    }

    def comes(job: str, index: int) -> None:
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "late",
            "jobset.sigs.k8s.io/replicatedjob-name": job,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        made = pod(f"late-{job}-0-{index}-x", labels=labels)
        cluster.core.create_namespaced_pod(namespace, made)

    cluster.core.create_namespaced_pod(namespace, pod("in-the-way"))
    cluster.wait_placed(namespace, "in-the-way", 1)
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=cluster.yaml(body))
    comes("driver", 0)
    cluster.wait_event(namespace, "NotEnoughFree", "4 pods", name="late")
    assert not cluster.bound(namespace, "late-"), "a driver without room for its workers"
    cluster.core.delete_namespaced_pod("in-the-way", namespace)
    cluster.wait_placed(namespace, "late-", 1)
    cluster.core.create_namespaced_pod(namespace, pod("another"))
    cluster.wait_event(namespace, "NotEnoughFree", name="another")
    for index in range(3):
        comes("workers", index)
    cluster.wait_placed(namespace, "late-", 4)
    assert not cluster.bound(namespace, "another")
