"""Jobs that change their controller, with an API server that records requests."""

import asyncio
import json
from types import SimpleNamespace

import msgspec
import pytest
from waiting import until_async

from gangsched.core.model.ids import GangId
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.client.errors import NotFound
from gangsched.kube.decoding.metadata import ApiObject, decode_group
from gangsched.kube.informers.context import ClusterConfig, GangContext
from gangsched.kube.informers.planned_pod_limit import PlannedPodLimit
from gangsched.kube.informers.podgroups import Groups
from gangsched.metrics import Metrics
from gangsched.operators import manager
from gangsched.operators.controllers.launched_mpijobs import MpiJobs
from gangsched.operators.controllers.reconciler import Reconciler
from gangsched.operators.controllers.released_gangs import Releaser
from gangsched.operators.evaluation.pool import Evaluators

ENDED = {"type": "Complete", "status": "True", "message": "Reached", "lastTransitionTime": "then"}
CONTROLS = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "u"}


def group(phase: str, version="1") -> dict:
    """Return the PodGroup of job j."""
    metadata = {"name": "j", "namespace": "ns", "uid": "g", "resourceVersion": version}
    metadata["ownerReferences"] = [CONTROLS | {"controller": True}]
    spec = {"minMember": 2, "roles": [{"name": "Worker", "count": 2}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def pod(name: str, node: str = "") -> dict:
    """Return a pod of its gang."""
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}}


class Api:
    """An API server with one PodGroup and its pods."""

    def __init__(self, phase="Placed", pods=()) -> None:
        self.groups, self.pods, self.wrote = [group(phase)], list(pods), []

    async def get(self, path, **params) -> bytes:
        if path.endswith("/pods") and "labelSelector" in params:
            selector = params["labelSelector"]
            items = self.pods if selector == "gangsched.io/pod-group=j" else []
        else:
            items = self.groups if path.endswith("/podgroups") else []
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    async def patch(self, path, body) -> bytes:
        self.wrote.append(("patch", path.rsplit("/", 1)[1], body))
        return b"{}"

    async def delete(self, path, body) -> None:
        self.wrote.append(("delete", path.rsplit("/", 1)[1], body["preconditions"]["uid"]))

    async def create(self, path, body) -> bytes:
        self.wrote.append(("create", path, body))
        metadata = body["metadata"] | {"uid": "new", "resourceVersion": "9"}
        return json.dumps(body | {"metadata": metadata}).encode()

    async def stream(self, path, params):
        del path, params
        await asyncio.Event().wait()
        yield []


@pytest.mark.parametrize("kinds", [(), ("TFJob",)])
async def test_kinds_that_the_settings_switch_off_are_let_go_of_after_a_restart(monkeypatch, kinds):
    async def no_kopf(*_) -> list:
        return []

    monkeypatch.setattr(manager, "_kopf", no_kopf)
    api = Api(pods=[pod("j-0", "n"), pod("j-1")])
    running = asyncio.create_task(manager.run_operators(None, api, kinds=kinds))
    try:
        await until_async(lambda: len(api.wrote) == 2, "the gang to be let go of")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    change = {"metadata": {"uid": "g"}, "spec": {"minMember": 1, "roles": None}}
    assert api.wrote == [("patch", "j", change), ("delete", "j-1", "j-1")]


async def test_kinds_that_are_ours_keep_their_gangs(monkeypatch):
    async def no_kopf(*_) -> list:
        return []

    monkeypatch.setattr(manager, "_kopf", no_kopf)
    api, listed = Api(), []
    seen = manager.Reconciler.part_seen
    monkeypatch.setattr(
        manager.Reconciler, "part_seen", lambda *args: (listed.append(args[1]), seen(*args))
    )
    running = asyncio.create_task(manager.run_operators(None, api, kinds=("PyTorchJob",)))
    try:
        await until_async(lambda: listed, "its PodGroup to be seen")
        assert not api.wrote
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_group_is_let_go_of_by_its_uid_and_looked_at_each_time_it_changes():
    api = Api(pods=[])
    releaser = Releaser(api, "PyTorchJob")
    releaser.part_seen("PodGroup", group("Binding"), "j")
    await releaser._step(("ns", "j"))
    assert not api.wrote
    releaser.part_seen("PodGroup", group("Reserved", "2"), "j")
    await releaser._step(("ns", "j"))
    assert api.wrote == [("delete", "j", "g")]
    releaser.part_gone("PodGroup", {"metadata": group("")["metadata"] | {"uid": "other"}}, "j")
    assert releaser._known
    releaser.part_gone("PodGroup", group(""), "j")
    await releaser._step(("ns", "j"))
    assert len(api.wrote) == 1
    assert not releaser._known


# -- the MPI Operator's launcher ------------------------------------------------------------------


