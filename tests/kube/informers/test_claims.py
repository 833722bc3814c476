"""Claims of pods: a bound claim selects the nodes of its volume; others are awaited."""

import json

import pytest
from builders import POLICIES

from gangsched.config import SchedulerConfig
from gangsched.core.model.pods import Expression, NodeTerm
from gangsched.kube.informers.volumes import watched
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics


@pytest.fixture
def cluster():
    """Return a scheduler that does nothing, and what its watches tell, kind by kind."""
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics())
    scheduler.driver.execute = lambda _: None
    found = watched(scheduler.volumes, scheduler.metrics)
    there = {kind: one for kind, (_, one, _) in found.items()}
    there |= {"Pod": scheduler.informers.pods, "PodGroup": scheduler.informers.pod_groups}
    return scheduler, there


def written(name: str, namespace: str = "ns", **fields) -> bytes:
    metadata = {"name": name, "namespace": namespace, "uid": name, **fields.pop("metadata", {})}
    return json.dumps({"metadata": metadata, **fields}).encode()


def claim(volume: str = "v", phase: str = "Bound", *modes: str) -> bytes:
    return written(
        "c", spec={"volumeName": volume, "accessModes": list(modes)}, status={"phase": phase}
    )


def volume(*nodes: str, of: str = "c", labels=None) -> bytes:
    terms = [
        {"matchExpressions": [{"key": "host", "operator": "In", "values": [one]}]} for one in nodes
    ]
    spec = {"claimRef": {"namespace": "ns", "name": of}}
    if nodes:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return written("v", "", spec=spec, metadata={"labels": labels or {}})


def pod(**spec) -> bytes:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    return written("p", spec={"schedulerName": "gangsched", "volumes": volumes, **spec})


def needs(scheduler):
    return scheduler.engine.view.pod("p").needs


def on(*hosts: str, **zones: str) -> tuple[NodeTerm, ...]:
    where = tuple(Expression(f"topology.kubernetes.io/{k}", "In", (v,)) for k, v in zones.items())
    return tuple(NodeTerm((Expression("host", "In", (host,)), *where)) for host in hosts)


UNKNOWN = {
    "no claim": ([], "there is no such claim"),
    "a claim that waits": ([("PersistentVolumeClaim", claim("", "Pending"))], "it is not bound"),
    "a claim without its volume": (
        [("PersistentVolumeClaim", claim())],
        "its volume is not there",
    ),
    "a volume of another claim": (
        [("PersistentVolumeClaim", claim()), ("PersistentVolume", volume(of="other"))],
        "its volume is not there",
    ),
    "a volume for one pod": (
        [("PersistentVolumeClaim", claim("v", "Bound", "ReadWriteOncePod"))],
        "its volume is for one pod alone",
    ),
    "a volume of very many nodes": (
        [
            ("PersistentVolumeClaim", claim()),
            ("PersistentVolume", volume(*(f"n{index}" for index in range(65)))),
        ],
        "its volume names too many nodes",
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_known_of_a_claim_is_said(cluster, case):
    scheduler, there = cluster
    before, why = UNKNOWN[case]
    for kind, raw in before:
        there[kind].on_update(raw)
    there["Pod"].on_update(pod())
    assert needs(scheduler).unmodelled_constraints == (f"PersistentVolumeClaim c ({why})",)


@pytest.mark.parametrize("last", ["PersistentVolumeClaim", "PersistentVolume", "Pod"])
def test_a_bound_claim_restricts_to_its_nodes_whatever_is_seen_last(cluster, last):
    scheduler, there = cluster
    told = {"PersistentVolumeClaim": claim(), "PersistentVolume": volume("a", "b"), "Pod": pod()}
    for kind in (*(one for one in told if one != last), last):
        there[kind].on_update(told[kind])
    assert (needs(scheduler).required, needs(scheduler).unmodelled_constraints) == (
        on("a", "b"),
        (),
    )
    assert not scheduler.volumes._waits


def test_what_a_pod_requires_itself_holds_as_well(cluster):
    scheduler, there = cluster
    there["PersistentVolumeClaim"].on_update(claim())
    there["PersistentVolume"].on_update(volume("a", labels={"topology.kubernetes.io/zone": "z"}))
    wanted = {"key": "gpu", "operator": "Exists"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}, {}]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    there["Pod"].on_update(pod(affinity={"nodeAffinity": {key: required}}))
    (term,) = on("a", zone="z")
    assert needs(scheduler).required == (NodeTerm((Expression("gpu", "Exists", ()), *term.labels)),)


def test_a_volume_of_any_node_restricts_nothing(cluster):
    scheduler, there = cluster
    there["PersistentVolumeClaim"].on_update(claim())
    there["PersistentVolume"].on_update(volume())
    there["Pod"].on_update(pod())
    assert (needs(scheduler).required, needs(scheduler).unmodelled_constraints) == ((), ())


def test_templates_are_read_again_once_their_claim_is_bound(cluster):
    scheduler, there = cluster
    template = {"spec": json.loads(pod())["spec"]}
    roles = [{"name": "worker", "count": 1, "template": template}]
    there["PodGroup"].on_update(written("g", spec={"roles": roles}))

    def asked():
        (role,) = scheduler.engine.view.gangs["ns/g"].spec.roles
        return role.needs

    assert asked().unmodelled_constraints
    there["PersistentVolume"].on_update(volume("a"))
    there["PersistentVolumeClaim"].on_update(claim())
    assert (asked().required, asked().unmodelled_constraints) == (on("a"), ())


def test_a_deleted_pod_is_not_read_again(cluster):
    scheduler, there = cluster
    there["Pod"].on_update(pod())
    there["Pod"].on_delete("p", None)
    there["PersistentVolume"].on_update(volume("a"))
    there["PersistentVolumeClaim"].on_update(claim())
    assert scheduler.engine.view.pod("p") is None


def test_a_claim_that_was_deleted_is_not_there(cluster):
    scheduler, there = cluster
    there["PersistentVolume"].on_update(volume("a"))
    there["PersistentVolumeClaim"].on_update(claim())
    there["PersistentVolumeClaim"].on_delete("c", None)
    there["Pod"].on_update(pod())
    assert needs(scheduler).unmodelled_constraints == (
        "PersistentVolumeClaim c (there is no such claim)",
    )


def test_reading_commands_need_no_right_to_volumes():
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
    assert "PersistentVolumeClaim" not in scheduler.informers.first()
    scheduler.informers.pods.on_update(pod())
    assert needs(scheduler).unmodelled_constraints == ("PersistentVolumeClaim c",)
