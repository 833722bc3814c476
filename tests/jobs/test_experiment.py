"""Katib's Experiments and Trials as pure functions: counts, ends, stopping, templates."""

import asyncio
import copy
import json
import re
import subprocess
import sys

import pytest
from evaluated import Here
from waiting import patience_s

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib import experiment, metrics, trial
from gangsched.kube.client.errors import NotFound
from gangsched.operators.evaluation.pool import OverrunError
from gangsched.operators.job_kind import BlockedError, InvalidJobError
from gangsched.operators.kinds.experiment import experiment_kind
from gangsched.operators.kinds.trial import trial_kind as trials
from gangsched.operators.search.expressions import ExpressionError
from gangsched.operators.search.job_outcome import outcome_of_job
from gangsched.operators.search.metrics_collector import read

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
TEMPLATE = {
    "primaryContainerName": "main",
    "trialParameters": [{"name": "rate", "reference": "lr"}],
    "trialSpec": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"args": ["--lr=${trialParameters.rate}", "${trialSpec.Name}"]},
    },
}


def search(trials=(), status=None, **spec) -> Owned:
    """Return an experiment and its trials."""
    body = {
        "metadata": {"namespace": "ns", "name": "e", "uid": "u"},
        "spec": {
            "objective": {"type": "maximize", "goal": 0.9, "objectiveMetricName": "accuracy"},
            "algorithm": {"algorithmName": "random"},
            "parameters": [
                {
                    "name": "lr",
                    "parameterType": "double",
                    "feasibleSpace": {"min": "0.1", "max": "0.5"},
                }
            ],
            "parallelTrialCount": 3,
            "maxTrialCount": 6,
            "resumePolicy": "Never",
            "trialTemplate": TEMPLATE,
            **spec,
        },
        "status": status or {},
    }
    return Owned(body, {("Trial", one["metadata"]["name"]): one for one in trials})


def tried(name: str, state: str = "Succeeded", value: float | None = None, first=None) -> dict:
    """Return a trial that got somewhere."""
    status: dict = {"conditions": [{"type": state, "status": "True"}] if state else []}
    if value is not None:
        status["observation"] = metrics.observation({"accuracy": [value]})
    if first is not None:
        status["firstStepsMean"] = repr(first)
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": name},
        "spec": {"parameterAssignments": [{"name": "lr", "value": "0.1"}]},
        "status": status,
    }


def some(_, tried, count, uid):
    """Suggest one point after the other."""
    return [experiment.SuggestedPoint({"lr": f"0.{len(tried) + i + 1}"}) for i in range(count)]


def ends(steps) -> dict:
    """Return the reasons of the conditions that are True."""
    return {c["type"]: c["reason"] for c in steps.status["conditions"] if c["status"] == "True"}


def test_as_many_trials_as_are_wanted_at_once():
    steps = experiment.reconcile(search(), some, CLOCK)
    assert len(steps.create) == 3
    first = steps.create[0]
    name = first["metadata"]["name"]
    assert name.startswith("e-")
    assert len(name) == len("e-") + 8
    assert first["spec"]["runSpec"]["spec"]["args"] == ["--lr=0.1", name]
    assert first["metadata"]["labels"] == {trial.EXPERIMENT_LABEL: "e"}
    again = experiment.reconcile(search(), some, CLOCK)
    assert again.create == steps.create  # the same names: created twice they conflict
    made = [dict(one, status={}) for one in steps.create]
    more = experiment.reconcile(search(made[:2]), some, CLOCK)
    assert [one["metadata"]["name"] for one in more.create] == [made[2]["metadata"]["name"]]
    assert more.status["trialsPending"] == 2


