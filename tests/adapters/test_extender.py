"""What kube-scheduler is told: look-ups, refusals in words, and malformed calls."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from builders import POLICIES, gang, node, plan, pod

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.model import PodUid
from gangsched.extender.server import Extender
from gangsched.kube.receivers import OUR_MARK
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


@pytest.mark.parametrize("path", ["/filter", "/bind"])
@pytest.mark.parametrize("body", ["", "{}", "[1]", '{"Pod": 3}', "\x00"])
async def test_malformed_calls_get_a_sentence(scheduler, path, body):
    answer = await call(scheduler, path, body.encode())
    assert answer["Error"].startswith(OUR_MARK)
