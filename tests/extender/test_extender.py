"""Answers to kube-scheduler: look-ups, refusals with reasons, and malformed calls."""

import asyncio
import json
from functools import partial
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from builders import POLICIES, gang, needs, node, plan, pod, templated
from waiting import until_async

from gangsched.api.names import REFUSAL_PREFIX
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.engine.gangs.member import Stage, State
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.extender import server
from gangsched.extender.server import ExtenderBinder
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics


class Api:
    """An API server that only hears of changes."""

    def __init__(self) -> None:
        self.patches: list[dict] = []

    async def patch(self, _, body) -> bytes:
        self.patches.append(body["metadata"]["annotations"])
        return b"{}"


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def leads():
    return Mock(return_value=True)


@pytest.fixture
def scheduler(api, leads):
    """A scheduler that knows one node and a pod reserved for it; it never calls an API."""
    made = Scheduler(
        api,
        SchedulerConfig(),
        POLICIES,
        Metrics(),
        make_binder=partial(ExtenderBinder, schedule_timeout_s=3600.0),
        leads=leads,
    )
    made.engine.observe(f.NodeSeen(node("n1")), 0.0)
    made.engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    made.engine.observe(pod("a", "g"), 0.0)
    made.ready.set()
    return made


async def call(scheduler, path, body) -> dict:
    """POST a body and return the answer."""
    app = web.Application()
    app.add_routes(scheduler.binder.routes())
    async with TestClient(TestServer(app)) as client:
        answer = await client.post(path, data=body)
        assert answer.status == 200, "kube-scheduler reads the Error field, not the status"
        return json.loads(await answer.read())


def filter_args(uid: str, nodes) -> str:
    return json.dumps({"Pod": {"metadata": {"uid": uid}}, "NodeNames": nodes})


async def test_filter_answers_with_the_reserved_node(scheduler):
    plan(scheduler.engine)
    answer = await call(scheduler, "/filter", filter_args("a", ["n0", "n1"]))
    assert answer["NodeNames"] == ["n1"]


async def test_filter_turns_an_unplanned_pod_away(scheduler):
    answer = await call(scheduler, "/filter", filter_args("stranger", ["n0", "n1"]))
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"].keys() == {"n0", "n1"}
    assert answer["FailedNodes"]["n0"].startswith(REFUSAL_PREFIX)


async def test_filter_breaks_a_gang_whose_node_kube_scheduler_rejected(scheduler):
    for order in plan(scheduler.engine):
        del order  # the orders themselves are of no interest here
    answer = await call(scheduler, "/filter", filter_args("a", ["n0"]))
    assert "own filters rejected n1" in answer["FailedNodes"]["n0"]
    assert scheduler.engine.view.assigned_node(PodUid("a")) is None


async def test_filter_needs_node_names(scheduler):
    answer = await call(scheduler, "/filter", filter_args("a", None))
    assert "nodeCacheCapable" in answer["Error"]


async def test_nothing_is_answered_from_an_unknown_state(scheduler):
    scheduler.ready.clear()
    answer = await call(scheduler, "/filter", filter_args("a", ["n1"]))
    assert "not known here" in answer["Error"]


async def test_who_does_not_lead_lets_go_of_the_connection(scheduler, leads):
    """kube-scheduler keeps connections open, and a Service looks for the leader in new ones."""
    app = web.Application()
    app.add_routes(scheduler.binder.routes())
    async with TestClient(TestServer(app)) as client:
        for leading in (True, False):
            leads.return_value = leading
            for path, body in (("/filter", filter_args("a", ["n1"])), ("/bind", "{}")):
                answer = await client.post(path, data=body)
                closes = answer.headers.get("Connection") == "close"
                assert closes != leading


async def test_bind_refuses_another_node(scheduler):
    plan(scheduler.engine)
    body = {"PodName": "a", "PodNamespace": "ns", "PodUID": "a", "Node": "n9"}
    answer = await call(scheduler, "/bind", json.dumps(body))
    assert answer["Error"] == f"{REFUSAL_PREFIX} n9 is not reserved for this pod"


# -- pods that kube-scheduler sees first ----------------------------------------------------------


@pytest.fixture
def planned(scheduler, monkeypatch):
    """Return the scheduler with a gang of two that has its room, and no pod yet."""
    monkeypatch.setattr(server, "_SEEN_S", 3600.0)
    scheduler.engine.observe(f.PodGone(PodUid("a")), 0.0)
    scheduler.engine.observe(f.GangGone(GangId("ns/g")), 0.0)
    scheduler.engine.observe(f.GangSeen(templated("p", 2, needs(4))), 0.0)
    plan(scheduler.engine)
    assert scheduler.engine.view.gangs["ns/p"].state is State.RESERVED
    return scheduler


def first_seen(uid: str = "p0", name: str = "p-worker-0", gang: str = "p") -> str:
    """Return the arguments of /filter for a pod that no fact was observed of."""
    labels = {"gangsched.io/pod-group": gang}
    metadata = {"uid": uid, "name": name, "namespace": "ns", "labels": labels}
    return json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["n1"]})