@pytest.mark.parametrize(
    ("trials", "spec", "reason"),
    [
        ([tried("a", value=0.95)], {}, ("Succeeded", "ExperimentGoalReached")),
        (
            [tried(str(i), value=0.1) for i in range(6)],
            {},
            ("Succeeded", "ExperimentMaxTrialsReached"),
        ),
        (
            [tried(str(i), "Failed") for i in range(2)] + [tried("m", "MetricsUnavailable")],
            {"maxFailedTrialCount": 3},
            ("Failed", "ExperimentFailed"),
        ),
        (
            [tried("a", value=0.05)],
            {"objective": {"type": "minimize", "goal": 0.1, "objectiveMetricName": "accuracy"}},
            ("Succeeded", "ExperimentGoalReached"),
        ),
    ],
)
def test_how_an_experiment_ends(trials, spec, reason):
    steps = experiment.reconcile(search(trials, **spec), some, CLOCK)
    assert ends(steps)[reason[0]] == reason[1]
    assert not steps.create
    assert steps.status["completionTime"] == CLOCK.now


def test_what_runs_still_is_stopped_at_the_end():
    trials = [tried("a", value=0.95), tried("b", "Running"), tried("c", "")]
    steps = experiment.reconcile(search(trials), some, CLOCK)
    assert sorted(ref[1] for ref, _ in steps.patch) == ["b", "c"]
    over = trial.reconcile(
        Owned(_running(annotations={trial.KILL: "over"}), {}), trial.TrialJobOutcome(), CLOCK
    )
    assert ends(over) == {"Created": "TrialCreated", "Killed": "TrialKilled"}


def test_no_more_points_end_it_when_the_last_trial_has():
    def none(*_):
        return []

    running = experiment.reconcile(search([tried("a", "Running")]), none, CLOCK)
    assert "Succeeded" not in ends(running)
    over = experiment.reconcile(search([tried("a", value=0.2)]), none, CLOCK)
    assert ends(over)["Succeeded"] == "ExperimentSuggestionEndReached"


def test_the_best_so_far():
    trials = [tried("a", value=0.3), tried("b", "EarlyStopped", 0.5), tried("c", "Failed")]
    steps = experiment.reconcile(search(trials), some, CLOCK)
    best = steps.status["currentOptimalTrial"]
    assert best["bestTrialName"] == "b"
    assert best["observation"]["metrics"][0]["max"] == "0.5"
    assert steps.status["earlyStoppedTrialList"] == ["b"]


@pytest.mark.parametrize(("policy", "restarts"), [("Never", False), ("FromVolume", True)])
def test_more_trials_begin_it_again(policy, restarts):
    trials = [tried(str(i), value=0.1) for i in range(6)]
    ended = experiment.reconcile(search(trials, resumePolicy=policy), some, CLOCK).status
    steps = experiment.reconcile(
        search(trials, status=ended, resumePolicy=policy, maxTrialCount=8), some, CLOCK
    )
    assert len(steps.create) == (2 if restarts else 0)
    if restarts:
        assert "Succeeded" not in ends(steps)
        assert "completionTime" not in steps.status


def test_medianstop_compares_with_the_mean_of_others_first_steps():
    stopping = {
        "algorithmName": "medianstop",
        "algorithmSettings": [{"name": "start_step", "value": "5"}],
    }
    two = [tried("a", value=0.5, first=0.2), tried("b", value=0.5, first=0.4)]
    early = experiment.reconcile(search(two, earlyStopping=stopping), some, CLOCK).create[0]
    assert early["spec"]["earlyStoppingRules"] == []  # three are required
    assert early["metadata"]["annotations"] == {trial.FIRST_STEPS: "5"}
    three = [*two, tried("c", value=0.5, first=0.6)]
    made = experiment.reconcile(search(three, earlyStopping=stopping), some, CLOCK).create[0]
    (rule,) = made["spec"]["earlyStoppingRules"]
    assert rule == {
        "name": "accuracy",
        "value": repr(1.2000000000000002 / 3),
        "comparison": "less",
        "startStep": 5,
    }
    best = {"type": "maximize"}
    assert not metrics.breaks_rule(rule, [0.1] * 4, best)  # too early to tell
    assert metrics.breaks_rule(rule, [0.1] * 5, best)
    assert not metrics.breaks_rule(rule, [0.1, 0.9, 0.1, 0.1, 0.1], best)  # its best counts


