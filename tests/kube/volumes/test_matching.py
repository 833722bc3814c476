"""Which volumes match a claim, and where new ones may be created, by kube-scheduler's rules."""

import json

import pytest
from builders import node

from gangsched.core.bounds import SELECTOR_VALUES
from gangsched.core.model.pods import Expression, NodeTerm
from gangsched.kube.decoding.claims import claimed
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import PodSpec
from gangsched.kube.volumes import storage_objects as read
from gangsched.kube.volumes.matching import (
    Want,
    all_of,
    any_of,
    provisioned_on,
    reaches,
    shared_out,
    suitable_volumes,
    suits,
)


def claim(name="c", size="5Gi", modes=("ReadWriteOnce",), metadata=None, **spec):
    asked = {
        "storageClassName": "local",
        "accessModes": list(modes),
        "resources": {"requests": {"storage": size}},
        **spec,
    }
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **(metadata or {})}
    return read.claim(json.dumps({"metadata": metadata, "spec": asked}).encode())


def volume(name="v", size="5Gi", phase="Available", metadata=None, **spec):
    has = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "capacity": {"storage": size},
        **spec,
    }
    metadata = {"name": name, "uid": name, **(metadata or {})}
    body = {"metadata": metadata, "spec": has, "status": {"phase": phase}}
    return read.volume(json.dumps(body).encode())


SELECTS = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]}
SSD = {"labels": {"disk": "ssd"}}
OURS = {"namespace": "ns", "name": "c"}

