"""Informers with objects that are created, deleted, and created again with the same name."""

import contextlib
import gc
import json

import pytest
from builders import POLICIES
from builders import node as a_node
from prometheus_client import generate_latest

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.model.queues import Queue, Quota
from gangsched.kube.client.errors import EngineError
from gangsched.kube.client.watch import long_lived
from gangsched.kube.decoding import metadata
from gangsched.kube.decoding import pods as decode
from gangsched.kube.decoding.external import groups as foreign
from gangsched.kube.informers import nodes as nodes_module
from gangsched.kube.informers.nodes import Nodes
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics


class Heard:
    """Stands for the scheduler: what it was told."""

    def __init__(self) -> None:
        self.facts: list = []
        self.metrics = Metrics()

    def observe(self, fact) -> None:
        self.facts.append(fact)


def node(uid: str) -> bytes:
    """Return a node of one name."""
    return json.dumps({"metadata": {"name": "n", "uid": uid}, "status": {}}).encode()


def test_a_recreated_node_is_not_gone():
    """After a gap in its watch, a list tells first of what is there and then of what vanished."""
    heard = Heard()
    nodes = Nodes(heard, heard.metrics)
    nodes.on_update(node("old"))
    nodes.on_update(node("new"))
    nodes.on_delete("old", None)
    assert [type(fact) for fact in heard.facts] == [f.NodeSeen, f.NodeSeen]
    nodes.on_delete("new", None)
    assert heard.facts[-1] == f.NodeGone("n")


def test_an_object_that_we_fail_to_read_ends_nothing(monkeypatch, caplog):
    heard = Heard()
    monkeypatch.setattr(nodes_module, "node_fact", lambda _: {}["a defect"])
    Nodes(heard, heard.metrics).on_update(node("u"))
    assert heard.facts == [f.NodeGone("n")]  # as with any node that is not understood
    assert b'gangsched_malformed_objects_total{kind="Node"} 1.0' in generate_latest(
        heard.metrics.registry
    )
    assert "a defect" in caplog.text


def test_a_failure_of_the_engine_ends_the_process(monkeypatch):
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
    monkeypatch.setattr(scheduler.engine, "observe", lambda *_: {}["a defect"])
    with pytest.raises(EngineError):
        scheduler.informers.nodes.on_update(node("u"))


def test_what_is_wrong_with_a_pod_is_said_until_it_is_mended():
    pods = Scheduler(None, SchedulerConfig(), POLICIES, Metrics()).informers.pods
    wrong = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1}}
    wrong["metadata"]["annotations"] = {"gpu-fraction": "7"}
    wrong["spec"] = {"schedulerName": "gangsched", "containers": [{"name": "c"}]}
    for phase in ("Pending", "Running"):  # only its status changes
        wrong["status"] = {"phase": phase}
        fact = pods._read(decode.decode_pod(json.dumps(wrong).encode()))
        assert "gpu-fraction is '7'" in fact.invalid


VOLCANOS = next(one for one in foreign.KINDS if one.api_version.startswith("scheduling.volcano"))


@pytest.fixture
def cluster():
    """Return a scheduler that changes nothing, and what its watches tell, kind by kind."""
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
    groups = scheduler.informers.owners.groups
    there = {
        "PriorityClass": scheduler.informers.priority_classes,
        "Namespace": scheduler.informers.namespaces,
        "Queue": scheduler.informers.queues,
        "PodGroup": scheduler.informers.pod_groups,
        "theirs": next(one for one in groups if one.path == VOLCANOS.path),
    }
    return scheduler, there


def written(name: str, uid: str = "u", **fields) -> bytes:
    """Return an object of the namespace ns as the API server writes it."""
    return json.dumps(
        {"metadata": {"name": name, "namespace": "ns", "uid": uid}, **fields}
    ).encode()


WITHOUT = {
    "PodGroup": {"spec": {"minMember": 2, "priorityClassName": "high"}},
    "theirs": {"spec": {"minMember": 2, "priorityClassName": "high"}},
    "Queue": {"spec": {"defaultPriorityClassName": "high"}},
}
"""Objects that name a class which is not there."""


