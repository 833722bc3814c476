"""Limits of a pod's requests: an error above them, while a running pod is charged anyway."""

import json

import pytest

from gangsched.core import bounds
from gangsched.core.model.pods import GPU
from gangsched.kube.decoding import podgroups, pods
from gangsched.kube.decoding.cluster import mig_labels
from gangsched.kube.decoding.cluster.nodes import node_fact
from gangsched.kube.decoding.metadata import decode_group
from gangsched.kube.decoding.quantities import DecodeError, parse_amounts, quantity
from gangsched.kube.informers.planned_pod_limit import PlannedPodLimit

OURS = frozenset({"gangsched"})


def container(**requests):
    """Return a container that requests something."""
    return {"name": "c", "resources": {"requests": requests}}


def pod(node="", annotations=None, **spec):
    """Return a pod of ours as the API writes it, decoded."""
    raw = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "annotations": annotations or {},
        },
        "spec": {"schedulerName": "gangsched", "nodeName": node, **spec},
    }
    return pods.decode_pod(json.dumps(raw).encode())


def group(*roles, **spec):
    """Return a PodGroup as the API writes it."""
    body = {"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": spec}
    body["spec"]["roles"] = list(roles)
    return json.dumps(body).encode()


def role(name="w", count=1, **spec):
    """Return a role with a template."""
    return {"name": name, "count": count, "template": {"spec": spec}}


def preferred(weight, count=1):
    """Return node affinity of so many preferences."""
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    terms = [{"weight": weight, "preference": term}] * count
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


LONG = "k" * 318
BEYOND = {
    "resources": (
        {"containers": [container(**{f"a.b/{i}": "1" for i in range(65)})]},
        "there are 65 resources that a pod requests; 64 are allowed",
    ),
    "label keys": (
        {"nodeSelector": {f"k{i}": "v" for i in range(65)}},
        "there are 65 label keys by which a pod selects nodes; 64 are allowed",
    ),
    "conditions": (
        {"affinity": preferred(1, 1025)},
        f"there are 1025 {bounds.SELECTOR_VALUES.what}; 1024 are allowed",
    ),
    "weights": (
        {"affinity": preferred(2**62)},
        "the weight of a preference is 4611686018427387904; it must be 1 to 100",
    ),
    "tolerations": (
        {"tolerations": [{"key": f"k{i}"} for i in range(129)]},
        "there are 129 tolerations of a pod; 128 are allowed",
    ),
    "ports": (
        {"containers": [{"name": "c", "ports": [{"hostPort": i + 1} for i in range(257)]}]},
        "there are 257 host ports of a pod; 256 are allowed",
    ),
    "letters of a key": ({"nodeSelector": {LONG: "v"}}, "has 318 letters; 317 are allowed"),
    "letters of a toleration": ({"tolerations": [{"key": LONG}]}, "has 318 letters"),
    "letters of a resource": ({"containers": [container(**{LONG: "1"})]}, "more than 317 letters"),
    "letters of a quantity": (
        {"containers": [container(cpu="0" * 100 + "1")]},
        "is no quantity such as 2, 500m or 4Gi",
    ),
}


@pytest.mark.parametrize("case", BEYOND)
def test_a_template_above_a_limit_is_reported(case):
    spec, message = BEYOND[case]
    with pytest.raises(DecodeError) as error:
        podgroups.pod_group(decode_group(group(role(**spec))), {})
    assert str(error.value).startswith("PodGroup ns/g: spec.roles[w].template.spec: ")
    assert message in str(error.value)


@pytest.mark.parametrize("case", [case for case in BEYOND if not case.startswith("letters of a")])
def test_a_pod_above_a_limit_is_reported_and_charged(case):
    spec, message = BEYOND[case]
    containers = [*spec.get("containers", []), container(cpu="3", **{GPU: "2"})]
    fact = pods.pod_fact(pod("n", **{**spec, "containers": containers}), OURS)
    assert fact.invalid == f"pod ns/p: {message.replace('65 res', '67 res')}"
    assert dict(fact.needs.requests).items() >= {"cpu": 3000, GPU: 2}.items()
    assert fact.node == "n"
    others = pods.pod_fact(pod("n", **{**spec, "containers": containers}), frozenset({"x"}))
    assert (others.needs, others.invalid) == (fact.needs, "")


