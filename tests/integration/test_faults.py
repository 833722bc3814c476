"""Invalid input and faults: a clear reason, no over-commitment, and recovery."""

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

GROUPS = ("gangsched.io", "v1beta1", "podgroups")
PATIENT = {"scheduleTimeoutSeconds": 86_400}
"""Of gangs that a process finishes which was started meanwhile: no slow start of it stops them."""

anyhow = pytest.mark.by("extender")
"""What is refused, and how it is told, does not depend on who binds."""


def reason(cluster, namespace, name="g"):
    """Return the reason and message of a group's Scheduled condition."""
    condition = cluster.condition(namespace, name)
    return condition.get("reason"), condition.get("message", "")


def wait_reason(cluster, namespace, expected, name="g", said="") -> str:
    """Wait for a reason, and for what its message says; return the message.

    The scheduler hears of each kind by a watch of its own: with a queue, a node or a quota still
    unheard of, the same reason has another message at first.
    """

    def found() -> str:
        why, message = reason(cluster, namespace, name)
        return message if why == expected and said in message else ""

    return cluster.wait(found, f"reason {expected}: {said}")


def gang(cluster, namespace, name, members, gpus=8) -> None:
    """Create a gang that has all the time to start, and wait until it runs."""
    cluster.gang(namespace, name, members, gpus=gpus, group=PATIENT)
    cluster.wait_placed(namespace, f"{name}-", members)


def hurry(cluster, namespace, name) -> None:
    """Allow a gang that runs one second to be incomplete, and wait until that is known.

    With so little from the first it might never start. The Event is about the same patch.
    """
    metadata, spec = {"annotations": {"gangsched.io/hurried": ""}}, {"scheduleTimeoutSeconds": 1}
    cluster.custom.patch_namespaced_custom_object(
        *GROUPS[:2], namespace, GROUPS[2], name, {"metadata": metadata, "spec": spec}
    )
    cluster.wait_event(namespace, "UnknownKey", "gangsched.io/hurried", name)


@anyhow
def test_a_gang_larger_than_the_cluster(cluster, namespace):
    cluster.gang(namespace, "g", 5)
    said = "the whole cluster takes 4 even when it is empty."  # advice may follow it at any time
    wait_reason(cluster, namespace, "LargerThanCluster", said=said)
    cluster.wait_event(namespace, "LargerThanCluster", said, "g")


@anyhow
def test_a_role_that_fits_no_node_names_the_nearest_miss(cluster, namespace):
    cluster.gang(namespace, "g", 1, gpus=9)
    wait_reason(cluster, namespace, "NoNodeQualifies", said="lacks 1 nvidia.com/gpu")


@anyhow
def test_an_unknown_queue(cluster, namespace):
    cluster.group(namespace, "g", 1, queue="nowhere")
    cluster.pod(namespace, "g-0", labels={"gangsched.io/pod-group": "g"})
    may = f"namespace {namespace} may use: default"
    wait_reason(cluster, namespace, "UnknownQueue", said=f"Queue 'nowhere' does not exist; {may}")


@anyhow
def test_a_group_deleted_while_its_pods_wait(cluster, namespace):
    cluster.gang(namespace, "g", 5)
    wait_reason(cluster, namespace, "LargerThanCluster")
    cluster.custom.delete_namespaced_custom_object(
        "gangsched.io", "v1beta1", namespace, "podgroups", "g"
    )
    # Pods and groups are watched one by one: a pod of now may be heard of before that deletion.
    cluster.wait(
        lambda: 'gangsched_gangs_refused{reason="PodGroupMissing"}' in cluster.metrics(),
        "the deletion to be heard of",
    )
    cluster.pod(namespace, "g-9", labels={"gangsched.io/pod-group": "g"})
    cluster.wait(
        lambda: any(r == "PodGroupMissing" for r, _ in cluster.events(namespace, "g-9")),
        "an Event on the pod",
    )
    cluster.group(namespace, "g", 2)
    cluster.wait_placed(namespace, "g-", 2)


@anyhow
def test_fewer_pods_than_the_minimum(cluster, namespace):
    cluster.group(namespace, "g", 9)
    cluster.pod(namespace, "g-0", gpus=1, labels={"gangsched.io/pod-group": "g"})
    said = ("TooFewPods", "1 of at least 9 pods exist.")  # once the pod is heard of as well
    cluster.wait(lambda: reason(cluster, namespace) == said, "the reason")


