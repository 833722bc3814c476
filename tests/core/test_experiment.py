"""Katib's Experiments and Trials as pure functions: counts, ends, stopping, templates."""

import copy
import re

import pytest

from gangsched.core.jobs import experiment, metrics, trial
from gangsched.core.jobs.step import Clock
from gangsched.core.jobs.tree import Owned
from gangsched.operators.parse import InvalidJobError
from gangsched.operators.search.collect import FilterError, read
from gangsched.operators.search.ends import ended
from gangsched.operators.search.experiment import kind

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
    return [{"lr": f"0.{len(tried) + i + 1}"} for i in range(count)]


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
        Owned(_running(annotations={trial.KILL: "over"}), {}), trial.Seen(), CLOCK
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
    assert not metrics.breaks(rule, [0.1] * 4, best)  # too early to tell
    assert metrics.breaks(rule, [0.1] * 5, best)
    assert not metrics.breaks(rule, [0.1, 0.9, 0.1, 0.1, 0.1], best)  # its best counts


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


def test_a_trial_makes_its_job_and_tells_how_it_went():
    made = trial.reconcile(Owned(_running(), {}), trial.Seen(), CLOCK)
    (job,) = made.create
    assert job["metadata"]["name"] == "t"
    assert job["metadata"]["labels"] == {trial.TRIAL_LABEL: "t", trial.EXPERIMENT_LABEL: "e"}
    seen = trial.Seen("succeeded", {"accuracy": [0.1, 0.4, 0.3], "loss": []})
    done = trial.reconcile(Owned(_running(made.status), JOB), seen, CLOCK)
    assert ends(done) == {"Created": "TrialCreated", "Succeeded": "TrialSucceeded"}
    assert done.status["observation"]["metrics"] == [
        {"name": "accuracy", "min": "0.1", "max": "0.4", "latest": "0.3"},
        {"name": "loss", "min": "unavailable", "max": "unavailable", "latest": "unavailable"},
    ]
    for keeps, deleted in ((False, [("Job", "t")]), (True, [])):
        over = _running(done.status, retainRun=keeps)
        assert trial.reconcile(Owned(over, JOB), trial.Seen(), CLOCK).delete == deleted


def test_a_log_without_the_metric_is_told_a_late_one_is_waited_for():
    none = trial.reconcile(Owned(_running(), JOB), trial.Seen("succeeded", {"accuracy": []}), CLOCK)
    told = {c["type"]: c["message"] for c in none.status["conditions"]}
    assert "the log has no line accuracy=NUMBER" in told["MetricsUnavailable"]
    late = trial.reconcile(Owned(_running(), JOB), trial.Seen("succeeded"), CLOCK)
    assert "MetricsUnavailable" not in ends(late)
    assert late.again_in_s
    later = Clock(CLOCK.now_s + 60, CLOCK.now)
    gone = trial.reconcile(Owned(_running(late.status), JOB), trial.Seen("succeeded"), later)
    assert "MetricsUnavailable" in ends(gone)


def test_a_trial_that_falls_behind_is_stopped_and_keeps_what_it_had():
    rule = {"name": "accuracy", "value": "0.5", "comparison": "less", "startStep": 2}
    body = _running(earlyStoppingRules=[rule], annotations={trial.FIRST_STEPS: "2"})
    goes_on = trial.reconcile(Owned(body, JOB), trial.Seen("", {"accuracy": [0.1]}), CLOCK)
    assert not goes_on.delete
    assert goes_on.again_in_s
    stopped = trial.reconcile(
        Owned(body, JOB), trial.Seen("", {"accuracy": [0.1, 0.3, 0.2]}), CLOCK
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
        (r"(\w+)=(", "is no expression (RE2): missing )"),
        (r"(a+)+\1=(\d+)", "is no expression (RE2): invalid escape sequence"),
        (r"(\w+)=\d+", "needs two groups, name and value"),
    ],
)
def test_filters_that_cannot_be_used(expression, said):
    with pytest.raises(FilterError, match=re.escape(said)):
        read("a=1", ["a"], [expression])


def test_a_filter_cannot_keep_us_busy():
    """Python's own expressions need years for this one."""
    log = "a" * 5000 + "!"
    assert read(log, ["a"], [r"((?:a+)+)+=(\d+)"]) == {"a": []}


def test_what_a_trial_is_annotated_with_is_not_believed():
    asked = search([tried("a")]).parts["Trial", "a"]
    asked["metadata"]["annotations"] = {trial.FIRST_STEPS: "many"}
    asked["status"] = {}
    asked["spec"] |= {"objective": search().body["spec"]["objective"]}
    asked["spec"] |= {"runSpec": {"kind": "Job", "apiVersion": "batch/v1"}}
    job = {"kind": "Job", "metadata": {"name": "a"}}
    seen = trial.Seen("succeeded", {"accuracy": [0.5]})
    steps = trial.reconcile(Owned(asked, {("Job", "a"): job}), seen, CLOCK)
    assert "firstStepsMean" not in steps.status
    assert steps.status["observation"]["metrics"][0]["latest"] == "0.5"


def wrong(change) -> str:
    """Return what is said of an experiment after a change."""
    body = copy.deepcopy(search().body)
    change(body["spec"])
    with pytest.raises(InvalidJobError) as error:
        kind().step(Owned(body, {}), CLOCK)
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
        ("algorithm/algorithmName", "pbt", "'pbt' is Katib's and not run here; there are: random"),
        ("algorithm/algorithmName", "magic", "'magic' is not known; there are: random"),
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
            "algorithmSettings: 'sigma' is not known; there are: random_state",
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
        ("trialTemplate/trialSpec", {"kind": "Pod", "apiVersion": "v1"}, "is a v1 Pod; there are"),
        (
            "trialTemplate/trialParameters",
            [{"name": "rate", "reference": "depth"}],
            "trialParameters[rate].reference: 'depth' is not one of spec.parameters, which are: lr",
        ),
        ("trialTemplate/trialParameters", [], "uses ${trialParameters.rate}, which"),
        (
            "earlyStopping",
            {"algorithmName": "hunch"},
            "spec.earlyStopping.algorithmName: 'hunch' is not known; use medianstop",
        ),
        (
            "metricsCollectorSpec",
            {"collector": {"kind": "File"}},
            "collector.kind: File is not run here",
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
        ('status.conditions.#(type=="Complete"', "which is no GJSON path: Unbalanced parentheses"),
        ("..", "which is no GJSON path: Invalid query starting with a path delimiter."),
        ("@nope", "which is no GJSON path: Unknown modifier @nope."),
        ('status.#(phase%"(a+)+b")', "patterns (%, *, ?) are not taken: %"),
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
    assert ended(spec, {"kind": kind, "status": status}) == how
