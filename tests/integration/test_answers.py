"""The answers of commands agree with what the running scheduler wrote about the same gangs.

One process asks, by the functions that the commands call: each command takes seconds to start.
"""

import asyncio
import re

import pytest
from test_queues import gpus, queue, status

from gangsched.cli import queries
from gangsched.cli.cluster.view import ClusterView, read_cluster
from gangsched.config import load_config
from gangsched.kube.client.access import Access
from gangsched.kube.decoding.quantities import parse_timestamp
from gangsched.plugins import load_policies

pytestmark = pytest.mark.by("direct")  # who may start is decided before anything is bound

__all__ = ["queue"]  # a fixture

KWOK = {"gangsched.io/node-kind": "kwok"}
HOUR_S = 3600
SHORT_S = 1500
LONG_S = 10 * HOUR_S
STALE_S = 20.0
"""A forecast is made every ten seconds."""

MOVES = {"expected": 1 / 10, "reserved": 1 / 10, "earliest": 1 / 3, "latest": 1 / 3}
"""By what part of the wait a moment moves until it is told anew."""


def view(cluster) -> ClusterView:
    """Read the cluster as a command does."""
    config = load_config(None)
    access = Access(cluster.plane.kubeconfig)
    return asyncio.run(read_cluster(access, config, load_policies(config)))


def planned(count: int, gpus_each: int = 8, **spec) -> dict:
    """Return the spec of a group that is planned before its pods exist."""
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus_each)}}}
    template = {"spec": {"containers": [container], "nodeSelector": KWOK}}
    return {"roles": [{"name": "worker", "count": count, "template": template}], **spec}


def training_job(in_queue: str) -> dict:
    """Return a job that waits without pods, and whose controller makes its group."""
    pod = planned(1)["roles"][0]["template"]
    pod["spec"]["containers"][0] |= {"name": "pytorch", "image": "none"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "torch"},
        "spec": {
            "runPolicy": {"schedulingPolicy": {"queue": in_queue}},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": pod}},
        },
    }


def prefers(node: str) -> dict:
    """Return an affinity that brings a pod to a node, and lets it go elsewhere."""
    terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    preference = {"weight": 1, "preference": {"matchExpressions": terms}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}


def fill(cluster, namespace, line: str, small: str) -> None:
    """Let two nodes be full, and the others half full: one by a gang that may be moved.

    It is short, so that moving it delays nobody with a promise.
    """
    hour = {"expectedRuntimeSeconds": HOUR_S}
    cluster.gang(namespace, "run", 2, group=hour | {"queue": line})
    cluster.wait_placed(namespace, "run-", 2)
    free = sorted({f"k-{index}" for index in range(4)} - set(cluster.bound(namespace).values()))
    for name, node, more in (
        ("own", free[0], {"queue": small}),
        ("moves", free[1], {"queue": line, "movable": True, "expectedRuntimeSeconds": SHORT_S}),
    ):
        cluster.gang(namespace, name, 1, gpus=4, group=hour | more, affinity=prefers(node))
        cluster.wait_placed(namespace, f"{name}-", 1)
    assert sorted(set(cluster.bound(namespace).values())) == ["k-0", "k-1", "k-2", "k-3"]


def start(cluster, namespace, name) -> dict:
    """Return when the scheduler says that a gang starts."""
    return cluster.group_status(namespace, name).get("start") or {}


def written(cluster, namespace, name) -> dict:
    """Return what the scheduler has written of a gang, as `explain` words it."""
    found = cluster.group_status(namespace, name)
    refusal = found.get("refusal") or {}
    (condition,) = found["conditions"]
    return {
        "state": found["phase"],
        "reason": condition["reason"],
        "message": condition["message"],
        "wouldHelp": [one["message"] for one in refusal.get("remedies", ())],
        "start": found.get("start"),
    }


def helps(found: dict) -> list[str]:
    """Return what would help, without how much work a move would lose: that grows all the time."""
    return [re.sub(r"[\d.]+ GPU-hours", "GPU-hours", one) for one in found["wouldHelp"]]


def differs(told: dict, answer: dict, now_s: float) -> list[str]:
    """Return in what an answer is not what was told."""
    found = [key for key in ("state", "reason") if told[key] != answer[key]]
    found += [] if helps(told) == helps(answer) else [f"{helps(answer)}, and not {helps(told)}"]
    sentence = answer["message"][:1].upper() + answer["message"][1:]
    found += ["message"] if not told["message"].startswith(sentence) else []
    ours, theirs = answer.get("start") or {}, told["start"] or {}
    found += [key for key in ("position", "basis") if ours.get(key) != theirs.get(key)]
    for key, part in MOVES.items():
        at = [parse_timestamp(one[key]) if one.get(key) else 0.0 for one in (ours, theirs)]
        until = theirs.get("expected" if key == "earliest" else key)
        wait_s = max(parse_timestamp(until) - now_s, 0.0) if until else 0.0
        if abs(at[0] - at[1]) > part * wait_s + STALE_S:
            found.append(f"{key}: {ours.get(key)}, and not {theirs.get(key)}")
    return found