BAD_GROUPS = {
    "nothing to count": ({}, "give minMember, or roles to count it from"),
    "minimum below one": ({"minMember": 0}, "spec.minMember"),
    "minimum above the roles": (
        {"minMember": 3, "roles": [{"name": "w", "count": 2}]},
        "minMember may not be above the number of pods of all roles",
    ),
    "minCount above count": (
        {"roles": [{"name": "w", "count": 2, "minCount": 3}]},
        "minCount may not be above count",
    ),
    "half the roles with a template": (
        {"roles": [{"name": "a", "count": 1, "template": {}}, {"name": "b", "count": 1}]},
        "either every role has a template or none",
    ),
    "two roles of one name": (
        {"roles": [{"name": "a", "count": 1}, {"name": "a", "count": 1}]},
        "Duplicate value",
    ),
}


@anyhow
@pytest.mark.parametrize("case", BAD_GROUPS)
def test_the_crd_refuses_what_makes_no_sense(cluster, namespace, case):
    spec, message = BAD_GROUPS[case]
    with pytest.raises(ApiException) as error:
        cluster.group(namespace, "g", **spec)
    assert error.value.status == 422
    assert message in error.value.body


@anyhow
def test_an_unreadable_quantity_is_reported_on_the_object(cluster, namespace):
    """The pod template of a role is opaque to the API server: we have to say it."""
    container = {"name": "c", "resources": {"requests": {"cpu": "lots"}}}
    roles = [{"name": "w", "count": 1, "template": {"spec": {"containers": [container]}}}]
    cluster.group(namespace, "g", roles=roles)
    message = wait_reason(cluster, namespace, "Invalid")
    assert "cpu: 'lots' is no quantity" in message
    cluster.gang(namespace, "other", 1)
    cluster.wait_placed(namespace, "other-", 1)


@anyhow
def test_an_unknown_priority_class(cluster, namespace):
    cluster.group(namespace, "g", 1, priorityClassName="royal")
    assert "'royal' does not exist" in wait_reason(cluster, namespace, "Invalid")


@anyhow
def test_a_member_that_leaves_before_the_start(cluster, namespace):
    cluster.group(namespace, "g", 3)
    for index in range(2):
        cluster.pod(namespace, f"g-{index}", labels={"gangsched.io/pod-group": "g"})
    wait_reason(cluster, namespace, "TooFewPods")
    cluster.core.delete_namespaced_pod("g-0", namespace, grace_period_seconds=0)
    cluster.wait(lambda: "1 of at least 3" in reason(cluster, namespace)[1], "the new count")


def test_a_running_gang_that_loses_a_member_is_stopped_unless_made_whole(cluster, namespace):
    gang(cluster, namespace, "mended", 3, gpus=2)
    cluster.core.delete_namespaced_pod("mended-1", namespace, grace_period_seconds=0)
    wait_reason(cluster, namespace, "BelowMinimum", "mended")
    cluster.pod(namespace, "mended-1", gpus=2, labels={"gangsched.io/pod-group": "mended"})
    cluster.wait_placed(namespace, "mended-", 3)
    gang(cluster, namespace, "left", 3, gpus=2)
    hurry(cluster, namespace, "left")
    cluster.core.delete_namespaced_pod("left-2", namespace, grace_period_seconds=0)
    cluster.wait(lambda: not cluster.bound(namespace, "left-"), "the partial gang to be stopped")
    cluster.wait_event(namespace, "Broken", name="left")
    assert len(cluster.bound(namespace, "mended-")) == 3