def came(wants=None):
    return pod("p-worker-0", "p", wants or needs(4), uid="p0", role="worker")


async def test_a_pod_with_a_place_is_not_turned_away_before_it_is_seen(planned):
    answer = await call(planned, "/filter", first_seen())
    assert answer["NodeNames"] == ["n1"]
    assert planned.engine.view.gangs["ns/p"].state is State.RESERVED, "nothing is at the barrier"


@pytest.mark.parametrize("other", [{"name": "p-worker-2"}, {"gang": "q"}, {"gang": ""}])
async def test_others_are_turned_away_before_they_are_seen(planned, other):
    answer = await call(planned, "/filter", first_seen(**other))
    assert answer["NodeNames"] == []


async def test_a_second_pod_of_a_name_has_no_place(planned):
    planned.driver.observe(came())
    answer = await call(planned, "/filter", first_seen(uid="another"))
    assert answer["NodeNames"] == []


@pytest.mark.parametrize("asks", [4, 5])
async def test_its_binding_waits_until_it_is_seen_and_is_what_was_planned(planned, asks):
    await call(planned, "/filter", first_seen())
    held = asyncio.ensure_future(planned.binder._hold(PodUid("p0"), NodeName("n1")))
    await asyncio.sleep(0)
    member = planned.engine.view.gangs["ns/p"].members["ns/p-worker-0"]
    assert member.stage is Stage.RESERVED, "what was not seen is not at the barrier"
    planned.driver.observe(came(needs(asks)))
    if asks > 4:
        planned.binder.forget(PodUid("p0"))  # its gang is stopped, and the pod is deleted
        assert await held == f"{REFUSAL_PREFIX} n1 is not reserved for this pod"
        return
    await until_async(lambda: member.stage is Stage.PREPARED, "the pod at the barrier")
    assert not held.done(), "the other is not there yet"
    held.cancel()


async def test_who_ends_turns_its_callers_away(planned, leads):
    """The held call at once, and those that come while it is still taken for the leader."""
    planned.driver.observe(came())
    member = planned.engine.view.gangs["ns/p"].members["ns/p-worker-0"]
    held = asyncio.ensure_future(planned.binder._hold(PodUid("p0"), NodeName("n1")))
    await until_async(lambda: member.stage is Stage.PREPARED, "the pod at the barrier")
    leads.return_value = False
    ending = asyncio.create_task(planned.binder.turn_away(3600.0))
    assert await held == f"{REFUSAL_PREFIX} this process ends"
    late = await call(planned, "/filter", first_seen())
    assert late["Error"] == f"{REFUSAL_PREFIX} reservations are not known here (yet)"
    assert not ending.done()
    ending.cancel()


async def test_a_pod_that_is_never_seen_is_let_go(planned, monkeypatch):
    monkeypatch.setattr(server, "_SEEN_S", 0.0)
    await call(planned, "/filter", first_seen())
    error = await planned.binder._hold(PodUid("p0"), NodeName("n1"))
    assert "n1 is not reserved for this pod" in error
    assert not planned.binder._unseen


async def woken(scheduler) -> list[dict]:
    """Plan, carry the orders out, and return how pods were changed."""
    api = scheduler.pods._client
    api.patches = []
    scheduler.driver.execute(plan(scheduler.engine))
    await until_async(lambda: not scheduler.pods._tasks, "the end of what the orders began")
    return api.patches


async def test_who_was_never_put_aside_is_not_woken(scheduler):
    assert not await woken(scheduler)


async def test_who_is_put_aside_again_is_woken_again(scheduler):
    """A change that changes nothing wakes nobody: the pod would sleep for five minutes."""
    changes = []
    for _ in range(2):
        await call(scheduler, "/filter", filter_args("a", ["n1"]))
        changes += await woken(scheduler)
        scheduler.driver.observe(
            f.PrepareFailed(PodUid("a"), NodeName("n1"), "volume is elsewhere")
        )
        scheduler.engine.tick(scheduler.now_s() + 100.0)
    first, second = changes
    assert first != second


async def test_who_was_put_aside_under_another_leader_is_woken(scheduler):
    message = f"0/1 nodes are available: 1 {REFUSAL_PREFIX} the gang of this pod is not placed yet."
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    metadata = {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "2"}
    metadata["labels"] = {"gangsched.io/pod-group": "g"}
    spec = {"schedulerName": "gangsched", "containers": []}
    status = {"phase": "Pending", "conditions": [condition]}
    raw = json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()
    scheduler.informers.pods.on_update(raw)
    assert len(await woken(scheduler)) == 1


@pytest.mark.parametrize("path", ["/filter", "/bind"])
@pytest.mark.parametrize("body", ["", "{}", "[1]", '{"Pod": 3}', "\x00"])
async def test_malformed_calls_get_a_sentence(scheduler, path, body):
    answer = await call(scheduler, path, body.encode())
    assert answer["Error"].startswith(REFUSAL_PREFIX)
