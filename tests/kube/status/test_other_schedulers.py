"""Pods of a group with a scheduler that does not run: the group's status says so."""

import asyncio
import json

import pytest
from builders import POLICIES

from gangsched.cli.cluster.view import ClusterView
from gangsched.cli.queries import explain
from gangsched.config import SchedulerConfig
from gangsched.core.model.ids import GangId
from gangsched.kube.service import Scheduler
from gangsched.kube.status import other_schedulers
from gangsched.metrics import Metrics

GANG = GangId("default/scheduling.x-k8s.io:j")


def pod(uid: str, *, conditions: list | None = None) -> bytes:
    """Return a pod as the Training Operator makes it when it was told of another scheduler."""
    labels = {"scheduling.x-k8s.io/pod-group": "j"}
    return json.dumps(
        {
            "metadata": {"name": uid, "namespace": "default", "uid": uid, "labels": labels},
            "spec": {"schedulerName": "scheduler-plugins", "containers": []},
            "status": {"phase": "Pending", "conditions": conditions or []},
        }
    ).encode()


def group() -> bytes:
    metadata = {"name": "j", "namespace": "default", "uid": "g"}
    return json.dumps({"metadata": metadata, "spec": {"minMember": 2}}).encode()


@pytest.fixture
def seen(monkeypatch):
    """Return a scheduler that acts, what reads its pods, and what reads its groups."""
    monkeypatch.setattr(other_schedulers, "_LASTS_S", 0.0)
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics())
    informers = scheduler.informers
    groups = (one for one in informers.owners.groups if "scheduling.x-k8s.io" in one.kind)
    return scheduler, informers.pods, next(groups)


def told(scheduler: Scheduler) -> list[str]:
    word = scheduler.status._records.get(GANG)
    return [
        text for reason, text in (word.events if word else ()) if reason == other_schedulers.REASON
    ]


async def _look(scheduler: Scheduler) -> None:
    """Have it look once for pods that nobody looks at."""
    task = asyncio.create_task(scheduler.status.strays.run(scheduler.status._hint_at_strays))
    await asyncio.sleep(0)
    task.cancel()


async def test_a_group_reports_pods_that_no_scheduler_serves(seen):
    scheduler, pods, groups = seen
    groups.on_update(group())
    scheduler.status._records[GANG].reason = "TooFewPods"
    pods.on_update(pod("j-0"))
    pods.on_update(pod("j-1"))
    await _look(scheduler)
    (text, *_) = told(scheduler)
    assert text == (
        "2 pods of the group name the scheduler 'scheduler-plugins', which gangsched does not "
        "serve here; it serves: gangsched."
    )
    view = ClusterView(
        scheduler.engine, POLICIES, scheduler.now_s(), strays=scheduler.status.strays.sentence
    )
    assert explain(view, GANG)["message"].endswith(text)


async def test_pods_of_a_running_scheduler_are_not_reported(seen):
    scheduler, pods, groups = seen
    groups.on_update(group())
    scheduler.status._records[GANG].reason = "TooFewPods"
    pods.on_update(pod("j-0"))
    pods.on_update(pod("j-0", conditions=[{"type": "PodScheduled", "status": "False"}]))
    pods.on_update(pod("j-1"))
    pods.on_delete("j-1", None)
    await _look(scheduler)
    assert told(scheduler) == []
    assert scheduler.status.strays.sentence(GANG) == ""


async def test_pods_without_a_group_are_not_kept(seen):
    scheduler, pods, _ = seen
    alone = json.loads(pod("p"))
    del alone["metadata"]["labels"]
    pods.on_update(json.dumps(alone).encode())
    assert scheduler.status.strays._pods == {}