def _running(status=None, annotations=None, **spec) -> dict:
    return {
        "metadata": {
            "namespace": "ns",
            "name": "t",
            "uid": "t",
            "labels": {trial.EXPERIMENT_LABEL: "e"},
            "annotations": annotations or {},
        },
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
            "parameterAssignments": [],
            "runSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {}},
            **spec,
        },
        "status": status or {},
    }


JOB = {("Job", "t"): {"metadata": {"name": "t", "uid": "j"}}}


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        (None, {trial.TRIAL_LABEL: "t", trial.EXPERIMENT_LABEL: "e"}),
        ({"labels": {"a": "b"}}, {"a": "b", trial.TRIAL_LABEL: "t", trial.EXPERIMENT_LABEL: "e"}),
    ],
)
def test_the_pods_of_a_trial_have_its_labels(metadata, labels):
    """Katib's client finds the log of a trial by them."""
    template = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
    run = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}
    made = trial.reconcile(Owned(_running(runSpec=run), {}), trial.TrialJobOutcome(), CLOCK)
    assert made.create[0]["spec"]["template"]["metadata"]["labels"] == labels


@pytest.mark.parametrize("metadata", ["x", ["x"], {"labels": ["x"]}, {"labels": "x"}])
def test_metadata_of_a_wrong_type_is_left_to_the_api_server(metadata):
    template = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
    run = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}
    made = trial.reconcile(Owned(_running(runSpec=run), {}), trial.TrialJobOutcome(), CLOCK)
    assert made.create[0]["spec"]["template"] == template


@pytest.mark.parametrize(("kind", "kept"), [("StdOut", None), ("None", {"kind": "None"})])
def test_a_trial_does_not_repeat_the_default_collector(kind, kept):
    """Katib's client would read the log of a container that only Katib adds for it."""
    source = {"filter": {"metricsFormat": ["x=(.*)"]}}
    given = search(metricsCollectorSpec={"collector": {"kind": kind}, "source": source})
    made = experiment.reconcile(given, some, CLOCK).create[0]["spec"]["metricsCollector"]
    assert made == {"source": source} | ({"collector": kept} if kept else {})


def test_a_trial_makes_its_job_and_tells_how_it_went():
    made = trial.reconcile(Owned(_running(), {}), trial.TrialJobOutcome(), CLOCK)
    (job,) = made.create
    assert job["metadata"]["name"] == "t"
    assert job["metadata"]["labels"] == {trial.TRIAL_LABEL: "t", trial.EXPERIMENT_LABEL: "e"}
    seen = trial.TrialJobOutcome("succeeded", {"accuracy": [0.1, 0.4, 0.3], "loss": []})
    done = trial.reconcile(Owned(_running(made.status), JOB), seen, CLOCK)
    assert ends(done) == {"Created": "TrialCreated", "Succeeded": "TrialSucceeded"}
    assert done.status["observation"]["metrics"] == [
        {"name": "accuracy", "min": "0.1", "max": "0.4", "latest": "0.3"},
        {"name": "loss", "min": "unavailable", "max": "unavailable", "latest": "unavailable"},
    ]
    for keeps, deleted in ((False, [("Job", "t")]), (True, [])):
        over = _running(done.status, retainRun=keeps)
        assert trial.reconcile(Owned(over, JOB), trial.TrialJobOutcome(), CLOCK).delete == deleted


