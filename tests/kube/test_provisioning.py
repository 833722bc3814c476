"""Requests for nodes as pure functions: which to create, and what an autoscaler may know."""

import json
from dataclasses import replace

import pytest
from builders import GPU, an_engine, needs, plan, waiting

from gangsched.autoscaling_config import ProvisioningConfig
from gangsched.core import facts as f
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Queue, Quota
from gangsched.kube.provisioning.decide import decide_requests
from gangsched.kube.provisioning.demand import GangDemand, GangDemands
from gangsched.kube.provisioning.karpenter.turns import NamespaceTurns
from gangsched.kube.provisioning.request import (
    NodeRequest,
    Phase,
    base_name,
    decode_requests,
    required_sets,
)
from gangsched.kube.provisioning.templates import PodTemplateError, pod_template

CONFIG = ProvisioningConfig(attempts=3, retry_s=60, requests_max=4, namespace_max=2)


def want(name: str, *, pods: int = 2, gpus: int = 8, lacks: bool = True) -> GangDemand:
    """Return a gang of the queue `q` that lacks nodes."""
    roles = (Role("worker", pods, pods, needs(gpus)),)
    pending = waiting(Gang(GangId(name), pods, roles, queue="q"))
    return GangDemand(
        GangId(name), base_name(GangId(name), 0.0, required_sets(pending)), pending, lacks
    )


def request(of: GangDemand, attempt: int = 1, phase: Phase = Phase.WAITING, **more) -> NodeRequest:
    base = of.base or "gangsched-" + "0" * 20
    namespace = of.gang.partition("/")[0]
    name, gang = f"{base}-{attempt}", of.gang
    known = NodeRequest(namespace, name, f"u-{name}", gang, base, attempt, "c", phase)
    return replace(known, **more)


def decided(wants, requests=(), *, quota: int = 1000, now_s: float = 1000.0):
    engine = an_engine()
    queue = Queue("q", quotas=(Quota(GPU, quota * 1000, borrowing=0),))
    engine.observe(f.QueueSeen(queue), 0.0)
    ledger = engine.view.ledger
    return decide_requests(wants, requests, ledger.usage, ledger.gpu_types, CONFIG, now_s)


def created(decision) -> list[tuple[str, int]]:
    return [(one.gang, attempt) for one, attempt in decision.create]


def test_a_gang_that_lacks_nodes_gets_one_request():
    gang = want("ns/a")
    assert created(decided([gang])) == [("ns/a", 1)]
    again = decided([gang], [request(gang)])
    assert (again.create, again.delete) == ([], [])
    assert again.live == {gang.gang: request(gang)}


def test_a_gang_that_lacks_no_nodes_gets_none_and_keeps_what_it_has():
    gang = want("ns/a", lacks=False)
    assert created(decided([gang])) == []
    assert decided([gang], [request(gang)]).delete == []


def test_quota_for_one_gang_is_one_request():
    first, second = want("ns/a"), want("ns/b")
    assert created(decided([first, second], quota=16)) == [("ns/a", 1)]
    assert created(decided([first, second], quota=32)) == [("ns/a", 1), ("ns/b", 1)]
    # What runs is not given up for a gang that comes earlier in the order.
    kept = decided([first, second], [request(second)], quota=16)
    assert (created(kept), kept.delete) == ([], [])
    lost = decided([first], [request(first)], quota=8)
    assert lost.delete == [request(first)]


def test_no_namespace_uses_all_requests():
    gangs = [want(f"{space}/{at}") for space in ("x", "y", "z") for at in range(3)]
    made = created(decided(gangs))
    assert made == [("x/0", 1), ("x/1", 1), ("y/0", 1), ("y/1", 1)]


@pytest.mark.parametrize("end", [Phase.FAILED, Phase.EXPIRED, Phase.REVOKED])
def test_an_ended_request_is_followed_after_a_pause_that_doubles(end):
    gang = want("ns/a")
    ended = request(gang, 2, end, since_s=1000.0)
    assert created(decided([gang], [ended], now_s=1119.0)) == []
    assert created(decided([gang], [ended], now_s=1120.0)) == [("ns/a", 3)]
    last = request(gang, 3, end, since_s=0.0)
    late = decided([gang], [last], now_s=1e9)
    assert (created(late), late.delete) == ([], []), "the record of the attempts stays"


def test_requests_of_gangs_that_changed_or_are_gone_are_deleted():
    gang, other = want("ns/a"), want("ns/a", gpus=4)
    old = request(other, 1)
    decision = decided([gang], [old])
    assert decision.delete == [old]
    assert created(decision) == [("ns/a", 1)]
    assert decided([], [request(gang)]).delete == [request(gang)]
    twice = decided([gang], [request(gang, 1, Phase.FAILED), request(gang, 2)])
    assert twice.delete == [request(gang, 1, Phase.FAILED)]


def test_a_gang_that_has_its_nodes_keeps_its_request_whatever_its_quota():
    gang = want("ns/a")
    placed = GangDemand(gang.gang)
    assert decided([placed], [request(gang)], quota=0).delete == []


# -- answers -------------------------------------------------------------------------------------


