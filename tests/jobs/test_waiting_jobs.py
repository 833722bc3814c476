"""The status of a job with a pending gang: one condition, an Event for each reason."""

from dataclasses import replace

import pytest

from gangsched.core.bounds import MESSAGE_LETTERS
from gangsched.jobs.common import conditions
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import (
    GangPolicy,
    GroupView,
    JobEvent,
    JobRole,
    Json,
    Observed,
    PodView,
    RunLimits,
    TrainingJob,
)
from gangsched.jobs.common.owned_objects import Owned, Steps
from gangsched.jobs.jobset import reconcile as jobset
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.jobs.trainer import reconcile as trainjob

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
SOON = Clock(1_700_000_005.0, "2023-11-14T22:13:25Z")
LATER = Clock(1_700_000_060.0, "2023-11-14T22:14:20Z")

FULL = GroupView("g", "Pending", "It needs 2 pods; room for 1.", reason="NotEnoughFree")
PLACED = GroupView("g", "Placed", "All 2 pods of the gang are bound.", reason="Placed")


def job(kind="PyTorchJob", status=None, **limits) -> TrainingJob:
    """Return a job of one role that decides, with two pods."""
    framework = FRAMEWORKS[kind]
    container = {"name": framework.container or "main", "image": "x"}
    first = ("Launcher",) if kind == "MPIJob" else ()
    roles = tuple(
        JobRole(role, 1, "OnFailure", {"spec": {"containers": [container]}})
        for role in (*first, "Worker")
    )
    return TrainingJob(
        kind,
        "ns",
        "j",
        "u",
        roles,
        RunLimits(**limits),
        GangPolicy(),
        "gangsched",
        status=status or {},
    )


def scheduled(status: Json) -> Json | None:
    """Return the condition."""
    return conditions.get(status, "Scheduled")


def warnings(events: list[JobEvent]) -> list[tuple[str, str]]:
    """Return the reasons and sentences of warnings."""
    return [(one.reason, one.message) for one in events if one.type == "Warning"]


@pytest.mark.parametrize("kind", [kind for kind in FRAMEWORKS if kind != "MXJob"])
def test_a_job_says_why_it_waits(kind):
    told = reconcile(job(kind), Observed(group=FULL), CLOCK)
    found = scheduled(told.status)
    assert (found["status"], found["reason"], found["message"]) == (
        "False",
        "NotEnoughFree",
        FULL.message,
    )
    assert warnings(told.events) == [("NotEnoughFree", FULL.message)]
    last = told.status["conditions"][-1]
    assert (last["type"], last["status"]) == ("Created", "True"), "what clients show as its state"
    again = reconcile(job(kind, told.status), Observed(group=FULL), LATER)
    assert again.status is None
    assert not again.events


def test_other_numbers_are_no_event_and_are_written_once_in_a_while():
    status = reconcile(job(), Observed(group=FULL), CLOCK).status
    other = Observed(group=replace(FULL, message="It needs 2 pods; room for 0."))
    soon = reconcile(job(status=status), other, SOON)
    assert soon.status is None
    assert soon.requeue_in_s == 25.0
    later = reconcile(job(status=status), other, LATER)
    assert scheduled(later.status)["message"] == other.group.message
    assert scheduled(later.status)["lastTransitionTime"] == CLOCK.now
    assert not later.events


def test_reasons_that_take_turns_are_an_event_each():
    said: list[JobEvent] = []
    status: Json = {}
    for turn in range(6):
        reason = ("NotEnoughFree", "QuotaInUse")[turn % 2]
        group = replace(FULL, reason=reason, message=f"{reason} in turn {turn}.")
        actions = reconcile(job(status=status), Observed(group=group), LATER)
        status = actions.status
        assert scheduled(status)["reason"] == reason, "a new reason is written at once"
        said += [one for one in actions.events if not one.among(said)]
    assert [one.reason for one in said if one.type == "Warning"] == ["NotEnoughFree", "QuotaInUse"]


def test_it_turns_true_when_the_gang_is_placed():
    status = reconcile(job(), Observed(group=FULL), CLOCK).status
    on_its_way = reconcile(
        job(status=status), Observed(group=replace(PLACED, phase="Binding")), SOON
    )
    assert scheduled(on_its_way.status or status)["status"] == "False"
    worker = PodView("j-worker-0", "w", "worker", "Running")
    placed = reconcile(job(status=status), Observed((worker,), group=PLACED), LATER)
    found = scheduled(placed.status)
    assert (found["status"], found["lastTransitionTime"]) == ("True", LATER.now)
    assert placed.status["conditions"][-1]["type"] == "Running"
    waits = reconcile(job(status=placed.status), Observed(group=FULL), LATER)
    assert warnings(waits.events), "it waits again, and says so again"


