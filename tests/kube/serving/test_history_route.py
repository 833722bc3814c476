"""`/history`: who gets which records."""

import asyncio
import contextlib
import json

import aiohttp
import pytest

from gangsched.extender.server import serve
from gangsched.kube.client.errors import Unavailable
from gangsched.kube.serving import history_route
from gangsched.kube.serving.history_route import HistoryRoute
from gangsched.recording.gang_record import GangOutcome, GangRecord
from gangsched.recording.history_file import HistoryLimits, HistoryWriter

TOKEN = "a.token"  # noqa: S105
ALICE = {"username": "alice", "groups": ["team"]}


class Reviews:
    """An API server with one user; `allowed` are namespaces, "" for all."""

    def __init__(self, *allowed):
        self.allowed, self.error, self.gate = allowed, None, asyncio.Event()
        self.gate.set()

    async def create(self, path, body):
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            known = spec["token"] == TOKEN
            return json.dumps({"status": {"authenticated": known, "user": ALICE}})
        assert (spec["user"], spec["groups"]) == ("alice", ["team"])
        asked = spec["resourceAttributes"]
        assert (asked["verb"], asked["resource"]) == ("list", "podgroups")
        return json.dumps({"status": {"allowed": asked["namespace"] in self.allowed}})


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "history.db"
    writer = HistoryWriter(found, HistoryLimits(2**30, 1e12))
    for namespace, name in (("ours", "a"), ("ours", "b"), ("theirs", "secret")):
        writer.write(
            GangRecord(
                namespace, name, 1.0, "q", "u", GangOutcome.COMPLETED, 1.0, 9.0, runs=1, ran_s=1.0
            )
        )
    writer.close()
    return found


@contextlib.asynccontextmanager
async def asking(reviews, path):
    """Serve the route; yield what asks it."""
    runner, port = await serve(HistoryRoute(reviews, path).routes(), "127.0.0.1", 0)

    async def ask(token=TOKEN, **params):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://127.0.0.1:{port}/history"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, params=params, headers=headers) as answer,
        ):
            text = await answer.text()
            if answer.status == 200:
                return 200, [record["name"] for record in json.loads(text)]
            return answer.status, text

    try:
        yield ask
    finally:
        await runner.cleanup()


async def test_records_are_for_those_who_may_list_podgroups(path):
    async with asking(Reviews("ours"), path) as ask:
        status, names = await ask(namespaces="ours")
        assert (status, sorted(names)) == (200, ["a", "b"])
        assert await ask(namespaces="ours", names="a,c") == (200, ["a"])
        for asked in ({}, {"namespaces": "theirs"}, {"namespaces": "ours,theirs"}):
            status, text = await ask(**asked)
            assert status == 403
            assert "alice may not list podgroups.gangsched.io" in text
    async with asking(Reviews(""), path) as ask:
        assert len((await ask())[1]) == 3
        assert len((await ask(limit="1"))[1]) == 1


@pytest.mark.parametrize(("token", "text"), [("", "is needed"), ("x", "is not valid")])
async def test_a_valid_token_is_needed(path, token, text):
    async with asking(Reviews(""), path) as ask:
        status, said = await ask(token)
        assert status == 401
        assert text in said


@pytest.mark.parametrize(
    "asked", [{"since": "x"}, {"limit": "nan"}, {"names": "a," * 101}, {"namespaces": "a" * 254}]
)
async def test_malformed_parameters_are_named(path, asked):
    async with asking(Reviews(""), path) as ask:
        status, said = await ask(**asked)
        assert (status, next(iter(asked)) in said) == (400, True)


async def test_an_api_server_that_does_not_answer_is_named(path):
    reviews = Reviews("")
    reviews.error = Unavailable(503, "x")
    async with asking(reviews, path) as ask:
        assert (await ask())[0] == 503


async def test_requests_that_wait_are_bounded(path, monkeypatch):
    monkeypatch.setattr(history_route, "_WAITING_MAX", 1)
    reviews = Reviews("")
    reviews.gate.clear()
    async with asking(reviews, path) as ask:
        first, second = (asyncio.ensure_future(ask()) for _ in range(2))
        done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        assert done.pop().result()[0] == 429
        reviews.gate.set()
        assert sorted([(await first)[0], (await second)[0]]) == [200, 429]


async def test_a_file_that_cannot_be_read_is_named(tmp_path):
    async with asking(Reviews(""), tmp_path / "none.db") as ask:
        status, text = await ask()
        assert status == 500
        assert "there is no such history" in text
