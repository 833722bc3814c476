"""Kubernetes' own PodGroups: every field that we use, and the status that we write."""

import json

import pytest

from gangsched.kube.decoding import native_groups
from gangsched.kube.decoding.external.groups import KINDS
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.decoding.membership import UPSTREAM
from gangsched.kube.decoding.metadata import decode_group
from gangsched.kube.decoding.pods import decode_pod, pod_fact
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.status.external_status import status_of
from gangsched.kube.status.gang_progress import GangProgress

GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
OF_VERSION = {
    kind.api_version.rpartition("/")[2]: kind for kind in KINDS if kind.source == UPSTREAM
}
JOB = next(kind for kind in OWNERS if kind.kind == "Job")
PRIORITIES = {"high": 7}


def read(kind, spec):
    """Read an object of a kind."""
    body = {"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": spec}
    group = decode_group(json.dumps(body).encode())
    return kind.read(group, PRIORITIES, frozenset({"gangsched"}))[""][0]


@pytest.fixture(params=OF_VERSION)
def kind(request):
    return OF_VERSION[request.param]


FIELDS = {
    "a gang": (GANG, {"min_member": 3, "inseparable": False, "preempts": True, "priority": None}),
    "pods by themselves": ({"schedulingPolicy": {"basic": {}}}, {"min_member": 1}),
    "stopped singly (1.36)": ({"disruptionMode": "Pod"}, {"inseparable": False}),
    "stopped whole (1.36)": ({"disruptionMode": "PodGroup"}, {"inseparable": True}),
    "stopped singly (1.37)": ({"disruptionMode": {"single": {}}}, {"inseparable": False}),
    "stopped whole (1.37)": ({"disruptionMode": {"all": {}}}, {"inseparable": True}),
    "a class": ({"priorityClassName": "high"}, {"priority": 7}),
    "what admission made of a class": (
        {"priorityClassName": "later", "priority": 50},
        {"priority": 50},
    ),
    "no class": ({"priority": 0}, {"priority": 0}),
    "stops no others": ({"preemptionPolicy": "Never"}, {"preempts": False}),
    "stops others": ({"preemptionPolicy": "PreemptLowerPriority"}, {"preempts": True}),
}


@pytest.mark.parametrize("case", FIELDS)
def test_each_field_of_a_pod_group_is_read(kind, case):
    spec, wanted = FIELDS[case]
    found = read(kind, GANG | spec)
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_its_topology_is_read(kind):
    constraints = {"topology": [{"key": "example.com/rack"}]}
    found = read(kind, GANG | {"schedulingConstraints": constraints})
    assert found.constraints.near.required == "example.com/rack"


WRONG = {
    "spec.disruptionMode is 'Never'": {"disruptionMode": "Never"},
    "spec.disruptionMode is {}": {"disruptionMode": {}},
    "it must be single or all": {"disruptionMode": {"single": {}, "all": {}}},
    "spec.disruptionMode is 3": {"disruptionMode": 3},
    "must be Never or PreemptLowerPriority": {"preemptionPolicy": "Sometimes"},
    "spec.priority is 'high'": {"priority": "high"},
    "spec.priority is 99999999999": {"priority": 99999999999},
    "spec.schedulingConstraints is [1]": {"schedulingConstraints": [1]},
    "spec.priorityClassName": {"priorityClassName": "unknown"},
    "spec.parentCompositePodGroupName is 'tree'; groups of groups are not supported": {
        "parentCompositePodGroupName": "tree"
    },
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_with_one_is_said(kind, said):
    with pytest.raises(DecodeError) as caught:
        read(kind, GANG | WRONG[said])
    assert said in str(caught.value)
    assert str(caught.value).startswith("PodGroup ns/g: ")


JOBS = {
    "nothing": ({}, {"min_member": 4}),
    "pods by themselves": ({"schedulingPolicy": {"basic": {}}}, {"min_member": 1}),
    "all of them": ({"schedulingPolicy": {"gang": {}}}, {"min_member": 4}),
    "fewer": (GANG, {"min_member": 3}),
    "stopped whole": ({"disruptionMode": {"all": {}}}, {"inseparable": True, "min_member": 4}),
    "stopped singly": ({"disruptionMode": {"single": {}}}, {"inseparable": False}),
}


@pytest.mark.parametrize("case", JOBS)
def test_what_a_job_says_of_its_scheduling_is_read(case):
    scheduling, wanted = JOBS[case]
    found = read(JOB, {"parallelism": 4, "completions": 4, "scheduling": scheduling})
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_a_jobs_topology_is_read():
    constraints = {"topology": [{"key": "example.com/rack"}]}
    spec = {"parallelism": 2, "scheduling": {"schedulingConstraints": constraints}}
    assert read(JOB, spec).constraints.near.required == "example.com/rack"


@pytest.mark.parametrize(
    ("policy", "preempts"), [(None, True), ("Never", False), ("PreemptLowerPriority", True)]
)
def test_the_policy_of_pods_is_read(policy, preempts):
    spec = {"schedulerName": "gangsched"} | ({"preemptionPolicy": policy} if policy else {})
    body = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}
    fact = pod_fact(decode_pod(json.dumps(body).encode()), frozenset({"gangsched"}))
    assert fact.preempts is preempts


