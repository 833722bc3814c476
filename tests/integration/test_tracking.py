"""A real MLflow server: every job has exactly one run there, read with MLflow's client.

`make tracking` installs MLflow in an environment of its own, and runs this.
"""

import json
import subprocess
from pathlib import Path

import pytest
from cluster import Cluster
from conftest import CONTROLLERS, PROCESS, a_plane
from pages import Shell
from test_job_preemption import alone, work
from test_pytorchjob import UNTIL_TOLD, tell
from waiting import patience_s

from gangsched.local import components
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions
from gangsched.local.restart import restart
from gangsched.local.tracking.mlflow_server import mlflow_programs

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "build" / "tracking.json"
INSTALLED = any((components.cache() / "mlflow").glob("*/complete"))
READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
ids = [one.experiment_id for one in client.search_experiments()]
runs = []
for run in client.search_runs(ids):
    losses = client.get_metric_history(run.info.run_id, "loss")
    runs.append({"id": run.info.run_id, "status": run.info.status, "tags": dict(run.data.tags),
                 "experiment": client.get_experiment(run.info.experiment_id).name,
                 "params": run.data.params, "loss": [[m.step, m.value] for m in losses]})
print(json.dumps(runs))
"""
RESUMES = """
import os, pathlib, sys, time
import mlflow
folder = pathlib.Path(sys.argv[1])
begun = len(list(folder.glob("begun-*")))
mlflow.start_run()
mlflow.log_metric("loss", float(begun), step=begun)
(folder / f"begun-{begun}").write_text(mlflow.active_run().info.run_id)
while not begun:
    time.sleep(0.1)
mlflow.end_run()
"""
SCORES = """
import sys
import mlflow
with mlflow.start_run():
    mlflow.log_metric("loss", float(sys.argv[1]), step=0)
print(f"score={sys.argv[1]}")
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not INSTALLED, reason="make tracking installs MLflow"),
]


@pytest.fixture(scope="module")
def tracked():
    """What `gangsched local up --tracking` starts."""
    flags = (("kube-controller-manager", CONTROLLERS),)
    options = PlaneOptions(tracking=True, flags=flags)
    with a_plane("test-tracking", NodeFile(nodes=(PROCESS,)), options) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture
def home(tracked):
    name = tracked.new_namespace()
    yield name
    tracked.remove_namespace(name)


@pytest.fixture(scope="module")
def python() -> str:
    return str(mlflow_programs(lambda _: None) / "python")


def all_runs(tracked, python) -> list[dict]:
    """Return every run of the server, read with MLflow's client."""
    done = subprocess.run(
        [python, "-c", READ, tracked.plane.info()["mlflow"]],
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def runs_of(tracked, python, job: str) -> list[dict]:
    """Return the runs of a job, such as `PyTorchJob team/train`."""
    every = all_runs(tracked, python)
    return [run for run in every if run["tags"].get("gangsched.job") == job]


def wait_ended(tracked, python, job: str, status: str = "FINISHED") -> dict:
    """Return the only run of a job once it has ended."""

    def only() -> dict | None:
        (run,) = runs_of(tracked, python, job) or [{}]
        is_over = run.get("status") == status and "gangsched.outcome" in run["tags"]
        return run if is_over else None

    return tracked.wait(only, f"the run of {job} to end", 60)


def test_a_job_of_two_ranks_has_one_run(tracked, home, python):
    tracked.kubectl("create", "configmap", "tracked", "-n", home, "--from-file=examples/tracked.py")
    text = (ROOT / "examples" / "tracked.yaml").read_text().replace("python-with-mlflow", python)
    tracked.apply(home, text)
    tracked.wait(lambda: tracked.is_true(home, "tracked", "Succeeded"), "the job to succeed", 90)
    run = wait_ended(tracked, python, f"PyTorchJob {home}/tracked")
    assert run["experiment"] == "digits"
    assert run["params"] == {"lr": "0.05"}
    assert [step for step, _ in run["loss"]] == list(range(20))
    assert run["loss"][-1][1] < run["loss"][0][1]
    tags = run["tags"]
    assert tags["gangsched.queue"] == "default"
    assert tags["gangsched.gang"] == f"{home}/tracked"
    assert tags["gangsched.outcome"] == "Succeeded"
    assert float(tags["gangsched.wait_s"]) > 0
    assert float(tags["gangsched.gpu_s"]) > 0
    pods = tracked.core.list_namespaced_pod(home).items
    assert set(tags["gangsched.nodes"].split(", ")) == {pod.spec.node_name for pod in pods}
    link = f"/runs/{run['id']}"
    tracked.wait(
        lambda: (
            tracked.job(home, "tracked")["metadata"]["annotations"]
            .get("gangsched.io/tracking-run", "")
            .endswith(link)
        ),
        "the address on the job",
    )


def test_the_page(tracked, home, tmp_path):
    said = Shell(tmp_path, tracked.plane.kubeconfig, home).walk("docs/jobs/tracking.md")
    (shown,) = [text for line, text in said.items() if line.endswith("grep tracking-run")]
    assert tracked.plane.info()["mlflow"] in shown


def test_a_preempted_job_resumes_its_run_also_after_a_restart_of_gangsched(
    tracked, home, python, tmp_path
):
    from kubernetes import client

    priority = f"urgent-{home}"
    client.SchedulingV1Api(tracked.api).create_priority_class(
        {"metadata": {"name": priority}, "value": 1000}
    )
    container = {
        "name": "pytorch",
        "image": "none",
        "command": [python, "-c", RESUMES, str(tmp_path)],
        "resources": {"limits": {"nvidia.com/gpu": "4"}},
        "volumeMounts": [{"name": "folder", "mountPath": str(tmp_path)}],
    }
    volume = {"name": "folder", "hostPath": {"path": str(tmp_path)}}
    spec = {"containers": [container], "volumes": [volume]}
    role = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": spec}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "resumes"},
        "spec": {"pytorchReplicaSpecs": {"Master": role}},
    }
    tracked.create_job(home, body)
    tracked.wait((tmp_path / "begun-0").exists, "the job to log", 60)
    restart(tracked.plane, "gangsched")
    urgent = work(tmp_path, UNTIL_TOLD, priorityClassName=priority)
    tracked.kubectl("create", "-n", home, "-f", "-", stdin=tracked.yaml(alone("urgent", urgent)))
    tracked.wait_event(home, "Preempted")
    tell(tmp_path)
    tracked.wait(lambda: tracked.is_true(home, "resumes", "Succeeded"), "the job to succeed", 120)
    run = wait_ended(tracked, python, f"PyTorchJob {home}/resumes")
    ids = [(tmp_path / f"begun-{start}").read_text() for start in range(2)]
    assert ids == [run["id"]] * 2
    assert run["loss"] == [[0, 0.0], [1, 1.0]]


