"""Leader and standby: killed, stopped and resumed, handed over; nothing happens twice."""

import os
import signal

import pytest
from refitted import BOTH, leader_and_standby
from waiting import patience_s

pytestmark = pytest.mark.by("direct")  # a standby needs it


@pytest.fixture(scope="module")
def pair(cluster, tmp_path_factory):
    """The shared control plane with two schedulers; it has four KWOK nodes of eight GPUs.

    A Lease lasts longer on a slow machine, so that no leader loses it by chance.
    """
    settings = tmp_path_factory.mktemp("pair") / "settings.yaml"
    settings.write_text(f"lease_s: {patience_s(4)}\n")
    with leader_and_standby(cluster, settings):
        yield cluster


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
        lease = pair.json("lease", "gangsched", "-n", "gangsched-system")
        holder = lease["spec"].get("holderIdentity") or ""
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
    pair.apply("default", pair.yaml(_queue(home)))
    pair.wait(lambda: pair.json("queue", home).get("status"), "the queue's status")
    coscheduling = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "theirs", "namespace": home},
        "spec": {"minMember": 1},
    }
    pair.apply("default", pair.yaml(coscheduling))
    pair.pod(home, "theirs-0", labels={"scheduling.x-k8s.io/pod-group": "theirs"})
    pair.gang(home, "runs", 2)
    pair.pod(home, "alone-0")
    for prefix, pods in (("theirs-", 1), ("runs-", 2), ("alone-", 1)):
        pair.wait_placed(home, prefix, pods)
    pair.gang(home, "waits", 1)
    pair.wait_event(home, "NotEnoughFree", name="waits")

    def phase(group: str) -> str:
        return (pair.json(group, "-n", home).get("status") or {}).get("phase", "")

    # The last that there is to say of those that run.
    last = {
        "podgroups.gangsched.io/runs": "Placed",
        "podgroups.scheduling.x-k8s.io/theirs": "Running",
    }
    for group, word in last.items():
        pair.wait(lambda g=group, w=word: phase(g) == w, f"{group} to be {word}")
        pair.wait_event(home, "Placed", name=group.partition("/")[2])

    def written() -> dict[str, str]:
        """Return the versions of what we write about what does not change, and the Events of it."""
        found = {one: pair.json(one, "-n", home) for one in last}
        found["queue"] = pair.json("queue", home)
        versions = {name: one["metadata"]["resourceVersion"] for name, one in found.items()}
        told = [event for name in ("runs", "theirs") for event in pair.events(home, name)]
        return versions | {"events": str(sorted(told))}

    before = written()
    first = leader(pair)
    pair.plane.programs.stop(first, hard=True)
    pair.kubectl("delete", "pod", "alone-0", "-n", home, "--wait=false")
    pair.wait_placed(home, "waits-", 1)
    assert leader(pair) == other(first)
    pair.wait_event(home, "Placed", name="waits")  # the new leader is at work, and tells
    later = f"{home}-later"  # its status is written after that of the other queue
    pair.apply("default", pair.yaml(_queue(later)))
    pair.wait(lambda: pair.json("queue", later).get("status"), "the later queue's status")
    assert written() == before
    waited = [reason for reason, _ in pair.events(home, "waits")]
    assert waited.count("NotEnoughFree") == 1
    pair.kubectl("delete", "queue", home, later)


def _queue(name: str) -> dict:
    return {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"quotas": [{"resource": "nvidia.com/gpu", "nominal": 8}]},
    }


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


def test_a_leader_that_is_stopped_hands_over(pair, home):
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
