"""Jobs that change their controller: what ours releases, and what it takes over."""

from dataclasses import replace

import pytest
from test_jobs import CLOCK, TEMPLATE, group, job, pod
from test_jobset_rules import child, owned, rjob, spec, step

from gangsched.jobs.common.adoption import origin_of
from gangsched.jobs.common.model import JobRole, Observed
from gangsched.jobs.common.owned_objects import true_condition
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.jobs.release import ReleasePlan, release

# -- to another ---------------------------------------------------------------------------------


def part(name: str, *, node="", phase="", leaving=False) -> dict:
    """Return a pod of a gang."""
    metadata = {"name": name, "uid": name}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


def declared(phase: str, minimum=4, *, name="j", roles=True, leaving=False) -> dict:
    """Return a job's PodGroup."""
    body = part(name, leaving=leaving)
    listed = {"roles": [{"name": "Worker", "count": 4, "template": {}}]} if roles else {}
    return body | {"spec": {"minMember": minimum, **listed}, "status": {"phase": phase}}


RUN = [part(f"j-{i}", node="n", phase="Running") for i in range(3)]
WAITS = part("j-3")
GOES = ReleasePlan(delete_group=True)
THREE = {"minMember": 3, "roles": None}

RELEASES = {
    "one without pods goes": (declared("Pending"), [], GOES),
    "one that has its room goes, and so do its pinned pods": (
        declared("Reserved"),
        [WAITS],
        ReleasePlan(delete_group=True, delete_pods=(WAITS,)),
    ),
    "one that is being bound is looked at a moment later": (
        declared("Binding"),
        [*RUN, WAITS],
        ReleasePlan(),
    ),
    "one that runs is what runs of it": (
        declared("Placed"),
        [*RUN, WAITS],
        ReleasePlan(delete_pods=(WAITS,), spec=THREE),
    ),
    "and no more is asked of it once": (declared("Placed", 3, roles=False), RUN, ReleasePlan()),
    "an elastic one asks for no more than before": (
        declared("Placed", 2),
        RUN,
        ReleasePlan(spec={"minMember": 2, "roles": None}),
    ),
    "a pod that is done is not waited for": (
        declared("Placed", 4, roles=False),
        [*RUN, part("j-3", node="n", phase="Succeeded")],
        ReleasePlan(spec=THREE),
    ),
    "nor is one that leaves": (
        declared("Placed", 4, roles=False),
        [*RUN, part("j-3", node="n", phase="Running", leaving=True)],
        ReleasePlan(spec=THREE),
    ),
    "one that is over goes": (
        declared("Placed"),
        [part("j-0", node="n", phase="Succeeded")],
        GOES,
    ),
    "one that goes already is left": (declared("Pending", leaving=True), [], ReleasePlan()),
    "one of another name is not ours": (declared("Pending", name="other"), [], ReleasePlan()),
}


@pytest.mark.parametrize("case", RELEASES)
def test_a_gang_of_another_operators_job(case):
    declaration, pods, wanted = RELEASES[case]
    assert release("PyTorchJob", "j", declaration, pods) == wanted


def test_a_jobset_keeps_its_gang_while_it_waits():
    """Its Jobs are made, and their pods name the group: without it they would wait for ever."""
    assert release("JobSet", "j", declared("Pending", name="j-a"), [WAITS]) == ReleasePlan()
    found = release("JobSet", "j", declared("Placed", name="j-a"), [*RUN, WAITS])
    assert found == ReleasePlan(spec=THREE)


# -- to us ---------------------------------------------------------------------------------------

ORIGIN = origin_of({"metadata": {"name": "j"}, "spec": {"schedulerName": "gangsched"}})
SERVICES = frozenset({"j-master-0", "j-worker-0"})


def theirs(name: str, phase="Running", **more):
    """Return a pod of the job as the Training Operator makes it."""
    return pod(name, phase, **{"origin": ORIGIN} | more)


