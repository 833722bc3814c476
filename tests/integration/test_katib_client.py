"""The client kubeflow-katib 0.19.0, unchanged, in an environment of its own (make katib)."""

import json
import subprocess
from pathlib import Path

import pytest
from test_experiments import GROUP, example, get, home, trials  # noqa: F401 -- a fixture
from waiting import patience_s

ROOT = Path(__file__).parents[2]
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
    return json.loads(line.removeprefix("ANSWERS "))


def test_tune_waits_reads_and_deletes(laptop, home):  # noqa: F811
    said = ask(laptop, home, "tuned")
    assert said["succeeded"]
    assert not said["failed"]
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