def test_a_log_without_the_metric_is_reported_and_a_late_log_awaited():
    outcome = trial.TrialJobOutcome("succeeded", {"accuracy": []})
    none = trial.reconcile(Owned(_running(), JOB), outcome, CLOCK)
    told = {c["type"]: c["message"] for c in none.status["conditions"]}
    assert "the log has no line accuracy=NUMBER" in told["MetricsUnavailable"]
    late = trial.reconcile(Owned(_running(), JOB), trial.TrialJobOutcome("succeeded"), CLOCK)
    assert "MetricsUnavailable" not in ends(late)
    assert late.requeue_in_s
    later = Clock(CLOCK.now_s + 60, CLOCK.now)
    gone = trial.reconcile(
        Owned(_running(late.status), JOB), trial.TrialJobOutcome("succeeded"), later
    )
    assert "MetricsUnavailable" in ends(gone)


def test_a_trial_that_falls_behind_is_stopped_and_keeps_what_it_had():
    rule = {"name": "accuracy", "value": "0.5", "comparison": "less", "startStep": 2}
    body = _running(earlyStoppingRules=[rule], annotations={trial.FIRST_STEPS: "2"})
    goes_on = trial.reconcile(
        Owned(body, JOB), trial.TrialJobOutcome("", {"accuracy": [0.1]}), CLOCK
    )
    assert not goes_on.delete
    assert goes_on.requeue_in_s
    stopped = trial.reconcile(
        Owned(body, JOB), trial.TrialJobOutcome("", {"accuracy": [0.1, 0.3, 0.2]}), CLOCK
    )
    assert ends(stopped)["EarlyStopped"] == "TrialEarlyStopped"
    assert stopped.delete == [("Job", "t")]
    assert stopped.status["observation"]["metrics"][0]["max"] == "0.3"
    assert stopped.status["firstStepsMean"] == "0.2"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("accuracy=0.9", [0.9]),
        ("epoch 1 accuracy = +9.5e-1, loss=0.1", [0.95]),
        ("accuracy=", []),
        ("accuracy=nan", []),
        ("my-accuracy=0.9", []),
        ("accuracy=0.1 accuracy=0.2", [0.1, 0.2]),
    ],
)
def test_metrics_in_a_line(line, found):
    assert read(line, ["accuracy"])["accuracy"] == found


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (r"(\w+)=(", "is not an expression of RE2: missing )"),
        (r"(a+)+\1=(\d+)", "is not an expression of RE2: invalid escape sequence"),
        (r"(\w+)=\d+", "needs two groups, name and value"),
    ],
)
def test_filters_that_cannot_be_used(expression, said):
    with pytest.raises(ExpressionError, match=re.escape(said)):
        read("a=1", ["a"], [expression])


def test_a_filter_cannot_keep_us_busy():
    """Python's own expressions need years for this one."""
    log = "a" * 5000 + "!"
    assert read(log, ["a"], [r"((?:a+)+)+=(\d+)"]) == {"a": []}


def test_annotations_of_a_trial_are_ignored():
    asked = search([tried("a")]).parts["Trial", "a"]
    asked["metadata"]["annotations"] = {trial.FIRST_STEPS: "many"}
    asked["status"] = {}
    asked["spec"] |= {"objective": search().body["spec"]["objective"]}
    asked["spec"] |= {"runSpec": {"kind": "Job", "apiVersion": "batch/v1"}}
    job = {"kind": "Job", "metadata": {"name": "a"}}
    seen = trial.TrialJobOutcome("succeeded", {"accuracy": [0.5]})
    steps = trial.reconcile(Owned(asked, {("Job", "a"): job}), seen, CLOCK)
    assert "firstStepsMean" not in steps.status
    assert steps.status["observation"]["metrics"][0]["latest"] == "0.5"


def wrong(change) -> str:
    """Return what is said of an experiment after a change."""
    body = copy.deepcopy(search().body)
    change(body["spec"])
    with pytest.raises(InvalidJobError) as error:
        asyncio.run(experiment_kind(Here()).read_unwatched(None, Owned(body, {})))
    return str(error.value)


def _set(path: str, value):
    def change(spec):
        *inner, last = path.split("/")
        for key in inner:
            spec = spec[int(key)] if key.isdigit() else spec[key]
        spec[last] = value

    return change


