"""The client kubeflow-katib 0.19.0, unchanged, in an environment of its own (make katib)."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from test_experiments import (
    conditions,
    create,
    example,
    get,
    home,  # noqa: F401 -- a fixture
    trials,
    wait_over,
)
from waiting import patience_s

from gangsched.jobs.katib.experiment import GENERATION_LABEL, PARENT_LABEL

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "build" / "katib.json"
PYTHON = ROOT / "build" / "katib" / "bin" / "python"
CLIENT = Path(__file__).with_name("katib") / "client.py"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON.exists(), reason="make katib installs the client"),
]


def ask(laptop, namespace: str, part: str, *arguments: str) -> dict:
    """Return the answers of Katib's client."""
    command = [PYTHON, CLIENT, laptop.plane.kubeconfig, namespace, part, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience_s(400), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ANSWERS "))
    answers = json.loads(line.removeprefix("ANSWERS "))
    record(answers["calls"], answers["public"])
    return answers


CALLS: dict[str, list[int]] = {}


def record(calls: dict[str, list[int]], public: list[str]) -> None:
    """Write which share of the client's public calls was made, and always ended well."""
    for name, (ended_well, made) in calls.items():
        before = CALLS.setdefault(name, [0, 0])
        CALLS[name] = [before[0] + ended_well, before[1] + made]
    ok = [name for name in public if name in CALLS and CALLS[name][0] == CALLS[name][1]]
    RESULT.parent.mkdir(exist_ok=True)
    share = {
        "katib_client_calls": len(public),
        "katib_client_calls_ok_share": len(ok) / len(public),
    }
    RESULT.write_text(json.dumps(share))


@pytest.fixture
def metrics_address(laptop, home):  # noqa: F811
    """The address at which `gangsched trial-metrics` serves the namespace."""
    command = [sys.executable, "-m", "gangsched", "trial-metrics", "--port", "0"]
    command += ["--kubeconfig", laptop.plane.kubeconfig, "--namespace", home]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith(f"Serving the metrics of Trials in namespace {home} on 127.0.0.1:")
        yield line.split()[-1].removesuffix(".")
        process.terminate()


def test_tune_waits_reads_and_deletes(laptop, home, metrics_address):  # noqa: F811
    said = ask(laptop, home, "tuned", metrics_address)
    assert said["succeeded"]
    assert said["created"]
    assert not said["failed"]
    assert not said["running"]
    assert not said["restarting"]
    assert said["experiment"] == "tuned"
    assert [line for line in said["job_log"] if line.startswith("score=")]
    assert said["conditions"] == ["Created", "Running", "Succeeded"]
    assert said["experiments"] == said["suggestions"] == ["tuned"]
    assert len(said["trials"]) == 3
    assert said["suggested"] == said["trials"]
    assert said["trial"] in said["trials"]
    best = said["best"]
    scores = {}
    for one in said["details"]:
        point = {name: float(value) for name, value in one["point"].items()}
        scores[one["name"]] = 4 - (point["x"] - 1) ** 2 - (point["y"] - 3) ** 2
    assert best["trial"] == max(scores, key=scores.get)
    for name, log in said["logs"].items():
        assert {metric for metric, _ in log} == {"score"}
        shares = [float(value) / scores[name] for _, value in log]
        assert shares == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-4)
    assert float(best["metrics"]["score"]) == pytest.approx(scores[best["trial"]], abs=1e-5)
    laptop.wait(lambda: not trials(laptop, home), "the trials to go with their experiment", 60)


def test_an_experiment_is_created_and_its_budget_is_raised(laptop, home, tmp_path):  # noqa: F811
    body = example()
    body["spec"] |= {"maxTrialCount": 2, "parallelTrialCount": 2, "maxFailedTrialCount": 1}
    body["spec"]["resumePolicy"] = "LongRunning"
    body["spec"]["objective"].pop("goal")
    (tmp_path / "search.json").write_text(json.dumps(body))
    assert ask(laptop, home, "created", str(tmp_path / "search.json"))["trials"] == 2
    laptop.wait(
        lambda: get(laptop, home)["status"].get("trialsSucceeded") == 3, "a third trial", 60
    )
    said = ask(laptop, home, "best", "search")
    assert said["trials"] == 3
    assert said["best"] == get(laptop, home)["status"]["currentOptimalTrial"]["bestTrialName"]


def job(code: str, *arguments: str, python: Path | str = "python") -> dict:
    """Return the template of a Job that runs code."""
    container = {"name": "main", "image": "python"}
    container["command"] = [str(python), "-u", "-c", code, *arguments]
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "primaryContainerName": "main",
        "trialParameters": [{"name": name, "reference": name} for name in ("x", "epochs")],
        "trialSpec": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }


def search(name: str, template: dict, settings: dict | None = None, **spec) -> dict:
    listed = [{"name": key, "value": value} for key, value in (settings or {}).items()]
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "score"},
            "algorithm": {"algorithmName": "random", "algorithmSettings": listed},
            "parameters": [
                {
                    "name": "x",
                    "parameterType": "double",
                    "feasibleSpace": {"min": "0.5", "max": "2"},
                },
                {
                    "name": "epochs",
                    "parameterType": "int",
                    "feasibleSpace": {"min": "1", "max": "4"},
                },
            ],
            "parallelTrialCount": min(5, spec.get("maxTrialCount", 2)),
            "maxTrialCount": 2,
            "maxFailedTrialCount": 1,
            "trialTemplate": template,
            **spec,
        },
    }