def test_pods_of_another_operator_run_on_without_a_new_request():
    seen = Observed((theirs("j-master-0"), theirs("j-worker-0")), SERVICES)
    actions = reconcile(job(), seen, CLOCK)
    assert actions.put_group is None
    for asked in ("create_pods", "delete_pods", "delete_group", "create_services", "documents"):
        assert not getattr(actions, asked)
    assert true_condition({"status": actions.status}, "Running")


def test_a_recreated_pod_is_scheduled_as_the_others():
    mates = {"scheduling.x-k8s.io/pod-group": "j"}
    known = {
        "metadata": {"name": "j", "labels": mates, "annotations": {"a": "b"}},
        "spec": {"schedulerName": "volcano"},
    }
    seen = Observed((theirs("j-master-0", origin=origin_of(known)),), SERVICES)
    actions = reconcile(job(), seen, CLOCK)
    (made,) = actions.create_pods
    assert made["metadata"]["name"] == "j-worker-0"
    assert made["spec"]["schedulerName"] == "volcano"
    assert mates.items() <= made["metadata"]["labels"].items()
    assert "gangsched.io/pod-group" not in made["metadata"]["labels"]
    assert "schedulingGates" not in made["spec"]
    assert actions.put_group is None


def test_the_job_ends_as_its_pods_do():
    seen = Observed((theirs("j-master-0", "Succeeded"), theirs("j-worker-0")), SERVICES)
    assert true_condition({"status": reconcile(job(), seen, CLOCK).status}, "Succeeded")


def test_once_the_last_of_them_is_gone_the_gang_is_ours():
    assert reconcile(job(), Observed((), SERVICES), CLOCK).put_group is not None


def test_a_gang_that_comes_back_to_us_plans_nothing_for_pods_that_others_made():
    """It was let go of with one pod that ran, and the other operator made the other one."""
    spec = {"minMember": 1}
    seen = Observed((pod("j-master-0"), theirs("j-worker-0")), SERVICES, group("Placed", spec=spec))
    assert reconcile(job(), seen, CLOCK).put_group is None
    whole = Observed((pod("j-master-0"), pod("j-worker-0")), SERVICES, group("Placed", spec=spec))
    again = reconcile(job(), whole, CLOCK).put_group["spec"]
    assert again["minMember"] == 1
    assert [role["name"] for role in again["roles"]] == ["Master", "Worker"]


def test_pods_of_a_role_that_another_scheduler_places_are_ours_without_a_group():
    elsewhere = {"spec": TEMPLATE["spec"] | {"schedulerName": "other"}}
    roles = (JobRole("Master", 1, "OnFailure", TEMPLATE), JobRole("Worker", 1, "Never", elsewhere))
    seen = Observed((theirs("j-worker-0"),), SERVICES)
    assert reconcile(replace(job(), roles=roles), seen, CLOCK).put_group is not None


def test_a_pod_that_names_our_group_has_no_other_origin():
    labels = {"gangsched.io/pod-group": "j"}
    assert origin_of({"metadata": {"labels": labels}, "spec": {}}) is None


def theirs_of_jobset(name: str, **more) -> dict:
    """Return a Job as JobSet's own controller makes it."""
    made = child(name, **more)
    made["spec"]["template"] = {"metadata": {"labels": {}}}
    return made


def test_jobs_of_another_controller_are_not_planned_again():
    given = spec(rjob("a", 2), rjob("b"))
    jobs = [theirs_of_jobset("js-a-0"), theirs_of_jobset("js-a-1")]
    steps = step(given, jobs)
    made = {one["metadata"]["name"]: one for one in steps.create}
    assert "PodGroup" not in {one["kind"] for one in steps.create}
    assert "js-b-0" in made, "what it had not made yet is made as it would have been"
    template = made["js-b-0"]["spec"]["template"]
    assert "gangsched.io/pod-group" not in template["metadata"]["labels"]
    assert not steps.delete


def test_a_jobset_that_restarts_here_is_a_gang_of_ours():
    status = {"restarts": 1}
    steps = step(spec(rjob("a")), [], status=status)
    assert {"PodGroup", "Job"} <= {one["kind"] for one in steps.create}
    assert owned(spec(rjob("a"))).of("Job") == []
