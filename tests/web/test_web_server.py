"""The HTTP layer: what it answers, and what attackers try."""

import asyncio
import contextlib
import html
import json
import threading
from html.parser import HTMLParser

import aiohttp
import pytest
from web_sources import HOSTILE, page_source

from gangsched.config import ConfigError, load_config
from gangsched.core.facts import GangGone, GangSeen
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.web import keeper as keeper_module
from gangsched.web import server as server_module
from gangsched.web.gang_actions import ActionError, GangAction, GangActions
from gangsched.web.keeper import ComputingError, ModelKeeper
from gangsched.web.moments import JournalMoments
from gangsched.web.rights import Rights
from gangsched.web.server import WebServer
from gangsched.web.sessions import LoginError, ViewerSessions

VIEWS = ("/cluster", "/queues", "/gangs", "/cluster?color=queue", "/timeline")
TOKEN = "a.token.of.mine"  # noqa: S105


class Reviews:
    """Reviews of an API server that knows one token."""

    rights = Rights(namespaces=frozenset({"ns"}))

    async def viewer(self, token):
        if token != TOKEN:
            raise LoginError("The token is not valid for this cluster.")
        return "alice", self.rights


class Site:
    """A server under test, and a client of it."""

    def __init__(self, keeper, port, session, sessions):
        self.keeper, self.session, self.sessions = keeper, session, sessions
        self.port, self.url = port, f"http://127.0.0.1:{port}"

    async def get(self, path, **more):
        more.setdefault("allow_redirects", False)
        async with self.session.get(self.url + path, **more) as answer:
            return answer, await answer.text()

    async def post(self, path, data=None, **headers):
        headers = {"Origin": self.url, **headers}
        async with self.session.post(
            self.url + path, data=data, headers=headers, allow_redirects=False
        ) as answer:
            return answer, await answer.text()

    async def log_in(self, secret=TOKEN):
        return await self.post("/login", {"token": secret})


