"""Kubernetes JSON to facts: requests, groups, and unreadable fields."""

import json

import pytest

from gangsched.core.model.ids import GangId
from gangsched.kube.decoding import podgroups, pods
from gangsched.kube.decoding.cluster.nodes import node_fact
from gangsched.kube.decoding.metadata import decode_group
from gangsched.kube.decoding.quantities import DecodeError, quantity

GI = 2**30


def spec(containers, **more):
    """Return a decoded PodSpec."""
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": containers, "schedulerName": "gangsched", **more},
    }
    return pods.decode_pod(json.dumps(raw).encode()).spec


def c(cpu="0", limits=None, **more):
    """Return a container that requests so much CPU."""
    return {"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": limits or {}}, **more}


REQUESTS = {
    "containers add up": (spec([c("1"), c("500m")]), {"cpu": 1500}),
    "limits stand for absent requests": (
        spec([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]),
        {"nvidia.com/gpu": 2},
    ),
    "a large init container counts": (spec([c("1")], initContainers=[c("3")]), {"cpu": 3000}),
    "init containers do not add up": (
        spec([c("1")], initContainers=[c("3"), c("2")]),
        {"cpu": 3000},
    ),
    "a sidecar adds to the containers": (
        spec([c("1")], initContainers=[c("2", restartPolicy="Always")]),
        {"cpu": 3000},
    ),
    "an init container after a sidecar runs beside it": (
        spec([c("1")], initContainers=[c("1", restartPolicy="Always"), c("4")]),
        {"cpu": 5000},
    ),
    "overhead": (spec([c("1")], overhead={"cpu": "250m"}), {"cpu": 1250}),
    "pod level wins": (
        spec([c("1"), c("1")], resources={"requests": {"cpu": "5"}}),
        {"cpu": 5000},
    ),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_requests(case):
    given, expected = REQUESTS[case]
    assert dict(pods.pod_requests(given)) == expected


def status(**more):
    """Return the status of a pod whose one container has 2 cores, and 3 set aside for it."""
    has = {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}
    raw = {"metadata": {}, "spec": {}, "status": {"containerStatuses": [has]} | more}
    return pods.decode_pod(json.dumps(raw).encode()).status


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = INFEASIBLE | {"reason": "Deferred"}
SIDECARS = [c("1", restartPolicy="Always") | {"name": "s"}]
RESIZED = {
    "a shrink that is not done yet": (spec([c("1")]), status(), 3000),
    "a growth that is not done yet": (spec([c("4")]), status(), 4000),
    "a growth that has to wait": (spec([c("4")]), status(conditions=[DEFERRED]), 4000),
    "a growth that cannot be": (spec([c("4")]), status(conditions=[INFEASIBLE]), 3000),
    "a container without a status": (spec([c("4") | {"name": "d"}]), status(), 4000),
    "a status without resources": (
        spec([c("4")]),
        status(containerStatuses=[{"name": "c", "allocatedResources": {"cpu": "9"}}]),
        4000,
    ),
    "a sidecar": (
        spec([c("4") | {"name": "d"}], initContainers=SIDECARS),
        status(
            containerStatuses=[],
            initContainerStatuses=[{"name": "s", "resources": {"requests": {"cpu": "3"}}}],
        ),
        7000,
    ),
}


@pytest.mark.parametrize("case", RESIZED)
def test_a_pod_that_is_resized_in_place_takes_the_most_it_may_have(case):
    given, now, expected = RESIZED[case]
    assert dict(pods.needs(given, status=now).requests) == {"cpu": expected}


def test_a_sidecar_takes_its_host_ports_and_an_init_container_none():
    def listening(port, **more):
        return {"name": "x", "ports": [{"containerPort": 1, "hostPort": port}]} | more

    wants = pods.needs(
        spec(
            [listening(80)],
            initContainers=[listening(81, restartPolicy="Always"), listening(82)],
        )
    )
    assert [port for _, _, port in wants.host_ports] == [80, 81]


QUANTITIES = {
    ("cpu", "1"): 1000,
    ("cpu", "100m"): 100,
    ("cpu", "1.5"): 1500,
    ("cpu", 2): 2000,
    ("cpu", "1n"): 1,
    ("memory", "1Gi"): GI,
    ("memory", "1.5Gi"): 3 * GI // 2,
    ("memory", "1G"): 10**9,
    ("memory", "1e3"): 1000,
    ("memory", "100m"): 1,
    ("nvidia.com/gpu", "8"): 8,
}


@pytest.mark.parametrize(("resource", "value"), QUANTITIES)
def test_quantities(resource, value):
    assert quantity(resource, value) == QUANTITIES[resource, value]


@pytest.mark.parametrize("value", ["lots", "-1", "1GB", ""])
def test_bad_quantities_are_named(value):
    with pytest.raises(DecodeError, match="cpu: "):
        quantity("cpu", value)


def test_what_the_planner_does_not_model_is_named():
    wants = pods.needs(
        spec(
            [c()],
            volumes=[
                {"name": "d", "persistentVolumeClaim": {"claimName": "x"}},
                {"name": "e", "emptyDir": {}},
            ],
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
            topologySpreadConstraints=[{"maxSkew": 1}],
        )
    )
    assert wants.unmodelled_constraints == (
        "PersistentVolumeClaim x",
        "pod anti-affinity",
        "topology spread constraints",
    )


GROUPS = {
    "our label": ({"gangsched.io/pod-group": "g"}, "ns/g"),
    "coscheduling": ({"scheduling.x-k8s.io/pod-group": "g"}, "ns/scheduling.x-k8s.io:g"),
    "ours before others": (
        {"gangsched.io/pod-group": "a", "scheduling.x-k8s.io/pod-group": "b"},
        "ns/a",
    ),
    "alone": ({}, "ns/pod:p"),
}


def ours(spec=None, **metadata):
    """Return a pod that asks for our scheduler."""
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", **metadata},
        "spec": {"containers": [], "schedulerName": "gangsched", **(spec or {})},
    }
    return pods.decode_pod(json.dumps(raw).encode())


