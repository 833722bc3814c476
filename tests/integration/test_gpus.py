"""The GPUs of a machine that has some: jobs train on them by NCCL, each pod on its own."""

import re
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from conftest import CONTROLLERS, a_plane
from waiting import patience_s

from gangsched.local.gpus import WHOLE, machine_gpus
from gangsched.local.nodes import OF_MACHINE, read_nodes
from gangsched.local.plane import PlaneOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
MACHINE = machine_gpus()
COUNT = MACHINE.amounts().get(WHOLE, 0)
SEES = """
import os, torch
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.device_count())
"""
FORCES = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
import torch
print("sees", torch.cuda.device_count())
"""

pytestmark = pytest.mark.skipif(not COUNT, reason="nvidia-smi lists no whole GPU here")


@pytest.fixture(scope="module")
def owner():
    """What `gangsched local up --gpus` starts."""
    options = PlaneOptions(flags=(("kube-controller-manager", CONTROLLERS),))
    with a_plane("test-gpus", read_nodes(OF_MACHINE, "--gpus", MACHINE), options) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture
def home(owner):
    """A namespace with the example's program."""
    name = owner.new_namespace()
    data = {"train.py": (EXAMPLES / "train.py").read_text()}
    owner.core.create_namespaced_config_map(
        name, {"metadata": {"name": "ddp-digits"}, "data": data}
    )
    yield name
    owner.remove_namespace(name)


def pod(name: str, script: str, gpus: int, **fields) -> dict:
    """Return a pod that runs a script of Python."""
    limits = {"limits": {WHOLE: gpus}} if gpus else {}
    container = {
        "name": "main",
        "image": "none",
        "command": ["python3", "-uc", script],
        "resources": limits,
    }
    spec = {"schedulerName": "gangsched", "restartPolicy": "Never", "containers": [container]}
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | fields}


def log_of_ended(owner, home, name: str) -> str:
    """Return the log of a pod that has ended."""
    owner.wait(
        lambda: owner.core.read_namespaced_pod(name, home).status.phase in ("Succeeded", "Failed"),
        f"the end of {name}",
        patience_s(180),
    )
    return owner.kubectl("logs", "-n", home, name)


def test_the_example_trains_by_nccl_with_one_field_changed(owner, home):
    job = yaml.safe_load((EXAMPLES / "ddp-digits.yaml").read_text().replace("gloo", "nccl"))
    replicas = job["spec"]["pytorchReplicaSpecs"]
    replicas["Worker"]["replicas"] = COUNT - 1  # each rank needs a GPU of its own
    if COUNT == 1:
        del replicas["Worker"]
    owner.create_job(home, job)
    owner.wait(lambda: owner.is_true(home, "ddp-digits", "Succeeded"), "its end", patience_s(300))
    log = owner.kubectl("logs", "-n", home, "ddp-digits-master-0")
    model = re.escape(MACHINE.devices[0].gpu.model)
    assert re.search(rf"training on {COUNT} ranks by nccl, rank 0 on {model}", log), log
    losses = [float(text) for text in re.findall(r"loss ([0-9.]+)", log)]
    assert losses[-1] < 0.5 * losses[0]


def test_pods_hold_gpus_one_after_another(owner, home):
    for name in ("a", "b"):
        owner.apply(home, owner.yaml(pod(name, SEES, COUNT)))
    everything = ",".join(device.uuid for device in MACHINE.devices if device.resource == WHOLE)
    for name in ("a", "b"):
        assert f"sees {everything} {COUNT}" in log_of_ended(owner, home, name)


def test_a_pod_without_gpus_sees_none_whatever_it_sets(owner, home):
    if any(gpu.minor is None for gpu in MACHINE.gpus):
        pytest.skip("the driver does not list the device files of its GPUs")
    owner.apply(home, owner.yaml(pod("none", FORCES, 0)))
    assert "sees 0" in log_of_ended(owner, home, "none")


def test_a_killed_agent_gives_the_gpu_again(owner, home):
    holds = f"{SEES}\nimport time, sys\ntime.sleep(5000)"
    owner.apply(home, owner.yaml(pod("long", holds, COUNT)))

    def begun() -> int:
        return owner.kubectl("logs", "-n", home, "long", check=False).count("sees")

    owner.wait(begun, "it to run", patience_s(120))
    owner.restart("agent", hard=True)
    owner.wait(lambda: begun() > 1, "it to run again", patience_s(120))
    processes = owner.kubectl("exec", "-n", home, "long", "--", "ps", "-eo", "args")
    assert processes.count("time.sleep(5000)") == 1, processes
    owner.kubectl("delete", "pod", "-n", home, "long", "--grace-period=0")