class Launched(Api):
    """An API server with the launcher's Job of an MPIJob, or none."""

    def __init__(self, owner: str | None, *conditions: dict) -> None:
        super().__init__()
        self.asked = 0
        metadata = {"ownerReferences": [{"controller": True, "uid": owner}]}
        self.launcher = {"metadata": metadata, "status": {"conditions": list(conditions)}}
        self.owner = owner

    async def get(self, path, **params) -> bytes:
        if path != "/apis/batch/v1/namespaces/ns/jobs/j-launcher":
            return await super().get(path, **params)
        self.asked += 1
        if self.owner is None:
            raise NotFound(404, path)
        return json.dumps(self.launcher).encode()

    async def patch(self, path, body) -> bytes:
        await super().patch(path, body)
        return json.dumps(mpijob() | {"status": body["status"]}).encode()


def mpijob() -> dict:
    """Return an MPIJob that an operator of others began."""
    pods = {"template": {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}}
    specs = {"Launcher": {"replicas": 1, **pods}, "Worker": {"replicas": 1, **pods}}
    metadata = {"uid": "u", "name": "j", "namespace": "ns", "resourceVersion": "2"}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "metadata": metadata,
        "spec": {"mpiReplicaSpecs": specs},
        "status": {"conditions": [{"type": "Running", "status": "True"}]},
    }


def controller(api: Api) -> Reconciler:
    """Return a controller that knows of the job."""
    made = Reconciler(api, MpiJobs("gangsched", FRAMEWORKS["MPIJob"]))
    made.job_seen(mpijob())
    return made


async def test_no_second_launcher_is_made_beside_the_mpi_operators():
    api = Launched("u")
    made = controller(api)
    for _ in range(2):
        await made._step(("ns", "j"))
    assert [path for what, path, _ in api.wrote if what == "create"] == [
        "/api/v1/namespaces/ns/events"
    ]
    assert not [one for one in api.wrote if one[0] != "create"]


async def test_the_job_ends_as_its_launcher_does():
    api = Launched("u", ENDED)
    made = controller(api)
    await made._step(("ns", "j"))
    ((_, _, body),) = api.wrote
    said = {one["type"]: one["status"] for one in body["status"]["conditions"]}
    assert said["Succeeded"] == "True"
    assert body["status"]["completionTime"] == "then"
    await made._step(("ns", "j"))
    assert api.asked == 1, "it is over"


@pytest.mark.parametrize("owner", [None, "another"])
async def test_a_job_without_such_a_launcher_is_ours_and_asked_about_once(owner):
    api = Launched(owner)
    made = controller(api)
    for _ in range(2):
        await made._step(("ns", "j"))
    assert api.asked == 1
    assert any(what == "create" and "podgroups" in path for what, path, _ in api.wrote)


def test_mpijobs_have_that_controller():
    made, _ = manager._controllers(Api(), manager.SchedulerNames(), {}, Evaluators(), ())
    assert [kind for kind, one in made.items() if isinstance(one.family, MpiJobs)] == ["MPIJob"]


# -- the gang of a job that another operator goes on with -----------------------------------------


class Engine:
    """Knows how many pods of a gang are bound."""

    def __init__(self, **bound: int) -> None:
        self.gangs = {GangId(f"ns/{name}"): self._state(count) for name, count in bound.items()}

    @staticmethod
    def _state(count: int):
        return SimpleNamespace(members=SimpleNamespace(bound_count=lambda: count))


@pytest.mark.parametrize(
    ("bound", "owned", "least"),
    [({}, True, 3), ({"j": 2}, True, 1), ({"j": 5}, True, 1), ({"j": 2}, False, 3)],
)
def test_pods_that_run_in_our_group_are_not_waited_for_again(monkeypatch, bound, owned, least):
    from gangsched.kube.decoding.external.owners import OWNERS
    from gangsched.kube.informers import external_owners

    declared = []

    class Status:
        def owned(self, gang: GangId) -> bool:
            assert gang == "ns/j"
            return owned

    cluster = ClusterConfig(frozenset({"gangsched"}))
    context = GangContext(
        None, Engine(**bound), Status(), cluster, PlannedPodLimit(9), Metrics(), lambda: True
    )
    monkeypatch.setattr(Groups, "accept", lambda _, __, gang: bool(declared.append(gang)))
    kind = next(one for one in OWNERS if one.kind == "PyTorchJob")
    specs = {"Worker": {"replicas": 3, "template": {}}}
    body = {"metadata": {"name": "j", "namespace": "ns", "uid": "u"}}
    raw = msgspec.json.encode(body | {"spec": {"pytorchReplicaSpecs": specs}})
    owners = external_owners.PodOwners(context, kind, None)
    ((gang, _),) = kind.read(decode_group(raw), {}, cluster.names).values()
    owners.accept(ApiObject(raw), gang)
    assert [one.min_member for one in declared] == [least]
