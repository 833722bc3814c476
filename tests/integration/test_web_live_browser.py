"""Each view in a browser, on a live control plane and its snapshot, for viewers of some rights."""

import asyncio
import contextlib
import re
import shutil
import threading

import pytest
from test_web_pages import tenant
from waiting import patience_s, until

from gangsched.cli.web import serve_cluster, serve_file
from gangsched.config import load_config
from gangsched.kube.client.access import Access
from gangsched.web.sessions import new_code

playwright = pytest.importorskip("playwright.sync_api", reason="make web-tests installs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
    pytest.mark.by("direct"),  # the pages read what the binding wrote
]

VIEWS = ("/cluster", "/node?name=k-0", "/queues", "/queue?name=default", "/gangs", "/timeline")
WHAT_IF = "/what-if?count=64&node=k-0"


@contextlib.contextmanager
def serving(work):
    """Serve pages in a thread of their own; yield their address and the code."""
    said, begun = [], {}

    async def run():
        begun["loop"], begun["task"] = asyncio.get_running_loop(), asyncio.current_task()
        with contextlib.suppress(asyncio.CancelledError):
            await work(said.append)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        until(lambda: re.search(r"http://\S+:\d+", " ".join(said)), "the pages", patience_s(60))
        text = " ".join(said)
        code = re.search(r"code (\S+)", text)
        yield re.search(r"http://\S+:\d+", text)[0], code[1] if code else ""
    finally:
        begun["loop"].call_soon_threadsafe(begun["task"].cancel)
        thread.join(patience_s(30))


@contextlib.contextmanager
def browsing():
    """Yield a browser. It has the event loop of this thread: no command runs here meanwhile."""
    with playwright.sync_playwright() as run:
        opened = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextlib.contextmanager
def viewing(browser, url, secret=""):
    """Yield a page of a viewer who has logged in; a problem of a script fails the test."""
    context = browser.new_context()
    page, problems = context.new_page(), []
    page.set_default_timeout(patience_s(30) * 1000)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if "Policy" in m.text else None)
    if secret:
        page.goto(f"{url}/cluster")
        page.fill("#token", secret)
        page.click("main button")
        page.wait_for_url("**/cluster")
    yield page
    context.close()
    assert problems == []


def accessible_text(page, url, path):
    """Return the text of a view in which axe finds nothing."""
    assert page.goto(url + path).status == 200, path
    found = axe.Axe().run(page).response["violations"]
    assert [(rule["id"], path) for rule in found] == []
    return page.inner_text("body")


def test_each_view_for_viewers_of_several_rights(cluster, namespace, tmp_path):
    other = cluster.new_namespace()
    try:
        cluster.gang(namespace, "own", 1, gpus=8)
        cluster.gang(other, "secret", 1, gpus=4)
        cluster.wait_placed(namespace, "own-", 1)
        cluster.wait_placed(other, "secret-", 1)
        cluster.gang(namespace, "wide", 64, gpus=8)
        cluster.wait(lambda: cluster.group_status(namespace, "wide").get("refusal"), "the refusal")
        token = tenant(cluster, namespace)
        file = tmp_path / "now.jsonl"
        assert cluster.gangsched("snapshot", str(file))[0] == 0
        with browsing() as browser:
            _live(cluster, browser, (namespace, other), token)
            with (
                serving(lambda say: serve_file(file, load_config(None), 0, say)) as (url, _),
                viewing(browser, url) as page,
            ):
                for path in (*VIEWS, WHAT_IF):
                    accessible_text(page, url, path)
                assert f"{other}/secret" in accessible_text(page, url, f"/gangs?q={other}")
                assert "Placed" in accessible_text(page, url, f"/gang?name={namespace}/own")
    finally:
        cluster.remove_namespace(other)


def _live(cluster, browser, namespaces, token):
    namespace, other = namespaces
    access = Access(cluster.plane.kubeconfig)

    def work(say):
        return serve_cluster(access, load_config(None), 0, say, code=new_code())

    with serving(work) as (url, code):
        with viewing(browser, url, code) as page:
            for path in (*VIEWS, WHAT_IF):
                accessible_text(page, url, path)
            assert f"{other}/secret" in accessible_text(page, url, f"/gangs?q={other}")
            page.goto(f"{url}/gangs?q={namespace}")
            cluster.gang(namespace, "later", 1, gpus=1)
            page.wait_for_selector(f"text={namespace}/later")
            assert "LargerThanCluster" in accessible_text(page, url, f"/gang?name={namespace}/wide")
        with viewing(browser, url, token) as page:
            for path in (*VIEWS, WHAT_IF, "/gangs"):
                text = accessible_text(page, url, path)
                assert other not in text, path
                assert "secret" not in text, path
            assert "Placed" in accessible_text(page, url, f"/gang?name={namespace}/own")
            assert page.goto(f"{url}/gang?name={other}/secret").status == 404
            page.goto(f"{url}/gangs")
            page.click("header form button")
            page.wait_for_url("**/login")
