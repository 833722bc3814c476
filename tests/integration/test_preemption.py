"""A running DDP job is preempted by one of higher priority, and resumes from its checkpoint."""

import re
from pathlib import Path

import pytest
from test_pytorchjob import UNTIL_TOLD, tell

SCRIPT = Path(__file__).parents[2] / "examples" / "checkpoint.py"
PREAMBLE = """
import atexit, gc, os, sys
from pathlib import Path
gc.disable()  # it takes a third of the time of importing torch
atexit.register(gc.freeze)  # a collection at the exit takes a fifth of a short run
here = Path(__file__).parent
os.environ["STEPS"] = (here / "steps").read_text()
sys.stdout = (here / os.environ["HOSTNAME"]).open("a")
"""
"""How many steps a run makes, and what it says, are in files: a pod's log goes with the pod."""

MANY = 1_000_000
"""Steps that take more than a day."""

pytestmark = pytest.mark.torch


def job(name, gpus, command, **spec) -> dict:
    container = {
        "name": "pytorch",
        "image": "none",
        "command": command,
        "env": [{"name": "PAUSE_S", "value": "0.1"}, *spec.pop("env", [])],
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": str(gpus)}},
        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
    }
    path = spec.pop("path")
    volume = {"name": "checkpoints", "hostPath": {"path": str(path)}}
    template = {
        "spec": {
            "containers": [container],
            "volumes": [volume],
            "terminationGracePeriodSeconds": 600,
        }
    }
    role = {"restartPolicy": "Never", "template": template}
    roles = {"Master": {"replicas": 1, **role}, "Worker": {"replicas": 1, **role}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles, **spec},
    }


def steps(log: str) -> dict[int, float]:
    return {int(n): float(loss) for n, loss in re.findall(r"step (\d+) loss ([\d.]+)", log)}


@pytest.fixture
def space(laptop):
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


def test_a_ddp_job_saves_leaves_and_goes_on(laptop, space, tmp_path):
    from kubernetes import client

    priority = f"urgent-{space}"
    client.SchedulingV1Api(laptop.api).create_priority_class(
        {"metadata": {"name": priority}, "value": 1000}
    )
    (tmp_path / "train.py").write_text(PREAMBLE + SCRIPT.read_text())
    (tmp_path / "steps").write_text(str(MANY))
    said = tmp_path / "train-master-0"
    env = [{"name": "CHECKPOINT", "value": "/checkpoints/last.pt"}]
    command = ["python", "/checkpoints/train.py"]
    laptop.create_job(space, job("train", 4, command, path=tmp_path, env=env))
    laptop.wait(lambda: said.exists() and len(steps(said.read_text())) > 10, "ten steps", 90)
    command = ["sh", "-c", UNTIL_TOLD, "/checkpoints"]
    urgent = job("urgent", 4, command, path=tmp_path)
    urgent["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": priority}}
    laptop.create_job(space, urgent)
    laptop.wait(lambda: "saved at step" in said.read_text(), "the checkpoint", 60)
    first_run = said.read_text()
    before = steps(first_run)
    saved = max(before) + 1
    laptop.wait(lambda: laptop.is_true(space, "urgent", "Running"), "the urgent job", 90)
    assert not laptop.is_true(space, "train", "Succeeded"), "giving way is no success"
    (tmp_path / "steps").write_text(str(saved + 10))
    tell(tmp_path)
    laptop.wait(lambda: laptop.is_true(space, "urgent", "Succeeded"), "its end", 90)
    laptop.wait(lambda: laptop.is_true(space, "train", "Succeeded"), "the first job", 120)
    after = steps(said.read_text().removeprefix(first_run))
    assert min(after) == saved, "it goes on where it was saved"
    assert max(after) == saved + 9
    assert after[saved] < before[0], "its loss goes on falling"
    assert abs(after[saved] - before[max(before)]) < 0.5 * before[max(before)] + 1e-3
    laptop.wait_event(space, "Preempted", f"Preempted by gang {space}/urgent")