class ActiveParts(HTMLParser):
    """Collects what a browser would run of a page, beside the page's own script."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def handle_starttag(self, tag, attrs):
        own = dict(attrs).get("src") in ("/static/page.js", "/static/moment.js")
        if (tag == "script" and not own) or tag in ("img", "iframe", "object", "embed", "style"):
            self.parts.append(tag)
        for name, value in attrs:
            unsafe = (value or "").strip().lower().startswith(("javascript:", "data:", "//"))
            if name.startswith("on") or name == "style" or unsafe:
                self.parts.append(name)


def active_parts(text):
    """Return the scripts, images and handlers of a page."""
    parser = ActiveParts()
    parser.feed(text)
    parser.close()
    return parser.parts


CODE = "code-of-the-terminal"


@contextlib.asynccontextmanager
async def site(source, *, login=False):
    """Serve the pages of a source, or of the moments of a journal."""
    keeper = source if isinstance(source, JournalMoments) else ModelKeeper(source)
    sessions = ViewerSessions(Reviews(), CODE) if login else None
    runner, port = await WebServer(keeper, sessions).start(0)
    task = asyncio.ensure_future(asyncio.sleep(0) if keeper is source else keeper.run())
    jar = aiohttp.CookieJar(unsafe=True)
    try:
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            yield Site(keeper, port, session, sessions)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()
        if isinstance(keeper, JournalMoments):
            await keeper.close()


async def test_a_page_of_a_file_has_its_starts_at_once():
    async with site(page_source()) as web:
        text = (await web.get("/queue?name=default"))[1]
        assert "Starts computed at" in text
        assert web.keeper.model.starts_at_s is not None


async def test_a_page_of_a_file_does_not_wait_for_ever(monkeypatch):
    release = threading.Event()

    def slow(*_):
        release.wait(60)
        return {}

    monkeypatch.setattr(keeper_module, "_STARTS_S", 0.1)
    monkeypatch.setattr(ModelKeeper, "_predictions", slow)
    async with site(page_source()) as web:
        answer, text = await web.get("/gangs")
        release.set()
        assert answer.status == 200
        assert "load the page again" in text


async def test_the_pages_link_to_the_dashboards():
    keeper = ModelKeeper(page_source())
    for grafana, links in ((None, 0), ("https://grafana.example.org/", 2)):
        runner, port = await WebServer(keeper, grafana=grafana).start(0)
        task = asyncio.ensure_future(keeper.run())
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}/gangs") as answer,
            ):
                text = await answer.text()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runner.cleanup()
        assert text.count('href="https://grafana.example.org/d/gangsched-') == links


@pytest.mark.parametrize("address", ["javascript:alert(1)", 'https://x"y', "ftp://x"])
def test_only_addresses_of_pages_are_linked(address, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps({"grafana": address}))
    with pytest.raises(ConfigError, match="grafana"):
        load_config(path)


async def forecasted(keeper):
    """Wait for a model with predicted starts."""
    version = 0
    while True:
        model = await keeper.after(version)
        version = model.version
        if model.gangs["ns/waits"].start is not None:
            return model


async def test_every_view_of_a_file_is_served():
    async with site(page_source()) as web:
        await forecasted(web.keeper)
        answer, _ = await web.get("/")
        assert (answer.status, answer.headers["Location"]) == (303, "/cluster")
        for path, word in (
            ("/cluster", "3 nodes, 16 of 17 GPUs used"),
            ("/cluster?in=r1", "Up to the cluster"),
            ("/node?name=a", "ns/own"),
            ("/queues", "r1: 1 of no limit"),
            ("/queue?name=default", "ns/waits"),
            ("/gangs", "3 of 3 gangs"),
            ("/gangs?q=OWN+r1&state=Placed", "1 of 3 gangs"),
            ("/gang?name=ns/waits", "Expected start"),
            ("/gang?name=ns/own", "Expected end"),
            ("/timeline", "16 of 17 GPUs are used by gangs now"),
            ("/timeline?queue=default&period=6h", "starts in"),
        ):
            answer, text = await web.get(path)
            assert answer.status == 200, path
            assert word in text, path
            assert "None" not in text, path


async def test_a_pending_gang_says_why_and_what_would_help():
    async with site(page_source()) as web:
        await forecasted(web.keeper)
        _, text = await web.get("/gang?name=ns/waits")
        assert "NotEnoughFree" in text
        assert "What would help" in text
        assert "in its queue" in text


async def test_what_does_not_exist_is_not_found():
    async with site(page_source()) as web:
        for path in (
            "/gang",
            "/gang?name=ns/none",
            f"/gang?name={'x' * 5000}",
            "/node?name=",
            "/node?name=zz",
            "/queue?name=zz",
            "/cluster?in=zz",
            "/nothing",
            "/static/none",
            "/static/..%2fserver.py",
            "/static/%2e%2e/server.py",
            "/static//etc/passwd",
        ):
            answer, text = await web.get(path)
            assert answer.status == 404, path
            assert "import " not in text


async def test_odd_queries_are_answered():
    async with site(page_source()) as web:
        for path in (
            "/gangs?page=-1",
            "/gangs?page=99999999999999999999",
            "/gangs?page=%C2%B2",
            f"/gangs?q={'w ' * 3000}",
            "/gangs?state=Nope&queue=Nope",
            "/queues?page=x",
            "/cluster?color=%00",
            "/gangs?q=%F0%9F%92%A9%ED%A0%80",
        ):
            answer, _ = await web.get(path)
            assert answer.status == 200, path


async def test_names_of_tenants_are_escaped_everywhere():
    async with site(page_source(hostile=True)) as web:
        await forecasted(web.keeper)
        own = {"name": f"ns/{HOSTILE}"}
        for path, query in (
            ("/cluster", {}),
            ("/cluster", {"color": "queue"}),
            ("/cluster", {"in": HOSTILE}),
            ("/node", {"name": "a"}),
            ("/node", {"name": HOSTILE}),
            ("/queues", {}),
            ("/queue", {"name": HOSTILE}),
            ("/gangs", {"q": HOSTILE, "state": HOSTILE, "queue": HOSTILE}),
            ("/gangs", {}),
            ("/gang", own),
            ("/gang", {"name": "ns/waits"}),
            ("/gang", {"name": HOSTILE}),
        ):
            _, text = await web.get(path, params=query)
            assert active_parts(text) == [], path
            assert "{{7*7}}" in html.unescape(text) or query in ({"name": "a"}, {}), path


async def test_every_answer_forbids_scripts_of_others_frames_and_caches():
    async with site(page_source(), login=True) as web:
        await web.log_in()
        for path in (*VIEWS, "/nothing", "/login", "/static/page.css", "/gang?name=zz", "/"):
            answer, _ = await web.get(path)
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost@evil",
        "",
        "[::1",
        "a b",
    ],
)
async def test_a_name_that_dns_rebinds_is_rejected(host):
    async with site(page_source()) as web:
        answer, text = await web.get("/gangs", headers={"Host": host})
        assert answer.status in (400, 403)
        assert "ns/own" not in text


async def test_names_of_loopback_are_served_by_any_forwarded_port():
    async with site(page_source()) as web:
        for host in ("localhost", "localhost:1", "127.0.0.1:9", "[::1]:8042"):
            answer, _ = await web.get("/gangs", headers={"Host": host})
            assert answer.status == 200, host


async def test_without_a_login_nothing_is_shown():
    async with site(page_source(), login=True) as web:
        for path in (*VIEWS, "/", "/gang?name=ns/own", "/node?name=a", "/queue?name=r1"):
            answer, text = await web.get(path)
            assert (answer.status, answer.headers["Location"]) == (303, "/login"), path
            assert "ns/own" not in text
        answer, _ = await web.get("/events")
        assert answer.status == 401
        answer, text = await web.get("/cluster", headers={"Cookie": f"gangsched-{web.port}=guess"})
        assert answer.status == 303


async def test_a_tenant_sees_the_own_gangs_and_anonymous_capacity():
    async with site(page_source(), login=True) as web:
        answer, _ = await web.log_in()
        assert (answer.status, answer.headers["Location"]) == (303, "/cluster")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        for path in (*VIEWS, "/node?name=a", "/gang?name=ns/own", "/gang?name=ns/waits"):
            _, text = await web.get(path)
            assert "secret" not in text, path
            assert "theirs" not in text, path
            assert TOKEN not in text, path
        answer, _ = await web.get("/gang?name=theirs/secret")
        assert answer.status == 404
        answer, _ = await web.get("/node?name=b")
        assert answer.status == 404
        _, text = await web.get("/gangs")
        assert "2 of 2 gangs" in text
        assert "1 gangs of other namespaces" in text


async def test_the_code_of_the_terminal_shows_everything():
    async with site(page_source(), login=True) as web:
        answer, _ = await web.log_in(CODE)
        assert answer.status == 303
        _, text = await web.get("/gangs")
        assert "theirs/secret" in text


@pytest.mark.parametrize("secret", ["", "wrong", "x" * 20_000, "ü", "a\r\nSet-Cookie: b"])
async def test_a_wrong_token_is_rejected(secret):
    async with site(page_source(), login=True) as web:
        answer, text = await web.log_in(secret)
        assert answer.status in (400, 401)
        assert "Set-Cookie" not in answer.headers
        assert not secret or secret not in text
        answer, _ = await web.get("/cluster")
        assert answer.status == 303


async def test_forms_of_other_sites_change_nothing():
    async with site(page_source(), login=True) as web:
        for origin in ("http://evil.example", "null", f"https://127.0.0.1:{web.port}", ""):
            answer, _ = await web.post("/login", {"token": TOKEN}, Origin=origin)
            assert answer.status == 403, origin
        await web.log_in()
        answer, _ = await web.post("/logout", Origin="http://evil.example")
        assert answer.status == 403
        answer, _ = await web.get("/logout")
        assert answer.status == 405, "a GET changes nothing"
        answer, _ = await web.get("/gangs")
        assert answer.status == 200
        await web.post("/logout")
        answer, _ = await web.get("/gangs")
        assert answer.status == 303


async def test_a_large_form_is_rejected():
    async with site(page_source(), login=True) as web:
        answer, _ = await web.post("/login", {"token": "x" * 200_000})
        assert answer.status == 413


async def test_an_update_is_announced_and_a_session_that_ends_closes_the_stream():
    source = page_source(live=True)
    async with site(source, login=True) as web:
        await web.log_in()
        async with web.session.get(web.url + "/events") as stream:
            assert stream.content_type == "text/event-stream"
            first = await stream.content.readuntil(b"\n\n")
            assert first.startswith(b"event: model")
            source.engine.observe(GangSeen(Gang(GangId("ns/new"), 1)), 100.0)
            web.keeper.changed()
            while True:
                await stream.content.readuntil(b"\n\n")
                _, text = await web.get("/gangs?q=ns/new")
                if "1 of" in text:
                    break
            await web.post("/logout")
            web.keeper.changed()
            rest = await stream.content.read()
            assert rest.count(b"event") <= 2


async def test_a_stuck_viewer_slows_no_other(monkeypatch):
    monkeypatch.setattr(server_module, "_STREAMS_MAX", 3)
    async with site(page_source(live=True)) as web:
        stuck = [await web.session.get(web.url + "/events") for _ in range(3)]
        answer, _ = await web.get("/events")
        assert answer.status == 503, "a bounded number of streams"
        for number in range(20):
            web.keeper.source.engine.observe(GangGone(GangId(f"ns/{number}")), 100.0)
            web.keeper.changed()
            answer, _ = await web.get("/gangs")
            assert answer.status == 200
        for stream in stuck:
            stream.close()


async def test_remedies_are_bounded_and_kept(monkeypatch):
    async with site(page_source()) as web:
        await forecasted(web.keeper)
        first = await web.keeper.remedies("ns/waits")
        assert await web.keeper.remedies("ns/waits") is first
        assert await web.keeper.remedies("ns/own") == ()
        web.keeper._remedies.clear()
        monkeypatch.setattr(keeper_module, "_REMEDIES_WAITING", 0)
        with pytest.raises(ComputingError, match="too many"):
            await web.keeper.remedies("ns/waits")
        answer, text = await web.get("/gang?name=ns/waits")
        assert answer.status == 200
        assert "too many remedies" in text


async def test_a_forecast_that_fails_is_reported(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(keeper_module, "make_plan", fails)
    async with site(page_source()) as web:
        model = await web.keeper.after(1)
        assert "failed" in model.forecast_problem
        answer, text = await web.get("/gangs")
        assert answer.status == 200
        assert "The forecast has a problem" in text


async def test_the_notice_of_an_action_is_shown_although_the_gang_is_gone():
    source = page_source(live=True)
    keeper = ModelKeeper(source)

    class Actions(GangActions):
        async def act(self, session, action, state):
            source.engine.observe(GangGone(GangId("ns/waits")), 100.0)
            keeper.changed()
            while "ns/waits" in (await keeper.after(keeper.model.version)).gangs:
                pass
            return "The job is held."

    runner, port = await WebServer(keeper, ViewerSessions(Reviews(), CODE), Actions(None)).start(0)
    task = asyncio.ensure_future(keeper.run())
    try:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            web = Site(keeper, port, session, None)
            await web.log_in()
            answer, _ = await web.post("/action", {"kind": "hold", "gang": "ns/waits"})
            assert answer.headers["Location"] == "/gang?name=ns/waits"
            answer, _ = await web.get("/gang?name=ns%2Fwaits")
            assert (answer.status, answer.headers["Location"]) == (303, "/gangs")
            assert "The job is held." in (await web.get("/gangs"))[1]
            assert (await web.get("/gang?name=ns%2Fwaits"))[0].status == 404
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


async def test_actions_come_from_the_page_and_are_named(monkeypatch):
    done = []

    class Actions(GangActions):
        async def act(self, session, action, state):
            done.append((session.user, action, state))
            if action.kind == "priority":
                raise ActionError("ns/own keeps its priority")
            return f"{action.gang} is held."

    monkeypatch.setattr(server_module, "GangActions", Actions)
    source = page_source(live=True)
    keeper = ModelKeeper(source)
    sessions = ViewerSessions(Reviews(), CODE)
    runner, port = await WebServer(keeper, sessions, Actions(None)).start(0)
    task = asyncio.ensure_future(keeper.run())
    try:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            web = Site(keeper, port, session, sessions)
            form = {"kind": "hold", "gang": "ns/own"}
            answer, _ = await web.post("/action", form)
            assert (answer.status, answer.headers["Location"]) == (303, "/login")
            await web.log_in()
            answer, _ = await web.post("/action", form, Origin="http://other.example")
            assert answer.status == 403
            answer, _ = await web.get("/action?kind=hold&gang=ns/own")
            assert answer.status == 405
            assert done == []
            answer, _ = await web.post("/action", form)
            assert answer.headers["Location"] == "/gang?name=ns/own"
            assert done == [("alice", GangAction("hold", "ns/own"), "Placed")]
            _, text = await web.get("/gang?name=ns/own")
            assert "ns/own is held." in text
            assert "<summary>Cancel the job</summary>" in text
            _, text = await web.get("/gang?name=ns/own")
            assert "ns/own is held." not in text, "a notice is shown once"
            await web.post("/action", {**form, "kind": "priority", "value": "x"})
            _, text = await web.get("/gangs")
            assert "Not done: ns/own keeps its priority" in text
            _, text = await web.get("/gangs")
            assert "Not done" not in text
            await web.post("/action", {**form, "gang": "theirs/secret"})
            assert done[-1][2] == "", "the state of a hidden gang is not known"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


async def test_a_file_has_no_actions():
    async with site(page_source()) as web:
        answer, _ = await web.post("/action", {"kind": "cancel", "gang": "ns/own"})
        assert answer.status == 404
        _, text = await web.get("/gang?name=ns/own")
        assert "Cancel" not in text
