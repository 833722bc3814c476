"""Queues on the real control plane: borrowing, reclaim, backfill reservations, invalid Queues."""

import json

import pytest
from kubernetes import client
from kubernetes.watch import Watch
from test_faults import wait_reason
from waiting import patience_s

pytestmark = pytest.mark.by("direct")  # who may start is decided before anything is bound

GROUPS = ("gangsched.io", "v1beta1", "podgroups")
QUEUES = ("gangsched.io", "v1beta1", "queues")
ANN = ("--as=ann", "--as-group=system:masters")
SYSTEM = "system-cluster-critical"
RESERVATIONS = ("gangsched.io", "v1beta1", "reservations")


@pytest.fixture
def queue(cluster, namespace):
    """Make queues of this test; they are gone after it."""
    made = []

    def make(name, kind=QUEUES, **spec):
        full = f"{name}-{namespace}" if not name.startswith("x:") else name[2:]
        body = {
            "apiVersion": "gangsched.io/v1beta1",
            "kind": "Queue" if kind is QUEUES else "Reservation",
            "metadata": {"name": full},
            "spec": spec,
        }
        cluster.custom.create_cluster_custom_object(*kind, body)
        made.append((kind, full))
        return full

    yield make
    cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    for kind, name in reversed(made):
        cluster.custom.delete_cluster_custom_object(*kind, name)


def status(cluster, name, kind=QUEUES) -> dict:
    return cluster.custom.get_cluster_custom_object(*kind, name).get("status") or {}


def quota(cluster, name) -> dict:
    """Return what the status of a Queue says of its first quota."""
    return next(iter(status(cluster, name).get("quotas") or ()), {})


def warnings(cluster, name) -> list[str]:
    """Return the reasons of a Queue's Warning Events."""
    which = f"involvedObject.kind=Queue,involvedObject.name={name},type=Warning"
    found = cluster.core.list_namespaced_event("default", field_selector=which)
    return [one.reason for one in found.items]


def gpus(amount, **more) -> list[dict]:
    return [{"resource": "nvidia.com/gpu", "nominal": amount, **more}]


def test_borrow_and_reclaim(cluster, namespace, queue):
    org = queue("org", quotas=gpus(32))
    ours = queue("ours", parent=org, quotas=gpus(16))
    theirs = queue("theirs", parent=org, quotas=gpus(16))
    cluster.gang(namespace, "loan-a", 2, group={"queue": theirs})
    cluster.wait_placed(namespace, "loan-a-", 2)
    cluster.gang(namespace, "loan-b", 2, group={"queue": theirs})
    cluster.wait_placed(namespace, "loan-b-", 2)
    cluster.wait(
        lambda: quota(cluster, theirs).get("borrowed") == "16",
        "the loan in the status",
    )
    cluster.gang(namespace, "mine", 2, group={"queue": ours})
    cluster.wait_placed(namespace, "mine-", 2)
    left = cluster.bound(namespace, "loan-")
    assert len(left) == 2, "one loan is taken back whole, the other stays"
    cluster.wait_event(namespace, "Preempted", f"in queue {ours}")
    cluster.wait(
        lambda: quota(cluster, theirs).get("borrowed") == "0",
        "the loan given back",
    )


def test_a_queue_without_quota_left_says_so(cluster, namespace, queue):
    small = queue("small", quotas=gpus(8))
    cluster.gang(namespace, "a", 1, group={"queue": small})
    cluster.wait_placed(namespace, "a-", 1)
    cluster.gang(namespace, "b", 1, group={"queue": small})
    said = f"Queue {small} has 8 nvidia.com/gpu; 8 are in use, and the gang needs 8"
    wait_reason(cluster, namespace, "QuotaInUse", "b", said)
    cluster.gang(namespace, "c", 2, group={"queue": small})
    wait_reason(cluster, namespace, "LargerThanQuota", "c", "can use at most 8")