def test_a_job_that_never_waited_has_no_condition():
    for group in (None, PLACED, replace(FULL, reason="TooFewPods"), GroupView("g")):
        told = reconcile(job(), Observed(group=group), CLOCK)
        assert scheduled(told.status) is None
        assert not warnings(told.events)


def test_it_goes_with_what_ends_or_suspends_the_job():
    status = reconcile(job(), Observed(group=FULL), CLOCK).status
    held = reconcile(job(status=status, suspend=True), Observed(group=FULL), LATER)
    assert scheduled(held.status) is None
    late = job(status=status | {"startTime": CLOCK.now}, deadline_s=9)
    over = reconcile(late, Observed(group=FULL), LATER)
    assert conditions.is_finished(over.status)
    assert scheduled(over.status) is None


@pytest.mark.parametrize("reason", ["", "two words", "-", "ü", "a\nb"])
def test_a_reason_that_no_condition_may_have_is_not_taken_over(reason):
    told = reconcile(job(), Observed(group=replace(FULL, reason=reason)), CLOCK)
    assert scheduled(told.status) is None


def test_a_sentence_without_end_is_cut():
    told = reconcile(job(), Observed(group=replace(FULL, message="x" * 100_000)), CLOCK)
    assert len(scheduled(told.status)["message"]) == MESSAGE_LETTERS.most


def test_a_misspelt_field_is_reported_once():
    said: list[JobEvent] = []
    for sentence in ("a is not known", "a is not known", "b is not known"):
        actions = reconcile(replace(job(), unknown_keys=sentence), Observed(group=PLACED), CLOCK)
        said += [one for one in actions.events if not one.among(said)]
    assert [one.message for one in said if one.reason == "UnknownKey"] == [
        "a is not known",
        "b is not known",
    ]


# -- JobSets and TrainJobs ------------------------------------------------------------------------


def podgroup(phase: str, reason: str, message: str, name="js") -> Json:
    """Return a PodGroup as the scheduler left it."""
    scheduled = "True" if phase == "Placed" else "False"
    told = {"type": "Scheduled", "status": scheduled, "reason": reason, "message": message}
    labels = {"jobset.sigs.k8s.io/restart-attempt": "0"}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"g-{name}", "labels": labels},
        "status": {"phase": phase, "message": message, "conditions": [told]},
    }


def of_jobset(*groups: Json, status=None, **more) -> Steps:
    """Reconcile a JobSet of one replicated job."""
    pod = {"metadata": {}, "spec": {"containers": [{"name": "node"}]}}
    rjob = {"name": "a", "replicas": 1, "template": {"spec": {"parallelism": 2, "template": pod}}}
    body = {
        "metadata": {"name": "js", "namespace": "ns", "uid": "u"},
        "spec": {"replicatedJobs": [rjob], **more},
        "status": status or {},
    }
    parts = {("PodGroup", one["metadata"]["name"]): one for one in groups}
    return jobset.reconcile(Owned(body, parts), CLOCK, "gangsched", {}, {})


def test_a_jobset_says_why_the_first_of_its_gangs_waits():
    waits = podgroup("Pending", "NotEnoughFree", FULL.message)
    steps = of_jobset(podgroup("Placed", "Placed", "bound", "first"), waits)
    found = scheduled(steps.status)
    assert (found["status"], found["message"]) == ("False", FULL.message)
    assert "lastUpdateTime" not in found, "metav1.Condition has none"
    assert warnings(steps.events) == [("NotEnoughFree", FULL.message)]
    assert of_jobset(waits, status=steps.status).status is None
    suspended = of_jobset(waits, status=steps.status, suspend=True)
    assert scheduled(suspended.status) is None
    placed = of_jobset(podgroup("Placed", "Placed", "bound"), status=steps.status)
    assert scheduled(placed.status)["status"] == "True"


def of_trainjob(made: Json | None, status=None) -> Steps:
    """Reconcile a TrainJob that has its JobSet."""
    metadata = {"name": "js", "namespace": "ns", "uid": "t"}
    body = {"metadata": metadata, "spec": {"runtimeRef": {"name": "r"}}, "status": status or {}}
    parts = {("JobSet", "js"): made} if made is not None else {}
    return trainjob.reconcile(Owned(body, parts), None, "", CLOCK)


def test_a_trainjob_says_why_its_jobset_waits_and_nothing_once_it_does_not():
    waits = of_jobset(podgroup("Pending", "NotEnoughFree", FULL.message)).status
    made = {"metadata": {"name": "js", "uid": "j"}, "spec": {}, "status": waits}
    steps = of_trainjob(made)
    assert scheduled(steps.status)["message"] == FULL.message
    assert warnings(steps.events) == [("NotEnoughFree", FULL.message)]
    assert of_trainjob(made, steps.status).status is None
    placed = of_jobset(podgroup("Placed", "Placed", "bound"), status=waits).status
    runs = of_trainjob(made | {"status": placed}, steps.status)
    assert "conditions" not in runs.status, "the SDK counts pods only where there is no condition"
