"""What kube-scheduler is told: look-ups, refusals in words, and malformed calls."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from builders import POLICIES, gang, node, plan, pod
from waiting import until_async

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.model import NodeName, PodUid
from gangsched.extender.server import Extender
from gangsched.kube.binding import Pods
from gangsched.kube.receivers import OUR_MARK, PodsSeen
from gangsched.kube.scheduler import Scheduler
from gangsched.metrics import Metrics


@pytest.fixture
def scheduler():
    """A scheduler that knows one node and a pod reserved for it; it never calls an API."""
    made = Scheduler(None, SchedulerConfig(), POLICIES, Metrics())
    made.binding = Extender(made, barrier_s=0.1)
    made.engine.observe(f.NodeSeen(node("n1")), 0.0)
    made.engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    made.engine.observe(pod("a", "g"), 0.0)
    made.ready.set()
    return made


async def call(scheduler, path, body) -> dict:
    """POST a body and return the answer."""
    app = web.Application()
    app.add_routes(scheduler.binding.routes())
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
    assert answer["FailedNodes"]["n0"].startswith(OUR_MARK)


async def test_filter_breaks_a_gang_whose_node_kube_scheduler_rejected(scheduler):
    for order in plan(scheduler.engine):
        del order  # the orders themselves are of no interest here
    answer = await call(scheduler, "/filter", filter_args("a", ["n0"]))
    assert "own filters rejected n1" in answer["FailedNodes"]["n0"]
    assert scheduler.engine.reservation(PodUid("a")) is None


async def test_filter_needs_node_names(scheduler):
    answer = await call(scheduler, "/filter", filter_args("a", None))
    assert "nodeCacheCapable" in answer["Error"]


async def test_nothing_is_answered_from_an_unknown_state(scheduler):
    scheduler.ready.clear()
    answer = await call(scheduler, "/filter", filter_args("a", ["n1"]))
    assert "not known here" in answer["Error"]


async def test_who_does_not_lead_lets_go_of_the_connection(scheduler):
    """kube-scheduler keeps connections open, and a Service looks for the leader in new ones."""
    app = web.Application()
    app.add_routes(scheduler.binding.routes())
    async with TestClient(TestServer(app)) as client:
        for leads in (True, False):
            scheduler.may_act = lambda leads=leads: leads
            for path, body in (("/filter", filter_args("a", ["n1"])), ("/bind", "{}")):
                answer = await client.post(path, data=body)
                closes = answer.headers.get("Connection") == "close"
                assert closes != leads


async def test_bind_refuses_another_node(scheduler):
    plan(scheduler.engine)
    body = {"PodName": "a", "PodNamespace": "ns", "PodUID": "a", "Node": "n9"}
    answer = await call(scheduler, "/bind", json.dumps(body))
    assert answer["Error"] == f"{OUR_MARK} n9 is not reserved for this pod"


class Api:
    """An API server that only hears of changes."""

    def __init__(self) -> None:
        self.patches: list[dict] = []

    async def patch(self, _, body) -> bytes:
        self.patches.append(body["metadata"]["annotations"])
        return b"{}"


async def woken(scheduler) -> list[dict]:
    """Plan, carry the orders out, and return how pods were changed."""
    scheduler.pods = Pods(api := Api(), scheduler.observe, Metrics(), 1)
    scheduler.execute(plan(scheduler.engine))
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
        scheduler.observe(f.PrepareFailed(PodUid("a"), NodeName("n1"), "volume is elsewhere"))
        scheduler.engine.tick(scheduler.now_s() + 100.0)
    first, second = changes
    assert first != second


async def test_who_was_put_aside_under_another_leader_is_woken(scheduler):
    message = f"0/1 nodes are available: 1 {OUR_MARK} the gang of this pod is not placed yet."
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
    PodsSeen(scheduler).take(raw)
    assert len(await woken(scheduler)) == 1


@pytest.mark.parametrize("path", ["/filter", "/bind"])
@pytest.mark.parametrize("body", ["", "{}", "[1]", '{"Pod": 3}', "\x00"])
async def test_malformed_calls_get_a_sentence(scheduler, path, body):
    answer = await call(scheduler, path, body.encode())
    assert answer["Error"].startswith(OUR_MARK)
