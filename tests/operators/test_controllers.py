"""Events of owned objects reach the controllers of their owners."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from waiting import until_async

from gangsched.api import names
from gangsched.jobs.common.model import GROUP_VERSION
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.trainer.runtimes import FRAMEWORK as LABEL
from gangsched.kube.client.errors import Invalid, NotFound
from gangsched.operators import manager
from gangsched.operators.controllers import api_writer
from gangsched.operators.controllers.object_trees import tree_controller
from gangsched.operators.controllers.pod_jobs import job_controller
from gangsched.operators.evaluation.pool import Evaluators
from gangsched.operators.job_kind import BlockedError
from gangsched.operators.kinds import jobset
from gangsched.operators.part_watches import PartReceiver
from gangsched.operators.runtime_watch import RuntimeReceiver, Runtimes


class Controller:
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def part_seen(self, kind, body, owner):
        self.told.append(("seen", kind, body["metadata"]["name"], owner))

    def part_gone(self, kind, body, owner):
        self.told.append(("gone", kind, body["metadata"], owner))


def raw(name="p", **metadata) -> bytes:
    names = {"uid": f"uid-{name}", "name": name, "namespace": "ns"}
    return msgspec.json.encode({"metadata": names | metadata, "spec": {"x": 1}})


def owner(kind="PyTorchJob", *, controller=True) -> dict:
    return {"apiVersion": "v1", "kind": kind, "name": "j", "uid": "u", "controller": controller}


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"ownerReferences": [owner()]}, True),
        ({"ownerReferences": [owner("ReplicaSet"), owner()]}, False),
        ({"ownerReferences": [owner(controller=False)]}, False),
        ({"ownerReferences": [owner("Node", controller=False), owner()]}, True),
        ({"ownerReferences": None}, False),
        ({}, False),
    ],
)
def test_owned_objects_go_to_their_controller(metadata, told):
    controller = Controller()
    receiver = PartReceiver("Pod", {"PyTorchJob": controller})
    receiver.on_update(raw(**metadata))
    assert controller.told == ([("seen", "Pod", "p", "j")] if told else [])


@pytest.mark.parametrize("last", [None, raw(ownerReferences=[owner()], labels={"a": "b"})])
def test_a_deletion_is_reported_once_with_or_without_the_last_state(last):
    controller = Controller()
    receiver = PartReceiver("Pod", {"PyTorchJob": controller})
    receiver.on_update(raw(ownerReferences=[owner()]))
    receiver.on_delete("uid-p", last)
    receiver.on_delete("uid-p", last)
    assert len(controller.told) == 2
    what, kind, metadata, of = controller.told[1]
    assert (what, kind, of) == ("gone", "Pod", "j")
    assert (metadata["namespace"], metadata["name"], metadata["uid"]) == ("ns", "p", "uid-p")


def test_an_object_that_was_never_owned_is_not_reported_as_gone():
    controller = Controller()
    receiver = PartReceiver("Pod", {"PyTorchJob": controller})
    receiver.on_update(raw())
    receiver.on_delete("uid-p", None)
    receiver.on_update(b'{"metadata": {"uid": 3}}')
    assert not controller.told


def test_jobs_make_podgroups_of_the_version_that_users_write():
    assert f"{names.GROUP}/{names.VERSION}" == GROUP_VERSION


@pytest.mark.parametrize("missing", ["", "optuna", "gjson"])
def test_experiments_are_left_alone_without_their_extra(monkeypatch, caplog, missing):
    caplog.set_level("INFO")
    there = manager.find_spec
    monkeypatch.setattr(manager, "find_spec", lambda name: None if name == missing else there(name))
    kinds = [one.kind for one in manager._search_kinds(Evaluators())]
    assert kinds == ([] if missing else ["Experiment", "Trial"])
    assert ("need gangsched[experiments]" in caplog.text) == bool(missing)


async def test_no_kind_of_job_to_run_is_no_end(caplog):
    running = asyncio.create_task(manager.run_operators(None, Server(None), kinds=()))
    try:
        await until_async(
            lambda: "gangsched runs no kind of job" in caplog.text, "the log to say so"
        )
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class Server:
    """An API server with one owner, or none; it writes down what it is asked to write."""

    def __init__(self, uid: str | None) -> None:
        self.uid, self.wrote = uid, []

    async def get(self, path, **_) -> bytes:
        if not path.endswith("/j"):
            return b'{"items": []}'
        if self.uid is None:
            raise NotFound(404, "none")
        return msgspec.json.encode({"metadata": {"uid": self.uid}})

    async def create(self, path, body) -> bytes:
        self.wrote.append(path)
        metadata = body["metadata"] | {"uid": f"new-{len(self.wrote)}", "resourceVersion": "9"}
        return msgspec.json.encode(body | {"metadata": metadata})

    async def patch(self, path, body, **_) -> bytes:
        self.wrote.append(path)
        metadata = {"uid": "u", "name": "j", "namespace": "ns", "resourceVersion": "9"}
        return msgspec.json.encode({"metadata": metadata} | body)


POD = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
SPECS = {
    "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": POD}}},
    "JobSet": {
        "replicatedJobs": [{"name": "a", "replicas": 1, "template": {"spec": {"template": POD}}}],
        "failurePolicy": {"maxRestarts": 1},
    },
}
FAILED = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def job(kind: str, version: str, status: dict) -> dict:
    """Return a job as the API server has it."""
    metadata = {"uid": "u", "name": "j", "namespace": "ns", "resourceVersion": version}
    return {"metadata": metadata, "spec": SPECS[kind], "status": status}


def started(kind: str, server: Server):
    """Return a controller that knows of a job and its PodGroup."""
    made = (
        job_controller(server, "gangsched", FRAMEWORKS[kind])
        if kind in FRAMEWORKS
        else tree_controller(server, jobset.jobset_kind("gangsched"))
    )
    made.job_seen(job(kind, "1", {}))
    group = {"uid": "g", "name": "j", "namespace": "ns", "resourceVersion": "1"}
    group |= {"ownerReferences": [owner(kind)]}
    made.part_seen("PodGroup", {"metadata": group, "spec": {}}, "j")
    return made, {"metadata": group}


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
@pytest.mark.parametrize(("uid", "goes_on"), [(None, False), ("another", False), ("u", True)])
async def test_a_job_with_an_unobserved_end_is_not_started_again(kind, uid, goes_on):
    """The garbage collector took its PodGroup; made anew, it would take that, and so on."""
    server = Server(uid)
    controller, group = started(kind, server)
    controller.part_gone("PodGroup", group, "j")
    await controller._step(("ns", "j"))
    assert bool(server.wrote) == goes_on
    await controller._step(("ns", "j"))
    assert bool(server.wrote) == goes_on


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
async def test_the_end_of_an_earlier_job_of_the_name_may_come_late(kind):
    server = Server("u")
    controller, _ = started(kind, server)
    controller.job_gone({"metadata": {"uid": "earlier", "name": "j", "namespace": "ns"}})
    await controller._step(("ns", "j"))
    assert server.wrote


class Swift(Server):
    """An API server whose watches tell what comes after a creation, before it is answered."""

    def __init__(self, then: str) -> None:
        super().__init__("u")
        self.then, self.controller = then, None

    async def create(self, path, body) -> bytes:
        made = msgspec.json.decode(await super().create(path, body))
        if path.endswith("/podgroups"):
            places = [{"pod": pod, "node": "n"} for pod in ("j-worker-0", "j-a-0-0")]
            metadata = made["metadata"] | {"resourceVersion": "10", "namespace": "ns"}
            status = {"phase": "Reserved", "assignments": places}
            group = made | {"metadata": metadata, "status": status}
            self.controller.part_seen("PodGroup", group, "j")
            if self.then == "gone":
                self.controller.part_gone("PodGroup", group, "j")
        return msgspec.json.encode(made)


async def written(kind: str, then: str) -> list[str]:
    """Return where a job's controller writes in three looks, its PodGroup being made anew."""
    server = Swift(then)
    server.controller, group = started(kind, server)
    server.controller.part_gone("PodGroup", group, "j")
    for _ in range(3):
        await server.controller._step(("ns", "j"))
    return [path.rsplit("/", 1)[1] for path in server.wrote]