ESTIMATOR = {"name": "base_estimator", "value": "SVM"}
SPACE = "parameters/0/feasibleSpace"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "algorithm/algorithmName",
            "enas",
            "'enas' searches a neural architecture (nasConfig), and gangsched searches parameters",
        ),
        ("algorithm/algorithmName", "magic", "'magic' is not known; allowed are: random"),
        ("parallelTrialCount", 7, "spec.parallelTrialCount is 7, above spec.maxTrialCount"),
        ("maxFailedTrialCount", 7, "spec.maxFailedTrialCount is 7, above"),
        ("parameters", [], "spec.parameters is empty"),
        (SPACE, {"min": "0.1"}, "spec.parameters[lr].feasibleSpace: a parameter of type double"),
        (SPACE, {"min": "2", "max": "1"}, "min is 2, above max, which is 1"),
        (SPACE, {"min": "a", "max": "1"}, "min is 'a'; it must be a number"),
        (SPACE, {"min": "0", "max": "inf"}, "max is 'inf'; it must be within ±1e+300"),
        (SPACE, {"min": "0", "max": "1", "step": "0"}, "step is 0; it must be above 0"),
        (SPACE, {"min": "0", "max": "1", "distribution": "logUniform"}, "needs min above 0"),
        (SPACE, {"min": "0", "max": "9" * 4000}, "max is '9999"),
        (
            "algorithm/algorithmSettings",
            [{"name": "random_state", "value": "-1"}],
            "spec.algorithm.algorithmSettings[random_state] is '-1'; it must be a whole number",
        ),
        (
            "algorithm",
            {"algorithmName": "bayesianoptimization", "algorithmSettings": [ESTIMATOR]},
            "[base_estimator] is 'SVM'; it must be one of: GP, RF, ET, GBRT",
        ),
        (
            "algorithm/algorithmSettings",
            [{"name": "sigma", "value": "1"}],
            "algorithmSettings: 'sigma' is not known; allowed are: random_state",
        ),
        (
            "earlyStopping",
            {
                "algorithmName": "medianstop",
                "algorithmSettings": [{"name": "start_step", "value": "0"}],
            },
            "spec.earlyStopping.algorithmSettings[start_step] is '0'; it must be a whole number",
        ),
        ("trialTemplate/trialSpec", None, "spec.trialTemplate.trialSpec is missing"),
        (
            "trialTemplate/trialSpec",
            {"kind": "Pod", "apiVersion": "v1"},
            "is a v1 Pod; allowed are",
        ),
        (
            "trialTemplate/trialParameters",
            [{"name": "rate", "reference": "depth"}],
            "trialParameters[rate].reference: 'depth' is not in spec.parameters, which are: lr",
        ),
        ("trialTemplate/trialParameters", [], "uses ${trialParameters.rate}, which"),
        (
            "earlyStopping",
            {"algorithmName": "hunch"},
            "spec.earlyStopping.algorithmName: 'hunch' is not known; use medianstop",
        ),
        (
            "metricsCollectorSpec",
            {"collector": {"kind": "Magic"}},
            "spec.metricsCollectorSpec.collector.kind is 'Magic'; allowed are: StdOut, File",
        ),
        ("objective/type", "best", "spec: objective.type: input should be"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(path, value, said):
    sentence = wrong(_set(path, value))
    assert sentence.startswith("Experiment ns/e: ")
    assert said in sentence


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ('status.conditions.#(type=="Complete"', "cannot be read from '#(type=="),
        ("..", "is '..', which cannot be read from '..'"),
        ("status.", "which cannot be read from its end: a condition is made of names"),
        ("@nope", "is '@nope', which cannot be read from '@nope'"),
        ('status.#(phase%"(a+)+b")', "cannot be read from '#(phase%"),
        ("status\n", "cannot be read from "),
        ("|".join(["[@this,@this]"] * 20) + "|@tostr", "cannot be read from '[@this,@this]|"),
        ("status.@flatten", "cannot be read from '@flatten'"),
        ("{status,status}", "cannot be read from '{status,status}'"),
        (".".join("abcdefghi"), "has 9 steps; 8 are allowed"),
        ("a" * 2000, "has 2000 letters; 1000 are allowed"),
    ],
)
def test_conditions_that_are_no_paths_are_refused_before_there_is_a_job(path, said):
    sentence = wrong(_set("trialTemplate/successCondition", path))
    assert sentence.startswith("Experiment ns/e: spec.trialTemplate.successCondition ")
    assert said in sentence


