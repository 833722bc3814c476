"""Objects with deeper nesting than decoders allow, which an open schema lets users store."""

import json

import pytest
from builders import POLICIES

from gangsched.config import SchedulerConfig
from gangsched.kube.client.json_depth import (
    DEPTH_MAX,
    decode_bounded,
    readable,
    too_deep,
    truncate_depth,
)
from gangsched.kube.client.watch import Watch
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics

DEEPEST = 9_000
"""A little less than what an API server takes."""


def nested(levels: int, inner: str = "") -> str:
    return "[" * levels + inner + "]" * levels


def group(name: str, deep: str) -> str:
    """Return a PodGroup with something deep in a template, which is nobody's to check."""
    return f"""{{"metadata": {{"name": "{name}", "namespace": "ns", "uid": "{name}"}}, "spec":
      {{"minMember": 2, "roles": [{{"name": "w", "count": 2, "template": {{"spec": {{
        "x": {deep}, "containers": [{{"name": "c", "image": "y"}}]}}}}}}]}}}}""".replace("\n", "")


class Client:
    """An API server with one page of groups, and one event of another."""

    def __init__(self, deep: str) -> None:
        self._deep = deep

    async def get(self, *_, **__) -> bytes:
        items = ",".join(group(name, self._deep) for name in ("a", "b"))
        return f'{{"metadata": {{"resourceVersion": "1"}}, "items": [{items}]}}'.encode()

    async def stream(self, *_):
        event = f'{{"type": "ADDED", "object": {group("c", self._deep)}}}'
        yield [event.encode()]


@pytest.mark.parametrize("levels", [DEPTH_MAX, 700, 850, 900, 940, 960, 990, 1_100, DEEPEST])
async def test_no_object_ends_a_watch_by_its_depth(levels):
    scheduler = Scheduler(None, SchedulerConfig(), POLICIES, Metrics())
    watch = Watch(Client(nested(levels)), "/podgroups", scheduler.informers.pod_groups)
    version = await watch._relist()
    async for _ in watch._follow(version):
        pass
    assert scheduler.engine.view.gangs.keys() == {"ns/a", "ns/b", "ns/c"}


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 950, DEEPEST])
def test_what_lies_too_deep_is_null_and_the_rest_as_it_was(levels):
    text = f'{{"a": {nested(levels - 1, "1")}, "b": "[{{ \\" [", "c": [1, {{"d": null}}]}}'
    found = json.loads(truncate_depth(text.encode()))
    assert found["b"] == '[{ " ['
    assert found["c"] == [1, {"d": None}]
    assert json.dumps(found["a"]) == nested(DEPTH_MAX - 1, "null")


@pytest.mark.parametrize("raw", [b"", b"{", b'{"a": [1, 2]}', b"no json", nested(200).encode()])
def test_what_can_be_read_stays_as_it_is(raw):
    assert readable(raw) is raw


def test_what_any_decoder_reads_is_read():
    for levels in range(850, 1_050):
        json.loads(readable(nested(levels).encode()))
        decode_bounded(json.loads, nested(levels).encode())


def test_depth_is_measured():
    assert not too_deep(json.loads(nested(DEPTH_MAX)))
    assert too_deep(json.loads(nested(DEPTH_MAX + 1)))