@pytest.mark.parametrize("case", GROUPS)
def test_grouping(case):
    labels, expected = GROUPS[case]
    pod = ours(labels=labels)
    assert pods.pod_fact(pod, frozenset({"gangsched"})).gang == GangId(expected)
    assert pods.pod_fact(pod, frozenset({"other"})).gang is None


@pytest.mark.parametrize(
    ("gates", "gated", "gated_by"),
    [
        ([], False, ""),
        (["gangsched.io/gang"], True, ""),
        (["a.io/b"], False, "a.io/b"),
        (["gangsched.io/gang", "a.io/b", "c.io/d"], True, "a.io/b"),
    ],
)
def test_our_gate_is_distinguished_from_others(gates, gated, gated_by):
    pod = ours({"schedulingGates": [{"name": gate} for gate in gates]})
    fact = pods.pod_fact(pod, frozenset({"gangsched"}))
    assert (fact.gated, fact.gated_by) == (gated, gated_by)


NUMBERS = {
    "thousands of digits": ({"gpu-memory": "9" * 5_000}, "gpu-memory is '999"),
    "more than 64 bits": ({"gpu-memory": "9" * 25}, "gpu-memory is '999"),
    "no number of GPUs": (
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
        "gpu-fraction-num-devices is '0'; it must be a whole number from 1 to 1024",
    ),
    "more GPUs than any node has": (
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1025"},
        "gpu-fraction-num-devices is '1025'; it must be a whole number from 1 to 1024",
    ),
    "an index beyond any node's": ({"gangsched.io/gpu-devices": "0,1024"}, "each below 1024"),
    "more indices than GPUs": ({"gangsched.io/gpu-devices": "0," * 1024 + "0"}, "each below 1024"),
    "infinity": ({"gpu-fraction": "1e999"}, "gpu-fraction is '1e999'; it must be above 0"),
    "less than a thousandth": ({"gpu-fraction": "1e-9"}, "it must be above 0 and below 1"),
    "an index of thousands of digits": ({"gangsched.io/gpu-devices": "9" * 5_000}, "GPU indices"),
    "an index that is none": ({"gangsched.io/gpu-devices": "0,x"}, "it must be GPU indices"),
    "a tier of thousands of digits": (
        {"volcano.sh/network-topology-highest-tier": "9" * 5_000},
        "volcano.sh/network-topology-highest-tier is '999",
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_invalid_numbers_in_annotations_are_reported(case):
    annotations, message = NUMBERS[case]
    fact = pods.pod_fact(ours(annotations=annotations), frozenset({"gangsched"}))
    assert message in fact.invalid


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"metadata": 7, "spec": {}}', b"{", b"\xff"])
def test_malformed_objects_raise_one_kind_of_error(raw):
    for read in (pods.decode_pod, node_fact):
        with pytest.raises(DecodeError):
            read(raw)


@pytest.mark.parametrize("metadata", ["x", {"annotations": [1]}, {"annotations": {"a": 1}}])
def test_metadata_of_a_role_template_that_is_none_is_named(metadata):
    """Templates are open to the API server: whatever is in them has to be checked."""
    role = {"name": "w", "count": 1, "template": {"metadata": metadata}}
    raw = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"roles": [role]}}
    with pytest.raises(DecodeError, match=r"^PodGroup ns/g: spec.roles\[w\].template.metadata: "):
        podgroups.pod_group(decode_group(json.dumps(raw).encode()), {})


def test_a_role_template_that_cannot_be_read_is_named():
    container = {"name": "c", "resources": {"requests": {"memory": "big"}}}
    template = {"spec": {"containers": [container]}}
    raw = {
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {"roles": [{"name": "w", "count": 1, "template": template}]},
    }
    with pytest.raises(DecodeError) as error:
        podgroups.pod_group(decode_group(json.dumps(raw).encode()), {})
    assert str(error.value) == (
        "PodGroup ns/g: spec.roles[w].template.spec: memory: 'big' is no quantity such as 2, "
        "500m or 4Gi"
    )
