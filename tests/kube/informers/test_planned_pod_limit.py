"""The limit of planned pods of a namespace."""

from collections import defaultdict

import pytest

from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import PodRequirements
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.informers.planned_pod_limit import PlannedPodLimit

AGAIN = defaultdict(lambda: lambda: None)
"""What would read each group again, by its name."""
NEEDS = PodRequirements((("cpu", 1000),))


def group(
    name: str, pods: int, namespace: str = "flood", needs: PodRequirements | None = NEEDS
) -> Gang:
    return Gang(GangId(f"{namespace}/{name}"), pods, (Role("worker", pods, pods, needs),))


def admit(bound: PlannedPodLimit, gang: Gang, *, runs: bool = False) -> bool:
    try:
        bound.admit(str(gang.id), gang, "PodGroup", AGAIN[gang.id], runs=runs)
    except DecodeError:
        return False
    return True


def test_a_namespace_above_its_limit_leaves_others_alone():
    bound = PlannedPodLimit(10)
    assert admit(bound, group("a", 6))
    with pytest.raises(DecodeError) as error:
        bound.admit("b", group("b", 5), "PodGroup", AGAIN["b"], runs=False)
    assert str(error.value) == (
        "PodGroup flood/b: its 5 pods are planned before they exist, and with them namespace "
        "flood would have 11 such pods; 10 are allowed (setting planned_pods_max), so it waits "
        "until others are deleted"
    )
    assert admit(bound, group("c", 10, "calm"))
    assert admit(bound, group("d", 4))


def test_what_exists_already_is_not_planned():
    bound = PlannedPodLimit(10)
    assert admit(bound, group("a", 50, needs=None))
    assert admit(bound, group("b", 10))


def test_what_runs_is_counted_and_never_held_back():
    bound = PlannedPodLimit(10)
    assert admit(bound, group("runs", 50), runs=True)
    assert not admit(bound, group("b", 1))
    assert admit(bound, group("runs", 50))  # its status was late


def test_those_held_back_have_their_turn_when_one_is_gone():
    bound = PlannedPodLimit(10)
    assert admit(bound, group("a", 6))
    assert not admit(bound, group("b", 6))
    assert not admit(bound, group("c", 6))
    assert bound.release("flood/c") == []  # it was held, and nothing got free
    assert bound.release("flood/a") == [AGAIN["flood/b"]]
    assert admit(bound, group("b", 6))
    assert bound.release("flood/b") == []


def test_a_group_may_shrink_and_grow_within():
    bound = PlannedPodLimit(10)
    assert admit(bound, group("a", 6))
    assert admit(bound, group("a", 10))
    assert not admit(bound, group("a", 11))
    assert admit(bound, group("a", 2))
    assert admit(bound, group("b", 8))
