"""The gang of a job: how many pods start together, and which of them we place."""

import copy
import json

import pytest

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import GroupView, Observed
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.kube.decoding import podgroups
from gangsched.kube.decoding.metadata import decode_group
from gangsched.operators.kinds.training_job import parse

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
def test_an_elastic_job_with_a_full_rendezvous_starts_whole(command, least):
    assert minimum(body(*command, **ELASTIC)) == least


def test_a_minimum_that_is_asked_for_holds_for_such_a_job_too():
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}
    assert minimum(body(*STATIC.split(), **ELASTIC, **policy)) == 3


def test_other_kinds_have_no_such_command():
    assert not FRAMEWORKS["PaddleJob"].has_static_rendezvous({"spec": {"containers": []}})


def elsewhere(raw: dict, *roles: str, name="other") -> dict:
    """Have the pods of some roles name another scheduler."""
    for role in roles:
        raw["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["schedulerName"] = name
    return raw


def test_pods_of_another_scheduler_are_made_at_once_and_nothing_is_reserved_for_them():
    parsed = parse(elsewhere(body("train"), "Master", "Worker"), "gangsched", "PyTorchJob")
    actions = reconcile(parsed, Observed(), CLOCK)
    assert actions.put_group is None
    assert len(actions.create_pods) == 4
    for made in actions.create_pods:
        assert "schedulingGates" not in made["spec"]
        assert "gangsched.io/pod-group" not in made["metadata"]["labels"]
    late = reconcile(parsed, Observed(group=GroupView("g", "Pending")), CLOCK)
    assert late.delete_group


def test_a_scheduler_that_the_job_names_is_not_ours_either():
    raw = body("train", schedulerName="volcano")
    assert reconcile(parse(raw, "gangsched", "PyTorchJob"), Observed(), CLOCK).put_group is None
    ours = parse(raw, "gangsched", "PyTorchJob", ["volcano"])
    assert reconcile(ours, Observed(), CLOCK).put_group["spec"]["minMember"] == 4


def test_an_alias_in_a_template_is_ours():
    raw = elsewhere(body("train"), "Master", "Worker", name="volcano")
    parsed = parse(raw, "gangsched", "PyTorchJob", ["volcano"])
    assert reconcile(parsed, Observed(), CLOCK).put_group["spec"]["minMember"] == 4
    seen = Observed(group=GroupView("g", "Reserved", "", {"j-master-0": "n1"}))
    (made,) = reconcile(parsed, seen, CLOCK).create_pods
    assert "affinity" in made["spec"]


def test_the_pods_of_others_wait_for_ours_and_are_not_counted():
    parsed = parse(elsewhere(body("train"), "Master"), "gangsched", "PyTorchJob")
    group = reconcile(parsed, Observed(), CLOCK).put_group
    assert group["spec"]["minMember"] == 3
    assert [role["name"] for role in group["spec"]["roles"]] == ["Worker"]
    waits = GroupView("g", "Pending", spec=group["spec"])
    assert not reconcile(parsed, Observed(group=waits), CLOCK).create_pods
    places = {f"j-worker-{i}": "n" for i in range(3)}
    ready = GroupView("g", "Reserved", "", places, group["spec"])
    made = reconcile(parsed, Observed(group=ready), CLOCK).create_pods
    assert [pod["metadata"]["name"] for pod in made] == ["j-master-0", *places]


def test_a_minimum_counts_the_pods_of_others_too():
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}
    assert minimum(elsewhere(body("train", **policy), "Master")) == 2


@pytest.mark.parametrize(("policy", "priority"), [({}, 9), ({"priorityClass": "low"}, -3)])
@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "JAXJob"])
def test_a_job_waits_with_the_class_of_its_templates_unless_its_policy_has_one(
    kind, policy, priority
):
    framework = FRAMEWORKS[kind]
    container = {"name": framework.container, "image": "x"}
    template = {"spec": {"containers": [container], "priorityClassName": "high"}}
    roles = ["Launcher", "Worker"] if kind == "MPIJob" else ["Worker"]
    if kind == "XGBoostJob":
        roles.insert(0, "Master")
    raw = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {
            framework.specs: {role: {"replicas": 1, "template": template} for role in roles},
            "runPolicy": {"schedulingPolicy": policy},
        },
    }
    group = reconcile(parse(raw, "gangsched", kind), Observed(), CLOCK).put_group
    group["metadata"] |= {"namespace": "ns", "uid": "g"}
    gang, _, _ = podgroups.pod_group(
        decode_group(json.dumps(group).encode()), {"high": 9, "low": -3}
    )
    assert gang.priority == priority
