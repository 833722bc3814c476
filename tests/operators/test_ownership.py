"""Which kinds our controllers serve while other operators come and go."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from test_conflicting_operators import NOW_S, TRAINING
from waiting import until_async

from gangsched.cli.cluster.lookup import read_job
from gangsched.cli.doctor import job_kind_findings
from gangsched.kube.client.errors import Forbidden, NotFound, Unavailable
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.operators import manager
from gangsched.operators import ownership as module
from gangsched.operators.conflicting_operators import OPERATORS, Sighting
from gangsched.operators.ownership import (
    KEY,
    KindOwners,
    Ownership,
    changes_in_words,
    decide,
    has_operator_rights,
    parse_owners,
    running_operators,
)

KNOWN = ("PyTorchJob", "TFJob", "JobSet")
DEPLOYMENTS, LEASES = "deployments", "leases"
READY = {"readyReplicas": 1}


def deployment(status=READY, account="operator") -> dict:
    """Return the Training Operator's Deployment."""
    pod = {"containers": [{"image": "kubeflow/training-operator:v1"}]}
    pod["serviceAccountName"] = account
    metadata = {"name": "training-operator", "namespace": "kubeflow", "uid": "d"}
    return {"metadata": metadata, "spec": {"template": {"spec": pod}}, "status": status}


class Api:
    """An API server of Deployments, Leases and accounts; `tell` is what its watches say."""

    def __init__(self, **objects) -> None:
        self.objects = {DEPLOYMENTS: [], LEASES: []} | objects
        self.operators = {"operator"}
        self.reviewed, self.written, self.listed = [], [], []
        self.refuses = False
        self._streams: dict[str, list[asyncio.Queue]] = {DEPLOYMENTS: [], LEASES: []}

    async def get(self, path, **params) -> bytes:
        kind = path.rsplit("/", 1)[1]
        if kind in self.objects:
            self.listed.append((kind, params.get("fieldSelector")))
            if self.refuses:
                raise Forbidden(403, "not for you")
            wanted = params.get("fieldSelector", "").partition("metadata.name=")[2]
            items = [one for one in self.objects[kind] if wanted in ("", one["metadata"]["name"])]
            return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
        if path.endswith("/pods/holder"):
            return json.dumps({"spec": {"serviceAccountName": "operator"}}).encode()
        raise NotFound(404, path)

    async def create(self, path, body) -> bytes:
        assert path.endswith("/subjectaccessreviews")
        self.reviewed.append(body["spec"])
        if self.refuses:
            raise Forbidden(403, "not for you")
        user = body["spec"]["user"].rsplit(":", 1)[1]
        return json.dumps({"status": {"allowed": user in self.operators}}).encode()

    async def patch(self, path, body) -> bytes:
        self.written.append((path, body))
        return b"{}"

    async def stream(self, path, params):
        queue: asyncio.Queue = asyncio.Queue()
        if not params.get("fieldSelector") or TRAINING in params["fieldSelector"]:
            self._streams[path.rsplit("/", 1)[1]].append(queue)
        while True:
            yield [await queue.get()]

    def tell(self, kind: str, event: str, body: dict) -> None:
        for queue in self._streams[kind]:
            queue.put_nowait(json.dumps({"type": event, "object": body}).encode())


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def owning(api: Api, wanted=None, clock=None):
    """Run the decision; it has been made once inside."""
    kept = ConfigMapEntry(api, "home/history", KEY)
    made = Ownership(api, KNOWN, wanted, kept, now_s=clock or Clock())
    task = asyncio.create_task(made.run())
    try:
        await until_async(lambda: made.changed.is_set() or task.done(), "the first decision")
        made.changed.clear()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_operator_comes_and_goes_while_we_run(caplog):
    api = Api()
    async with owning(api) as made:
        assert made.owners.ours == set(KNOWN)
        await until_async(lambda: api._streams[DEPLOYMENTS], "the watch")
        api.tell(DEPLOYMENTS, "ADDED", deployment({}))
        api.tell(DEPLOYMENTS, "MODIFIED", deployment())
        await until_async(made.changed.is_set, "the kinds to be left")
        made.changed.clear()
        assert made.owners.ours == {"JobSet"}
        api.tell(DEPLOYMENTS, "DELETED", deployment())
        await until_async(made.changed.is_set, "the kinds to be taken over")
        assert made.owners.ours == set(KNOWN)
        left, taken = [one for one in caplog.messages if one.startswith("jobs of kind")]
        assert left == (
            "jobs of kind PyTorchJob, TFJob are left alone: the Training Operator runs them, by "
            "its Deployment kubeflow/training-operator; name a kind in job_kinds to run it here"
        )
        assert taken == (
            "jobs of kind PyTorchJob, TFJob are run here from now on: no other operator does"
        )
        await until_async(lambda: len(api.written) == 3, "it to be written down")
    path, body = api.written[1]
    assert path == "/api/v1/namespaces/home/configmaps/history"
    assert parse_owners(body["data"][KEY]).ours == {"JobSet"}


