"""Hyperparameter search of the third guide: trials run, and the best one is reported."""

import json
from pathlib import Path

import pytest
import yaml
from pages import Shell
from test_guides import blocks, needs_guides
from test_pytorchjob import UNTIL_TOLD, listens, tell
from waiting import patience_s

from gangsched.jobs.katib.trial import EXPERIMENT_LABEL

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"
GROUP = ("kubeflow.org", "v1beta1")
ANSWER = "kubectl get experiment search -o jsonpath='{.status.currentOptimalTrial}'"


@pytest.fixture
def home(laptop):
    """A namespace with the code of the trials."""
    name = laptop.new_namespace()
    code = {
        "metadata": {"name": "curve"},
        "data": {"curve.py": (EXAMPLES / "curve.py").read_text()},
    }
    laptop.core.create_namespaced_config_map(name, code)
    yield name
    for plural in ("experiments", "trials"):
        laptop.custom.delete_collection_namespaced_custom_object(*GROUP, name, plural)
    laptop.remove_namespace(name)


def example() -> dict:
    return yaml.safe_load((EXAMPLES / "experiment.yaml").read_text())


def create(cluster, namespace, body) -> None:
    cluster.custom.create_namespaced_custom_object(*GROUP, namespace, "experiments", body)


def get(cluster, namespace, name="search") -> dict:
    return cluster.custom.get_namespaced_custom_object(*GROUP, namespace, "experiments", name)


def trials(cluster, namespace) -> list[dict]:
    listed = cluster.custom.list_namespaced_custom_object(*GROUP, namespace, "trials")
    return listed["items"]


def conditions(body) -> dict[str, dict]:
    listed = (body.get("status") or {}).get("conditions") or []
    return {one["type"]: one for one in listed if one["status"] == "True"}


def wait_over(cluster, namespace, name="search", timeout_s=150) -> dict:
    def over():
        found = get(cluster, namespace, name)
        return found if conditions(found).keys() & {"Succeeded", "Failed"} else None

    return cluster.wait(over, f"experiment {name} to end", timeout_s)


COUNTS = {
    "gangsched_experiments_created_total": 1,
    'gangsched_experiments_ended_total{outcome="Succeeded"': 2,
    "gangsched_experiments_restarted_total": 1,
    "gangsched_trials_created_total": 7,
    'gangsched_trials_ended_total{outcome="Succeeded"': 7,
}
"""How often the metrics count a search that is restarted once with one more trial."""


def test_a_search_runs_to_its_end_and_tells_the_best(laptop, home, tmp_path):
    laptop.core.delete_namespaced_config_map("curve", home)  # the page makes it itself
    counted = [laptop.count(series) for series in COUNTS]
    said = Shell(tmp_path, laptop.plane.kubeconfig, home).walk("docs/jobs/experiment.md")
    done = get(laptop, home)
    assert json.loads(said[ANSWER]) == done["status"]["currentOptimalTrial"]
    status = done["status"]
    assert conditions(done)["Succeeded"]["reason"] == "ExperimentMaxTrialsReached"
    assert status["trialsSucceeded"] == len(status["succeededTrialList"]) == 6
    values = {}
    for one in trials(laptop, home):
        assert one["metadata"]["labels"][EXPERIMENT_LABEL] == "search"
        observed = {m["name"]: m for m in one["status"]["observation"]["metrics"]}
        assert float(observed["accuracy"]["max"]) + float(observed["loss"]["min"]) == pytest.approx(
            1
        )
        values[one["metadata"]["name"]] = float(observed["accuracy"]["max"])
    best = status["currentOptimalTrial"]
    assert best["bestTrialName"] == max(values, key=values.get)
    assert {one["name"] for one in best["parameterAssignments"]} == {
        "learning_rate",
        "batch_size",
        "optimizer",
        "dropout_rate",
    }
    # Trials that are not retained leave their jobs' GPUs and names.
    laptop.wait(lambda: not laptop.json("jobs", "-n", home)["items"], "the trials' jobs to go", 60)
    table = laptop.kubectl("get", "experiments", "-n", home)
    assert table.splitlines()[0].split() == ["NAME", "TYPE", "STATUS", "AGE"]

    # With more trials wanted it goes on where it was (resumePolicy FromVolume).
    more = {"spec": {"maxTrialCount": 7}}
    laptop.custom.patch_namespaced_custom_object(*GROUP, home, "experiments", "search", more)
    laptop.wait(
        lambda: get(laptop, home)["status"].get("trialsSucceeded") == 7, "a seventh trial", 60
    )
    assert wait_over(laptop, home)["status"]["trials"] == 7

    def since() -> dict[str, float]:
        old = zip(COUNTS, counted, strict=True)
        return {series: laptop.count(series) - before for series, before in old}

    laptop.wait(lambda: since() == COUNTS, f"the metrics to count {COUNTS}")