@pytest.mark.parametrize(
    ("kind", "status", "spec", "how"),
    [
        ("Job", {}, {}, ""),
        ("Job", {"conditions": [{"type": "Complete", "status": "True"}]}, {}, "succeeded"),
        ("JobSet", {"conditions": [{"type": "Completed", "status": "True"}]}, {}, "succeeded"),
        ("PyTorchJob", {"conditions": [{"type": "Failed", "status": "True"}]}, {}, "failed"),
        ("PyTorchJob", {"conditions": [{"type": "Failed", "status": "False"}]}, {}, ""),
        ("Job", {"active": 1}, {"successCondition": "status.[@this].#(succeeded==1)"}, ""),
        (
            "Job",
            {"succeeded": 1},
            {"successCondition": "status.[@this].#(succeeded==1)"},
            "succeeded",
        ),
    ],
)
def test_how_a_trials_job_ended(kind, status, spec, how):
    assert outcome_of_job(spec, {"kind": kind, "status": status}) == how


def test_places_are_found_in_time_that_grows_with_the_text():
    """The engine of expressions would try every place that is begun up to the text's end."""
    template = TEMPLATE | {
        "trialSpec": {"kind": "Job", "apiVersion": "batch/v1", "a": "${trialSpec." * 100_000}
    }
    code = (
        "import json, sys; "
        "from gangsched.jobs.katib.experiment import fill_template, used_parameters; "
        "template = json.load(sys.stdin); "
        "assert used_parameters(template) == set(); "
        "assert fill_template(template, {}, 't', 'ns') == template['trialSpec']"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(template),
        text=True,
        check=True,
        timeout=patience_s(60),
    )


def test_a_trials_job_is_no_larger_than_an_object_may_be():
    """A label that is put in for forty thousand placeholders would be 400 MB."""
    job = copy.deepcopy(TEMPLATE["trialSpec"])
    job["metadata"] = {"labels": {"x": "y" * 10_000}}
    job["spec"]["args"] += ["${trialSpec.Labels[x]}"] * 40_000
    sentence = wrong(_set("trialTemplate/trialSpec", job))
    assert sentence == (
        "Experiment ns/e: spec.trialTemplate.trialSpec would have more than 1048576 letters; "
        "shorten it"
    )
    twice = TEMPLATE["trialParameters"] + [
        {"name": "x", "reference": "${trialSpec.Labels[x]}" * 1000}
    ]
    with pytest.raises(experiment.TrialTooLargeError):
        experiment.fill_template(
            {"trialSpec": job, "trialParameters": twice}, {"lr": "1"}, "trial", "ns"
        )


MANY = [{"name": f"p{i}", "parameterType": "int", "feasibleSpace": {}} for i in range(101)]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("maxTrialCount", 1001, "maxTrialCount: input should be less than or equal to 1000"),
        ("parameters", MANY, "parameters: list should have at most 100 items"),
        (SPACE, {"list": ["a"] * 1001}, "list: list should have at most 1000 items"),
        (
            "objective/additionalMetricNames",
            ["a"] * 33,
            "additionalMetricNames: list should have at most 32 items",
        ),
        (
            "metricsCollectorSpec",
            {"source": {"filter": {"metricsFormat": ["a"] * 17}}},
            "metricsFormat: list should have at most 16 items",
        ),
        (
            "algorithm",
            {
                "algorithmName": "tpe",
                "algorithmSettings": [{"name": "n_ei_candidates", "value": "10001"}],
            },
            "algorithmSettings[n_ei_candidates] is '10001'; it must be a whole number from 1 to",
        ),
        (
            "trialTemplate/primaryPodLabels",
            {"a,job-name": "b"},
            "spec.trialTemplate.primaryPodLabels: 'a,job-name' is not a valid label",
        ),
    ],
)
def test_what_a_user_sizes_is_bounded(path, value, said):
    assert said in wrong(_set(path, value))


