"""What receivers make of objects that come, go and come again under the same name."""

import contextlib
import gc
import json

import pytest
from builders import POLICIES
from prometheus_client import generate_latest

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.kube import groups
from gangsched.kube.errors import EngineError
from gangsched.kube.receivers import Nodes
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