def test_what_falls_behind_is_stopped_early(laptop, home):
    """Three good trials, then one that starts badly: medianstop of the guide, start_step 5."""
    body = example()
    spec = body["spec"]
    spec["algorithm"] = {"algorithmName": "grid"}
    del spec["objective"]["goal"]  # the first would reach it
    spec["earlyStopping"] = {
        "algorithmName": "medianstop",
        "algorithmSettings": [
            {"name": "min_trials_required", "value": "3"},
            {"name": "start_step", "value": "5"},
        ],
    }
    rates = ["0.01", "0.011", "0.012", "0.000001"]
    spec["parameters"] = [
        {"name": "learning_rate", "parameterType": "discrete", "feasibleSpace": {"list": rates}}
    ]
    template = spec["trialTemplate"]
    template["trialParameters"] = template["trialParameters"][:1]
    (container,) = template["trialSpec"]["spec"]["template"]["spec"]["containers"]
    # The bad trial runs until it is stopped early.
    steps = "import os,sys; a=sys.argv[1:]; bad=a[1].endswith('0.000001'); "
    steps += "a+=['--steps=1000000','--step_s=0.5'] if bad else []; "
    steps += "os.execvp('python', ['python', *a])"
    container["command"] = ["python", "-c", steps, *container["command"][1:3]]
    spec |= {"parallelTrialCount": 1, "maxTrialCount": 4}
    create(laptop, home, body)
    done = wait_over(laptop, home)
    assert done["status"]["trialsSucceeded"] == 3
    assert done["status"]["trialsEarlyStopped"] == 1
    (stopped,) = [one for one in trials(laptop, home) if "EarlyStopped" in conditions(one)]
    assert stopped["spec"]["parameterAssignments"] == [
        {"name": "learning_rate", "value": "0.000001"}
    ]
    assert stopped["spec"]["earlyStoppingRules"][0]["startStep"] == 5
    assert stopped["status"]["observation"]["metrics"][0]["name"] == "accuracy"


