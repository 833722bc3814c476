"""The reconcile of a PyTorchJob as a pure function: settled steps, and time."""

from dataclasses import replace

import pytest

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import (
    GangPolicy,
    GroupView,
    JobRole,
    Observed,
    PodView,
    RunLimits,
    TrainingJob,
)
from gangsched.jobs.common.templates import is_contained
from gangsched.jobs.common.times import parse_time
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.operators.api_objects import with_env
from gangsched.operators.controllers.pod_jobs import job_controller
from gangsched.operators.kinds.training_job import parse_pod_view

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
TEMPLATE = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}


def job(**more) -> TrainingJob:
    """Return a job of one Master and one Worker."""
    fields = {
        "kind": "PyTorchJob",
        "namespace": "ns",
        "name": "j",
        "uid": "u",
        "roles": (
            JobRole("Master", 1, "OnFailure", TEMPLATE),
            JobRole("Worker", 1, "OnFailure", TEMPLATE),
        ),
        "limits": RunLimits(),
        "gang": GangPolicy(),
        "scheduler": "gangsched",
    }
    return TrainingJob(**fields | more)


def pod(name: str, phase="Running", **more) -> PodView:
    """Return a pod of the job."""
    return PodView(name, f"uid-{name}", name.split("-")[1], phase, **more)


def group(phase="Reserved", **more) -> GroupView:
    """Return the job's group with both pods placed."""
    return GroupView("g", phase, "", {"j-master-0": "n1", "j-worker-0": "n2"}, **more)


def test_a_new_job_declares_its_gang_and_nothing_else():
    actions = reconcile(job(), Observed(), CLOCK)
    assert actions.put_group["spec"]["minMember"] == 2
    assert not actions.create_pods
    assert not actions.create_services


def test_pods_are_created_pinned_once_the_gang_is_reserved():
    wanted = reconcile(job(), Observed(), CLOCK).put_group["spec"]
    actions = reconcile(job(), Observed(group=group(spec=wanted)), CLOCK)
    assert [p["metadata"]["name"] for p in actions.create_pods] == ["j-master-0", "j-worker-0"]
    terms = actions.create_pods[0]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert terms == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ]
    assert actions.put_group is None


def test_a_pod_replaced_later_is_gated_instead():
    seen = Observed((pod("j-master-0"),), frozenset({"j-master-0"}), group("Placed"))
    (made,) = reconcile(job(), seen, CLOCK).create_pods
    assert made["spec"]["schedulingGates"] == [{"name": "gangsched.io/gang"}]
    assert "affinity" not in made["spec"]


def test_a_settled_job_asks_for_nothing():
    seen = Observed(
        (pod("j-master-0"), pod("j-worker-0")),
        frozenset({"j-master-0", "j-worker-0"}),
        group("Placed", spec=reconcile(job(), Observed(), CLOCK).put_group["spec"]),
    )
    first = reconcile(job(), seen, CLOCK)
    again = reconcile(job(status=first.status), seen, Clock(CLOCK.now_s + 9, "later"))
    assert again.status is None
    assert not (again.events)
    assert not (again.create_pods)
    assert not (again.delete_pods)
    assert not (again.put_group)


def test_a_placed_gang_grows_with_its_job():
    spec = reconcile(job(), Observed(), CLOCK).put_group["spec"]
    worker = job().roles[1]
    more = job(roles=(job().roles[0], replace(worker, replicas=2)))
    seen = Observed((pod("j-master-0"), pod("j-worker-0")), group=group("Placed", spec=spec))
    grown = reconcile(more, seen, CLOCK).put_group
    assert [role["count"] for role in grown["spec"]["roles"]] == [1, 2]
    assert [role["minCount"] for role in grown["spec"]["roles"]] == [1, 1]
    assert grown["spec"]["minMember"] == 2, "it is not below its minimum while it grows"
    on_its_way = replace(seen, group=group("Binding", spec=spec))
    assert reconcile(more, on_its_way, CLOCK).put_group is None


def test_a_new_gang_waits_for_the_last_pod_of_the_old():
    seen = Observed((pod("j-worker-0", terminating=True),))
    assert reconcile(job(), seen, CLOCK).put_group is None
    assert reconcile(job(), Observed(has_predecessor=True), CLOCK).put_group is None