@pytest.mark.parametrize(("kind", "made"), [("PyTorchJob", "pods"), ("JobSet", "jobs")])
async def test_a_place_that_comes_before_the_answer_is_heeded(kind, made):
    found = await written(kind, "reserved")
    assert found.count("podgroups") == 1
    assert made in found


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
async def test_a_group_that_went_before_the_answer_is_made_again(kind):
    assert (await written(kind, "gone")).count("podgroups") == 3


class Slow(Server):
    """An API server whose watches tell late of what was deleted."""

    @staticmethod
    def job(version: str, status: dict) -> dict:
        body = job("PyTorchJob", version, status)
        body["metadata"]["annotations"] = {"gangsched.io/gang-restarts": "2"}
        return body

    async def patch(self, path, body, **_) -> bytes:
        if not path.endswith("/status"):
            return await super().patch(path, body)
        self.wrote.append(path)
        return msgspec.json.encode(self.job(str(10 + len(self.wrote)), body["status"]))

    async def delete(self, path, body) -> None:
        del path, body


def running(name: str, **metadata) -> dict:
    """Return a worker of the job."""
    labels = {"training.kubeflow.org/replica-type": "worker"}
    known = {"name": name, "uid": name, "namespace": "ns", "resourceVersion": "3"}
    known |= {"labels": labels, "ownerReferences": [owner()]}
    return {"metadata": known | metadata, "status": {"phase": "Running"}} | POD


