"""What receivers make of objects that come, go and come again under the same name."""

import contextlib
import gc
import json

import pytest
from builders import POLICIES
from prometheus_client import generate_latest

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.kube import foreign, groups
from gangsched.kube.declarations import Namespaces, PriorityClasses
from gangsched.kube.errors import EngineError
from gangsched.kube.receivers import Foreign, Nodes, PodGroups
from gangsched.kube.scheduler import Scheduler
from gangsched.kube.watch import long_lived
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


def test_a_node_that_was_made_anew_is_not_gone():
    """After a gap in its watch, a list tells first of what is there and then of what vanished."""
    heard = Heard()
    nodes = Nodes(heard)
    nodes.seen(node("old"))
    nodes.seen(node("new"))
    nodes.gone("old", None)
    assert [type(fact) for fact in heard.facts] == [f.NodeSeen, f.NodeSeen]
    nodes.gone("new", None)
    assert heard.facts[-1] == f.NodeGone("n")


def test_an_object_that_we_fail_to_read_ends_nothing(monkeypatch, caplog):
    heard = Heard()
    monkeypatch.setattr(groups, "node_fact", lambda _: {}["a defect"])
    Nodes(heard).seen(node("u"))
    assert heard.facts == [f.NodeGone("n")]  # as with any node that is not understood
    assert b'gangsched_malformed_objects_total{kind="Node"} 1.0' in generate_latest(
        heard.metrics.registry
    )
    assert "a defect" in caplog.text


def test_a_failure_of_the_engine_ends_the_process(monkeypatch):
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), look_only=True)
    monkeypatch.setattr(scheduler.engine, "observe", lambda *_: {}["a defect"])
    with pytest.raises(EngineError):
        Nodes(scheduler).seen(node("u"))


VOLCANOS = next(one for one in foreign.KINDS if one.api_version.startswith("scheduling.volcano"))


@pytest.fixture
def cluster():
    """Return a scheduler that changes nothing, and what its watches tell, kind by kind."""
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), look_only=True)
    there = {
        "PriorityClass": PriorityClasses(scheduler),
        "Namespace": Namespaces(scheduler),
        "Queue": scheduler.queues,
        "PodGroup": PodGroups(scheduler),
        "theirs": Foreign(scheduler, VOLCANOS),
    }
    scheduler.receivers += there.values()
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
    queues = scheduler.engine.ledger.usage.tree.queues
    gangs = [one for one in scheduler.engine.gangs.values() if one.spec is not None]
    return "x" in queues if kind == "Queue" else bool(gangs)


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_class_may_come_after_what_names_it(cluster, kind):
    """Two watches tell of one `kubectl apply` in any order."""
    scheduler, there = cluster
    there[kind].seen(written("x", **WITHOUT[kind]))
    assert not stands(scheduler, kind)
    there["PriorityClass"].seen(written("low", "c", value=1))
    assert not stands(scheduler, kind)
    there["PriorityClass"].seen(written("high", "d", value=7))
    assert stands(scheduler, kind)


@pytest.mark.parametrize("kind", WITHOUT)
def test_what_was_deleted_meanwhile_does_not_come_back_with_its_class(cluster, kind):
    scheduler, there = cluster
    there[kind].seen(written("x", **WITHOUT[kind]))
    there[kind].gone("u", None)
    there["PriorityClass"].seen(written("high", "d", value=7))
    assert not stands(scheduler, kind)


def test_what_was_mended_meanwhile_stays_as_it_is(cluster):
    scheduler, there = cluster
    there["PodGroup"].seen(written("x", **WITHOUT["PodGroup"]))
    there["PodGroup"].seen(written("x", spec={"minMember": 3}))
    there["PriorityClass"].seen(written("high", "d", value=7))
    assert scheduler.engine.gangs["ns/x"].spec.min_member == 3


KINDS = ["PodGroup", "theirs"]


def group(annotation: str = "") -> bytes:
    """Return a group, with an annotation of ours that is understood or not."""
    wished = {"gangsched.io/max-runtime-seconds": annotation} if annotation else {}
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "annotations": wished}
    return json.dumps({"metadata": metadata, "spec": {"minMember": 2}}).encode()


def told(scheduler) -> tuple[str, list[str]]:
    """Return the reason and the Events a group is to be told."""
    ((_, word),) = scheduler.status._words.items()
    return word.reason, [message for reason, message in word.events if reason == "Invalid"]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_mistake_of_a_new_group_is_told(cluster, kind):
    scheduler, there = cluster
    for wrong in ("soon", "later"):
        there[kind].seen(group(wrong))
        reason, events = told(scheduler)
        assert reason == "Invalid"
        assert f"'{wrong}'" in events[-1]
    there[kind].seen(group())
    assert stands(scheduler, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_that_was_understood_goes_on_and_hears_of_its_mistake_once(cluster, kind):
    scheduler, there = cluster
    there[kind].seen(group())
    before = scheduler.engine.gangs
    for _ in range(3):
        there[kind].seen(group("soon"))
    assert list(before) == list(scheduler.engine.gangs)
    reason, events = told(scheduler)
    assert reason != "Invalid"
    assert len(events) == 1
    assert "'soon'; it must be a whole number" in events[0]
    assert events[0].endswith("What was declared before goes on.")
    there[kind].seen(group())
    there[kind].seen(group("soon"))
    assert len(told(scheduler)[1]) == 2


def test_namespaces_bring_no_malformed_queue_up_again(cluster, caplog):
    scheduler, there = cluster
    chosen = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    there["Queue"].seen(written("x", spec=chosen))
    there["Queue"].seen(written("x", spec={"weight": "heavy"}))
    there["Namespace"].seen(json.dumps({"metadata": {"name": "ns", "uid": "n"}}).encode())
    labelled = {"name": "other", "uid": "o", "labels": {"team": "a"}}
    there["Namespace"].seen(json.dumps({"metadata": labelled}).encode())
    assert caplog.text.count("weight") == 1
    queue = scheduler.engine.ledger.usage.tree.queues["x"]
    assert queue.namespaces == {"other"}, "the last valid declaration goes on"


def test_a_queue_that_was_made_anew_is_not_gone(cluster):
    scheduler, there = cluster
    there["Queue"].seen(written("x", "old", spec={}))
    there["Queue"].seen(written("x", "new", spec={"weight": 2}))
    there["Queue"].gone("old", None)
    assert stands(scheduler, "Queue")
    there["Queue"].gone("new", None)
    assert not stands(scheduler, "Queue")


def test_a_long_value_is_cut_in_its_middle(cluster, caplog):
    _, there = cluster
    long = {"max-runtime-seconds": "9" * 5000, "slices": "{" * 5000, "gpu-kinds": "," * 5000}
    for key, value in long.items():
        annotations = {f"gangsched.io/{key}": value}
        metadata = {"name": "x", "namespace": "ns", "uid": "u", "annotations": annotations}
        there["PodGroup"].seen(json.dumps({"metadata": metadata, "spec": {}}).encode())
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