def test_wrong_queues(cluster, namespace, queue):
    one = queue("one", parent=f"two-{namespace}")
    queue("two", parent=one)
    above = queue("above", quotas=gpus(4))
    below = queue("below", parent=above, quotas=gpus(8))
    misspelt = queue("misspelt", quotas=[{"resource": "gpu", "nominal": 4}])
    wrong = queue("wrong", quotas=gpus("2000000000000000000"))
    cluster.gang(namespace, "g", 1, group={"queue": one})
    wait_reason(cluster, namespace, "QueueInvalid", said="circle")  # `two` may come late
    cluster.wait(lambda: "circle" in status(cluster, one).get("message", ""), "the status")
    cluster.wait(
        lambda: "8 counts as 4" in status(cluster, below).get("message", ""), "a child beyond"
    )
    assert warnings(cluster, below) == ["LargerThanParent"]
    cluster.wait(lambda: quota(cluster, above).get("nominal") == "4", "the nominal quota above")
    cluster.kubectl("wait", "--for=condition=Ready", f"queue/{above}", "--timeout=30s")
    cluster.kubectl("wait", "--for=condition=Ready=false", f"queue/{one}", "--timeout=30s")
    cluster.wait(
        lambda: "did you mean nvidia.com/gpu?" in status(cluster, misspelt).get("message", ""),
        "a resource that no node has",
    )
    assert warnings(cluster, misspelt) == ["NoSuchNode"]
    cluster.wait(
        lambda: (
            "spec.quotas[nvidia.com/gpu].nominal: '2000000000000000000' is more than"
            in status(cluster, wrong).get("message", "")
        ),
        "what no cluster has",
    )
    held = queue("held", stop="Hold")
    cluster.gang(namespace, "h", 1, group={"queue": held})
    wait_reason(cluster, namespace, "QueueStopped", "h", "on hold")
    closed = queue("closed", namespaces=["elsewhere"])
    cluster.gang(namespace, "c", 1, group={"queue": closed})
    message = wait_reason(cluster, namespace, "NotPermitted", "c")
    assert message.startswith(f"Namespace {namespace} may not use queue {closed};")
    assert "elsewhere" not in message
    cluster.gang(namespace, "u", 1, group={"queue": "nowhere"})
    wait_reason(cluster, namespace, "UnknownQueue", "u", "does not exist")


def test_a_deleted_queue_loses_no_job(cluster, namespace, queue):
    fleeting = queue("fleeting", quotas=gpus(8))
    cluster.gang(namespace, "a", 1, group={"queue": fleeting})
    cluster.wait_placed(namespace, "a-", 1)
    cluster.gang(namespace, "b", 1, group={"queue": fleeting})
    wait_reason(cluster, namespace, "QuotaInUse", "b")
    cluster.custom.delete_cluster_custom_object(*QUEUES, fleeting)
    wait_reason(cluster, namespace, "UnknownQueue", "b")
    assert cluster.bound(namespace, "a-")
    body = {"metadata": {"name": fleeting}, "spec": {"quotas": gpus(16)}}
    body |= {"apiVersion": "gangsched.io/v1beta1", "kind": "Queue"}
    cluster.custom.create_cluster_custom_object(*QUEUES, body)
    cluster.wait_placed(namespace, "b-", 1)


def test_a_running_gang_is_charged_where_it_was_admitted(cluster, namespace, queue):
    ours, closed = queue("ours", quotas=gpus(8)), queue("closed", namespaces=["elsewhere"])
    cluster.gang(namespace, "a", 1, group={"queue": ours})
    cluster.wait_placed(namespace, "a-", 1)
    cluster.wait(lambda: cluster.group_status(namespace, "a").get("queue") == ours, "its queue")
    cluster.kubectl(
        *("patch", "podgroups.gangsched.io", "a", "-n", namespace, "--type=merge"),
        *("-p", json.dumps({"spec": {"queue": closed}})),
    )
    cluster.wait_event(namespace, "NotAdmitted", f"It stays charged to queue {ours}", "a")
    cluster.restart("gangsched", hard=True)
    cluster.gang(namespace, "b", 1, group={"queue": ours})
    wait_reason(cluster, namespace, "QuotaInUse", "b", "8 are in use")
    assert cluster.condition(namespace, "a")["status"] == "True"
    assert cluster.group_status(namespace, "a")["queue"] == ours