def test_the_deadline_is_looked_at_again_in_time():
    status = {"startTime": "2023-11-14T22:13:10Z"}
    limits = RunLimits(deadline_s=30)
    seen = Observed((pod("j-master-0"),), group=group("Placed"))
    assert reconcile(job(limits=limits, status=status), seen, CLOCK).requeue_in_s == 20.0
    late = Clock(CLOCK.now_s + 20, "2023-11-14T22:13:40Z")
    failed = reconcile(job(limits=limits, status=status), seen, late)
    assert failed.status["conditions"][-1]["type"] == "Failed"


def test_replicas_beyond_the_wanted_are_deleted_highest_first():
    pods = tuple(pod(f"j-worker-{i}") for i in range(3))
    actions = reconcile(job(), Observed((pod("j-master-0"), *pods), group=group("Placed")), CLOCK)
    assert [p.name for p in actions.delete_pods] == ["j-worker-2", "j-worker-1"]


def test_an_other_scheduler_in_the_template_is_kept():
    template = {"spec": TEMPLATE["spec"] | {"schedulerName": "custom"}}
    roles = (JobRole("Master", 1, "Never", template),)
    seen = Observed(group=replace(group(), assignments={"j-master-0": "n1"}))
    (made,) = reconcile(job(roles=roles), seen, CLOCK).create_pods
    assert made["spec"]["schedulerName"] == "custom"
    assert "affinity" not in made["spec"]


def test_minimum_below_total_asks_the_master_first():
    policy = GangPolicy(minimum=1)
    roles = reconcile(job(gang=policy), Observed(), CLOCK).put_group["spec"]["roles"]
    assert [(r["name"], r["minCount"]) for r in roles] == [("Master", 1), ("Worker", 0)]


def test_times_are_read_as_the_api_writes_them():
    assert parse_time("1970-01-01T00:00:00Z") == 0
    assert parse_time("2000-02-29T12:00:01Z") == 951_825_601
    assert parse_time("2023-11-14T22:13:20Z") == CLOCK.now_s


def test_a_pod_that_vanishes_between_two_looks_is_lost_too():
    lone = Observed((pod("j-master-0"),), group=group("Placed"), vanished=(pod("j-worker-0"),))
    policy = GangPolicy(gang_restarts=1)
    first = reconcile(job(gang=policy), lone, CLOCK)
    assert first.status["gangRestarts"] == 1
    assert [one.name for one in first.delete_pods] == ["j-master-0"]
    assert first.delete_group
    second = reconcile(job(gang=policy, status=first.status), lone, CLOCK)
    failed = {one["type"]: one for one in second.status["conditions"]}["Failed"]
    assert "restarted 1 times" in failed["message"]
    stopped = replace(lone, vanished=(pod("j-worker-0", disrupted=True),))
    assert "gangRestarts" not in reconcile(job(gang=policy), stopped, CLOCK).status


def test_one_loss_is_one_restart_however_late_the_group_is_deleted():
    worker = pod("j-worker-0", terminating=True)
    seen = Observed((pod("j-master-0"), worker), group=group("Placed"))
    policy = GangPolicy(gang_restarts=1)
    first = reconcile(job(gang=policy), seen, CLOCK)
    assert first.status["gangRestarts"] == 1
    leaves = (replace(seen.pods[0], terminating=True), worker)
    later = replace(seen, pods=leaves, handled_terminations=frozenset(one.uid for one in leaves))
    second = reconcile(job(gang=policy, status=first.status), later, CLOCK)
    status = second.status or first.status
    assert status["gangRestarts"] == 1
    assert "Failed" not in {one["type"] for one in status["conditions"]}


