"""An elastic job loses a node in training, continues, and grows when the node returns."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic"
PREAMBLE = """
import atexit, gc, os, sys
gc.disable()  # it takes a third of the time of importing torch
atexit.register(gc.freeze)  # a collection at the exit takes a fifth of a short run
sys.stdout = open(f"/said/{os.environ['HOSTNAME']}", "a")
"""
"""What workers say is in files: a pod's log goes with the pod, be it before it was read."""

LINE = re.compile(r"^step (\d+) loss (\S+) workers (\d+)$", re.MULTILINE)
OUT = {"key": "node.kubernetes.io/out-of-service", "value": "down", "effect": "NoExecute"}
"""What an administrator writes on a node that is down for good (non-graceful shutdown)."""


@pytest.fixture
def home(laptop):
    """A namespace on process nodes, with the program; every node is in service afterwards."""
    name = laptop.new_namespace()
    program = PREAMBLE + (EXAMPLE / "train.py").read_text()
    body = {"metadata": {"name": "elastic"}, "data": {"train.py": program}}
    laptop.core.create_namespaced_config_map(name, body)
    yield name
    for node in ("p-0", "p-1"):
        laptop.core.patch_node(node, {"spec": {"taints": None}})
    laptop.remove_namespace(name)


def read(folder) -> list[tuple[int, float, int]]:
    """Return steps, losses and numbers of workers so far, in the order of steps."""
    text = "".join(path.read_text() for path in folder.iterdir())
    found = {(int(step), float(loss), int(workers)) for step, loss, workers in LINE.findall(text)}
    return sorted(found)


def workers(folder) -> int:
    """Return how many workers made the last step."""
    curve = read(folder)
    return curve[-1][2] if curve else 0


@pytest.mark.torch
def test_a_node_is_lost_and_returns_and_the_curve_goes_on(laptop, home, tmp_path):
    claim, job = yaml.safe_load_all((EXAMPLE / "job.yaml").read_text())
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["volumes"].append({"name": "said", "hostPath": {"path": str(tmp_path)}})
    (container,) = pod["containers"]
    container["volumeMounts"].append({"name": "said", "mountPath": "/said"})
    container["resources"]["limits"]["nvidia.com/gpu"] = 4  # a worker on each of two nodes
    job["spec"]["elasticPolicy"] |= {"minReplicas": 1, "maxReplicas": 2}
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    container["env"] = [{"name": "STEPS", "value": "100000"}, {"name": "PAUSE_S", "value": "0.5"}]
    for body in (claim, job):
        laptop.apply(home, yaml.safe_dump(body))
    laptop.wait(lambda: workers(tmp_path) == 2, "two workers to train", 90)
    nodes = laptop.bound(home)
    home_of_first = nodes["elastic-worker-0"]
    (lost,) = {"p-0", "p-1"} - {home_of_first}
    staying = {pod for pod, node in nodes.items() if node == home_of_first}
    assert len(staying) == 1

    laptop.core.patch_node(lost, {"spec": {"taints": [OUT]}})
    laptop.wait(lambda: workers(tmp_path) == 1, "one worker to go on", 120)
    laptop.wait(
        lambda: any(laptop.is_true(home, "elastic", kind) for kind in ("Running", "Restarting")),
        "the job to go on",
    )
    laptop.wait(lambda: set(laptop.bound(home)) == staying, "the lost ones to be gone")

    laptop.core.patch_node(lost, {"spec": {"taints": None}})
    laptop.wait(lambda: workers(tmp_path) == 2, "the job to grow back", 120)

    steps = read(tmp_path)
    numbers = [step for step, _, _ in steps]
    assert sorted(set(numbers)) == list(range(numbers[-1] + 1)), "no step is missing"
    for (_, before, _), (_, after, _) in pairwise(steps):
        assert after < before * 1.2 + 0.01, "the curve goes on where it was"
    assert steps[-1][1] < steps[0][1]