def test_quotas_of_a_namespace_are_counted_before_pods_exist(cluster, namespace, queue):
    """What the queue lacks keeps the gang waiting until the quota has been heard of."""

    def limit(amount) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "compute", "namespace": namespace},
            "spec": {"hard": {"requests.nvidia.com/gpu": amount}},
        }
        cluster.apply("default", json.dumps(body))

    small = queue("small", quotas=gpus(4))
    resources = {"limits": {"nvidia.com/gpu": 4}, "requests": {"nvidia.com/gpu": 4}}
    container = {"name": "c", "image": "x", "resources": resources}
    role = {"name": "worker", "count": 2, "template": {"spec": {"containers": [container]}}}
    cluster.group(namespace, "g", queue=small, roles=[role])
    wait_reason(cluster, namespace, "LargerThanQuota")
    limit("4")
    wait_reason(cluster, namespace, "ResourceQuota", said="has 4 nvidia.com/gpu left")
    limit("8")
    cluster.custom.patch_cluster_custom_object(*QUEUES, small, {"spec": {"quotas": gpus(8)}})
    cluster.wait(
        lambda: cluster.group_status(namespace, "g").get("phase") == "Reserved", "its room"
    )


def test_backfill_behind_a_large_gang(cluster, namespace):
    """The large gang has room kept; a short one goes round it, a long one must not."""
    running = {"expectedRuntimeSeconds": 36_000}
    cluster.gang(namespace, "run", 2, group=running)
    cluster.wait_placed(namespace, "run-", 2)
    cluster.gang(namespace, "large", 4, group={"expectedRuntimeSeconds": 60})
    wait_reason(cluster, namespace, "NotEnoughFree", "large")
    cluster.gang(namespace, "long", 1, group={"expectedRuntimeSeconds": 360_000})
    wait_reason(
        cluster, namespace, "BehindReservation", "long", f"reservation of {namespace}/large"
    )
    cluster.gang(namespace, "short", 1, group={"expectedRuntimeSeconds": 20})
    cluster.wait_placed(namespace, "short-", 1)
    cluster.wait(
        lambda: (cluster.group_status(namespace, "large").get("start") or {}).get("reserved"),
        "the promise in the status",
    )
    for name in ("run", "short"):
        cluster.core.delete_collection_namespaced_pod(  # half a gang may be stopped meanwhile
            namespace, label_selector=f"gangsched.io/pod-group={name}", grace_period_seconds=0
        )
        cluster.custom.delete_namespaced_custom_object(
            "gangsched.io", "v1beta1", namespace, "podgroups", name
        )
    cluster.wait_placed(namespace, "large-", 4)


def test_booked_nodes_are_for_those_who_booked(cluster, namespace, queue):
    club = queue("club")
    made = cluster.core.read_namespace(namespace).metadata.creation_timestamp
    booking = queue(
        "day",
        kind=RESERVATIONS,
        start=f"{made:%Y-%m-%dT%H:%M:%SZ}",
        durationSeconds=86_400,
        nodes=["k-0", "k-1", "k-2", "k-3"],
        queues=[club],
    )
    cluster.wait(lambda: status(cluster, booking, RESERVATIONS).get("phase") == "Active", "Active")
    cluster.gang(namespace, "other", 1)
    wait_reason(cluster, namespace, "Booked", "other", booking)
    cluster.gang(namespace, "member", 1, group={"queue": club})
    cluster.wait_placed(namespace, "member-", 1)


def test_questions_from_the_terminal(cluster, namespace, queue):
    small = queue("small", quotas=gpus(8))
    cluster.gang(namespace, "a", 1, group={"queue": small, "expectedRuntimeSeconds": 36_000})
    cluster.wait_placed(namespace, "a-", 1)
    cluster.gang(namespace, "b", 1, group={"queue": small})
    wait_reason(cluster, namespace, "QuotaInUse", "b")
    code, text = cluster.gangsched("explain", f"{namespace}/b", "-o", "json")
    found = json.loads(text)
    assert code == 3
    assert found["reason"] == "QuotaInUse"
    assert found["start"]["position"] == 1
    assert found["start"]["expected"] is not None
    code, text = cluster.gangsched("explain", f"{namespace}/a")
    assert code == 0
    assert "runs on k-" in text
    code, text = cluster.gangsched("queue", small)
    assert f"{namespace}/b" in text.replace("\n", "")
    code, text = cluster.gangsched("queue", "-o", "yaml")
    assert small in text
    code, text = cluster.gangsched("what-if", "--quota", f"{small}:nvidia.com/gpu=16", "-o", "json")
    (row,) = [row for row in json.loads(text) if row["gang"] == f"{namespace}/b"]
    assert row["gained_s"] > 100
    (pod,) = cluster.bound(namespace, "a-")
    cluster.wait(
        lambda: cluster.core.read_namespaced_pod(pod, namespace).status.phase == "Running",
        "it to run",  # KWOK would say so afterwards
    )
    cluster.core.patch_namespaced_pod_status(pod, namespace, {"status": {"phase": "Succeeded"}})
    code, text = cluster.gangsched("explain", f"{namespace}/a")
    assert code == 0
    assert "Finished" in text
    assert "1 pod of the gang ended well" in text
    code, text = cluster.gangsched("explain", f"{namespace}/nobody")
    assert code == 2
    assert "does not exist" in text