async def test_no_node_lease_is_read():
    api = Api()
    async with owning(api):
        selectors = [selector for kind, selector in api.listed if kind == LEASES]
    assert len(selectors) == 4
    assert all(one.startswith("metadata.name=") for one in selectors)


async def test_a_lease_that_is_not_renewed_runs_out_without_an_event(monkeypatch):
    renewed = "2027-01-15T08:00:00.000000Z"
    spec = {"holderIdentity": "holder_1", "leaseDurationSeconds": 15, "renewTime": renewed}
    metadata = {"name": TRAINING, "namespace": "kubeflow", "uid": "l"}
    clock, waited = Clock(), []
    timeout = asyncio.timeout

    def passing(delay_s):
        """Let the time pass that is waited for, and no other."""
        waited.append(delay_s)
        if delay_s == pytest.approx(15.05):
            clock.now_s += delay_s
            return timeout(0)
        return timeout(delay_s)

    monkeypatch.setattr(module.asyncio, "timeout", passing)
    api = Api(leases=[{"metadata": metadata, "spec": spec}])
    async with owning(api, clock=clock) as made:
        await until_async(lambda: made.owners.ours == set(KNOWN), "the Lease to run out")
    assert api.reviewed[0]["user"] == "system:serviceaccount:kubeflow:operator"


async def test_a_deployment_without_an_operators_rights_is_none(caplog):
    api = Api(deployments=[deployment(account="tenant")])
    async with owning(api) as made:
        assert made.owners.ours == set(KNOWN)
    (asked,) = api.reviewed
    assert asked["user"] == "system:serviceaccount:kubeflow:tenant"
    attributes = asked["resourceAttributes"]
    assert (attributes["resource"], attributes["verb"]) == ("pytorchjobs", "update")
    assert "may not write the status of PyTorchJobs" in caplog.text


async def test_named_kinds_are_ours_whatever_others_do():
    api = Api(deployments=[deployment()])
    async with owning(api, wanted=("TFJob",)) as made:
        assert made.owners.ours == {"TFJob"}
        assert set(made.owners.others) == {"PyTorchJob", "JobSet"}
        assert not api.listed


async def test_without_job_controllers_no_kind_is_ours():
    api = Api(deployments=[deployment()])
    task = asyncio.create_task(module.store_no_kinds(api, ConfigMapEntry(api, "home/history", KEY)))
    try:
        await until_async(lambda: api.written, "it to be written down")
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    ((_, body),) = api.written
    told = parse_owners(body["data"][KEY])
    assert told.ours == frozenset()
    assert {"PyTorchJob", "JobSet", "TrainJob", "Experiment", "Trial"} <= set(told.others)
    assert set(told.others.values()) == {"gangsched was started with --no-operators"}


async def test_rights_that_are_missing_stop_nothing(monkeypatch, caplog):
    monkeypatch.setattr(module, "_SYNC_S", 0.0)
    api = Api()
    api.refuses = True
    async with owning(api) as made:
        assert made.owners.ours == set(KNOWN)
    assert "whether other operators run jobs is not known" in caplog.text


@pytest.mark.parametrize(
    ("answer", "believed"),
    [(Forbidden(403, "no"), True), (Unavailable(0, "no"), False), (NotFound(404, "no"), False)],
)
async def test_what_cannot_be_asked(answer, believed):
    class Refusing(Api):
        async def create(self, path, body) -> bytes:
            raise answer

    sign = Sighting(OPERATORS[0], "Deployment a/b", 0.0, ("a", "b"))
    assert await has_operator_rights(Refusing(), sign) is believed


