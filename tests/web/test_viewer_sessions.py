"""Sessions: token reviews, access reviews, and how both are bounded."""

import json

import pytest

from gangsched.kube.client.errors import Forbidden, Unavailable
from gangsched.web import sessions as sessions_module
from gangsched.web.rights import EVERYTHING, Rights
from gangsched.web.sessions import LoginError, ViewerReviews, ViewerSessions

ALICE = {"username": "alice", "groups": ["team"], "uid": "1", "extra": {"a": ["b"]}}


class ReviewClient:
    """An API server that knows the tokens of users, and what they may do."""

    def __init__(self, allowed=()):
        self.allowed, self.tokens, self.asked, self.error = set(allowed), {"t": ALICE}, [], None

    async def create(self, path, body):
        if self.error is not None:
            raise self.error
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            user = self.tokens.get(spec["token"])
            return json.dumps({"status": {"authenticated": user is not None, "user": user}})
        asked = spec["resourceAttributes"]
        self.asked.append((spec["user"], tuple(spec["groups"]), spec["extra"] == ALICE["extra"]))
        names = (asked["verb"], asked["resource"], asked.get("namespace") or asked.get("name"))
        return json.dumps({"status": {"allowed": names in self.allowed}})


CODE = "code-of-the-terminal"


def sessions(client, namespaces=("ns", "theirs"), queues=("q", "r"), code=CODE):
    """Return the sessions of a cluster with these namespaces and queues."""
    return ViewerSessions(ViewerReviews(client, lambda: (namespaces, queues)), code)


async def test_rights_are_those_of_the_tokens_user():
    client = ReviewClient({("list", "podgroups", "ns"), ("get", "queues", "q")})
    ours = sessions(client)
    session = await ours.of(await ours.log_in(" t\n"))
    assert session.user == "alice"
    assert session.rights == Rights(namespaces=frozenset({"ns"}), queues=frozenset({"q"}))
    assert set(client.asked) == {("alice", ("team",), True)}
    assert "'t'" not in repr(session)


async def test_a_right_for_all_namespaces_is_asked_once():
    client = ReviewClient({("list", n, None) for n in ("podgroups", "queues", "nodes")})
    ours = sessions(client, [f"n{number}" for number in range(500)])
    session = await ours.of(await ours.log_in("t"))
    assert session.rights == EVERYTHING
    assert len(client.asked) == 3


async def test_reviews_of_many_namespaces_are_bounded():
    client = ReviewClient()
    ours = sessions(client, [f"n{number}" for number in range(5000)], ())
    await ours.log_in("t")
    assert len(client.asked) == 3 + 1000


async def test_the_code_needs_no_review():
    client = ReviewClient()
    ours = sessions(client)
    session = await ours.of(await ours.log_in(CODE))
    assert session.rights is EVERYTHING
    assert client.asked == []
    with pytest.raises(LoginError):
        await ours.log_in(CODE[:-1])


async def test_without_a_code_only_tokens_log_in():
    ours = sessions(ReviewClient(), code=None)
    assert not ours.has_code
    for secret in ("", "None", CODE):
        with pytest.raises(LoginError):
            await ours.log_in(secret)
    assert (await ours.of(await ours.log_in("t"))).user == "alice"


async def test_a_revoked_token_ends_its_session(monkeypatch):
    client = ReviewClient()
    ours = sessions(client)
    cookie = await ours.log_in("t")
    client.tokens.clear()
    assert await ours.of(cookie) is not None, "a review is kept for a while"
    monkeypatch.setattr(sessions_module, "_REVIEWED_S", -1.0)
    assert await ours.of(cookie) is None
    assert await ours.of(cookie) is None


async def test_taken_rights_are_noticed(monkeypatch):
    client = ReviewClient({("list", "podgroups", "ns")})
    ours = sessions(client)
    cookie = await ours.log_in("t")
    client.allowed.clear()
    monkeypatch.setattr(sessions_module, "_REVIEWED_S", -1.0)
    session = await ours.of(cookie)
    assert session.rights == Rights()


async def test_an_outage_shows_nothing_and_keeps_the_session(monkeypatch):
    client = ReviewClient()
    ours = sessions(client)
    cookie = await ours.log_in("t")
    monkeypatch.setattr(sessions_module, "_REVIEWED_S", -1.0)
    client.error = Unavailable(0, "gone")
    with pytest.raises(LoginError, match="cannot review") as error:
        await ours.of(cookie)
    assert error.value.status == 503
    client.error = None
    assert await ours.of(cookie) is not None
    client.error = Forbidden(403, "no")
    with pytest.raises(LoginError, match="may not create TokenReviews"):
        await ours.of(cookie)


async def test_a_session_ends(monkeypatch):
    monkeypatch.setattr(sessions_module, "SESSION_S", 0.0)
    ours = sessions(ReviewClient())
    assert await ours.of(await ours.log_in("t")) is None


async def test_sessions_and_waiting_logins_are_bounded(monkeypatch):
    monkeypatch.setattr(sessions_module, "_SESSIONS_MAX", 2)
    ours = sessions(ReviewClient())
    cookies = [await ours.log_in("t") for _ in range(3)]
    assert [await ours.of(cookie) is None for cookie in cookies] == [True, False, False]
    monkeypatch.setattr(sessions_module, "_LOGINS_WAITING", 0)
    with pytest.raises(LoginError, match="Too many") as error:
        await ours.log_in("t")
    assert error.value.status == 429
