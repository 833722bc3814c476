"""One leads, one stands by: killed, stopped and woken again, handed over; nothing twice."""

import json
import os
import signal
import time

import pytest
from cluster import Cluster
from conftest import KWOK, a_plane

from gangsched.local.nodes import NodeFile
from gangsched.local.plane import Options

BOTH = ("gangsched", "gangsched-standby")


@pytest.fixture(scope="module")
def pair():
    """A control plane with two schedulers, and four KWOK nodes of eight GPUs."""
    options = Options(binding="direct", standby=True)
    with a_plane("test-failover", NodeFile(nodes=(KWOK,)), options) as plane:
        yield Cluster(plane, "direct")


@pytest.fixture
def home(pair):
    """A namespace of the test's own; both schedulers run."""
    for name in BOTH:
        if not pair.plane.programs.get(name).alive():
            pair.restart(name)
    name = pair.new_namespace()
    yield name
    pair.remove_namespace(name)


def leader(pair) -> str:
    """Return which process leads, once one does that runs."""

    def find() -> str:
        text = pair.kubectl("get", "lease", "gangsched", "-n", "gangsched-system", "-o", "json")
        holder = json.loads(text)["spec"].get("holderIdentity") or ""
        logs = {name: (pair.plane.programs.logs / f"{name}.log").read_text() for name in BOTH}
        return next(
            (n for n, text in logs.items() if holder and f"leading as {holder}" in text), ""
        )

    return pair.wait(find, "a leader")


def other(name: str) -> str:
    """Return the other process."""
    return BOTH[1 - BOTH.index(name)]


def full(pair, home, name) -> None:
    """Start a gang that takes the whole cluster but one node."""
    pair.gang(home, name, 3)
    pair.wait_placed(home, f"{name}-", 3)


def test_the_standby_goes_on_when_the_leader_is_killed(pair, home):
    full(pair, home, "a")
    first = leader(pair)
    pair.gang(home, "waits", 2)
    pair.plane.programs.stop(first, hard=True)
    pair.gang(home, "fits", 1)
    pair.wait_placed(home, "fits-", 1)  # by whoever leads now
    assert leader(pair) == other(first)
    assert not pair.overcommitted()
    assert set(pair.bound(home)) == {"a-0", "a-1", "a-2", "fits-0"}
    pair.kubectl("delete", "pod", "a-0", "a-1", "a-2", "-n", home, "--wait=false")
    pair.wait_placed(home, "waits-", 2)  # it was not forgotten


def test_a_new_leader_does_not_repeat_what_was_said(pair, home):
    """Statuses of groups and queues stay as they are, and no Event is told twice."""
    queue = {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": home},
        "spec": {"quotas": [{"resource": "nvidia.com/gpu", "nominal": 8}]},
    }
    pair.kubectl("apply", "-f", "-", stdin=pair.yaml(queue))
    coscheduling = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "theirs", "namespace": home},
        "spec": {"minMember": 1},
    }
    pair.kubectl("apply", "-f", "-", stdin=pair.yaml(coscheduling))
    pair.pod(home, "theirs-0", labels={"scheduling.x-k8s.io/pod-group": "theirs"})
    pair.gang(home, "runs", 2)
    pair.pod(home, "alone-0")
    for prefix, pods in (("theirs-", 1), ("runs-", 2), ("alone-", 1)):
        pair.wait_placed(home, prefix, pods)
    pair.gang(home, "waits", 1)
    pair.wait_event(home, "NotEnoughFree", name="waits")
    pair.wait(lambda: pair.json("get", "queue", home).get("status"), "the queue's status")

    def written() -> dict[str, str]:
        """Return the versions of what we write about what does not change, and the Events of it."""
        kinds = ("podgroups.gangsched.io/runs", "podgroups.scheduling.x-k8s.io/theirs")
        found = {one: pair.json("get", one, "-n", home) for one in kinds}
        found["queue"] = pair.json("get", "queue", home)
        versions = {name: one["metadata"]["resourceVersion"] for name, one in found.items()}
        told = [event for name in ("runs", "theirs") for event in pair.events(home, name)]
        return versions | {"events": str(sorted(told))}

    before = written()
    time.sleep(3.0)
    while (now := written()) != before:  # until all is said
        before = now
        time.sleep(3.0)
    first = leader(pair)
    pair.plane.programs.stop(first, hard=True)
    pair.kubectl("delete", "pod", "alone-0", "-n", home, "--wait=false")
    pair.wait_placed(home, "waits-", 1)
    assert leader(pair) == other(first)
    pair.wait_event(home, "Placed", name="waits")  # the new leader is at work, and tells
    time.sleep(3.0)  # queues are written every two seconds
    assert written() == before
    waited = [reason for reason, _ in pair.events(home, "waits")]
    assert waited.count("NotEnoughFree") == 1
    pair.kubectl("delete", "queue", home)


def test_a_leader_that_was_away_stops_by_itself(pair, home):
    first = leader(pair)
    program = pair.plane.programs.get(first)
    os.kill(program.pid, signal.SIGSTOP)
    try:
        pair.gang(home, "b", 4)
        pair.wait_placed(home, "b-", 4)
        assert leader(pair) == other(first)
    finally:
        os.kill(program.pid, signal.SIGCONT)
    pair.wait(lambda: not program.alive(), "the former leader to end")
    assert "leads no more" in pair.plane.programs.tail(first)
    assert not pair.overcommitted()


def test_a_leader_that_is_told_to_stop_hands_over(pair, home):
    """Jobs in every state go on under the next one."""
    first = leader(pair)
    full(pair, home, "c")
    pair.gang(home, "waits", 3)
    pair.wait(lambda: pair.condition(home, "waits").get("status") == "False", "it to be refused")
    pair.plane.programs.stop(first)
    assert "leadership lost" not in pair.plane.programs.tail(first)
    assert leader(pair) == other(first)
    pair.kubectl("delete", "pod", "c-0", "c-1", "c-2", "-n", home, "--wait=false")
    pair.wait_placed(home, "waits-", 3)
    assert not pair.overcommitted()
