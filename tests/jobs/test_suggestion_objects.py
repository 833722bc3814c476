"""Suggestions: what an Experiment reports of the points it chose, as Katib's clients read it."""

import pytest
from test_experiment import CLOCK, search, some, tried

from gangsched.core.bounds import SUGGESTED_VALUES
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib import experiment
from gangsched.jobs.katib.suggestion import KIND


def step(trials=(), status=None, suggestion=None, **spec):
    owned = search(trials, status, **spec)
    if suggestion is not None:
        owned = Owned(owned.body, {**owned.parts, (KIND, "e"): suggestion})
    return experiment.reconcile(owned, some, CLOCK)


def known(status=None) -> dict:
    return {"metadata": {"name": "e", "uid": "s"}, "spec": {}, "status": status or {}}


def true(status: dict) -> set[str]:
    return {one["type"] for one in status["conditions"] if one["status"] == "True"}


def test_it_comes_with_the_first_trials():
    steps = step()
    (made,) = steps.companions
    assert made["metadata"]["name"] == "e"
    assert made["spec"]["algorithm"] == {"algorithmName": "random"}
    assert made["spec"]["requests"] == 6
    assert not step(parallelTrialCount=0).companions


def test_it_lists_the_trials():
    trials = [tried("a", value=0.1), tried("b", "Running")]
    steps = step(trials, suggestion=known())
    assert not steps.companions
    ((ref, status),) = steps.patch_status
    assert ref == (KIND, "e")
    assert status["suggestionCount"] == 4  # two of them are made now
    assert [one["name"] for one in status["suggestions"]][:2] == ["a", "b"]
    assert status["suggestions"][0]["parameterAssignments"] == [{"name": "lr", "value": "0.1"}]
    assert true(status) == {"Created", "Running"}
    assert ((KIND, "e"), {"spec": {**steps.patch[0][1]["spec"]}}) in steps.patch
    made = [dict(one, status={}) for one in steps.create]
    again = step([*trials, *made], suggestion=known(status) | {"spec": steps.patch[0][1]["spec"]})
    assert not again.patch_status
    assert not again.patch


@pytest.mark.parametrize(
    ("policy", "conditions"),
    [
        ("Never", {"Created", "Succeeded"}),
        ("FromVolume", {"Created", "Succeeded"}),
        ("LongRunning", {"Created", "Running"}),
    ],
)
def test_at_the_end_the_resume_policy_counts(policy, conditions):
    trials = [tried("a", value=0.95)]
    running = step([tried("a", "Running")], suggestion=known(), resumePolicy=policy)
    ((_, status),) = running.patch_status
    steps = step(trials, suggestion=known(status), resumePolicy=policy)
    ((_, status),) = steps.patch_status
    assert true(status) == conditions


def test_after_a_restart_it_runs_again():
    trials = [tried(str(i), value=0.1) for i in range(6)]
    ended = step(trials, suggestion=known(), resumePolicy="FromVolume")
    ((_, status),) = ended.patch_status
    assert "Running" not in true(status)
    more = step(trials, ended.status, known(status), resumePolicy="FromVolume", maxTrialCount=8)
    ((_, status),) = more.patch_status
    assert true(status) == {"Created", "Running"}


def test_its_size_is_bounded():
    wide = [{"name": f"p{i}", "value": "1"} for i in range(100)]
    trials = [tried(f"t{i}", "Running") for i in range(200)]
    for one in trials:
        one["spec"]["parameterAssignments"] = wide
    steps = step(trials, suggestion=known(), maxTrialCount=1000)
    ((_, status),) = steps.patch_status
    assert status["suggestionCount"] == 200
    assert len(status["suggestions"]) == SUGGESTED_VALUES.most // 100