class Overrun(Here):
    """Searches and reads for too long."""

    def __init__(self, *, may_retry: bool) -> None:
        super().__init__()
        self.may_retry = may_retry

    async def _ask(self, owned, task, arguments):
        raise OverrunError("it takes longer than 120 s", may_retry=self.may_retry)


async def test_a_search_that_takes_too_long_is_tried_again_and_then_has_failed():
    owned = search([tried("a", "Running")])
    with pytest.raises(
        BlockedError, match=r"ns/e: the search by random .* 120 s; gangsched retries"
    ):
        await experiment_kind(Overrun(may_retry=True)).read_unwatched(None, owned)
    made = experiment_kind(Overrun(may_retry=False))
    steps = made.step(await made.read_unwatched(None, owned), CLOCK)
    assert ends(steps)["Failed"] == "ExperimentFailed"
    told = {c["type"]: c["message"] for c in steps.status["conditions"]}
    assert told["Failed"] == (
        "Experiment has failed because the search by random over 1 trials and 1 parameters "
        "failed: it takes longer than 120 s"
    )
    assert [ref for ref, _ in steps.patch] == [("Trial", "a")]  # what runs is stopped


async def test_the_next_points_are_asked_for_before_the_step():
    owned = search()
    made = experiment_kind(Here())
    looked = await made.read_unwatched(None, owned)
    assert len(looked.lookups["points"]) == 3
    assert len(made.step(looked, CLOCK).create) == 3
    full = await made.read_unwatched(None, search([tried(str(i), "Running") for i in range(3)]))
    assert "points" not in full.lookups
    assert not made.step(full, CLOCK).create


def test_a_log_is_read_as_far_as_its_bounds():
    lines = [f"a={i}" for i in range(30_000)]
    found = read("\n".join(lines), ["a"])["a"]
    assert found[:1000] == [float(i) for i in range(1000)]
    assert found[1000:] == [1000.0, 29_999.0, 29_999.0]  # the least, the greatest and the last
    assert read("x" * 5000 + " a=1\na=2", ["a"]) == {"a": [2.0]}
    assert len(read("a=1 " * 1000, ["a"])["a"]) == 64
    assert read("\n" * 2**20 + "a=1", ["a"]) == {"a": [1.0]}
    assert read("a=1e999\na=1", ["a"]) == {"a": [1.0]}


