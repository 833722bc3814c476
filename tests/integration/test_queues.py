"""Queues on the real control plane: loans and what is taken back, promises, wrong declarations."""

import json

import pytest
from test_faults import wait_reason

pytestmark = pytest.mark.by("direct")  # who may start is decided before anything is bound

QUEUES = ("gangsched.io", "v1beta1", "queues")
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
        lambda: status(cluster, theirs).get("quotas", [{}])[0].get("borrowed") == "16",
        "the loan in the status",
    )
    cluster.gang(namespace, "mine", 2, group={"queue": ours})
    cluster.wait_placed(namespace, "mine-", 2)
    left = cluster.bound(namespace, "loan-")
    assert len(left) == 2, "one loan is taken back whole, the other stays"
    cluster.wait_event(namespace, "Preempted", f"of queue {ours}")
    cluster.wait(
        lambda: status(cluster, theirs).get("quotas", [{}])[0].get("borrowed") == "0",
        "the loan given back",
    )


def test_a_queue_without_quota_left_says_so(cluster, namespace, queue):
    small = queue("small", quotas=gpus(8))
    cluster.gang(namespace, "a", 1, group={"queue": small})
    cluster.wait_placed(namespace, "a-", 1)
    cluster.gang(namespace, "b", 1, group={"queue": small})
    message = wait_reason(cluster, namespace, "QuotaInUse", "b")
    assert f"Queue {small} has 8 nvidia.com/gpu; 8 are in use, and the gang needs 8" in message
    cluster.gang(namespace, "c", 2, group={"queue": small})
    assert "can never have more than 8" in wait_reason(cluster, namespace, "LargerThanQuota", "c")


def test_wrong_queues(cluster, namespace, queue):
    one = queue("one", parent=f"two-{namespace}")
    queue("two", parent=one)
    cluster.gang(namespace, "g", 1, group={"queue": one})
    assert "circle" in wait_reason(cluster, namespace, "QueueInvalid")
    cluster.wait(lambda: "circle" in status(cluster, one).get("message", ""), "the status")
    above = queue("above", quotas=gpus(4))
    queue("below", parent=above, quotas=gpus(8))
    cluster.wait(
        lambda: "is less than" in status(cluster, above).get("message", ""), "children beyond"
    )
    wrong = queue("wrong", quotas=gpus("-3"))
    cluster.wait(
        lambda: "'-3' is negative" in status(cluster, wrong).get("message", ""), "negative"
    )
    held = queue("held", stop="Hold")
    cluster.gang(namespace, "h", 1, group={"queue": held})
    assert "on hold" in wait_reason(cluster, namespace, "QueueStopped", "h")
    closed = queue("closed", namespaces=["elsewhere"])
    cluster.gang(namespace, "c", 1, group={"queue": closed})
    assert "allowed are: elsewhere" in wait_reason(cluster, namespace, "NotPermitted", "c")
    cluster.gang(namespace, "u", 1, group={"queue": "nowhere"})
    assert "does not exist" in wait_reason(cluster, namespace, "UnknownQueue", "u")


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


def test_backfill_behind_a_large_gang(cluster, namespace):
    """The large gang has room kept; a short one goes round it, a long one must not."""
    running = {"expectedRuntimeSeconds": 36_000}
    cluster.gang(namespace, "run", 2, group=running)
    cluster.wait_placed(namespace, "run-", 2)
    cluster.gang(namespace, "large", 4, group={"expectedRuntimeSeconds": 60})
    wait_reason(cluster, namespace, "NotEnoughFree", "large")
    cluster.gang(namespace, "long", 1, group={"expectedRuntimeSeconds": 360_000})
    message = wait_reason(cluster, namespace, "BehindReservation", "long")
    assert f"would delay {namespace}/large" in message
    cluster.gang(namespace, "short", 1, group={"expectedRuntimeSeconds": 20})
    cluster.wait_placed(namespace, "short-", 1)
    cluster.wait(
        lambda: (cluster.group_status(namespace, "large").get("start") or {}).get("reserved"),
        "the promise in the status",
    )
    for prefix in ("run", "short"):
        for name in cluster.bound(namespace, f"{prefix}-"):
            cluster.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        cluster.custom.delete_namespaced_custom_object(
            "gangsched.io", "v1beta1", namespace, "podgroups", prefix
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
    assert booking in wait_reason(cluster, namespace, "Booked", "other")
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
    assert "there is room for it now" in text
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
    assert "holds no training job" in text


def test_who_asked_is_the_api_servers_word(cluster, namespace):
    body = {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": {"gangsched.io/user": "somebody-else"}},
        "spec": {"minMember": 1},
    }
    made = cluster.custom.create_namespaced_custom_object(
        "gangsched.io", "v1beta1", namespace, "podgroups", body
    )
    assert made["metadata"]["annotations"]["gangsched.io/user"] == "kubernetes-admin"
