"""Our ports: certificates are created, shared, renewed and enforced; access to /metrics."""

import asyncio
import base64
import hashlib
import json
import math
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp import web
from waiting import until_async

from gangsched.core.bounds import REVIEWS_WAITING, TOKENS_KNOWN
from gangsched.extender.server import serve
from gangsched.kube.client.errors import Conflict, Invalid, NotFound
from gangsched.kube.serving.certificates import Certificates, due, issue
from gangsched.kube.serving.token_review import BusyError, TokenReviewer, require_review

HOST = "gangsched-leader.gangsched-system.svc"


class Secrets:
    """An API server with one Secret."""

    def __init__(self) -> None:
        self.kept = None
        self.writes = 0

    async def get(self, _) -> bytes:
        if self.kept is None:
            await asyncio.sleep(0)  # another may be first
            raise NotFound(404, "none")
        return json.dumps(self.kept).encode()

    async def create(self, _, body) -> bytes:
        if self.kept is not None:
            raise Conflict(409, "exists")
        self.kept, self.writes = body, self.writes + 1
        return json.dumps(body).encode()

    async def patch(self, _, body) -> bytes:
        self.kept, self.writes = self.kept | body, self.writes + 1
        return json.dumps(self.kept).encode()

    def data(self) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.kept["data"].items()}


def client(data: dict[str, bytes] | None, tmp_path, ca: bytes) -> ssl.SSLContext:
    """Return a client's context, with kube-scheduler's certificate where there is data."""
    context = ssl.create_default_context(cadata=ca.decode())
    if data is not None:
        for name in ("client.crt", "client.key"):
            (tmp_path / name).write_bytes(data[name])
        context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    return context