def test_when_a_job_would_start(cluster, namespace, tmp_path):
    file = tmp_path / "group.yaml"
    file.write_text(
        """
apiVersion: gangsched.io/v1beta1
kind: PodGroup
metadata: {name: later}
spec:
  roles:
  - name: worker
    count: 2
    template:
      spec:
        containers: [{name: main, image: none, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
    )
    code, text = cluster.gangsched("when", str(file), "-n", namespace)
    assert code == 0, text
    assert "enough capacity is free for the gang now" in text
    cluster.gang(
        namespace, "run", 4, group={"expectedRuntimeSeconds": 36_000, "preemptible": False}
    )
    cluster.wait_placed(namespace, "run-", 4)
    code, text = cluster.gangsched("when", str(file), "-n", namespace, "-o", "json")
    assert code == 3
    assert json.loads(text)["start"]["expected"] is not None
    file.write_text("kind: Deployment\n")
    code, text = cluster.gangsched("when", str(file))
    assert code == 2
    assert "has no training job" in text


USER = "gangsched.io/user"


def of_kind(kind: str, scheduler: str = "") -> dict:
    """Return an object that stands for a gang, or a pod."""
    pod = {"containers": [{"name": "c", "image": "none"}], "restartPolicy": "Never"}
    if scheduler:
        pod["schedulerName"] = scheduler
    match kind:
        case "Pod":
            return {"apiVersion": "v1", "kind": kind, "spec": pod}
        case "Job":
            spec = {"template": {"spec": pod}, "suspend": True}
            return {"apiVersion": "batch/v1", "kind": kind, "spec": spec}
        case "Experiment":
            spec = {"objective": {"type": "minimize", "objectiveMetricName": "loss"}}
            spec |= {"algorithm": {"algorithmName": "random"}, "maxTrialCount": 1}
            spec["trialTemplate"] = {"trialSpec": of_kind("Job", scheduler)}
            return {"apiVersion": "kubeflow.org/v1beta1", "kind": kind, "spec": spec}
        case _:
            return {"apiVersion": kind, "kind": "PodGroup", "spec": {"minMember": 1}}


@pytest.mark.parametrize(
    "kind",
    ["gangsched.io/v1beta1", "scheduling.x-k8s.io/v1alpha1", "Job", "Pod", "Experiment"],
)
def test_who_asked_is_the_api_servers_word(cluster, namespace, kind):
    body = of_kind(kind, "gangsched") | {"metadata": {"name": "g", "namespace": namespace}}
    body["metadata"]["annotations"] = {USER: "somebody-else"}
    plural = f"{body['kind'].lower()}s." + body["apiVersion"].rpartition("/")[0]
    where = ("annotate", "-n", namespace, plural.rstrip("."), "g")
    made = annotations(cluster, *ANN, "create", "-f", "-", stdin=cluster.yaml(body))
    assert made[USER] == "ann"
    theirs = annotations(cluster, *where, "--overwrite", f"{USER}=bob", "more=yes")
    assert (theirs[USER], theirs["more"]) == ("ann", "yes"), "it stays hers"
    assert annotations(cluster, *where, f"{USER}-", "more-")[USER] == "ann"


def annotations(cluster, *arguments: str, stdin: str | None = None) -> dict:
    """Have kubectl write an object; return the annotations that the API server answers with."""
    answer = json.loads(cluster.kubectl(*arguments, "-o", "json", stdin=stdin))
    return answer["metadata"].get("annotations") or {}


def test_who_asked_for_what_is_not_ours_is_not_noted(cluster, namespace):
    body = of_kind("Job") | {"metadata": {"name": "theirs", "namespace": namespace}}
    create = (*ANN, "create", "-f", "-")
    assert USER not in annotations(cluster, *create, stdin=cluster.yaml(body))
    forge = ("annotate", "-n", namespace, "job", "theirs", f"{USER}=bob")
    assert annotations(cluster, *forge)[USER] == "", "nobody's"


def test_a_template_names_no_user(cluster, namespace):
    """What our controllers make is whose the job is, whatever its templates say."""
    forged = {"annotations": {USER: "somebody-else"}}
    pods = {"metadata": forged, "spec": of_kind("Pod")["spec"]}
    job = {"metadata": forged, "spec": {"template": pods}}
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": job}]},
    }
    began = cluster.custom.list_namespaced_custom_object(*GROUPS[:2], namespace, GROUPS[2])
    cluster.kubectl(*ANN, "create", "-f", "-", stdin=cluster.yaml(body))

    def first(objects, *where) -> dict:
        """Return the first that was made since; its JobSet may have ended before anybody looks."""
        since = {"resource_version": began["metadata"]["resourceVersion"]}
        events = Watch().stream(objects, *where, **since, timeout_seconds=int(patience_s(30)))
        made = next(event["raw_object"] for event in events if event["type"] == "ADDED")
        return made["metadata"]["annotations"]

    group = first(cluster.custom.list_namespaced_custom_object, *GROUPS[:2], namespace, GROUPS[2])
    job = first(client.BatchV1Api(cluster.api).list_namespaced_job, namespace)
    assert (group[USER], job[USER]) == ("ann", "ann")


def test_a_priority_beyond_the_queues(cluster, namespace, queue):
    low = queue("low", maxPriorityClassName="low-enough")
    cluster.kubectl("create", "priorityclass", "low-enough", "--value=10")
    try:
        cluster.gang(namespace, "high", 1, group={"queue": low, "priorityClassName": SYSTEM})
        said = f"queue {low} allows at most 10 (spec.maxPriorityClassName)"
        wait_reason(cluster, namespace, "NotPermitted", "high", said)
        cluster.gang(namespace, "system", 1, group={"priorityClassName": SYSTEM})
        said = "are for namespace kube-system"
        wait_reason(cluster, namespace, "NotPermitted", "system", said)
    finally:
        cluster.kubectl("delete", "priorityclass", "low-enough")


def test_a_limit_counts_by_user(cluster, namespace, queue):
    each = queue("each", userLimits={"nvidia.com/gpu": 8})

    def gang(name: str) -> None:
        body = of_kind("gangsched.io/v1beta1") | {"metadata": {"name": name}}
        body["metadata"]["namespace"] = namespace
        body["spec"] |= {"queue": each, "user": "somebody-else"}
        cluster.kubectl(*ANN, "create", "-f", "-", stdin=cluster.yaml(body))
        cluster.pod(namespace, f"{name}-0", labels={"gangsched.io/pod-group": name})

    gang("one")
    cluster.wait_placed(namespace, "one-", 1)
    gang("two")
    wait_reason(cluster, namespace, "UserLimit", "two", "User ann may have 8")


def is_protected(cluster, gang: str) -> bool:
    """Tell whether gangsched said that it knows of a gang's disruption budget."""
    said = cluster.plane.programs.tail("gangsched", 1_000).splitlines()
    return any("disruption budgets protect" in line and gang in line for line in said)


def test_gangs_with_a_disruption_budget_are_preempted_last(cluster, namespace):
    urgent = f"urgent-{namespace}"
    cluster.kubectl("create", "priorityclass", urgent, "--value=10")
    try:
        cluster.gang(namespace, "bare", 2)
        cluster.wait_placed(namespace, "bare-", 2)
        cluster.gang(namespace, "kept", 2)  # it lost less than the other, and would go first
        cluster.wait_placed(namespace, "kept-", 2)
        spec = {"minAvailable": 2, "selector": {"matchLabels": {"gangsched.io/pod-group": "kept"}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec}
        made = cluster.yaml(body | {"metadata": {"name": "kept"}})
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=made)
        cluster.wait(lambda: is_protected(cluster, f"{namespace}/kept"), "the budget to be read")
        assert len(cluster.bound(namespace)) == 4, "all run"
        cluster.gang(namespace, "first", 2, priorityClassName=urgent)
        cluster.wait_placed(namespace, "first-", 2)
        assert len(cluster.bound(namespace, "kept-")) == 2
        cluster.gang(namespace, "second", 2, priorityClassName=urgent)
        cluster.wait_placed(namespace, "second-", 2)
        cluster.wait_event(namespace, "Preempted", "despite a PodDisruptionBudget")
    finally:
        cluster.kubectl("delete", "priorityclass", urgent)