def test_trials_are_nested_runs(tracked, home, python):
    container = {
        "name": "main",
        "image": "none",
        "command": [python, "-c", SCORES, "${trialParameters.x}"],
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    template = {
        "primaryContainerName": "main",
        "trialParameters": [{"name": "x", "reference": "x"}],
        "trialSpec": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }
    space = {"min": "0.5", "max": "2"}
    body = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "search"},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "score"},
            "algorithm": {"algorithmName": "random"},
            "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": space}],
            "parallelTrialCount": 2,
            "maxTrialCount": 2,
            "maxFailedTrialCount": 1,
            "trialTemplate": template,
        },
    }
    tracked.custom.create_namespaced_custom_object(
        "kubeflow.org", "v1beta1", home, "experiments", body
    )
    parent = wait_ended(tracked, python, f"Experiment {home}/search")
    listed = tracked.custom.list_namespaced_custom_object("kubeflow.org", "v1beta1", home, "trials")
    trials = [item["metadata"]["name"] for item in listed["items"]]
    assert len(trials) == 2
    for trial in trials:
        run = wait_ended(tracked, python, f"Trial {home}/{trial}")
        assert run["tags"]["mlflow.parentRunId"] == parent["id"]
        assert run["experiment"] == parent["experiment"]
        ((_, value),) = run["loss"]
        assert float(run["tags"]["gangsched.parameter.x"]) == pytest.approx(value)
    assert not runs_of(tracked, python, f"Job {home}/{trials[0]}")


def test_a_server_that_is_down_stops_no_job(tracked, home, python):
    tracked.plane.programs.stop("mlflow")
    try:
        container = {"name": "pytorch", "image": "none", "command": ["true"]}
        role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "alone"},
            "spec": {"pytorchReplicaSpecs": {"Master": role}},
        }
        tracked.create_job(home, body)
        tracked.wait(lambda: tracked.is_true(home, "alone", "Succeeded"), "the job to succeed", 60)
        tracked.wait_event(home, "TrackingLate", "no run on the tracking server yet")
    finally:
        tracked.plane.programs.restart("mlflow")
    run = wait_ended(tracked, python, f"PyTorchJob {home}/alone")
    assert run["tags"]["gangsched.outcome"] == "Succeeded"


def test_the_manifest_is_taken(tracked):
    strict = ("--server-side", "--force-conflicts", "--validate=strict")
    for name, more in (("rbac", ()), ("mlflow", ("--dry-run=server",))):
        if name == "mlflow":
            tracked.core.create_namespace({"metadata": {"name": "mlflow"}})
        path = ROOT / "manifests" / "tracking" / f"{name}.yaml"
        assert "serverside-applied" in tracked.kubectl("apply", *strict, *more, "-f", str(path))


def test_every_job_had_exactly_one_run(tracked, python):
    """It runs last: each run of the server belongs to a job, and each job has one run."""
    runs = all_runs(tracked, python)
    jobs = {run["tags"].get("gangsched.job_uid") for run in runs}
    assert len(jobs) >= 6
    result = {"mlflow_runs_per_job": len(runs) / len(jobs), "jobs": len(jobs)}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result))
    assert result["mlflow_runs_per_job"] == 1
    assert None not in jobs