def stands(scheduler, kind: str) -> bool:
    """Tell whether the object is planned with."""
    queues = scheduler.engine.view.ledger.usage.tree
    gangs = [one for one in scheduler.engine.view.gangs.values() if one.spec is not None]
    return "x" in queues if kind == "Queue" else bool(gangs)


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_class_may_come_after_what_names_it(cluster, kind):
    """Two watches tell of one `kubectl apply` in any order."""
    scheduler, there = cluster
    there[kind].on_update(written("x", **WITHOUT[kind]))
    assert not stands(scheduler, kind)
    there["PriorityClass"].on_update(written("low", "c", value=1))
    assert not stands(scheduler, kind)
    there["PriorityClass"].on_update(written("high", "d", value=7))
    assert stands(scheduler, kind)


@pytest.mark.parametrize("kind", WITHOUT)
def test_what_was_deleted_meanwhile_does_not_come_back_with_its_class(cluster, kind):
    scheduler, there = cluster
    there[kind].on_update(written("x", **WITHOUT[kind]))
    there[kind].on_delete("u", None)
    there["PriorityClass"].on_update(written("high", "d", value=7))
    assert not stands(scheduler, kind)


def test_what_was_mended_meanwhile_stays_as_it_is(cluster):
    scheduler, there = cluster
    there["PodGroup"].on_update(written("x", **WITHOUT["PodGroup"]))
    there["PodGroup"].on_update(written("x", spec={"minMember": 3}))
    there["PriorityClass"].on_update(written("high", "d", value=7))
    assert scheduler.engine.view.gangs["ns/x"].spec.min_member == 3


KINDS = ["PodGroup", "theirs"]


def group(annotation: str = "") -> bytes:
    """Return a group, with an annotation of ours that is understood or not."""
    wished = {"gangsched.io/max-runtime-seconds": annotation} if annotation else {}
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "annotations": wished}
    return json.dumps({"metadata": metadata, "spec": {"minMember": 2}}).encode()