async def test_the_doctor_sees_what_we_see():
    api = Api(deployments=[deployment()])
    assert set(await running_operators(api, NOW_S)) >= {"PyTorchJob", "TFJob"}
    assert api.listed[0] == (LEASES, "metadata.namespace!=kube-node-lease")


BY = "the Training Operator runs them, by its Deployment a/b"
NOT_NAMED = "job_kinds in the settings does not name it"
DOCTOR = {
    "all are ours": (KindOwners(frozenset(KNOWN)), {}, [("ok", "gangsched runs JobSet, Py")]),
    "one is left": (
        KindOwners(frozenset({"JobSet"}), {"PyTorchJob": BY, "TFJob": BY}),
        {"PyTorchJob": BY, "TFJob": BY},
        [("warn", "PyTorchJob, TFJob: not run by gangsched: the Training"), ("ok", "gangsched")],
    ),
    "both run one": (
        KindOwners(frozenset({"JobSet", "TFJob"})),
        {"TFJob": BY},
        [
            ("fail", "TFJob: gangsched and another controller run them"),
            ("ok", "gangsched runs JobSet"),
        ],
    ),
    "neither does": (
        KindOwners(frozenset(), {"TFJob": NOT_NAMED}),
        {},
        [("warn", "TFJob: run neither by gangsched nor by"), ("ok", "gangsched runs no kind")],
    ),
    "gangsched never led": (None, {"TFJob": BY}, [("warn", "TFJob: the Training Operator runs")]),
}


@pytest.mark.parametrize("case", DOCTOR)
def test_the_doctor_names_the_operator_of_a_kind(case):
    told, now, findings = DOCTOR[case]
    found = list(job_kind_findings(told, now))
    assert [one.level for one in found] == [level for level, _ in findings]
    for one, (_, said) in zip(found, findings, strict=True):
        assert one.message.startswith(said)


def test_what_is_decided_and_said():
    assert decide(KNOWN, None, {"TFJob": BY, "TrainJob": BY}) == KindOwners(
        frozenset({"PyTorchJob", "JobSet"}), {"TFJob": BY}
    )
    none = decide(KNOWN, (), {})
    assert none.ours == frozenset()
    assert changes_in_words(None, none)[-1].startswith("no kind of job is run here")
    assert not changes_in_words(none, none)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ours": 3}', '{"ours": [], "others": []}'])
def test_what_is_written_and_not_understood_is_no_word(text):
    assert parse_owners(text) is None


async def test_explain_names_the_controller_of_a_job():
    class Jobs:
        async def get(self, path) -> bytes:
            if "/pytorchjobs/" not in path:
                raise NotFound(404, path)
            return b'{"status": {"conditions": [{"type": "Created", "status": "True"}]}}'

    found = await read_job(Jobs(), "ns/j", {"PyTorchJob": BY})
    assert found["reason"] == "LeftAlone"
    assert found["message"] == f"gangsched does not run PyTorchJobs: {BY}."
    assert (await read_job(Jobs(), "ns/j"))["reason"] == "Created"


async def test_controllers_follow_the_kinds_that_are_ours(monkeypatch):
    """Each change starts those of the kinds that are ours, once the last ones have stopped."""
    running: list[frozenset[str]] = []
    standings: list[Ownership] = []

    async def run(access, client, mine, *_) -> None:
        running.append(mine)
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(mine)

    def own(*args):
        standings.append(Ownership(*args))
        return standings[0]

    monkeypatch.setattr(manager, "_run", run)
    monkeypatch.setattr(manager, "Ownership", own)
    api = Api(deployments=[deployment()])
    task = asyncio.create_task(manager.run_operators(None, api))
    try:
        await until_async(lambda: running, "the first run")
        assert "PyTorchJob" not in running[0]
        assert "JobSet" in running[0]
        api.tell(DEPLOYMENTS, "DELETED", deployment())
        await until_async(lambda: running and "PyTorchJob" in running[0], "the next run")
        assert len(running) == 1
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not running