# -- what is written ---------------------------------------------------------------------------

WAITS = {"state": "Pending", "reason": "TooFewPods", "message": "Pods are missing."}
REFUSED = {
    "state": "Pending",
    "reason": "NotEnoughFree",
    "message": "No node has 8 free GPUs.",
    "refused": True,
}
INVALID = {"state": "Pending", "reason": "Invalid", "message": "spec.priority is 'x'."}
PLACED = {"state": "Placed", "reason": "Placed", "message": "All 3 pods are bound."}
STOPPED = {"state": "Broken", "reason": "Preempted", "message": "It is stopped for ns/high."}
BELOW = {"state": "Placed", "reason": "BelowMinimum", "message": "2 of at least 3 members run."}


def written(kind, *reports, before=None):
    """Return the conditions after these reports, one a minute, by type."""
    status = before or {}
    for minute, report in enumerate(reports):
        fields = {"since": "", "refused": False, "minimum": 3, "pods": (0, 0, 0)} | report
        now = f"2026-01-01T00:0{minute}:00Z"
        status = status_of(kind).body(GangProgress(**fields, before=status, now=now))
    return {one["type"]: one for one in status["conditions"]}


def started(kind):
    """Return the condition that says that a group started."""
    return native_groups.VERSIONS[kind.api_version.rpartition("/")[2]]


def test_each_version_has_its_condition():
    assert {version: started(kind) for version, kind in OF_VERSION.items()} == {
        "v1alpha2": "PodGroupScheduled",
        "v1beta1": "PodGroupInitiallyScheduled",
    }


def test_a_group_that_was_not_tried_yet_has_no_condition(kind):
    assert written(kind, WAITS) == {}


@pytest.mark.parametrize(
    ("report", "value", "reason"),
    [
        (REFUSED, "False", "Unschedulable"),
        (INVALID, "False", "SchedulerError"),
        (PLACED, "True", "Scheduled"),
    ],
)
def test_how_it_went_is_a_condition(kind, report, value, reason):
    assert written(kind, report) == {
        started(kind): {
            "type": started(kind),
            "status": value,
            "reason": reason,
            "message": report["message"],
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    }


def test_its_time_is_that_of_the_last_change(kind):
    other = REFUSED | {"message": "No node has 4 free GPUs."}
    found = written(kind, WAITS, REFUSED, other)[started(kind)]
    assert found["lastTransitionTime"] == "2026-01-01T00:01:00Z"
    assert found["message"] == other["message"]
    found = written(kind, REFUSED, WAITS, PLACED)[started(kind)]
    assert (found["status"], found["lastTransitionTime"]) == ("True", "2026-01-01T00:02:00Z")


@pytest.mark.parametrize("later", [WAITS, REFUSED, INVALID, STOPPED, BELOW])
def test_once_it_started_that_stays_true(kind, later):
    first = written(kind, PLACED)[started(kind)]
    assert written(kind, PLACED, later, REFUSED)[started(kind)] == first


def test_what_an_earlier_process_wrote_stays_true(kind):
    stored = {"type": started(kind), "status": "True", "reason": "Scheduled"}
    assert written(kind, REFUSED, before={"conditions": [stored]})[started(kind)] == stored


def test_a_group_that_is_stopped_for_another_is_a_target_until_it_starts_again(kind):
    found = written(kind, PLACED, STOPPED)["DisruptionTarget"]
    assert (found["status"], found["reason"]) == ("True", "PreemptionByScheduler")
    found = written(kind, PLACED, STOPPED, REFUSED)["DisruptionTarget"]
    assert (found["status"], found["lastTransitionTime"]) == ("True", "2026-01-01T00:01:00Z")
    found = written(kind, PLACED, STOPPED, REFUSED, PLACED)["DisruptionTarget"]
    assert (found["status"], found["reason"]) == ("False", "Scheduled")
    assert "DisruptionTarget" not in written(kind, PLACED)


@pytest.mark.parametrize(
    "stored", [{"conditions": "x"}, {"conditions": [1, {}]}, {"conditions": {}}]
)
def test_a_scribble_in_its_status_is_passed_over(kind, stored):
    assert written(kind, PLACED, before=stored)[started(kind)]["status"] == "True"