def told(scheduler) -> tuple[str, list[str]]:
    """Return the reason and the Events a group is to be told."""
    ((_, word),) = scheduler.status._records.items()
    return word.reason, [message for reason, message in word.events if reason == "Invalid"]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_mistake_of_a_new_group_is_reported(cluster, kind):
    scheduler, there = cluster
    for wrong in ("soon", "later"):
        there[kind].on_update(group(wrong))
        reason, events = told(scheduler)
        assert reason == "Invalid"
        assert f"'{wrong}'" in events[-1]
    there[kind].on_update(group())
    assert stands(scheduler, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_that_was_understood_goes_on_and_hears_of_its_mistake_once(cluster, kind):
    scheduler, there = cluster
    there[kind].on_update(group())
    before = scheduler.engine.view.gangs
    for _ in range(3):
        there[kind].on_update(group("soon"))
    assert list(before) == list(scheduler.engine.view.gangs)
    reason, events = told(scheduler)
    assert reason != "Invalid"
    assert len(events) == 1
    assert "'soon'; it must be a whole number" in events[0]
    assert events[0].endswith("The last valid declaration stays in effect.")
    there[kind].on_update(group())
    there[kind].on_update(group("soon"))
    assert len(told(scheduler)[1]) == 2


def test_namespaces_bring_no_malformed_queue_up_again(cluster, caplog):
    scheduler, there = cluster
    chosen = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    there["Queue"].on_update(written("x", spec=chosen))
    there["Queue"].on_update(written("x", spec={"weight": "heavy"}))
    there["Namespace"].on_update(json.dumps({"metadata": {"name": "ns", "uid": "n"}}).encode())
    labelled = {"name": "other", "uid": "o", "labels": {"team": "a"}}
    there["Namespace"].on_update(json.dumps({"metadata": labelled}).encode())
    assert caplog.text.count("weight") == 1
    queue = scheduler.engine.view.ledger.usage.tree.queues["x"]
    assert queue.namespaces == {"other"}, "the last valid declaration goes on"


def test_a_recreated_queue_is_not_gone(cluster):
    scheduler, there = cluster
    there["Queue"].on_update(written("x", "old", spec={}))
    there["Queue"].on_update(written("x", "new", spec={"weight": 2}))
    there["Queue"].on_delete("old", None)
    assert stands(scheduler, "Queue")
    there["Queue"].on_delete("new", None)
    assert not stands(scheduler, "Queue")


def test_a_long_value_is_cut_in_its_middle(cluster, caplog):
    _, there = cluster
    long = {"max-runtime-seconds": "9" * 5000, "slices": "{" * 5000, "gpu-kinds": "," * 5000}
    for key, value in long.items():
        annotations = {f"gangsched.io/{key}": value}
        metadata = {"name": "x", "namespace": "ns", "uid": "u", "annotations": annotations}
        there["PodGroup"].on_update(json.dumps({"metadata": metadata, "spec": {}}).encode())
    assert [message.count("must be") for message in caplog.messages] == [1, 1, 1]
    assert max(map(len, caplog.messages)) < 250


def test_what_lives_long_is_out_of_the_collectors_sight_and_the_rest_is_collected():
    usual, kept = gc.get_threshold(), gc.get_freeze_count()
    try:
        with contextlib.suppress(KeyError), long_lived():
            assert gc.isenabled()
            raise KeyError
        assert gc.get_threshold() == usual
        assert gc.get_freeze_count() > kept
    finally:
        gc.unfreeze()


# -- pods ------------------------------------------------------------------------------------------


def a_pod(name: str, labels=None, annotations=None, node="n", scheduler="gangsched", **requests):
    """Return a pod that runs, or waits with an empty node, as the API server writes it."""
    asked = {"cpu": "1", "nvidia.com/gpu": "4"} | requests
    return written(
        name,
        name,
        spec={
            "schedulerName": scheduler,
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": asked}}],
        },
        status={"phase": "Running"},
    ).replace(
        b'"metadata": {',
        b'"metadata": '
        + json.dumps({"labels": labels or {}, "annotations": annotations or {}}).encode()[:-1]
        + b", ",
    )


@pytest.fixture
def one_node():
    """Return a scheduler that changes nothing and knows a node, and what hears of pods."""
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
    for name in ("default", "mine"):
        quotas = (Quota("nvidia.com/gpu", 8000),)
        scheduler.driver.observe(f.QueueSeen(Queue(name, quotas=quotas)))
    scheduler.driver.observe(f.NodeSeen(a_node("n", 8)))
    return scheduler, scheduler.informers.pods


def taken(scheduler) -> tuple[int, int]:
    """Return how many GPUs of the node are taken, and how many the queue is charged."""
    cluster, usage = scheduler.engine.view.cluster, scheduler.engine.view.ledger.usage
    gpus = cluster.used[cluster.rows["n"], cluster.resources.index("nvidia.com/gpu")]
    return int(gpus), usage.used("mine", ("nvidia.com/gpu", "")) // 1000


QUEUE = {"kai.scheduler/queue": "mine"}
WRONG = {
    "a minimum that is no number": (
        {"gangsched.io/pod-group": "g", "gangsched.io/min-member": "x"},
        {},
    ),
    "a count of Kueue's that is none": (
        {"kueue.x-k8s.io/pod-group-name": "g"},
        {"kueue.x-k8s.io/pod-group-total-count": "0"},
    ),
    "a size of a LeaderWorkerSet that is none": (
        {"leaderworkerset.sigs.k8s.io/name": "g"},
        {"leaderworkerset.sigs.k8s.io/size": "-1"},
    ),
    "two wishes that disagree": ({}, {"gpu-fraction": "0.5", "gpu-memory": "1"}),
    "GPUs that are none": ({}, {"gangsched.io/gpu-devices": "x" * 1000}),
    "a topology that is none": ({}, {"kai.scheduler/topology-required-placement": ""}),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_pod_that_runs_is_charged_whatever_it_says(one_node, case):
    scheduler, pods = one_node
    labels, annotations = WRONG[case]
    pods.on_update(a_pod("p", labels | QUEUE, annotations))
    assert taken(scheduler) == (4, 4)
    pods.on_delete("p", None)
    assert taken(scheduler) == (0, 0)
    assert not scheduler.engine.view.gangs


@pytest.mark.parametrize("scheduler_name", ["gangsched", "default-scheduler"])
def test_a_pod_that_runs_is_charged_however_much_it_asks_for(one_node, scheduler_name):
    scheduler, pods = one_node
    asked = {"a.b/c": "2Pi", "d.e/f": "8E", "cpu": "1e30"}
    pods.on_update(a_pod("p", QUEUE, scheduler=scheduler_name, **asked))
    for _ in range(2):
        assert taken(scheduler) == (4, 4 if scheduler_name == "gangsched" else 0)
        pods.on_update(a_pod("p", QUEUE, scheduler=scheduler_name, **asked))


def test_a_pod_that_waits_hears_what_is_wrong_and_is_planned_once_it_is_mended(one_node):
    scheduler, pods = one_node
    wrong = {"gangsched.io/pod-group": "g", "gangsched.io/min-member": "two"}
    pods.on_update(a_pod("p", wrong, node=""))
    assert (
        "label gangsched.io/min-member is 'two'" in scheduler.engine.view.refusals["ns/g"].message
    )
    assert not scheduler.engine.has_pending_work()
    right = wrong | {"gangsched.io/min-member": "2"}
    pods.on_update(a_pod("p", right, node=""))
    assert scheduler.engine.view.gangs["ns/g"].minimum() == 2
    pods.on_update(a_pod("q", right, node=""))
    assert scheduler.engine.has_pending_work()


def test_a_wrong_pod_does_not_make_another_gang_of_its_group(one_node):
    scheduler, pods = one_node
    right = {"gangsched.io/pod-group": "g", "gangsched.io/min-member": "4"}
    pods.on_update(a_pod("p", right, node=""))
    pods.on_update(a_pod("q", right | {"gangsched.io/min-member": "x"}, node=""))
    assert scheduler.engine.view.gangs["ns/g"].minimum() == 4


def test_labels_that_change_give_nothing_away_now_or_to_the_next_leader(one_node):
    scheduler, pods = one_node
    pods.on_update(a_pod("p", QUEUE))
    later = [
        {"gangsched.io/pod-group": "g", "gangsched.io/min-member": "x"} | QUEUE,
        {"gangsched.io/pod-group": "other"},
        {"kueue.x-k8s.io/pod-group-name": "k"},
    ]
    for labels in later:
        pods.on_update(a_pod("p", labels))
        assert taken(scheduler) == (4, 4)
        assert list(scheduler.engine.view.gangs) == ["ns/pod:p"]
    for labels in later:
        scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
        scheduler.driver.observe(f.NodeSeen(a_node("n", 8)))
        scheduler.informers.pods.on_update(a_pod("p", labels))
        assert taken(scheduler)[0] == 4


def test_an_unreadable_pod_is_charged_where_it_runs(one_node, monkeypatch):
    scheduler, pods = one_node
    monkeypatch.setattr(decode, "pod_constraints", lambda *_: {}["a defect"])
    pods.on_update(a_pod("p", QUEUE, {"a": "b"}))
    assert taken(scheduler)[0] == 4
    pods.on_update(a_pod("q", QUEUE, {"a": "b"}, node=""))
    assert scheduler.engine.view.pod("q") is None
    pods.on_delete("p", None)
    assert taken(scheduler)[0] == 0


def test_a_part_of_a_gpu_is_what_our_schedulers_plan(one_node):
    """Others keep books of their own, and whoever may label a pod would fill any node."""
    scheduler, pods = one_node
    wishes = {
        "gpu-fraction": "0.5",
        "gpu-fraction-num-devices": "8",
        "gangsched.io/gpu-devices": "0",
    }
    pods.on_update(a_pod("p", {}, wishes, scheduler="kai-scheduler", **{"nvidia.com/gpu": "0"}))
    assert taken(scheduler)[0] == 0
    not_bound_by_us = {key: value for key, value in wishes.items() if key.startswith("gpu-")}
    pods.on_update(a_pod("r", {}, not_bound_by_us, **{"nvidia.com/gpu": "0"}))
    assert taken(scheduler)[0] == 0
    pods.on_update(a_pod("s", {}, wishes, **{"nvidia.com/gpu": "0"}))
    assert taken(scheduler)[0] == 0, "one GPU is named for eight parts"
    wishes["gangsched.io/gpu-devices"] = "0,1,2,3,4,5,6,7"
    pods.on_update(a_pod("q", {}, wishes, **{"nvidia.com/gpu": "0"}))
    assert taken(scheduler)[0] == 8


def test_a_pod_is_charged_what_its_node_has_given_it(one_node):
    scheduler, pods = one_node
    raw = json.loads(a_pod("p", QUEUE))
    raw["status"]["containerStatuses"] = [
        {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}
    ]
    pods.on_update(a_pod("p", QUEUE))
    cluster = scheduler.engine.view.cluster
    cpu = cluster.resources.index("cpu")
    assert cluster.used[0, cpu] == 1000
    pods.on_update(json.dumps(raw).encode())  # the same generation: what changed is the status
    assert cluster.used[0, cpu] == 3000
    pods.on_update(a_pod("p", QUEUE))
    assert cluster.used[0, cpu] == 1000


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "ju", "controller": True}
TOGETHER = {"gangsched.io/pod-group": "g", "gangsched.io/min-member": "2"}
ABOUT = {
    "pods of one gang by labels, of a Job": (TOGETHER, OWNER, ("Job", "j", "ju")),
    "pods that nobody made": (TOGETHER, None, ("Pod", "p", "p")),
    "a pod that is a gang by itself": (
        {},
        OWNER | {"apiVersion": "apps/v1", "kind": "ReplicaSet"},
        ("Pod", "p", "p"),
    ),
    "pods of a Job that is not there": ({}, OWNER, ("Job", "j", "ju")),
    "somebody who is not their controller": (
        TOGETHER,
        OWNER | {"controller": False},
        ("Pod", "p", "p"),
    ),
}


@pytest.mark.parametrize("case", ABOUT)
def test_events_are_about_what_its_user_looks_at(one_node, case):
    labels, owner, about = ABOUT[case]
    scheduler, pods = one_node
    raw = json.loads(a_pod("p", labels, node=""))
    raw["status"] = {"phase": "Pending"}
    raw["metadata"]["ownerReferences"] = [owner] if owner else []
    pods.on_update(json.dumps(raw).encode())
    (subject,) = scheduler.status._subjects.values()
    assert (subject.kind, subject.name, subject.uid) == about


def warned(scheduler) -> list[str]:
    """Return what Events are to be written of keys that nobody knows."""
    words = scheduler.status._records.values()
    return [message for word in words for reason, message in word.events if reason == "UnknownKey"]


def test_a_misspelt_key_of_a_pod_is_reported_once_for_its_gang(one_node):
    scheduler, pods = one_node
    for name in "abc":
        notes = {"gangsched.io/topology-requried": "rack"}
        pods.on_update(a_pod(name, TOGETHER | {"app": "x"}, notes, node=""))
    (said,) = warned(scheduler)
    assert "gangsched.io/topology-requried" in said
    assert "did you mean gangsched.io/topology-required?" in said


def test_pods_with_many_different_keys_are_reported_a_few_times(one_node):
    scheduler, pods = one_node
    for index in range(50):
        pods.on_update(a_pod(f"p{index}", TOGETHER, {f"gangsched.io/x{index}": "1"}, node=""))
    assert len(warned(scheduler)) == 4


@pytest.mark.parametrize("kind", ["PodGroup", "theirs"])
def test_a_misspelt_key_of_a_group_is_reported_once(cluster, kind):
    scheduler, there = cluster
    raw = json.loads(written("g", spec={"minMember": 1}))
    raw["metadata"]["labels"] = {"gangsched.io/queue": "q"}
    for version in ("1", "2"):
        raw["metadata"]["resourceVersion"] = version
        there[kind].on_update(json.dumps(raw).encode())
    (said,) = warned(scheduler)
    assert "did you mean gangsched.io/queue-name?" in said


@pytest.mark.parametrize(
    ("version", "field"),
    [
        (
            "kubeflow.org/v1",
            "PyTorchJob ns/j: spec.runPolicy.schedulingPolicy.priorityClass 'high'",
        ),
        ("v1", "PodGroup ns/g: spec.priorityClassName 'high'"),
    ],
)
def test_a_missing_class_is_reported_by_the_users_field(cluster, version, field):
    scheduler, there = cluster
    raw = json.loads(written("g", **WITHOUT["PodGroup"]))
    owner = OWNER | {"apiVersion": version, "kind": "PyTorchJob"}
    raw["metadata"]["ownerReferences"] = [owner]
    there["PodGroup"].on_update(json.dumps(raw).encode())
    (message,) = scheduler.status._invalid.values()
    assert message.startswith(f"{field} does not exist")


# -- decoding ---------------------------------------------------------------------------------


class Counting:
    """A decoder that counts."""

    def __init__(self, decoder):
        self.decoder, self.count = decoder, 0

    def decode(self, raw):
        self.count += 1
        return self.decoder.decode(raw)


@pytest.mark.parametrize("kind", ["PodGroup", "theirs", "Queue"])
def test_an_object_is_decoded_once(cluster, monkeypatch, kind):
    _, there = cluster
    decoders = [Counting(metadata.any_decoder), Counting(metadata.group_decoder)]
    monkeypatch.setattr(metadata, "any_decoder", decoders[0])
    monkeypatch.setattr(metadata, "group_decoder", decoders[1])
    for member in (1, 2):
        there[kind].on_update(written("g", spec={} if kind == "Queue" else {"minMember": member}))
        assert sum(decoder.count for decoder in decoders) == member