def test_a_line_that_expressions_are_slow_on_is_cut():
    code = (
        "from gangsched.operators.search.metrics_collector import read; "
        "read('a' * 2**20, ['x'], [r'(a)(?:a*(b))?'])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=patience_s(60))


class Pods:
    """An API server with pods, what owns them, and a log."""

    def __init__(self, log: bytes = b"accuracy=0.5\n", **owners: dict) -> None:
        self.log, self.owners, self.asked = log, owners, []

    async def get(self, path, **params):
        self.asked.append((path, params))
        if path.endswith("/log"):
            return self._log(params)
        if path.endswith("/pods"):
            pods = [{"metadata": one, "spec": SPEC} for one in self.owners["pods"]]
            return json.dumps({"items": pods}).encode()
        kind, name = path.rsplit("/", 2)[1:]
        if (found := self.owners.get(kind, {}).get(name)) is None:
            raise NotFound(404, path)
        return json.dumps({"metadata": found}).encode()

    def _log(self, params) -> bytes:
        lines = self.log.splitlines(keepends=True)
        some = lines[-int(params["tailLines"]) :] if "tailLines" in params else lines
        return b"".join(some)[: int(params["limitBytes"])]


SPEC = {"containers": [{"name": "main"}]}


def _of(version: str, kind: str, name: str, uid: str) -> dict:
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {"ownerReferences": [owner]}


def _pod(name: str, **metadata) -> dict:
    return {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}


OURS = _of("batch/v1", "Job", "t", "j")
THEIRS = _of("batch/v1", "Job", "t", "another")
BY_JOB = _of("batch/v1", "Job", "t-node-0", "jj")
BY_SET = _of("jobset.x-k8s.io/v1alpha2", "JobSet", "t", "js")
BY_TRAIN = _of("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", "j")


@pytest.mark.parametrize(
    ("owners", "read_from"),
    [
        ({"pods": [_pod("p", **OURS)]}, "p"),
        ({"pods": [_pod("p", **OURS), _pod("q")]}, "p"),
        ({"pods": [_pod("p", **THEIRS), _pod("q", ownerReferences=[])]}, None),
        ({"pods": [_pod("p", **_of("v1", "Secret", "../../x", "s"))]}, None),
        ({"pods": [_pod("p", **BY_JOB)]}, None),
        (
            {
                "pods": [_pod("p", **BY_JOB)],
                "jobs": {"t-node-0": {"uid": "jj", **BY_SET}},
                "jobsets": {"t": {"uid": "js", **BY_TRAIN}},
            },
            "p",
        ),
        ({"pods": [_pod("p", **BY_JOB)], "jobs": {"t-node-0": {"uid": "other", **OURS}}}, None),
    ],
)
async def test_a_log_is_read_from_a_pod_of_the_trials_own_job_alone(owners, read_from):
    """Labels, which a user chooses, would show the numbers in anybody's log."""
    server = Pods(**owners)
    body = _running(primaryPodLabels={"app": "somebody-else"})
    job = {"kind": "Job", "metadata": {"name": "t", "uid": "j"}}
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    looked = await trials(Here()).read_unwatched(server, Owned(body, {("Job", "t"): job}))
    logs = [path for path, _ in server.asked if path.endswith("/log")]
    assert logs == ([f"/api/v1/namespaces/ns/pods/{read_from}/log"] if read_from else [])
    assert looked.lookups["ended"] == "succeeded"
    assert looked.lookups.get("series") == ({"accuracy": [0.5]} if read_from else None)


async def test_of_a_long_log_the_beginning_and_the_end_are_read():
    lines = [b"accuracy=%d %s" % (i, b"x" * 300) for i in range(20_000)]
    server = Pods(b"\n".join(lines) + b"\n", pods=[_pod("p", **OURS)])
    job = {"kind": "Job", "metadata": {"name": "t", "uid": "j"}}
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    looked = await trials(Here()).read_unwatched(server, Owned(_running(), {("Job", "t"): job}))
    values = looked.lookups["series"]["accuracy"]
    assert values[:3] == [0.0, 1.0, 2.0]
    assert values[-1] == 19_999.0
    assert all(int(p["limitBytes"]) <= 2**20 for path, p in server.asked if path.endswith("/log"))


async def test_a_log_that_takes_too_long_fails_its_trial():
    server = Pods(pods=[_pod("p", **OURS)])
    job = {"kind": "Job", "metadata": {"name": "t", "uid": "j"}}
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    owned = Owned(_running(), {("Job", "t"): job})
    with pytest.raises(BlockedError, match=r"ns/t: its log cannot be read with spec\.metrics"):
        await trials(Overrun(may_retry=True)).read_unwatched(server, owned)
    made = trials(Overrun(may_retry=False))
    steps = made.step(await made.read_unwatched(server, owned), CLOCK)
    assert ends(steps)["Failed"] == "TrialFailed"
    assert "it takes longer than 120 s" in str(steps.status["conditions"])