def figures(queue: dict) -> tuple:
    """Return how many gangs wait and run in a queue, and what they use of its quotas."""
    used = [one["used"] for one in queue.get("quotas") or ()]
    return queue.get("pending"), queue.get("admitted"), used


def refused(line: str, small: str, held: str, closed: str) -> dict[str, tuple[str, dict]]:
    """Return groups that wait in these queues, each with the reason it waits for."""
    return {
        "behind": ("BehindReservation", planned(1, 4, queue=line, expectedRuntimeSeconds=LONG_S)),
        "short": ("NotEnoughFree", planned(1, queue=line, expectedRuntimeSeconds=60)),
        "beyond": ("LargerThanQuota", planned(2, queue=small)),
        "second": ("QuotaInUse", planned(1, queue=small, expectedRuntimeSeconds=60)),
        "huge": ("LargerThanCluster", planned(9)),
        "stopped": ("QueueStopped", planned(1, queue=held)),
        "outside": ("NotPermitted", planned(1, queue=closed)),
        "lost": ("UnknownQueue", planned(1, queue="nowhere")),
        "few": ("TooFewPods", {"minMember": 2, "queue": line}),
    }


def test_commands_and_the_scheduler_say_the_same(cluster, namespace, queue, tmp_path):
    line, small = queue("line", quotas=gpus(64)), queue("small", quotas=gpus(8))
    held, closed = queue("held", stop="Hold"), queue("closed", namespaces=["elsewhere"])
    fill(cluster, namespace, line, small)
    cluster.group(namespace, "large", **planned(4, queue=line, expectedRuntimeSeconds=60))
    cluster.wait(lambda: start(cluster, namespace, "large").get("reserved"), "the promise")
    groups = refused(line, small, held, closed)
    for name, (_, spec) in groups.items():
        cluster.group(namespace, name, **spec)
    cluster.pod(namespace, "few-0", labels={"gangsched.io/pod-group": "few"})
    cluster.create_job(namespace, training_job(line))
    third = tmp_path / "third.yaml"
    spec = planned(1, queue=small, expectedRuntimeSeconds=60)
    body = {"apiVersion": "gangsched.io/v1beta1", "kind": "PodGroup", "spec": spec}
    third.write_text(cluster.yaml(body | {"metadata": {"name": "third"}}))
    reasons = {name: why for name, (why, _) in groups.items()} | {"large": "NotEnoughFree"}
    reasons |= {"torch": "NotEnoughFree"}

    def told() -> bool:
        found = {name: cluster.condition(namespace, name).get("reason") for name in reasons}
        known = all(start(cluster, namespace, one) for one in reasons if one != "few")
        return found == reasons and known

    cluster.wait(told, "every gang to be told why it waits, and until when")
    expected = queries.predict_start(view(cluster), third, namespace)
    cluster.group(namespace, "third", **spec)
    cluster.wait(lambda: start(cluster, namespace, "third"), "when the third starts")
    names = [*reasons, "third"]
    seen = view(cluster)
    answers = {name: queries.explain(seen, f"{namespace}/{name}") for name in names}
    assert any("moving" in one for one in answers["short"]["wouldHelp"]), answers["short"]
    answers["third before it came"] = expected | {"state": "Pending"}

    def the_same() -> bool:
        found = {
            name: differs(written(cluster, namespace, name.split()[0]), answer, seen.now_s)
            for name, answer in answers.items()
        }
        found = {name: one for name, one in found.items() if one}
        print(found)
        return not found

    cluster.wait(the_same, "the same answers")
    for name in (line, small):
        rows = queries.pending_gangs_of(seen, name)
        assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))
        for row in rows:
            own = row["gang"].split("/")[1]
            made = cluster.get_group(namespace, own)["metadata"]["creationTimestamp"]
            assert parse_timestamp(row["since"]) == parse_timestamp(made)
            for key in ("reason", "start"):
                assert row[key] == answers[own][key]
        (counted,) = (one for one in queries.queues(seen) if one["queue"] == name)
        ours = figures(counted)
        cluster.wait(
            lambda queue=name, ours=ours: figures(status(cluster, queue)) == ours,
            f"the figures {ours} of {name}",
        )
    changed = view(cluster)
    changed.now_s = seen.now_s
    rows = {
        row["gang"]: row
        for row in queries.what_if(seen, changed, queries.Changes([f"{small}:cpu=1"]))
    }
    for name, answer in answers.items():
        if answer.get("start") and name in names:
            assert rows[f"{namespace}/{name}"]["now"] == answer["start"]["expected"]