LEAVES = {"deletionTimestamp": "2026-01-01T00:00:30Z", "resourceVersion": "4"}


async def test_a_gang_is_declared_once_the_pods_of_an_earlier_job_are_gone():
    server = Server("u")
    controller = job_controller(server, "gangsched", FRAMEWORKS["PyTorchJob"])
    controller.job_seen(job("PyTorchJob", "1", {}))
    pod = running("j-worker-0", ownerReferences=[owner() | {"uid": "earlier"}])
    controller.part_seen("Pod", pod, "j")
    await controller._step(("ns", "j"))
    assert not [path for path in server.wrote if path.endswith("/podgroups")]
    controller.part_gone("Pod", pod, "j")
    await controller._step(("ns", "j"))
    assert [path for path in server.wrote if path.endswith("/podgroups")]


async def test_a_gang_that_loses_a_pod_restarts_once_though_its_group_is_late_to_go():
    """Pods that leave are there for their grace period, and each look sees them leave."""
    server = Slow("u")
    controller, _ = started("PyTorchJob", server)
    controller.job_seen(server.job("2", {}))
    controller.part_seen("Pod", running("j-worker-0", **LEAVES), "j")
    for _ in range(2):
        await controller._step(("ns", "j"))
    assert controller._objects["ns", "j"].body["status"]["gangRestarts"] == 1


async def test_a_pod_that_its_job_no_longer_wants_is_not_lost():
    server = Slow("u")
    controller, _ = started("PyTorchJob", server)
    controller.job_seen(server.job("2", {}))
    for name in ("j-worker-0", "j-worker-1"):
        controller.part_seen("Pod", running(name), "j")
    await controller._step(("ns", "j"))
    controller.part_seen("Pod", running("j-worker-1", **LEAVES), "j")
    await controller._step(("ns", "j"))
    assert "gangRestarts" not in controller._objects["ns", "j"].body["status"]


class Deleting(Swift):
    """An API server whose watches tell that a part went before its deletion is answered, too."""

    def __init__(self) -> None:
        super().__init__("reserved")
        self.jobs = []

    async def create(self, path, body) -> bytes:
        if path.endswith("/jobs"):
            self.jobs.append(body["metadata"]["name"])
        return await super().create(path, body)

    async def patch(self, path, body, **_) -> bytes:
        return msgspec.json.encode(job("JobSet", str(10 + len(self.wrote)), body["status"]))

    async def delete(self, path, body) -> None:
        kind = "Job" if "/jobs/" in path else "PodGroup"
        metadata = {"name": path.rsplit("/", 1)[1], "namespace": "ns"}
        metadata["uid"] = body["preconditions"]["uid"]
        self.controller.part_gone(kind, {"metadata": metadata}, "j")


async def test_a_part_that_went_before_its_deletion_was_answered_is_made_again():
    """Else it would be waited for, for ever."""
    server = Deleting()
    server.controller, group = started("JobSet", server)
    server.controller.part_gone("PodGroup", group, "j")
    parts = server.controller._objects["ns", "j"].parts
    for _ in range(6):
        await server.controller._step(("ns", "j"))
        if len(server.jobs) == 1 and ("Job", "j-a-0") in parts:
            parts["Job", "j-a-0"] |= {"status": {"conditions": [FAILED]}}
    assert server.jobs == ["j-a-0", "j-a-0"]


class Renewed(Server):
    """An API server on which a job is made anew while a dry run of the last is refused."""

    def __init__(self) -> None:
        super().__init__("u")
        self.controller, self.rejected = None, []

    async def create(self, path, body) -> bytes:
        if "dryRun" in path:
            later = job("PyTorchJob", "5", {})
            self.controller.job_seen(later | {"metadata": later["metadata"] | {"uid": "new"}})
            raise Invalid(422, "image is wrong")
        return await super().create(path, body)

    async def patch(self, path, body, **_) -> bytes:
        if any(one["type"] == "Failed" for one in body["status"]["conditions"]):
            self.rejected.append(body["metadata"]["uid"])
        return msgspec.json.encode(job("PyTorchJob", "10", body["status"]))


async def test_a_job_is_not_rejected_for_what_the_last_of_its_name_was():
    server = Renewed()
    server.controller = job_controller(server, "gangsched", FRAMEWORKS["PyTorchJob"])
    server.controller.job_seen(job("PyTorchJob", "1", {}))
    await server.controller._step(("ns", "j"))
    assert "new" not in server.rejected
    server.rejected.clear()
    wrong = job("PyTorchJob", "9", {})
    wrong["metadata"]["uid"], wrong["spec"] = "new", {"pytorchReplicaSpecs": {"Boss": {}}}
    server.controller.job_seen(wrong)
    await server.controller._step(("ns", "j"))
    assert server.rejected == ["new"]