@pytest.mark.parametrize(
    ("deleted", "finished", "succeeds"),
    [
        ({}, "10:00:07", True),
        # Told to leave at 10:00:05, with half a minute to do so.
        ({"deletionTimestamp": "2026-01-01T10:00:35Z"}, "10:00:04", True),
        ({"deletionTimestamp": "2026-01-01T10:00:35Z"}, "10:00:05", False),
        ({"deletionTimestamp": "2026-01-01T10:00:35Z"}, "10:00:07", False),
    ],
)
def test_a_master_that_leaves_politely_has_not_done_its_work(deleted, finished, succeeds):
    terminated = {"exitCode": 0, "finishedAt": f"2026-01-01T{finished}Z"}
    container = {"name": "pytorch", "state": {"terminated": terminated}}
    grace = {"deletionGracePeriodSeconds": 30} if deleted else {}
    labels = {"training.kubeflow.org/replica-type": "master"}
    body = {
        "metadata": {"name": "j-master-0", "uid": "u", "labels": labels, **deleted, **grace},
        "spec": {},
        "status": {"phase": "Succeeded", "containerStatuses": [container]},
    }
    seen = Observed((parse_pod_view(body, "pytorch"),), group=group("Placed"))
    outcome = reconcile(job(), seen, CLOCK).status
    assert any(one["type"] == "Succeeded" for one in outcome["conditions"]) == succeeds


def test_what_vanished_without_a_word():
    controller = job_controller(None, "gangsched", FRAMEWORKS["PyTorchJob"])

    def body(name: str, phase="Running", **metadata) -> dict:
        return {
            "metadata": {"namespace": "ns", "name": name, "uid": name, **metadata},
            "status": {"phase": phase},
        }

    cache = controller._known(("ns", "j"))
    for one in (
        body("heeded", deletionTimestamp="2023-11-14T22:13:20Z"),
        body("left", deletionTimestamp="2023-11-14T22:13:20Z"),
        body("done", "Succeeded"),
        body("polite", "Succeeded", deletionTimestamp="2023-11-14T22:13:20Z"),
        body("ours"),
        body("lost"),
    ):
        controller.part_seen("Pod", one, "j")
    cache.record.requested_deletions.add("ours")
    cache.record.handled_terminations = frozenset({"heeded"})
    for name in ("heeded", "left", "done", "polite", "ours", "lost"):
        controller.part_gone("Pod", body(name), "j")
    # Nobody looked between the words on "left" and "polite", that they leave and are gone.
    assert [one["metadata"]["name"] for one in cache.record.vanished] == ["left", "polite", "lost"]
    assert not cache.record.requested_deletions


def test_late_events_of_an_earlier_object_do_not_hide_its_successor():
    controller = job_controller(None, "gangsched", FRAMEWORKS["PyTorchJob"])

    def body(uid: str, version: int) -> dict:
        metadata = {"namespace": "ns", "name": "j", "uid": uid, "resourceVersion": str(version)}
        return {"metadata": metadata}

    cache = controller._known(("ns", "j"))
    for kind in ("PodGroup", "Pod"):
        controller.part_seen(kind, body("second", 7), "j")
        controller.part_seen(kind, body("first", 5), "j")
        controller.part_gone(kind, body("first", 6), "j")
    assert {part["metadata"]["uid"] for part in cache.parts.values()} == {"second"}
    assert len(cache.parts) == 2


def test_what_the_api_filled_in_is_no_difference():
    wanted = {"spec": {"ports": [{"port": 1}], "name": "x"}}
    assert is_contained(wanted, {"spec": {"ports": [{"port": 1, "protocol": "TCP"}], "name": "x"}})
    assert not is_contained(wanted, {"spec": {"ports": [], "name": "x"}})
    assert not is_contained(wanted, {"spec": {"ports": [{"port": 2}], "name": "x"}})
    assert not is_contained(wanted, {})


@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_variables_for_every_container_and_what_they_set_themselves_counts(kind):
    own = {"name": "MLFLOW_TRACKING_URI", "value": "http://mine"}
    pod = {
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "a", "env": [own]}, {"name": "b", "env": None}],
    }
    spec = pod if kind == "Pod" else {"template": {"metadata": {"labels": {}}, "spec": pod}}
    document = {"kind": kind, "spec": spec}
    made = with_env(document, {"MLFLOW_TRACKING_URI": "http://ours", "X": "1"})
    found = made["spec"] if kind == "Pod" else made["spec"]["template"]["spec"]
    ours = {"name": "MLFLOW_TRACKING_URI", "value": "http://ours"}
    x = {"name": "X", "value": "1"}
    assert [one["env"] for one in found["containers"]] == [[own, x], [ours, x]]
    assert found["initContainers"][0]["env"] == [ours, x]
    assert pod["containers"][1]["env"] is None  # the user's object is as it was
    assert with_env({"kind": "Service"}, {"X": "1"}) == {"kind": "Service"}
