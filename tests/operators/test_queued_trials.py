"""Trials use the queue of their Experiment, and we place the pods of their Jobs."""

import copy

import pytest

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib.experiment import SuggestedPoint
from gangsched.operators.evaluation.pool import Evaluators
from gangsched.operators.kinds import experiment, trial

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
LABEL = "kueue.x-k8s.io/queue-name"
OURS = "gangsched.io/queue-name"
POD = {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": POD}}}
OBJECTIVE = {"type": "maximize", "objectiveMetricName": "accuracy"}


def job(run: dict, labels: dict | None = None, scheduler="gangsched") -> dict:
    """Return the job that a Trial makes."""
    body = {
        "metadata": {"name": "t", "namespace": "ns", "uid": "u", "labels": labels or {}},
        "spec": {"objective": OBJECTIVE, "runSpec": copy.deepcopy(run)},
    }
    (made,) = trial.trial_kind(Evaluators(), scheduler).step(Owned(body, {}), CLOCK).create
    return made


def pod(made: dict) -> dict:
    """Return the spec of a Job's pods."""
    return made["spec"]["template"]["spec"]


def test_a_job_of_a_trial_is_ours_and_in_its_queue():
    made = job(JOB, {LABEL: "team"})
    assert pod(made)["schedulerName"] == "gangsched"
    assert made["metadata"]["labels"][LABEL] == "team"


def test_what_a_template_says_counts():
    run = copy.deepcopy(JOB) | {"metadata": {"labels": {OURS: "own"}}}
    pod(run)["schedulerName"] = "default-scheduler"
    made = job(run, {LABEL: "team"})
    assert pod(made)["schedulerName"] == "default-scheduler"
    assert LABEL not in made["metadata"]["labels"]


def test_it_can_be_left_to_the_default_scheduler():
    assert "schedulerName" not in pod(job(JOB, scheduler=""))


@pytest.mark.parametrize("spec", [{}, {"template": 3}, {"template": {"spec": "x"}}, 7])
def test_a_job_without_pods_is_left_as_it_is(spec):
    assert job(JOB | {"spec": spec})["spec"] == spec


def test_jobs_of_our_kinds_get_the_queue_alone():
    run = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"template": {}}}
    made = job(run, {LABEL: "team"})
    assert made["spec"] == {"template": {}}
    assert made["metadata"]["labels"][LABEL] == "team"


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_trials_get_the_queue_of_their_experiment(field):
    parameters = [{"name": "x", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "3"}}]
    spec = {
        "objective": OBJECTIVE,
        "algorithm": {"algorithmName": "random"},
        "parameters": parameters,
        "parallelTrialCount": 1,
        "maxTrialCount": 1,
        "trialTemplate": {
            "trialParameters": [{"name": "x", "reference": "x"}],
            "trialSpec": JOB,
        },
    }
    metadata = {"name": "e", "namespace": "ns", "uid": "u", field: {OURS: "team", "other": "x"}}
    owned = Owned(
        {"metadata": metadata, "spec": spec}, {}, {"points": [SuggestedPoint({"x": "1"})]}
    )
    created = experiment.experiment_kind(Evaluators()).step(owned, CLOCK).create
    (made,) = [one for one in created if one["kind"] == "Trial"]
    assert made["metadata"][field][OURS] == "team"
    assert "other" not in made["metadata"][field]