def test_amounts_and_their_sums_count_as_no_more_than_the_bound():
    most = bounds.AMOUNT.most
    assert parse_amounts({"memory": "1Pi", "a.b/c": "9e18", "cpu": "2e15"}) == {
        "memory": most,
        "a.b/c": most,
        "cpu": most,
    }
    many = [container(memory="1Pi")] * 9000
    asked = pods.pod_requests(
        pod(
            containers=many,
            initContainers=[{**container(memory="1Pi"), "restartPolicy": "Always"}] * 2,
            overhead={"memory": "1Pi"},
        ).spec
    )
    assert dict(asked) == {"memory": most}
    with pytest.raises(DecodeError, match="more than 1152921504606846976"):
        quantity("memory", "9e18")


def test_a_bound_pod_of_any_amount_is_seen():
    fact = pods.pod_fact(pod("n", containers=[container(**{"a.b/c": "9e18"})]), OURS)
    assert dict(fact.needs.requests) == {"a.b/c": bounds.AMOUNT.most}
    assert not fact.invalid


def test_a_timestamp_of_many_letters_is_none():
    raw = group(role(), checkpointAt="2026-01-01T00:00:00." + "0" * 100 + "Z")
    with pytest.raises(DecodeError, match=r"spec\.checkpointAt: .* is no RFC 3339 time"):
        podgroups.pod_group(decode_group(raw), {})


def test_a_group_of_too_many_pods_is_refused():
    roles = [role(f"w{i}", 50_000) for i in range(2)]
    assert podgroups.pod_group(decode_group(group(*roles)), {})[0].min_member == 100_000
    with pytest.raises(DecodeError) as error:
        podgroups.pod_group(decode_group(group(*roles, {"name": "x", "count": 1}, minMember=1)), {})
    assert str(error.value) == (
        "PodGroup ns/g: spec.roles: there are 100001 pods of a gang, of all its roles; 100000 are "
        "allowed"
    )


def test_pods_are_counted_even_where_one_role_has_no_template():
    bound = PlannedPodLimit(10)
    raw = group(role("a", 11), {"name": "b", "count": 1}, minMember=1)
    gang, _, uid = podgroups.pod_group(decode_group(raw), {})
    with pytest.raises(DecodeError, match="would have 11 such pods; 10 are allowed"):
        bound.admit(uid, gang, "PodGroup", lambda: None, runs=False)


def test_a_node_of_too_many_resources_is_not_understood():
    allocatable = {f"a.b/{i}": "1" for i in range(257)}
    raw = {"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}
    with pytest.raises(DecodeError) as error:
        node_fact(json.dumps(raw).encode())
    assert str(error.value) == (
        "node n: status.allocatable: there are 257 resources of a node; 256 are allowed"
    )


def test_gpus_that_no_node_can_have_are_not_listed_one_by_one():
    labels = {"gangsched.io/mig": "dynamic", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    assert len(mig_labels.node_layouts(labels, {}, {GPU: 8})) == 8
    assert mig_labels.node_layouts(labels, {}, {GPU: 2**50}) == ()
    cut = labels | {"nvidia.com/mig.config": "all-1g.5gb"}
    assert mig_labels.node_layouts(cut, {}, {"nvidia.com/mig-1g.5gb": 7 * 2**40}) == ()


def test_the_first_of_many_volumes_are_named():
    volumes = [{"name": f"v{i}", "csi": {}} for i in range(1000)]
    fact = pods.pod_fact(pod(volumes=volumes), OURS)
    assert fact.needs.unmodelled_constraints == tuple(f"CSI volume v{i}" for i in range(8))
