"""An elastic job loses a node in training, goes on, and grows back when the node returns."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic"
LINE = re.compile(r"^step (\d+) loss (\S+) workers (\d+)$", re.MULTILINE)
OUT = {"key": "node.kubernetes.io/out-of-service", "value": "down", "effect": "NoExecute"}
"""What an administrator writes on a node that is down for good (non-graceful shutdown)."""


@pytest.fixture
def home(laptop):
    """A namespace on process nodes, with the program; every node is in service afterwards."""
    name = laptop.new_namespace()
    body = {
        "metadata": {"name": "elastic"},
        "data": {"train.py": (EXAMPLE / "train.py").read_text()},
    }
    laptop.core.create_namespaced_config_map(name, body)
    yield name
    for node in ("p-0", "p-1"):
        laptop.core.patch_node(node, {"spec": {"taints": None}})
    laptop.remove_namespace(name)


class Curve:
    """What the workers said, pod by pod: logs of pods that are gone are kept."""

    def __init__(self, laptop, namespace: str) -> None:
        self._laptop, self._namespace = laptop, namespace
        self._logs: dict[str, str] = {}

    def read(self) -> list[tuple[int, float, int]]:
        """Return steps, losses and numbers of workers so far, in the order of steps."""
        for pod in self._laptop.core.list_namespaced_pod(self._namespace).items:
            for previous in ("--previous=true", "--previous=false"):
                said = self._laptop.kubectl(
                    "logs", "-n", self._namespace, pod.metadata.name, previous, check=False
                )
                key = f"{pod.metadata.uid} {previous}"
                self._logs[key] = max(self._logs.get(key, ""), said, key=len)
        text = "\n".join(self._logs.values())
        found = {
            (int(step), float(loss), int(workers)) for step, loss, workers in LINE.findall(text)
        }
        return sorted(found)

    def workers(self) -> int:
        """Return how many workers made the last step."""
        curve = self.read()
        return curve[-1][2] if curve else 0


@pytest.mark.torch
def test_a_node_is_lost_and_returns_and_the_curve_goes_on(laptop, home):
    claim, job = yaml.safe_load_all((EXAMPLE / "job.yaml").read_text())
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["resources"]["limits"]["nvidia.com/gpu"] = 4  # a worker on each of two nodes
    job["spec"]["elasticPolicy"] |= {"minReplicas": 1, "maxReplicas": 2}
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    container["env"] = [{"name": "STEPS", "value": "100000"}]
    for body in (claim, job):
        laptop.apply(home, yaml.safe_dump(body))
    curve = Curve(laptop, home)
    laptop.wait(lambda: curve.workers() == 2, "two workers to train", 90)
    nodes = laptop.bound(home)
    home_of_first = nodes["elastic-worker-0"]
    (lost,) = {"p-0", "p-1"} - {home_of_first}
    staying = {pod for pod, node in nodes.items() if node == home_of_first}
    assert len(staying) == 1

    laptop.core.patch_node(lost, {"spec": {"taints": [OUT]}})
    laptop.wait(lambda: curve.workers() == 1, "one worker to go on", 120)
    conditions = laptop.conditions(home, "elastic")
    assert {"Running", "Restarting"} & {t for t, c in conditions.items() if c["status"] == "True"}
    laptop.wait(lambda: set(laptop.bound(home)) == staying, "the lost ones to be gone")

    laptop.core.patch_node(lost, {"spec": {"taints": None}})
    laptop.wait(lambda: curve.workers() == 2, "the job to grow back", 120)

    steps = curve.read()
    numbers = [step for step, _, _ in steps]
    assert sorted(set(numbers)) == list(range(numbers[-1] + 1)), "no step is missing"
    for (_, before, _), (_, after, _) in pairwise(steps):
        assert after < before * 1.2 + 0.01, "the curve goes on where it was"
    assert steps[-1][1] < steps[0][1]
