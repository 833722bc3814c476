"""The watch with a server that fails as API servers do."""

import asyncio
import json

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from waiting import until_async

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from gangsched.kube.client.watch import Watch


class Receiver:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.left: list[str] = []

    def on_update(self, raw: bytes) -> None:
        metadata = json.loads(raw)["metadata"]
        self.there[metadata["uid"]] = metadata["resourceVersion"]

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        self.there.pop(uid, None)
        self.left.append(uid)


def item(uid: str, version: int) -> dict:
    """Return an object."""
    return {"metadata": {"name": uid, "uid": uid, "resourceVersion": str(version)}}


def event(kind: str, obj: dict) -> bytes:
    """Return a line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


class Server:
    """Plays scripted lists and watches, one after another; then it says nothing more."""

    def __init__(self, lists: list, watches: list) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            if isinstance(answer, int):
                return web.json_response({"message": "no"}, status=answer)
            version, items = answer
            return web.json_response(
                {"metadata": {"resourceVersion": str(version)}, "items": items}
            )
        self.asked.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.watches:
            await asyncio.Event().wait()  # until the client closes the connection
        for line in self.watches.pop(0):
            await response.write(line)
        return response


@pytest.fixture
async def connect(tmp_path):
    """Return a function that serves a script and connects a client to it."""
    opened = []

    async def start(handler) -> KubeClient:
        app = web.Application()
        app.add_routes([web.route("*", "/{path:.*}", handler)])
        server = TestServer(app)
        await server.start_server()
        path = tmp_path / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "c", "cluster": {"server": str(server.make_url(""))}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        client = KubeClient(path)
        await client.__aenter__()
        opened.append((client, server))
        return client

    yield start
    for client, server in opened:
        await client.__aexit__()
        await server.close()


async def watched(client, holds) -> tuple[Receiver, Watch]:
    """Watch until a condition holds."""
    receiver = Receiver()
    watch = Watch(client, "/things", receiver)
    task = asyncio.create_task(watch.run())
    await until_async(
        lambda: holds(receiver) or task.done(), "the objects", shown=lambda: f"{receiver.there}"
    )
    assert not task.done()
    task.cancel()
    return receiver, watch


async def test_list_then_watch_then_resume_where_it_broke(connect):
    server = Server(
        [(5, [item("a", 5)])],
        [
            [event("ADDED", item("b", 6)), event("BOOKMARK", item("", 9))],
            [event("DELETED", item("a", 10))],
        ],
    )
    client = await connect(server.handle)
    receiver, _ = await watched(client, lambda r: r.there.keys() == {"b"})
    assert server.asked[:2] == ["5", "9"], "resumed from the bookmark"
    assert receiver.there == {"b": "6"}


async def test_what_is_kept_back_is_prepared_at_once_and_handed_over_once(connect):
    changes = [event("MODIFIED", item("a", 6)), event("DELETED", item("b", 7))]
    server = Server([(5, [item("a", 5), item("b", 5), item("c", 5)])], [changes])
    client = await connect(server.handle)
    receiver, prepared, batches = Receiver(), [], []
    watch = Watch(
        client,
        "/things",
        receiver,
        held=True,
        on_batch=lambda: batches.append(1),
        ahead=lambda raw: prepared.append(json.loads(raw)["metadata"]["resourceVersion"]),
    )
    task = asyncio.create_task(watch.run())
    # The two events may come as one batch or as two.
    await until_async(lambda: "b" in receiver.left or task.done(), "the last of the events")
    assert len(batches) >= 2
    assert prepared == ["5", "5", "5", "6"]
    assert receiver.there == {}
    await watch.hand_over()
    assert receiver.there == {"a": "6", "c": "5"}
    task.cancel()


async def test_what_is_read_once_is_not_watched(connect):
    """It ends with the first list that is answered."""
    server = Server([503, (5, [item("a", 5), item("b", 5)])], [])
    client = await connect(server.handle)
    receiver = Receiver()
    watch = Watch(client, "/things", receiver, once=True)
    await watch.run()
    assert watch.synced.is_set()
    assert receiver.there == {"a": "5", "b": "5"}
    assert not server.asked


async def test_410_lists_again_and_reports_what_vanished(connect):
    gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
    server = Server([(5, [item("a", 5)]), (20, [item("c", 20)])], [[event("ERROR", gone)]])
    client = await connect(server.handle)
    receiver, watch = await watched(client, lambda r: "c" in r.there)
    assert receiver.there == {"c": "20"}
    assert watch.restarts == 1


async def test_outages_are_waited_out(connect):
    server = Server([503, 503, (7, [item("a", 7)])], [])
    client = await connect(server.handle)
    receiver, _ = await watched(client, lambda r: bool(r.there))
    assert receiver.there == {"a": "7"}


async def test_a_malformed_object_does_not_stop_the_watch(connect):
    bad = b'{"type": "ADDED", "object": {"metadata": {"uid": 7, "resourceVersion": "8"}}}\n'
    server = Server([(5, [])], [[bad, event("ADDED", item("b", 9))]])
    client = await connect(server.handle)

    receiver, _ = await watched(client, lambda r: "b" in r.there)
    assert receiver.there["b"] == "9"


ERRORS = {403: Forbidden, 404: NotFound, 409: Conflict, 422: Invalid, 503: Unavailable}


@pytest.mark.parametrize("status", ERRORS)
async def test_errors_are_ours_with_the_apis_own_words(connect, status):
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"message": "because"}, status=status)

    client = await connect(refuse)
    with pytest.raises(ERRORS[status], match="because"):
        await client.request("GET", "/x", tries=1)