@pytest.mark.parametrize("made_by", ["user", "owner"])
@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
async def test_a_misspelt_key_is_reported_once_on_the_users_object(monkeypatch, kind, made_by):
    told = []

    async def post(_, subject, kind, reason, message) -> None:
        told.append((subject.kind, kind, reason, message))

    monkeypatch.setattr(api_writer, "post_event", post)
    controller, _ = started(kind, Server("u"))
    body = job(kind, "2", {})
    body["metadata"]["annotations"] = {"gangsched.io/topology-requried": "rack"}
    if made_by == "owner":
        body["metadata"]["ownerReferences"] = [owner("TrainJob")]
    controller.job_seen(body)
    for _ in range(2):
        await controller._step(("ns", "j"))
    said = [one for one in told if one[2] == "UnknownKey"]
    assert len(said) == (1 if made_by == "user" or kind == "PyTorchJob" else 0)
    for of, level, _, message in said:
        assert (of, level) == (kind, "Warning")
        assert "did you mean gangsched.io/topology-required?" in message


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
def test_parts_of_owners_that_there_are_not_are_forgotten(kind):
    """Whoever may create a Service may name any owner."""
    made = (
        job_controller(Server(None), "gangsched", FRAMEWORKS[kind])
        if kind in FRAMEWORKS
        else tree_controller(Server(None), jobset.jobset_kind("gangsched"))
    )
    known = made._objects
    for number in range(10):
        metadata = {"uid": f"s{number}", "name": "s", "namespace": "ns"}
        made.part_seen("Service", {"metadata": metadata}, f"nobody-{number}")
        assert len(known) == 1
        made.part_gone("Service", {"metadata": metadata}, f"nobody-{number}")
    assert not known


async def test_an_owner_that_cannot_be_evaluated_now_is_reported_and_retried():
    async def look(client, owned):
        raise BlockedError("it takes longer than 1 s; it is tried again")

    server = Server("u")
    controller = tree_controller(
        server, replace(jobset.jobset_kind("gangsched"), read_unwatched=look)
    )
    controller.job_seen(job("JobSet", "1", {}))
    for _ in range(2):
        with pytest.raises(BlockedError):
            await controller._step(("ns", "j"))
    assert server.wrote == ["/api/v1/namespaces/ns/events"]  # once: it says the same again


class Labelled:
    """An API server that writes down which labels it is told."""

    def __init__(self) -> None:
        self.told = []

    async def patch(self, path, body) -> bytes:
        self.told.append((path, body["metadata"]["labels"]))
        return b"{}"


def runtime(name="torch", uid="r", namespace="", **labels) -> bytes:
    metadata = {"name": name, "uid": uid, "labels": labels}
    if namespace:
        metadata["namespace"] = namespace
    return msgspec.json.encode({"metadata": metadata, "spec": {"mlPolicy": {"torch": {}}}})


async def test_runtimes_are_labelled_for_the_sdk_and_forgotten_when_they_go():
    server, known = Labelled(), Runtimes()
    receiver = RuntimeReceiver(server, known)
    receiver.on_update(runtime())
    receiver.on_update(runtime("own", "o", "ns"))
    receiver.on_update(runtime("told", "t", **{LABEL: "torch"}))
    for key in (("", "torch"), ("ns", "own"), ("", "told"), ("", "gone")):
        await receiver._label(key)
    root = "/apis/trainer.kubeflow.org/v1alpha1"
    assert server.told == [
        (f"{root}/clustertrainingruntimes/torch", {LABEL: "torch"}),
        (f"{root}/namespaces/ns/trainingruntimes/own", {LABEL: "torch"}),
    ]
    receiver.on_update(runtime("torch", "successor"))
    receiver.on_delete("r", None)
    assert known.get(("", "torch")), "a successor of its name is there"
    receiver.on_delete("successor", None)
    assert known.get(("", "torch")) is None


def test_a_runtime_of_a_namespace_wakes_its_jobs_alone():
    woken = []
    controller = tree_controller(Server(None), jobset.jobset_kind("gangsched"))
    controller._work.wake = woken.append
    for namespace in ("a", "b"):
        body = job("JobSet", "1", {})
        controller.job_seen(body | {"metadata": body["metadata"] | {"namespace": namespace}})
    woken.clear()
    runtimes = Runtimes()
    runtimes.on_change = controller.wake_all
    runtimes.seen(msgspec.json.decode(runtime(namespace="a")))
    assert woken == [("a", "j")]
    runtimes.seen(msgspec.json.decode(runtime()))
    assert woken[1:] == [("a", "j"), ("b", "j")]
