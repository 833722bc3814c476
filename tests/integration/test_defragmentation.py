"""Moving a gang for another on a real API server: `defragment: apply`."""

import os
import subprocess
import sys

import pytest
from cluster import Cluster
from conftest import a_plane
from test_racks import TOPOLOGY, likes, rack, worker
from waiting import patience_s

from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions, client_environment

NODES = NodeFile(nodes=(rack("a", 0), rack("b", 0)))


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    """Two racks of two nodes, and a scheduler that may move gangs."""
    folder = tmp_path_factory.mktemp("moves")
    config = folder / "config.yaml"
    config.write_text("defragment: apply\nadvice_interval_s: 0.2\n")
    with a_plane("test-moves", NODES, PlaneOptions(binding="off")) as plane:
        cluster = Cluster(plane, "direct")
        cluster.kubectl("apply", "-f", "-", stdin=TOPOLOGY)
        # Else the scheduler may begin with those nodes that are ready first.
        cluster.wait(
            lambda: all(is_ready(node) for node in cluster.core.list_node().items), "the nodes"
        )
        command = [sys.executable, "-m", "gangsched", "run", "--binding", "direct"]
        own = plane.folder / "gangsched.kubeconfig"  # least privilege, as it is deployed
        command += ["--config", str(config), "--kubeconfig", str(own)]
        with (plane.programs.logs / "gangsched.log").open("wb") as log:
            process = subprocess.Popen(
                command, env={**os.environ, **client_environment(plane)}, stdout=log, stderr=log
            )
            try:
                yield cluster
            finally:
                process.terminate()
                process.wait(patience_s(30))


def is_ready(node) -> bool:
    """Tell whether pods may be bound to a node."""
    conditions = node.status.conditions or []
    ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
    return ready and not node.spec.taints


def job(name: str, workers: int, gpus: int, annotations: dict[str, str], **spec) -> dict:
    """Return a PyTorchJob of workers."""
    template = worker(gpus)
    template["spec"]["containers"][0]["name"] = "pytorch"
    template["spec"] |= spec
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": template}}},
    }


def test_a_movable_gang_is_moved_and_runs_again(moving):
    space = moving.new_namespace()
    movable = {"gangsched.io/movable": "true"}
    moving.create_job(space, job("small", 1, 2, movable, affinity=likes("a0-0")))
    fixed = job("fixed", 1, 2, {}, affinity=likes("b0-0"))
    moving.create_job(space, fixed)
    before = moving.wait_placed(space, "", 2, 60)
    assert before == {"small-worker-0": "a0-0", "fixed-worker-0": "b0-0"}
    near = {"gangsched.io/topology-required": "rack"}
    moving.create_job(space, job("big", 2, 4, near))
    placed = moving.wait_placed(space, "big-worker-", 2, 60)
    assert sorted(placed.values()) == ["a0-0", "a0-1"]
    again = moving.wait(
        lambda: moving.bound(space, "small-worker-"), "the moved gang to run again", 60
    )
    assert set(again.values()) <= {"b0-0", "b0-1"}
    assert moving.bound(space, "fixed-") == {"fixed-worker-0": "b0-0"}
    assert not moving.overcommitted()
    moving.wait(
        lambda: any(f"Preempted by gang {space}/big" in text for _, text in moving.events(space)),
        "it to be told",
    )
    moving.remove_namespace(space)
