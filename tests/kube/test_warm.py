"""Guarantees that autoscalers keep warm: what is written, and when it changes."""

import asyncio
import json

import pytest
from builders import GPU, an_engine, gang, needs, node, plan, pod
from waiting import until_async

from gangsched.autoscaling_config import WarmGuarantee
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.model.queues import Queue, Quota
from gangsched.kube.client.errors import Conflict
from gangsched.kube.provisioning.warm import WarmGuarantees, pod_template_body

ENTRY = {"name": "research", "queue": "q", "resources": {GPU: "8", "cpu": "1"}}


class StubApi:
    """Objects by path, as an API server keeps them."""

    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self.calls: list[str] = []

    async def get(self, path: str, **params: str) -> bytes:
        items = [one for at, one in self.objects.items() if at.startswith(f"{path}/")]
        return json.dumps({"items": items}).encode()

    async def create(self, path: str, body: dict) -> bytes:
        at = f"{path}/{body['metadata']['name']}"
        self.calls.append(f"create {at.rpartition('/')[2]}")
        if at in self.objects:
            raise Conflict(409, "it exists")
        body = {**body, "metadata": {**body["metadata"], "uid": f"uid of {at}"}}
        self.objects[at] = body
        return json.dumps(body).encode()

    async def patch(self, path: str, body: dict) -> bytes:
        self.calls.append(f"patch {path.rpartition('/')[2]}")
        self.objects[path] |= body
        return json.dumps(self.objects[path]).encode()

    async def delete(self, path: str) -> None:
        self.calls.append(f"delete {path.rpartition('/')[2]}")
        del self.objects[path]

    def buffers(self) -> dict[str, dict]:
        found = {at: one for at, one in self.objects.items() if "/capacitybuffers/" in at}
        return {at.rpartition("/")[2]: one["spec"] for at, one in found.items()}

    def templates(self) -> list[dict]:
        return [one for at, one in self.objects.items() if "/podtemplates/" in at]


def warm(engine, api, *entries) -> WarmGuarantees:
    chosen = [WarmGuarantee(**entry) for entry in entries]
    return WarmGuarantees(api, engine.view, chosen, "place")


def quota(gpus: int, gpu_type: str = "") -> Quota:
    return Quota(GPU, gpus * 1000, gpu_type)


@pytest.fixture
def engine():
    found = an_engine(node("n", 64))
    found.observe(f.QueueSeen(Queue("q", quotas=(quota(35),))), 0.0)
    return found


async def test_a_buffer_has_the_pods_that_fit_into_the_quota(engine):
    api = StubApi()
    await warm(engine, api, ENTRY).step()
    (template,) = api.templates()
    assert api.buffers() == {
        "research": {"podTemplateRef": {"name": template["metadata"]["name"]}, "replicas": 4}
    }
    (owner,) = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("CapacityBuffer", "research")
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {GPU: "8", "cpu": "1"}


async def test_what_the_queue_uses_is_not_kept_twice(engine):
    api = StubApi()
    guarantees = warm(engine, api, ENTRY)
    await guarantees.step()
    engine.observe(f.GangSeen(gang("g", 1, queue="q")), 0.0)
    engine.observe(pod("g-0", "g", needs(9)), 0.0)
    plan(engine, 1.0)
    api.calls.clear()
    await guarantees.step()
    assert api.buffers()["research"]["replicas"] == 3
    assert api.calls == ["patch research"]
    await guarantees.step()
    assert api.calls == ["patch research"], "nothing changed"


async def test_a_process_that_ended_between_two_writes_is_repaired(engine):
    api = StubApi()
    await warm(engine, api, ENTRY).step()
    api.objects = {at: one for at, one in api.objects.items() if "podtemplates" not in at}
    await warm(engine, api, ENTRY).step()
    assert len(api.templates()) == 1


async def test_other_settings_have_another_template(engine):
    api = StubApi()
    await warm(engine, api, ENTRY).step()
    before = api.buffers()["research"]["podTemplateRef"]
    await warm(engine, api, {**ENTRY, "tolerate": ["gpu"]}).step()
    after = api.buffers()["research"]["podTemplateRef"]
    assert before != after
    assert after["name"] in {one["metadata"]["name"] for one in api.templates()}


async def test_buffers_that_no_setting_names_are_deleted(engine):
    api = StubApi()
    await warm(engine, api, ENTRY).step()
    await warm(engine, api).step()
    assert api.buffers() == {}


@pytest.mark.parametrize(
    ("changed", "replicas"),
    [
        ({"queue": "unknown"}, 0),
        ({"gpu_type": "H100"}, 0),
        ({"resources": {"cpu": "1"}}, 0),
        ({"resources": {GPU: "many"}}, 0),
        ({"resources": {GPU: "0"}}, 0),
        ({"resources": {GPU: "40"}}, 0),
        ({"resources": {GPU: "1"}}, 35),
    ],
    ids=str,
)
async def test_only_what_has_a_quota_is_kept(engine, changed, replicas):
    api = StubApi()
    await warm(engine, api, {**ENTRY, **changed}).step()
    assert api.buffers()["research"]["replicas"] == replicas


def test_a_template_has_selectors_and_tolerations():
    entry = WarmGuarantee(**ENTRY, node_selector={"a": "b"}, tolerate=["gpu"])
    spec = pod_template_body("t", entry)["template"]["spec"]
    assert spec["nodeSelector"] == {"a": "b"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_two_entries_have_two_names():
    with pytest.raises(ValueError, match="two entries have the name 'research'"):
        SchedulerConfig(warm=[ENTRY, ENTRY])


async def test_what_an_earlier_setting_left_is_deleted_once(engine):
    api = StubApi()
    await warm(engine, api, ENTRY).step()
    api.calls.clear()
    running = asyncio.create_task(warm(engine, api).run())
    await until_async(lambda: not api.buffers(), "the buffer to be deleted")
    running.cancel()
    assert api.calls == ["delete research"]