X, EPOCHS = "${trialParameters.x}", "${trialParameters.epochs}"
TRAINS = """
import json, pathlib, sys
x, epochs, folder = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
state = pathlib.Path(folder, "state")
done = json.loads(state.read_text()) if state.exists() else []
done.append(x)
state.write_text(json.dumps(done))
print(f"generations={len(done)}")
print(f"score={sum(done) * epochs}")
"""
REPORTS = """
import sys
from kubeflow import katib
katib.report_metrics({"score": sys.argv[1], "loss": 0.5})
katib.report_metrics({"score": float(sys.argv[1]) + int(sys.argv[2])})
"""
WRITES = """
import json, sys
with open("/metrics/log.json", "w") as file:
    for epoch in range(int(sys.argv[2])):
        print(json.dumps({"score": float(sys.argv[1]) + epoch, "epoch": epoch}), file=file)
"""


def ended_trials(laptop, namespace: str, body: dict) -> list[dict]:
    """Run a search to its end; return its trials."""
    create(laptop, namespace, body)
    done = wait_over(laptop, namespace, body["metadata"]["name"])
    listed = trials(laptop, namespace)
    assert "Succeeded" in conditions(done), (done["status"], [one["status"] for one in listed])
    return listed


def point(one: dict) -> tuple[float, int]:
    given = {item["name"]: item["value"] for item in one["spec"]["parameterAssignments"]}
    return float(given["x"]), int(given["epochs"])


def metric(one: dict, name: str) -> dict[str, float]:
    listed = {item["name"]: item for item in one["status"]["observation"]["metrics"]}
    return {key: float(listed[name][key]) for key in ("min", "max", "latest")}


def test_a_population_continues_from_its_checkpoints(laptop, home):  # noqa: F811
    settings = {
        "suggestion_trial_dir": "/checkpoints",
        "n_population": "5",
        "truncation_threshold": "0.4",
        "random_state": "1",
    }
    body = search("grown", job(TRAINS, X, EPOCHS, "/checkpoints"), settings, maxTrialCount=15)
    body["spec"]["algorithm"]["algorithmName"] = "pbt"
    body["spec"]["objective"]["additionalMetricNames"] = ["generations"]
    listed = ended_trials(laptop, home, body)
    generations = [int(one["metadata"]["labels"][GENERATION_LABEL]) for one in listed]
    assert sorted(generations) == [0] * 5 + [1] * 5 + [2] * 5
    assert [metric(one, "generations")["max"] for one in listed] == [n + 1 for n in generations]
    assert laptop.json("pvc", "-n", home)["items"][0]["metadata"]["name"] == "grown-pbt"


def test_a_band_promotes_the_best(laptop, home):  # noqa: F811
    settings = {"r_l": "4", "eta": "2", "resource_name": "epochs"}
    folder = "/tmp"  # nothing is kept
    body = search("band", job(TRAINS, X, EPOCHS, folder), settings, maxTrialCount=100)
    body["spec"]["algorithm"]["algorithmName"] = "hyperband"
    body["spec"]["maxFailedTrialCount"] = 1
    listed = ended_trials(laptop, home, body)
    rungs = Counter((one["metadata"]["labels"][GENERATION_LABEL], point(one)[1]) for one in listed)
    assert rungs == {("0", 1): 4, ("1", 2): 2, ("2", 4): 1, ("0", 2): 3, ("1", 4): 2, ("0", 4): 3}
    first = {one["metadata"]["name"]: point(one)[0] for one in listed if point(one)[1] == 1}
    promoted = {
        one["metadata"]["labels"][PARENT_LABEL]
        for one in listed
        if one["metadata"]["labels"].get(PARENT_LABEL) in first
    }
    assert promoted == set(sorted(first, key=first.get)[-2:])


def test_metrics_that_the_client_reports(laptop, home):  # noqa: F811
    collector = {"collector": {"kind": "Push"}}
    template = job(REPORTS, X, EPOCHS, python=PYTHON)
    body = search("pushed", template, metricsCollectorSpec=collector)
    for one in ended_trials(laptop, home, body):
        x, epochs = point(one)
        assert metric(one, "score") == pytest.approx(
            {"min": x, "max": x + epochs, "latest": x + epochs}
        )


def test_metrics_in_a_file_of_json(laptop, home):  # noqa: F811
    place = {"path": "/metrics/log.json", "format": "JSON"}
    collector = {"collector": {"kind": "File"}, "source": {"fileSystemPath": place}}
    body = search("written", job(WRITES, X, EPOCHS), metricsCollectorSpec=collector)
    for one in ended_trials(laptop, home, body):
        x, epochs = point(one)
        last = x + epochs - 1
        assert metric(one, "score") == pytest.approx({"min": x, "max": last, "latest": last})


def test_a_template_in_a_config_map(laptop, home):  # noqa: F811
    template = job(TRAINS, X, EPOCHS, "/tmp")
    # Without quotes, Katib reads a placeholder as a number; a command takes only texts.
    text = yaml.safe_dump(template.pop("trialSpec"), default_style='"')
    laptop.core.create_namespaced_config_map(
        home, {"metadata": {"name": "templates"}, "data": {"job.yaml": text}}
    )
    template["configMap"] = {"configMapName": "templates", "templatePath": "job.yaml"}
    assert len(ended_trials(laptop, home, search("mapped", template))) == 2
