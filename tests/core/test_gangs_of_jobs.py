"""What of a job is a gang: how many pods start together, and which of them are ours to place."""

import copy

import pytest

from gangsched.core.jobs.kinds import FRAMEWORKS
from gangsched.core.jobs.model import Observed
from gangsched.core.jobs.reconcile import reconcile
from gangsched.core.jobs.step import Clock
from gangsched.operators.parse import parse

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")


def body(*command: str, masters=1, workers=3, **spec) -> dict:
    """Return a PyTorchJob whose pods run a command."""
    container = {"name": "pytorch", "image": "x", "command": list(command)}
    template = {"spec": {"containers": [container]}}
    roles = {"Master": masters, "Worker": workers}
    replicas = {
        role: {"replicas": count, "template": copy.deepcopy(template)}
        for role, count in roles.items()
        if count
    }
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {"pytorchReplicaSpecs": replicas, **spec},
    }


def minimum(raw: dict) -> int:
    """Return how many pods of a job have to start together."""
    declared = reconcile(parse(raw, "gangsched", "PyTorchJob"), Observed(), CLOCK).put_group
    return declared["spec"]["minMember"]


ELASTIC = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}}
STATIC = (
    "python -m torch.distributed.launch --nnodes=$(WORLD_SIZE) --node_rank=$(RANK) "
    "--master_addr=$(MASTER_ADDR) train.py"
)


@pytest.mark.parametrize(
    ("command", "least"),
    [
        (STATIC.split(), 4),
        (["bash", "-c", STATIC], 4),
        (["torchrun", "--master-addr", "$(MASTER_ADDR)", "train.py"], 4),
        (["torchrun", "--nnodes=2:8", "train.py"], 3),
    ],
)
def test_an_elastic_job_whose_programs_wait_for_all_starts_whole(command, least):
    assert minimum(body(*command, **ELASTIC)) == least


def test_a_minimum_that_is_asked_for_holds_for_such_a_job_too():
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}
    assert minimum(body(*STATIC.split(), **ELASTIC, **policy)) == 3


def test_other_kinds_have_no_such_command():
    assert not FRAMEWORKS["PaddleJob"].waits_for_all({"spec": {"containers": []}})