CASES = {
    "one like the claim": (claim(), volume(), True),
    "one that is larger": (claim(), volume(size="6Gi"), True),
    "one that is smaller": (claim(), volume(size="4Gi"), False),
    "one of another class": (claim(), volume(storageClassName="other"), False),
    "a class said in the old way": (
        claim(metadata={"annotations": {"volume.beta.kubernetes.io/storage-class": "other"}}),
        volume(storageClassName="other"),
        True,
    ),
    "one that offers all modes": (claim(modes=("ReadWriteOnce", "ReadOnlyMany")), volume(), True),
    "one that lacks a mode": (claim(modes=("ReadWriteOnce", "ReadWriteMany")), volume(), False),
    "a block device": (claim(), volume(volumeMode="Block"), False),
    "block devices both": (claim(volumeMode="Block"), volume(volumeMode="Block"), True),
    "one that the selector wants": (claim(selector=SELECTS), volume(metadata=SSD), True),
    "one that the selector does not want": (claim(selector=SELECTS), volume(), False),
    "one of other attributes": (claim(), volume(volumeAttributesClassName="fast"), False),
    "one that is released": (claim(), volume(phase="Released"), False),
    "one that goes": (
        claim(),
        volume(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        False,
    ),
    "one kept for another": (claim(), volume(claimRef={**OURS, "name": "d"}), False),
    "one kept for the claim": (claim(), volume(claimRef=OURS, phase="Pending"), True),
    "one kept for a claim of that name before": (
        claim(),
        volume(claimRef={**OURS, "uid": "old"}),
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_claim_may_have(case):
    wants, has, expected = CASES[case]
    assert suits(wants, has) == expected


def test_the_smallest_is_taken_and_one_that_is_kept_before_all():
    free = [volume("large", "9Gi"), volume("b"), volume("a")]
    assert [one.name for one in suitable_volumes(claim(), free)] == ["a", "b", "large"]
    kept = volume("kept", "20Gi", claimRef=OURS)
    assert suitable_volumes(claim(), [*free, kept]) == [kept]


def test_volumes_are_shared_out_so_that_most_have_one():
    a, b, c = (volume(name) for name in "abc")
    wants = [
        Want(claim("x", "1Gi"), (a, b)),
        Want(claim("y", "2Gi"), (a, c)),
        Want(claim("z", "3Gi"), (a,)),
    ]
    given = {key[1]: one.name for key, one in shared_out(wants).items()}
    assert given == {"x": "b", "y": "c", "z": "a"}
    given = shared_out([*wants, Want(claim("lacks", "4Gi"), (a, b, c))])
    assert len(given) == 3
    assert ("ns", "lacks") not in given


def kind(**body) -> read.StorageClass:
    body = {"metadata": {"name": "local"}, "provisioner": "x.example/y", **body}
    return read.storage_class(json.dumps(body).encode())


def capacity(size="9Gi", of="local", **more) -> read.Capacity:
    body = {"metadata": {"name": "x"}, "storageClassName": of, "capacity": size, **more}
    return read.capacity(json.dumps(body).encode())


def zone(*names: str) -> NodeTerm:
    return NodeTerm((Expression("zone", "In", names),))


IN_A, IN_B = ({"nodeTopology": {"matchLabels": {"zone": name}}} for name in "ab")
ONLY = {"allowedTopologies": [{"matchLabelExpressions": [{"key": "disk", "values": ["x"]}]}]}

PLACES = {
    "anywhere": (kind(), None, ()),
    "nowhere": (
        kind(provisioner="kubernetes.io/no-provisioner"),
        None,
        "no PersistentVolume of StorageClass local is available for it",
    ),
    "where the class allows": (
        kind(**ONLY),
        None,
        (NodeTerm((Expression("disk", "In", ("x",)),)),),
    ),
    "where there is room": (kind(), [capacity(**IN_A), capacity(**IN_B)], (zone("a", "b"),)),
    "where there is enough room": (
        kind(),
        [capacity("1Gi", **IN_A), capacity(**IN_B)],
        (zone("b"),),
    ),
    "where one volume may be so large": (
        kind(),
        [capacity(maximumVolumeSize="1Gi", **IN_A), capacity(**IN_B)],
        (zone("b"),),
    ),
    "room of another class": (
        kind(),
        [capacity(of="other", **IN_A)],
        "no node has capacity for its volume, of StorageClass local",
    ),
    "room that no node reaches": (
        kind(),
        [capacity()],
        "no node has capacity for its volume, of StorageClass local",
    ),
    "room that all nodes reach": (kind(), [capacity(nodeTopology={}), capacity(**IN_A)], ()),
    "room where the class allows": (
        kind(**ONLY),
        [capacity(**IN_A)],
        (NodeTerm((Expression("disk", "In", ("x",)), *zone("a").labels)),),
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_new_volumes_may_be_made(case):
    of, there, expected = PLACES[case]
    assert provisioned_on(claim(), of, there) == expected


def test_alternatives_are_few_however_many_volumes_there_are():
    many = [(zone(f"n{index}"),) for index in range(3000)]
    more = [(NodeTerm((*zone(f"n{index}").labels, *zone("z").labels)),) for index in range(3000)]
    for found in (any_of(many), any_of(more), any_of([*many, *more])):
        size = sum(1 + len(one.values) for term in found for one in term.labels)
        assert 300 < size <= SELECTOR_VALUES.most // 2
    assert any_of([*many, ()]) == ()


def test_terms_of_nodes():
    one = node("n", labels={"zone": "a"})
    assert reaches((), one)
    assert reaches((zone("b"), zone("a")), one)
    assert not reaches((zone("b"),), one)
    assert not reaches(None, one)
    assert isinstance(all_of(tuple(map(zone, map(str, range(40)))) * 2, (zone("a"),) * 20), str)


def test_the_claims_of_a_pod_that_list_nodes_are_one_list():
    spec = PodSpec(volumes=[{"persistentVolumeClaim": {"claimName": name}} for name in "xyz"])
    answers = {"x": (zone("a", "b"),), "y": (zone("b", "c"),), "z": (zone("d"), NodeTerm())}
    allowed, beyond = claimed(spec, lambda name, _: answers[name])
    assert (allowed, beyond) == ((answers["z"], (zone("b"),)), [])


def test_a_selector_has_its_bound():
    values = [str(index) for index in range(SELECTOR_VALUES.most)]
    many = {"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}
    with pytest.raises(DecodeError, match=r"spec\.selector has more than 1024 conditions"):
        claim(selector=many)