def written(name: str, gang: str, namespace: str = "ns", *conditions: dict) -> dict:
    metadata = {"name": name, "namespace": namespace, "uid": "u"}
    metadata["annotations"] = {"gangsched.io/gang": gang}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": list(conditions)}}


def read(*items: dict):
    return decode_requests(json.dumps({"items": items}).encode())[0]


NAME = "gangsched-" + "a" * 20


@pytest.mark.parametrize(
    ("name", "gang"),
    [
        (f"{NAME}-1", "other/a"),  # a user's object that names a gang of others
        (f"{NAME}-0", "ns/a"),
        (f"{NAME}-12345", "ns/a"),
        (NAME, "ns/a"),
        ("mine", "ns/a"),
    ],
)
def test_objects_of_users_with_our_label_are_ignored(name, gang):
    assert read(written(name, gang)) == []


def test_the_worst_condition_counts_and_time_may_be_missing():
    true = {"status": "True"}
    listed = [{"type": one} | true for one in ("Accepted", "Provisioned", "CapacityRevoked")]
    (found,) = read(written(f"{NAME}-7", "ns/a", "ns", *listed))
    assert (found.phase, found.attempt, found.since_s) == (Phase.REVOKED, 7, 0.0)
    (waits,) = read(written(f"{NAME}-7", "ns/a", "ns", {"type": "Failed", "status": "False"}))
    assert waits.phase is Phase.WAITING


# -- templates -----------------------------------------------------------------------------------


def test_a_template_has_what_decides_about_nodes_and_nothing_else():
    secret = {"name": "KEY", "value": "secret"}
    container = {"image": "x", "env": [secret], "command": ["secret"], "resources": {}}
    container["resources"] = {"limits": {GPU: "8"}, "claims": ["secret"]}
    pod = {
        "metadata": {"labels": {"a": "secret"}, "annotations": {"b": "secret"}},
        "spec": {
            "nodeSelector": {"pool": "p"},
            "containers": [container],
            "serviceAccountName": "secret",
            "volumes": [{"secret": {"secretName": "secret"}}],
        },
    }
    made = pod_template("t", pod, {"name": "r"})
    assert "secret" not in json.dumps(made)
    assert made["template"]["spec"] == {
        "nodeSelector": {"pool": "p"},
        "containers": [{"name": "c0", "image": "none", "resources": {"limits": {GPU: "8"}}}],
    }


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"resourceClaims": [{"name": "x"}]}, "resourceClaims"),
        ({"containers": "x"}, "field containers of its template is no list of mappings"),
        ({"containers": ["x"]}, "field containers"),
        ({"affinity": "x" * 9}, "field affinity of its template is no mapping"),
        ({"nodeSelector": {"x": "y" * 70_000}}, "more than 65536 bytes"),
    ],
)
def test_what_cannot_be_described_is_said(spec, said):
    with pytest.raises(PodTemplateError, match=said):
        pod_template("t", {"spec": spec}, {})


# -- which gangs are looked at ------------------------------------------------------------------


def refused(*names: str):
    """Return the view of an engine without nodes, in which gangs of these names are refused."""
    engine = an_engine()
    for at, name in enumerate(names):
        role = Role("worker", 1, 1, needs(8))
        gang = Gang(GangId(name), 1, (role,), created_s=float(at + 1))
        engine.observe(f.GangSeen(gang), 100.0)
    plan(engine, 100.0)
    return engine


def looked_at(demands: GangDemands, now_s: float) -> list[str]:
    return [str(one.gang) for one in demands.wants(set(), now_s) if one.lacks]


def test_many_gangs_of_one_namespace_do_not_hide_those_of_others():
    engine = refused(*(f"many/g{number:03d}" for number in range(100)), "other/g")
    demands = GangDemands(engine.view, 0.0, requests_max=5, namespace_max=2)
    found = looked_at(demands, 100.0)
    assert found == [*(f"many/g{number:03d}" for number in range(8)), "other/g"]


def test_a_gang_that_was_looked_at_in_vain_makes_way_for_others():
    engine = refused("a/g0", "a/g1", "a/g2")
    demands = GangDemands(engine.view, 0.0, requests_max=1, namespace_max=1)
    demands.pause(GangId("a/g0"), 110.0)
    assert looked_at(demands, 105.0) == ["a/g1", "a/g2"]
    assert looked_at(demands, 110.0) == ["a/g0", "a/g1", "a/g2"]
    demands.pause(GangId("a/g0"), 200.0)
    changed = Gang(GangId("a/g0"), 2, (Role("worker", 2, 2, needs(8)),), created_s=1.0)
    engine.observe(f.GangSeen(changed), 111.0)
    plan(engine, 111.0)
    assert looked_at(demands, 111.0)[0] == "a/g0"


def test_namespaces_take_turns():
    turns = NamespaceTurns()
    lacking = [GangDemand(GangId(name)) for name in ("a/1", "a/2", "b/1", "c/1")]
    taken = [[str(one.gang) for one in turns.take(lacking, 2)] for _ in range(3)]
    assert taken == [["a/1", "b/1"], ["c/1", "a/1"], ["b/1", "c/1"]]