async def ask(port: int, context: ssl.SSLContext, path="/metrics", **headers) -> int:
    """Return the status of an answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"https://127.0.0.1:{port}{path}", ssl=context, server_hostname=HOST, headers=headers
        ) as answer,
    ):
        return answer.status


async def hello(_) -> web.Response:
    return web.Response(text="hello")


async def test_two_processes_agree_on_what_was_made_first():
    secrets = Secrets()
    both = [Certificates(secrets, "ns/tls", HOST) for _ in range(2)]
    await asyncio.gather(*(one.context(clients=True) for one in both))
    assert secrets.writes == 1
    assert both[0]._data == both[1]._data == secrets.data()


async def test_only_clients_with_our_certificate_are_served(tmp_path):
    secrets = Secrets()
    tls = await Certificates(secrets, "ns/tls", HOST).context(clients=True)
    data = secrets.data()
    runner, port = await serve([web.get("/metrics", hello)], "127.0.0.1", 0, tls)
    try:
        assert await ask(port, client(data, tmp_path, data["ca.crt"])) == 200
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await ask(port, client(None, tmp_path, data["ca.crt"]))
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await ask(port, client(issue(None, HOST), tmp_path, data["ca.crt"]))
    finally:
        await runner.cleanup()


async def test_a_renewed_certificate_is_served_without_a_restart(tmp_path, monkeypatch):
    secrets = Secrets()
    certificates = Certificates(secrets, "ns/tls", HOST)
    tls = await certificates.context(clients=False)
    old = secrets.data()
    runner, port = await serve([web.get("/metrics", hello)], "127.0.0.1", 0, tls)
    try:
        monkeypatch.setattr("gangsched.kube.serving.certificates._LOOK_S", 0.0)
        monkeypatch.setattr("gangsched.kube.serving.certificates.due", lambda d, _: d == old)
        keeping = asyncio.create_task(certificates.keep())
        await until_async(
            lambda: certificates._data != old or keeping.done(), "a renewed certificate"
        )
        assert not keeping.done()
        new = secrets.data()
        assert new["ca.crt"] == old["ca.crt"]
        context = client(None, tmp_path, old["ca.crt"])
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=HOST
        )
        del reader
        served = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert ssl.DER_cert_to_PEM_cert(served).encode().split() == new["tls.crt"].split()
        writer.close()
        keeping.cancel()
    finally:
        await runner.cleanup()


def kept(data: dict[str, bytes]) -> Secrets:
    """Return an API server whose Secret holds this."""
    secrets = Secrets()
    secrets.kept = {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
    return secrets


async def test_an_empty_secret_is_filled():
    secrets = kept({})
    await Certificates(secrets, "ns/tls", HOST).context(clients=True)
    assert {"ca.crt", "ca.key", "tls.crt", "client.crt"} <= secrets.data().keys()


async def test_certificates_without_our_ca_key_are_served_and_not_renewed(monkeypatch):
    theirs = {key: value for key, value in issue(None, HOST).items() if key != "ca.key"}
    secrets = kept(theirs)
    monkeypatch.setattr("gangsched.kube.serving.certificates.due", lambda *_: True)
    await Certificates(secrets, "ns/tls", HOST).context(clients=True)
    assert (secrets.writes, secrets.data()) == (0, theirs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ca.key": None, "tls.key": None}, "there is no tls.key; it must have ca.crt"),
        ({"ca.crt": None}, "there is no ca.crt; it must have"),
        ({"tls.key": issue(None, HOST)["tls.key"]}, "its certificates cannot be served: "),
        ({"ca.key": None, "ca.crt": b"\xff"}, "its certificates cannot be served: "),
        ({"ca.key": b"no key", "tls.crt": b"no certificate"}, "ca.crt or ca.key cannot be read: "),
    ],
)
async def test_a_secret_that_cannot_be_served_says_why_and_is_left_alone(change, said):
    data = {k: v for k, v in (issue(None, HOST) | change).items() if v is not None}
    secrets = kept(data)
    with pytest.raises(Invalid, match=f"^Secret ns/tls: {said}"):
        await Certificates(secrets, "ns/tls", HOST).context(clients=True)
    assert secrets.data() == data


async def test_what_is_served_stays_while_the_secret_is_wrong(monkeypatch, caplog):
    secrets = Secrets()
    certificates = Certificates(secrets, "ns/tls", HOST)
    await certificates.context(clients=True)
    before = secrets.data()
    secrets.kept = kept(before | {"tls.key": issue(None, HOST)["tls.key"]}).kept
    monkeypatch.setattr("gangsched.kube.serving.certificates._LOOK_S", 0.0)
    keeping = asyncio.create_task(certificates.keep())
    await until_async(
        lambda: "cannot be served" in caplog.text or keeping.done(), "a word on the wrong Secret"
    )
    assert not keeping.done()
    keeping.cancel()
    assert certificates._data == before


def test_certificates_are_due_long_before_they_end():
    data = issue(None, HOST)
    now = datetime.now(UTC)
    assert not due(data, now)
    assert due(data, now + timedelta(days=250))
    assert due({}, now)


class Judge:
    """An API server that reviews tokens and rights; it counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def create(self, path, body) -> bytes:
        self.asked += 1
        if path.endswith("tokenreviews"):
            known = body["spec"]["token"] in ("reader", "stranger")
            status = {"authenticated": known, "user": {"username": body["spec"]["token"]}}
        else:
            status = {"allowed": body["spec"]["user"] == "reader"}
        return json.dumps({"status": status}).encode()


READERS = {"": 401, "Basic x": 401, "Bearer nobody": 401, "Bearer stranger": 403}
READERS |= {"Bearer reader": 200}


