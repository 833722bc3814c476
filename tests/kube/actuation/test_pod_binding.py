"""Calls about single pods while the API server fails: which are retried, and how long."""

import json

import pytest

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.kube.actuation import job_counters, pod_binding
from gangsched.kube.actuation.pod_binding import PodClient
from gangsched.kube.client.client import STRATEGIC
from gangsched.kube.client.errors import Conflict, Invalid, KubeError, RbacDenied, error_for
from gangsched.metrics import Metrics

RBAC = 'pods "p" is forbidden: User "system:serviceaccount:a:b" cannot delete resource "pods"'
QUOTA = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
OF = (GangId("ns/g"), PodUid("u"), PodName("ns/p"))
NODE = NodeName("n")
TRACKED = "batch.kubernetes.io/job-tracking"


class Api:
    """An API server that answers with errors first."""

    def __init__(self, *errors: KubeError | None, gates=(names.GATE,), silent=0) -> None:
        self.errors, self.gates, self.silent = list(errors), gates, silent
        self.calls = self.looks = 0

    def _answer(self) -> bytes:
        self.calls += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return b"{}"

    async def request(self, *_, **__) -> bytes:
        return self._answer()

    async def delete(self, *_) -> bytes:
        return self._answer()

    async def patch(self, _, operations, *__) -> bytes:
        answer = self._answer()
        uid, gate, _ = operations
        if uid["value"] != "u" or self.gates[:1] != (gate["value"],):
            raise Invalid(422, "test failed")
        return answer

    async def get(self, _) -> bytes:
        self.looks += 1
        if self.looks <= self.silent:
            raise error_for(503, "etcd")
        gates = [{"name": one} for one in self.gates]
        metadata = {"name": "p", "namespace": "ns", "uid": "u"}
        return json.dumps({"metadata": metadata, "spec": {"schedulingGates": gates}}).encode()