def test_a_trial_that_is_deleted_is_made_up_for(laptop, home, tmp_path):
    body = example()
    body["spec"] |= {"maxTrialCount": 2, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
    del body["spec"]["objective"]["goal"]
    pod = body["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, code = container["command"], pod["volumes"]
    container["command"] = ["sh", "-c", f'{UNTIL_TOLD}; exec "$@"']
    mounts = container["volumeMounts"]
    listens(pod, tmp_path)
    container["command"] += command
    container["volumeMounts"] += mounts
    pod["volumes"] += code
    create(laptop, home, body)
    (first,) = laptop.wait(lambda: trials(laptop, home), "the first trial", 90)
    metadata = first["metadata"]
    laptop.custom.delete_namespaced_custom_object(*GROUP, home, "trials", metadata["name"])
    laptop.wait(
        lambda: metadata["uid"] not in [one["metadata"]["uid"] for one in trials(laptop, home)],
        "the first trial to go",
    )
    tell(tmp_path)
    assert "Succeeded" in conditions(wait_over(laptop, home))
    ended = [one for one in trials(laptop, home) if "Succeeded" in conditions(one)]
    assert len(ended) == 2
    assert metadata["uid"] not in [one["metadata"]["uid"] for one in ended]


def test_trials_that_fail_end_it(laptop, home):
    body = example()
    (container,) = body["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ]
    container["command"][1] = "/code/missing.py"
    create(laptop, home, body)
    done = wait_over(laptop, home)
    assert conditions(done)["Failed"]["reason"] == "ExperimentFailed"
    assert done["status"]["trialsFailed"] >= 3


def test_a_trial_fails_if_its_job_is_refused_for_good(laptop, home):
    """Without quotes in a ConfigMap, a placeholder is a number; a command takes only texts."""
    body = example()
    template = body["spec"]["trialTemplate"]
    spec = template.pop("trialSpec")
    container = spec["spec"]["template"]["spec"]["containers"][0]
    container["command"].append("${trialParameters.batchSize}")
    laptop.core.create_namespaced_config_map(
        home, {"metadata": {"name": "templates"}, "data": {"job": yaml.safe_dump(spec)}}
    )
    template["configMap"] = {"configMapName": "templates", "templatePath": "job"}
    body["spec"] |= {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
    create(laptop, home, body)
    assert "Failed" in conditions(wait_over(laptop, home))
    (one,) = trials(laptop, home)
    failed = conditions(one)["Failed"]
    assert failed["reason"] == "FailedValidation"
    assert "cannot unmarshal number" in failed["message"]


def test_a_trial_without_the_metric_says_what_to_print(laptop, home):
    body = example()
    body["spec"]["objective"]["objectiveMetricName"] = "f1"
    body["spec"] |= {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
    create(laptop, home, body)
    wait_over(laptop, home)
    (one,) = trials(laptop, home)
    message = conditions(one)["MetricsUnavailable"]["message"]
    assert message == "Metrics are not available: the log has no line f1=NUMBER"


def test_trials_of_pytorchjobs_are_gangs(laptop, home):
    body = example()
    template = body["spec"]["trialTemplate"]
    pod = template["trialSpec"]["spec"]["template"]["spec"]
    pod["containers"][0]["name"] = "pytorch"
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}
    template["trialSpec"] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}},
    }
    template["primaryContainerName"] = "pytorch"
    del pod["restartPolicy"]
    template["retain"] = True
    body["spec"] |= {"maxTrialCount": 2, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
    create(laptop, home, body)
    done = wait_over(laptop, home)
    assert done["status"].get("trialsSucceeded") == 2, trials(laptop, home)
    for name in done["status"]["succeededTrialList"]:
        assert laptop.is_true(home, name, "Succeeded")  # retained


def guide(word: str) -> dict:
    """Return an Experiment of the third guide, as its text has it."""
    (text,) = (
        text for text in blocks("002").values() if word in text and "kind: Experiment" in text
    )
    body = yaml.safe_load(text)
    body["metadata"].pop("namespace", None)
    return body


@needs_guides
@pytest.mark.by("direct")  # its controller does not see who binds
def test_the_guides_experiment_runs_unchanged(cluster, namespace):
    """Upstream Katib refuses its dropout_rate from 0.0 (katib#1430)."""
    # Pods of Jobs end at once on KWOK nodes, and trials with them: there shall be no pods.
    none = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    cluster.core.create_namespaced_resource_quota(namespace, none)
    body = guide("cnn-hyperparameter-tuning")
    name = body["metadata"]["name"]
    create(cluster, namespace, body)
    try:
        made = cluster.wait(
            lambda: (found := trials(cluster, namespace)) and len(found) == 5 and found,
            "five trials at a time",
        )
        for one in made:
            point = {a["name"]: a["value"] for a in one["spec"]["parameterAssignments"]}
            assert 0.0 <= float(point["dropout_rate"]) <= 0.5
            assert int(point["batch_size"]) % 16 == 0
            (container,) = one["spec"]["runSpec"]["spec"]["template"]["spec"]["containers"]
            assert f"--batch_size={point['batch_size']}" in container["command"]
        jobs = cluster.wait(
            lambda: (j := cluster.json("jobs", "-n", namespace)["items"]) and len(j) == 5 and j,
            "a Job for each",
        )
        assert {j["metadata"]["name"] for j in jobs} == {t["metadata"]["name"] for t in made}
        cluster.wait(lambda: "Running" in conditions(get(cluster, namespace, name)), "Running")
    finally:
        for plural in ("experiments", "trials"):
            cluster.custom.delete_collection_namespaced_custom_object(*GROUP, namespace, plural)


@needs_guides
@pytest.mark.by("direct")
def test_the_guides_second_experiment_names_what_it_lacks(cluster, namespace):
    """Its trialTemplate is a comment alone."""
    said = cluster.kubectl(
        "create",
        "-n",
        namespace,
        "-f",
        "-",
        stdin=yaml.safe_dump(guide("early-stopping")),
        check=False,
    )
    assert "spec.trialTemplate" in said


def lose(learning_rate, optimizer):
    off = 0.0 if optimizer == "adam" else 1.0
    print(f"loss={abs(float(learning_rate) - 0.01) + off}")


@pytest.mark.filterwarnings("ignore")
def test_the_kubeflow_sdk_optimizes(laptop, home):
    """Each trial is a TrainJob; the SDK reads trials, logs and the best result."""
    from kubeflow.common.types import KubernetesBackendConfig  # takes two seconds to import
    from kubeflow.optimizer import (
        Objective,
        OptimizerClient,
        RandomSearch,
        Search,
        TrainJobTemplate,
        TrialConfig,
    )
    from kubeflow.trainer import CustomTrainer, TrainerClient

    backend = KubernetesBackendConfig(namespace=home, config_file=str(laptop.plane.kubeconfig))
    client = OptimizerClient(backend)
    plain = TrainerClient(backend).get_runtime("jax-distributed")  # torchrun takes seconds to begin
    name = client.optimize(
        trial_template=TrainJobTemplate(
            trainer=CustomTrainer(func=lose, num_nodes=1), runtime=plain
        ),
        trial_config=TrialConfig(num_trials=3, parallel_trials=2, max_failed_trials=1),
        search_space={
            "learning_rate": Search.loguniform(0.001, 0.1),
            "optimizer": Search.choice(["adam", "sgd"]),
        },
        objectives=[Objective(metric="loss", direction="minimize")],
        algorithm=RandomSearch(),
    )
    # The SDK asks for each Trial's TrainJob, and fails where a Trial is a moment older than it.
    wait_over(laptop, home, name)
    job = client.wait_for_job_status(name, timeout=patience_s(30), polling_interval=1)
    assert job.status == "Complete"
    assert len(job.trials) == 3
    assert [one.name for one in client.list_jobs()] == [name]
    best = client.get_best_results(name)
    (metric,) = best.metrics
    assert metric.name == "loss"
    losses = [float(one.metrics[0].min) for one in job.trials]
    assert float(metric.min) == min(losses)
    assert set(best.parameters) == {"learning_rate", "optimizer"}
    client.delete_job(name)