@pytest.mark.parametrize("header", READERS)
async def test_who_reads_metrics(header, monkeypatch):
    monkeypatch.setattr("gangsched.kube.serving.token_review._KEPT_S", math.inf)
    monkeypatch.setattr("gangsched.kube.serving.token_review._REVIEW_S", math.inf)
    judge = Judge()
    routes = [web.get("/metrics", hello), web.get("/readyz", hello)]
    middlewares = [require_review(TokenReviewer(judge))]
    runner, port = await serve(routes, "127.0.0.1", 0, None, middlewares)
    try:
        headers = {"Authorization": header} if header else {}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for _ in range(2):
                async with session.get("/metrics", headers=headers) as answer:
                    assert answer.status == READERS[header]
            async with session.get("/readyz") as answer:
                assert answer.status == 200
        assert judge.asked <= 2  # the second answer was kept
    finally:
        await runner.cleanup()


class Door:
    """An API server that answers reviews of strangers when it is let, of others at once."""

    def __init__(self) -> None:
        self.open, self.now, self.most, self.asked = asyncio.Event(), 0, 0, 0

    async def create(self, path, body) -> bytes:
        if not path.endswith("tokenreviews"):
            return json.dumps({"status": {"allowed": True}}).encode()
        token = body["spec"]["token"]
        if token.startswith("reader"):
            return json.dumps({"status": {"authenticated": True, "user": {}}}).encode()
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await self.open.wait()
        self.now -= 1
        return json.dumps({"status": {"authenticated": False}}).encode()


async def test_a_flood_of_unknown_tokens_keeps_known_clients_in(monkeypatch):
    monkeypatch.setattr(
        "gangsched.kube.serving.token_review._KEPT_S", 0.0
    )  # each is reviewed again
    monkeypatch.setattr("gangsched.kube.serving.token_review._REVIEW_S", math.inf)
    door = Door()
    reviews = TokenReviewer(door)
    assert await reviews.status("reader", "/metrics") == 200
    flood = [asyncio.create_task(reviews.status(f"t{n}", "/metrics")) for n in range(1000)]
    await until_async(lambda: door.now == 2, "the first strangers' reviews")
    assert await reviews.status("reader", "/metrics") == 200
    door.open.set()
    answers = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(isinstance(one, BusyError) for one in answers) == 1000 - REVIEWS_WAITING.most
    assert answers.count(401) == door.asked == REVIEWS_WAITING.most
    assert door.most == 2


async def test_the_token_cache_is_bounded_and_rejected_tokens_displace_none(monkeypatch):
    monkeypatch.setattr("gangsched.kube.serving.token_review._KEPT_S", math.inf)
    monkeypatch.setattr("gangsched.kube.serving.token_review._REFUSED_S", math.inf)
    monkeypatch.setattr(
        "gangsched.kube.serving.token_review.TOKENS_KNOWN", TOKENS_KNOWN._replace(most=10)
    )
    door = Door()
    door.open.set()
    reviews = TokenReviewer(door)
    await reviews.status("reader", "/metrics")
    for number in range(30):
        assert await reviews.status(f"t{number}", "/metrics") == 401
    assert await reviews.status("t29", "/metrics") == 401
    assert door.asked == 30
    assert len(reviews._refused._answers) == 10
    assert reviews._allowed.get((hashlib.sha256(b"reader").digest(), "/metrics")) == 200


async def test_a_review_that_is_not_answered_ends(monkeypatch):
    monkeypatch.setattr("gangsched.kube.serving.token_review._REVIEW_S", 0.05)
    with pytest.raises(TimeoutError):
        await TokenReviewer(Door()).status("t", "/metrics")


@pytest.mark.parametrize(("error", "status"), [(BusyError, 429), (TimeoutError, 503)])
async def test_a_client_that_cannot_be_reviewed_gets_an_error(error, status):
    class Unable:
        async def status(self, *_) -> int:
            raise error

    runner, port = await serve(
        [web.get("/metrics", hello)], "127.0.0.1", 0, None, [require_review(Unable())]
    )
    try:
        headers = {"Authorization": "Bearer t"}
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
            session.get("/metrics", headers=headers) as answer,
        ):
            assert answer.status == status
    finally:
        await runner.cleanup()