class Clock:
    """Stands for the module `time`: every look at it is a second later than the one before."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 1.0
        return self.now_s


class OfAJob:
    """The pod of a Job; `happens` is called before each patch with its number."""

    def __init__(self, uid="u", finalizers=(TRACKED, "another.io/one"), happens=None) -> None:
        self.pod = {
            "metadata": {"uid": uid, "resourceVersion": "1", "finalizers": list(finalizers)},
            "status": {"phase": "Running"},
        }
        self.happens = happens or (lambda _: None)
        self.patches = 0
        self.deleted: list[str] | None = None

    async def get(self, _) -> bytes:
        return json.dumps(self.pod).encode()

    async def patch(self, _, body, kind) -> bytes:
        assert kind == STRATEGIC
        self.patches += 1
        self.happens(self.patches)
        asked, metadata = body["metadata"], self.pod["metadata"]
        if (asked["uid"], asked["resourceVersion"]) != (
            metadata["uid"],
            metadata["resourceVersion"],
        ):
            raise Conflict(409, "the object has been modified")
        for one in asked["$deleteFromPrimitiveList/finalizers"]:
            metadata["finalizers"].remove(one)
        return b"{}"

    async def delete(self, *_) -> bytes:
        self.deleted = list(self.pod["metadata"]["finalizers"])
        return b"{}"

    def becomes(self, **status) -> None:
        self.pod["metadata"]["resourceVersion"] += "1"
        self.pod["status"] |= status


@pytest.fixture
def told(monkeypatch) -> list[f.Fact]:
    """Return the facts that are told; the next try comes at once."""
    monkeypatch.setattr(pod_binding, "_RETRY_S", 0.0)
    monkeypatch.setattr(pod_binding, "time", Clock())
    return []


def pods(api: Api, told) -> PodClient:
    return PodClient(api, told.append, Metrics(), 1)


@pytest.mark.parametrize(("message", "by_rbac"), [(RBAC, True), (QUOTA, False)])
def test_rbac_is_distinguished_from_quotas(message, by_rbac):
    assert isinstance(error_for(403, message), RbacDenied) == by_rbac


async def test_a_pod_is_evicted_however_often_it_is_forbidden(told, monkeypatch):
    monkeypatch.setattr(pod_binding, "_RIGHTS_S", 0.0)
    api = Api(error_for(403, RBAC), error_for(403, QUOTA), error_for(503, "etcd"))
    await pods(api, told).evict(o.Evict(*OF, "its gang broke"))
    assert api.calls == 4


async def test_a_job_counts_no_pod_that_is_stopped(told):
    api = OfAJob()
    await pods(api, told).evict(o.Evict(*OF, "its gang broke"))
    assert (api.deleted, api.patches) == (["another.io/one"], 1)


async def test_a_pod_of_no_job_is_only_deleted(told):
    api = OfAJob(finalizers=())
    await pods(api, told).evict(o.Evict(*OF, "its gang broke"))
    assert (api.deleted, api.patches) == ([], 0)


async def test_a_pod_that_ends_just_then_is_counted(told, monkeypatch):
    monkeypatch.setattr(job_counters, "_RETRY_S", 0.0)
    api = OfAJob(happens=lambda _: api.becomes(phase="Succeeded"))
    await pods(api, told).evict(o.Evict(*OF, "its gang broke"))
    assert (api.deleted, api.patches) == ([TRACKED, "another.io/one"], 1)


async def test_a_pod_that_changes_just_then_is_looked_at_again(told, monkeypatch):
    monkeypatch.setattr(job_counters, "_RETRY_S", 0.0)
    api = OfAJob(happens=lambda number: api.becomes() if number == 1 else None)
    await pods(api, told).evict(o.Evict(*OF, "its gang broke"))
    assert (api.deleted, api.patches) == (["another.io/one"], 2)


async def test_a_successor_of_the_same_name_stays_counted(told):
    api = OfAJob(uid="successor")
    await pods(api, told).evict(o.Evict(*OF, "its gang broke"))
    assert api.patches == 0


async def test_a_bind_waits_for_rules_to_be_read(told):
    assert await pods(Api(error_for(403, RBAC)), told).bind(o.Bind(*OF, NODE))
    assert told == [f.Bound(OF[1], NODE)]


@pytest.mark.parametrize(("message", "tried_again"), [(RBAC, True), (QUOTA, False)])
async def test_a_bind_that_stays_forbidden_is_refused(told, message, tried_again):
    api = Api(*[error_for(403, message)] * 100)
    assert not await pods(api, told).bind(o.Bind(*OF, NODE))
    assert told == [f.BindFailed(OF[1], NODE, message)]
    assert (api.calls > 1) == tried_again


async def test_an_only_gate_goes_without_a_look(told):
    api = Api()
    assert await pods(api, told).ungate(o.Prepare(*OF, NODE, gated=True))
    assert (api.calls, api.looks) == (1, 0)


async def test_a_pod_that_changed_meanwhile_is_ungated_all_the_same(told):
    api = Api(Conflict(409, "changed"))
    assert await pods(api, told).ungate(o.Prepare(*OF, NODE, gated=True))
    assert (api.calls, api.looks) == (2, 0)


async def test_a_gate_is_tried_again_while_an_api_server_reads_its_rules(told, monkeypatch):
    monkeypatch.setattr(pod_binding, "_RIGHTS_S", 0.0)
    api = Api(error_for(403, RBAC), error_for(403, RBAC))
    assert await pods(api, told).ungate(o.Prepare(*OF, NODE, gated=True))
    assert api.calls == 3
    api = Api(*[error_for(403, RBAC)] * 100)
    with pytest.raises(RbacDenied):
        await pods(api, told).ungate(o.Prepare(*OF, NODE, gated=True))
    assert api.calls == 13


async def test_a_gate_that_may_not_go_is_said(told):
    api = Api(Invalid(422, "a policy says no"))
    with pytest.raises(Invalid, match="a policy says no"):
        await pods(api, told).ungate(o.Prepare(*OF, NODE, gated=True))
    assert (api.calls, api.looks) == (1, 1)


async def test_a_gate_that_is_gone_is_as_good(told):
    api = Api(gates=())
    assert await pods(api, told).ungate(o.Prepare(*OF, NODE, gated=True))
    assert (api.calls, api.looks) == (1, 1)


async def test_a_look_is_tried_until_it_is_answered(told):
    api = Api(gates=(), silent=3)
    assert await pods(api, told).ungate(o.Prepare(*OF, NODE, gated=True))
    assert (api.calls, api.looks) == (1, 4)


async def test_a_pod_of_the_same_name_keeps_its_gate(told):
    api = Api()
    of = (OF[0], PodUid("another"), OF[2])
    assert not await pods(api, told).ungate(o.Prepare(*of, NODE, gated=True))
    assert (api.calls, api.looks) == (1, 1)