@anyhow
def test_kwok_touches_no_pod_that_is_made_again_under_an_old_name(cluster, namespace):
    """KWOK deletes and patches by name, on news that may be old; a policy says which pod it means.

    What it would do to such a pod is done here in its name.
    """
    cluster.pod(namespace, "again", schedulerName="nobody")
    running = {"status": {"phase": "Running"}}
    as_kwok = config.new_client_from_config(str(cluster.plane.folder / "kwok.kubeconfig"))
    core = client.CoreV1Api(as_kwok)
    with pytest.raises(ApiException, match="writes the status of bound pods only"):
        core.patch_namespaced_pod_status("again", namespace, running)
    with pytest.raises(ApiException, match="deletes pods that are leaving only"):
        core.delete_namespaced_pod("again", namespace, grace_period_seconds=0)
    cluster.pod(namespace, "bound", nodeName="k-0", schedulerName="nobody")
    cluster.wait(
        lambda: cluster.core.read_namespaced_pod("bound", namespace).status.phase == "Running",
        "KWOK's own work to be allowed",
    )
    cluster.core.delete_namespaced_pod("bound", namespace, grace_period_seconds=30)
    cluster.wait(lambda: not cluster.bound(namespace), "KWOK to delete what leaves")


def test_a_claim_that_does_not_exist(cluster, namespace):
    """Through the extender kube-scheduler judges them; direct binding waits, and says for what."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}
    cluster.gang(namespace, "g", 1, volumes=[volume])
    if cluster.binding == "direct":
        message = wait_reason(cluster, namespace, "BeyondPlanner")
        assert "has to wait for PersistentVolumeClaim absent (there is no such claim)" in message
    else:
        cluster.wait(
            lambda: any(
                'persistentvolumeclaim "absent" not found' in m
                for _, m in cluster.events(namespace)
            ),
            "kube-scheduler's own reason",
        )
    cluster.stays(lambda: not cluster.bound(namespace), 1.0, "bound without its volume")


def test_a_member_refused_by_kube_scheduler_breaks_the_gang_cleanly(cluster, namespace):
    if cluster.binding == "direct":
        pytest.skip("nobody else judges pods in direct binding")
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"gangsched.io/pod-group": "g"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    cluster.gang(namespace, "g", 2, gpus=1, affinity=apart)
    cluster.wait(
        lambda: any(r == "Broken" for r, _ in cluster.events(namespace, "g")),
        "pack puts both on one node, which anti-affinity refuses",
    )
    nodes = cluster.wait_placed(namespace, "g-", 2, 90)
    assert len(set(nodes.values())) == 2, "what was learnt: the node is avoided"


def test_a_node_that_goes_away_and_returns(cluster, namespace):
    gang(cluster, namespace, "g", 4)
    hurry(cluster, namespace, "g")
    node = cluster.core.read_node("k-3")
    (lost,) = [name for name, place in cluster.bound(namespace).items() if place == "k-3"]
    cluster.core.delete_node("k-3")
    collect(cluster, namespace, lost)
    node.metadata.resource_version = node.metadata.uid = None
    cluster.core.create_node(node)
    cluster.wait_event(namespace, "BelowMinimum", name="g")
    assert not cluster.overcommitted()
    cluster.wait(lambda: not cluster.bound(namespace), "the partial gang to be stopped")
    cluster.pod(namespace, "back", nodeSelector={"kubernetes.io/hostname": "k-3"})
    cluster.wait_placed(namespace, "back", 1)


def collect(cluster, namespace, pod) -> None:
    """Do at once what the garbage collector does after a minute to a pod whose node is gone.

    Whoever stops its gang may have been quicker.
    """
    failed = {"status": {"phase": "Failed"}}
    try:
        cluster.core.patch_namespaced_pod_status(pod, namespace, failed)
        cluster.core.delete_namespaced_pod(pod, namespace, grace_period_seconds=0)
    except ApiException as error:
        if error.status != 404:
            raise


def test_killed_at_any_moment(cluster, namespace):
    """SIGKILL between the steps of a start: the next process finishes the work."""
    for bound in (0, 2, 4):
        name = f"g{bound}"
        cluster.gang(namespace, name, 4, group=PATIENT)
        cluster.wait(
            lambda n=name, b=bound: len(cluster.bound(namespace, f"{n}-")) >= b, "a moment"
        )
        cluster.restart("gangsched", hard=True)
        cluster.wait_placed(namespace, f"{name}-", 4)
        assert not cluster.overcommitted()
        cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
        cluster.wait(lambda: not cluster.core.list_namespaced_pod(namespace).items, "the end")


@anyhow
def test_a_reservation_survives_a_restart(cluster, namespace):
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {
        "spec": {"containers": [container], "nodeSelector": {"gangsched.io/node-kind": "kwok"}}
    }
    cluster.group(
        namespace,
        "g",
        scheduleTimeoutSeconds=3600,
        roles=[{"name": "worker", "count": 4, "template": template}],
    )
    cluster.wait(lambda: cluster.group_status(namespace, "g").get("phase") == "Reserved", "it")
    before = cluster.group_status(namespace, "g")["assignments"]
    cluster.restart("gangsched", hard=True)
    cluster.gang(namespace, "other", 1)
    wait_reason(cluster, namespace, "NotEnoughFree", "other")
    assert cluster.group_status(namespace, "g")["assignments"] == before


@pytest.mark.parametrize("program", ["kube-scheduler-gangsched", "kube-apiserver"])
def test_a_component_restarts_while_gangs_start(cluster, namespace, program):
    if program == "kube-scheduler-gangsched" and cluster.binding == "direct":
        pytest.skip("direct binding has no kube-scheduler")
    cluster.gang(namespace, "a", 2, group=PATIENT)
    cluster.restart(program, hard=True)
    cluster.wait_placed(namespace, "a-", 2, 60)
    cluster.wait(lambda: takes_objects(cluster, namespace), "the API to take objects", 60)
    cluster.gang(namespace, "b", 2, group=PATIENT)
    cluster.wait_placed(namespace, "b-", 2, 60)
    assert not cluster.overcommitted()


def takes_objects(cluster, namespace) -> bool:
    """Return whether the API server would take a group, a job and a pod now."""
    spec = {"schedulerName": "gangsched", "containers": [{"name": "main", "image": "none"}]}
    group = {"apiVersion": "gangsched.io/v1beta1", "kind": "PodGroup", "spec": {"minMember": 1}}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    replicas = {"Worker": {"template": {"spec": {"containers": [{"name": "pytorch"}]}}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    job["spec"] = {"pytorchReplicaSpecs": replicas}
    objects = "---\n".join(
        cluster.yaml(one | {"metadata": {"name": "x"}}) for one in (group, job, pod)
    )
    create = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    said = cluster.kubectl(*create, stdin=objects, check=False)
    kinds = "podgroup.gangsched.io", "pytorchjob.kubeflow.org", "pod"
    return all(f"{kind}/x created" in said for kind in kinds)


def nested(kind: str, api_version: str, name: str, holder: str) -> str:
    """Return an object whose template, open to anything, is nested deeper than Python reads."""
    template = (
        f'{{"spec": {{"x": {"[" * 5_000}{"]" * 5_000}, "containers": [{{"name": "pytorch"}}]}}}}'
    )
    head = f'"apiVersion": "{api_version}", "kind": "{kind}", "metadata": {{"name": "{name}"}}'
    return f'{{{head}, "spec": {holder % template}}}'


@anyhow
def test_what_is_nested_too_deep_stops_nothing(cluster, namespace):
    group = '{"roles": [{"name": "w", "count": 1, "template": %s}]}'
    job = '{"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": %s}}}'
    for text in (
        nested("PodGroup", "gangsched.io/v1beta1", "g", group),
        nested("PyTorchJob", "kubeflow.org/v1", "j", job),
    ):
        cluster.kubectl("create", "-n", namespace, "--validate=false", "-f", "-", stdin=text)
    for name in ("event", "list"):  # by which the objects above are heard of
        cluster.gang(namespace, name, 2)
        cluster.wait_placed(namespace, f"{name}-", 2)
        if name == "event":
            cluster.restart("gangsched", hard=True)
    # Python's own client cannot read them.
    path = "jsonpath={.status.conditions[0].type}"
    cluster.wait(
        lambda: cluster.kubectl("get", "-n", namespace, "pytorchjob", "j", "-o", path),
        "the job to be seen",
    )
    cluster.kubectl("delete", "-n", namespace, "podgroup.gangsched.io/g", "pytorchjob/j")


@anyhow
def test_a_malformed_pod_label_stops_nothing(cluster, namespace):
    cluster.pod(
        namespace,
        "bad",
        gpus=1,
        labels={"gangsched.io/pod-group": "x", "gangsched.io/min-member": "many"},
    )
    cluster.gang(namespace, "g", 1)
    cluster.wait_placed(namespace, "g-", 1)
    assert 'gangsched_malformed_objects_total{kind="Pod"}' in cluster.metrics()
