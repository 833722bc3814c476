"""Chaos' own parts: a seed says the same again, and the witness sees what must never be."""

import json

import pytest

from simulator.chaos.plan import FAULTS_S, plan
from simulator.chaos.run import standing
from simulator.chaos.witness import Witness


def test_a_seed_says_the_same_again():
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


@pytest.mark.parametrize("seed", range(50))
def test_every_fault_is_mended_in_time(seed):
    for fault in plan(seed).faults:
        assert 0 <= fault.at_s < FAULTS_S
        if fault.kind != "kill":  # one that was killed may begin anew a moment later
            assert fault.at_s + fault.lasts_s <= FAULTS_S


def pod(name: str, node: str, gpus: int, gang: str = "g", phase: str = "Running") -> bytes:
    """Return a pod as the API writes it."""
    limits = {"nvidia.com/gpu": str(gpus)}
    return json.dumps(
        {
            "metadata": {"name": name, "uid": name, "labels": {"gangsched.io/pod-group": gang}},
            "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
            "status": {"phase": phase},
        }
    ).encode()


def test_two_pods_on_one_place_are_seen():
    witness = Witness({"n": 8})
    witness.seen(pod("a", "n", 4))
    witness.seen(pod("b", "n", 4))
    assert not witness.violations
    witness.seen(pod("c", "n", 1))
    (said,) = witness.violations
    assert "node n has 8 GPUs and pods of 9: a, b, c" in said


def test_a_pod_that_ended_makes_room():
    witness = Witness({"n": 8})
    witness.seen(pod("a", "n", 8))
    witness.seen(pod("a", "n", 8, phase="Succeeded"))
    witness.seen(pod("b", "n", 8))
    assert not witness.violations


class Gang:
    """A gang of two pods of four GPUs."""

    name, pods, gpus = "g", 2, 4


def test_what_should_run_and_does_not_is_said():
    witness = Witness({"n": 8})
    assert "would fit, and waits" in standing(witness, Gang, {"g": "Placed"})
    witness.seen(pod("a", "n", 4))
    assert "runs in part: 1 of 2" in standing(witness, Gang, {"g": "Placed"})
    witness.seen(pod("b", "n", 4))
    assert not standing(witness, Gang, {"g": "Placed"})


def test_what_has_no_room_may_wait():
    witness = Witness({"n": 8})
    witness.seen(pod("other", "n", 5, gang="x"))
    assert not standing(witness, Gang, {"g": "Placed"})
