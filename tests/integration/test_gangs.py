"""Gangs on a real API server, through both ways of binding."""

from collections import Counter

import pytest

before_binding = pytest.mark.by("direct")
"""For what is decided before any pod is bound."""


def test_all_members_start_together(cluster, namespace):
    cluster.gang(namespace, "g", 4)
    cluster.wait_placed(namespace, "g-", 4)
    cluster.wait(lambda: cluster.condition(namespace, "g").get("status") == "True", "Scheduled")
    assert cluster.group_status(namespace, "g")["phase"] == "Placed"
    cluster.wait_event(namespace, "Placed", "All 4 pods of the gang are bound, to 4 nodes.")


def test_none_starts_before_the_last_member_exists(cluster, namespace):
    cluster.group(namespace, "g", 3)
    labels = {"gangsched.io/pod-group": "g"}
    cluster.pod(namespace, "g-0", labels=labels)
    cluster.pod(namespace, "g-1", labels=labels)
    cluster.wait(
        lambda: cluster.condition(namespace, "g").get("message") == "2 of at least 3 pods exist.",
        "the reason",
    )
    cluster.stays(lambda: not cluster.bound(namespace), 1.0, "a partial gang was bound")
    cluster.pod(namespace, "g-2", labels=labels)
    cluster.wait_placed(namespace, "g-", 3)


def test_none_starts_while_another_controller_s_gate_is_on_one(cluster, namespace):
    """Whose gate it is may take it off whenever it likes; ours goes on its own time."""
    cluster.group(namespace, "g", 2)
    labels = {"gangsched.io/pod-group": "g"}
    gate = "example.com/data-is-there"
    cluster.pod(namespace, "g-0", labels=labels, schedulingGates=[{"name": gate}])
    cluster.pod(namespace, "g-1", labels=labels)
    cluster.wait(
        lambda: gate in cluster.condition(namespace, "g").get("message", ""), "whose gate it is"
    )
    cluster.stays(lambda: not cluster.bound(namespace), 1.0, "a partial gang was bound")
    removed = {"spec": {"schedulingGates": [{"$patch": "delete", "name": gate}]}}
    cluster.core.patch_namespaced_pod("g-0", namespace, removed)
    cluster.wait_placed(namespace, "g-", 2)


@before_binding
def test_a_group_without_pods_tells_what_it_waits_for(cluster, namespace):
    cluster.group(namespace, "empty", 2)
    wanted = {"phase": "Gathering", "message": "0 of at least 2 pods exist."}
    cluster.wait(
        lambda: wanted.items() <= cluster.group_status(namespace, "empty").items(), "its status"
    )


@before_binding
def test_a_group_by_label_alone(cluster, namespace):
    labels = {"gangsched.io/pod-group": "free", "gangsched.io/min-member": "2"}
    cluster.pod(namespace, "a", labels=labels)
    cluster.stays(lambda: not cluster.bound(namespace), 1.0, "bound before its sibling")
    cluster.pod(namespace, "b", labels=labels)
    cluster.wait_placed(namespace, "", 2)


@before_binding
def test_a_coscheduling_pod_group(cluster, namespace):
    labels = {"scheduling.x-k8s.io/pod-group": "co"}
    cluster.pod(namespace, "a", labels=labels)
    body = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "co"},
        "spec": {"minMember": 2},
    }
    cluster.custom.create_namespaced_custom_object(
        "scheduling.x-k8s.io", "v1alpha1", namespace, "podgroups", body
    )
    cluster.stays(lambda: not cluster.bound(namespace), 1.0, "bound before its sibling")
    cluster.pod(namespace, "b", labels=labels)
    cluster.wait_placed(namespace, "", 2)


def test_a_bare_pod_is_a_gang_of_one(cluster, namespace):
    cluster.pod(namespace, "alone", gpus=1)
    cluster.wait_placed(namespace, "alone", 1)


@before_binding
def test_a_planned_group_is_reserved_before_its_pods_exist(cluster, namespace):
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {
        "spec": {"containers": [container], "nodeSelector": {"gangsched.io/node-kind": "kwok"}}
    }
    cluster.group(
        namespace,
        "g",
        scheduleTimeoutSeconds=1,
        roles=[{"name": "worker", "count": 3, "template": template}],
    )
    # It keeps its room for a second at a time, which no look need meet.
    status = cluster.watch_group(namespace, "g", lambda seen: seen.get("phase") == "Reserved")
    assert [place["pod"] for place in status["assignments"]] == [f"g-worker-{i}" for i in range(3)]
    cluster.wait_event(namespace, "Broken", name="g")  # nobody made the pods


def holders(cluster, namespace):
    """Return how many pods of each gang are bound at one moment, once all three of one are."""
    held = Counter(name.partition("-")[0] for name in cluster.bound(namespace))
    return 3 in held.values() and held


def test_gangs_compete_for_the_last_nodes(cluster, namespace):
    """Ten gangs by each way of binding: one runs, the others wait, and none is half there."""
    for ring in range(2):
        waiting = [f"{letter}{ring}" for letter in "abcde"]
        for name in waiting:
            cluster.group(namespace, name, 3)
        for index in range(3):  # member by member, so that each could grab half
            for name in waiting:
                cluster.pod(namespace, f"{name}-{index}", labels={"gangsched.io/pod-group": name})
        while waiting:
            held = cluster.wait(lambda: holders(cluster, namespace), "one of them")
            (winner,) = held.keys()  # else there is a partial gang
            assert not cluster.overcommitted()
            waiting.remove(winner)
            if len(waiting) in (4, 1):
                cluster.wait(
                    lambda losers=tuple(waiting): all(
                        cluster.condition(namespace, name).get("reason") == "NotEnoughFree"
                        for name in losers
                    ),
                    "the losers' reason",
                )
            cluster.core.delete_collection_namespaced_pod(
                namespace,
                label_selector=f"gangsched.io/pod-group={winner}",
                grace_period_seconds=0,
            )


@before_binding
def test_priority_goes_first(cluster, namespace):
    from kubernetes import client

    name = f"high-{namespace}"
    client.SchedulingV1Api(cluster.api).create_priority_class(
        {"metadata": {"name": name}, "value": 1000}
    )
    cluster.gang(namespace, "block", 4, group={"preemptible": False})
    cluster.wait_placed(namespace, "block-", 4)
    cluster.gang(namespace, "low", 4)
    cluster.group(namespace, "high", 4, priorityClassName=name)
    for index in range(4):
        cluster.pod(namespace, f"high-{index}", labels={"gangsched.io/pod-group": "high"})
    cluster.wait(
        lambda: cluster.condition(namespace, "high").get("reason") == "NotEnoughFree",
        "high to wait",
    )
    cluster.core.delete_collection_namespaced_pod(
        namespace, label_selector="gangsched.io/pod-group=block", grace_period_seconds=0
    )
    cluster.wait_placed(namespace, "high-", 4)
    assert not cluster.bound(namespace, "low-")


def test_metrics_tell_what_happened(cluster, namespace):
    cluster.gang(namespace, "g", 2)
    cluster.wait_placed(namespace, "g-", 2)
    names = (
        "gangsched_gangs",
        "gangsched_gangs_placed_total",
        "gangsched_plan_seconds_bucket",
        "gangsched_bind_seconds_sum",
        "gangsched_reserved_members",
    )
    # The API server knows of a binding before the scheduler hears that it was made.
    cluster.wait(
        lambda: (text := cluster.metrics()) and all(name in text for name in names), "its figures"
    )
