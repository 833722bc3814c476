"""The pages in a real Chromium: each view, keyboard, small screens, dark mode, axe, updates.

`make web-tests` installs what this needs; elsewhere the tests are skipped.
"""

import asyncio
import contextlib
import re
import shutil
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest
from builders import POLICIES
from test_simulation_pages import simulate
from waiting import patience_s, until
from web_sources import HOSTILE, page_source, write_journal

from gangsched.cli.web import make_change
from gangsched.config import SchedulerConfig
from gangsched.core.facts import GangSeen
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.kube.client.access import Access
from gangsched.recording.journal import RestoredEngine, write_facts
from gangsched.web.gang_actions import GangActions
from gangsched.web.keeper import ModelKeeper
from gangsched.web.server import WebServer

playwright = pytest.importorskip("playwright.sync_api", reason="make web-tests installs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")

VIEWS = (
    "/cluster",
    "/node?name=a",
    "/queues",
    "/queue?name=default",
    "/gangs",
    "/timeline",
    "/what-if?count=2&node=a",
)
GANGS = ("/gang?name=ns/waits", "/gang?name=ns/own")
SCREENS = {
    "wide": {"viewport": {"width": 1280, "height": 800}},
    "small": {"viewport": {"width": 360, "height": 740}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as run:
        opened = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Served:
    """A server in a thread of its own, which may be stopped and started again."""

    def __init__(self, source):
        self.source, self.keeper, self.loop, self.port = source, None, None, 0
        source.make_change = make_change(SchedulerConfig(), POLICIES)

    def start(self):
        ready = threading.Event()
        self.thread = threading.Thread(target=asyncio.run, args=(self._serve(ready),), daemon=True)
        self.thread.start()
        assert ready.wait(patience_s(10))

    async def _serve(self, ready):
        self.loop, self.keeper = asyncio.get_running_loop(), ModelKeeper(self.source)
        self.task = asyncio.ensure_future(self.keeper.run())
        server = WebServer(self.keeper, None, GangActions(Access()))
        runner, self.port = await server.start(self.port)
        ready.set()
        await asyncio.gather(self.task, return_exceptions=True)
        await runner.cleanup()

    def observe(self, fact):
        def apply():
            self.source.engine.observe(fact, 100.0)
            self.keeper.changed()

        self.loop.call_soon_threadsafe(apply)

    def stop(self):
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join(patience_s(10))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def live():
    served = Served(page_source(live=True))
    served.start()
    yield served
    served.stop()


@pytest.fixture
def page(browser):
    """A page that fails the test if a script or the policy of contents is broken."""
    opened = browser.new_page()
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda m: problems.append(m.text) if "Policy" in m.text else None)
    opened.on("dialog", lambda dialog: problems.append(dialog.message))
    yield opened
    opened.close()
    assert problems == []


@pytest.mark.parametrize("screen", SCREENS)
def test_every_view_is_accessible_and_fits_the_screen(browser, live, screen):
    context = browser.new_context(**SCREENS[screen])
    page = context.new_page()
    for path in (*VIEWS, *GANGS):
        assert page.goto(live.url + path).status == 200
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= SCREENS[screen]["viewport"]["width"], path
        result = axe.Axe().run(page).response["violations"]
        assert [(found["id"], path) for found in result] == []
    context.close()


def test_axe_would_find_something(page, live):
    page.goto(live.url + "/queues")
    page.evaluate("document.querySelector('header').append(document.createElement('button'))")
    found = axe.Axe().run(page).response["violations"]
    assert "button-name" in {rule["id"] for rule in found}


def test_the_keyboard_is_enough(page, live):
    page.goto(live.url + "/cluster")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for view in ("cluster", "queues", "gangs"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == f"nav-{view}"
    page.keyboard.press("Enter")
    page.wait_for_url("**/gangs")
    page.focus("#q")
    page.keyboard.type("waits")
    page.keyboard.press("Enter")
    page.wait_for_url("**/gangs?q=waits*")
    page.focus("tbody a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/gang?name=ns/waits")


def test_a_change_is_shown_and_the_focus_stays(page, live):
    page.goto(live.url + "/gangs")
    page.focus("#show")
    live.observe(GangSeen(Gang(GangId("ns/new"), 1)))
    page.wait_for_selector("text=ns/new")
    assert page.evaluate("document.activeElement.id") == "show"
    page.fill("#q", "half a word")
    live.observe(GangSeen(Gang(GangId("ns/newer"), 1)))
    until(lambda: "ns/newer" in live.keeper.model.gangs, "the model has it")
    assert page.input_value("#q") == "half a word", "no update takes what the viewer types"


def test_a_restart_is_reported_and_the_page_connects_again(page, live):
    page.goto(live.url + "/gangs")
    page.wait_for_selector("html[data-version]", state="attached")
    live.stop()
    page.wait_for_selector("#connection:has-text('is lost')")
    live.start()
    page.wait_for_selector("#connection:has-text('Connected again')")
    live.observe(GangSeen(Gang(GangId("ns/after"), 1)))
    page.wait_for_selector("text=ns/after")


def test_names_that_attack_run_nothing(page):
    served = Served(page_source(hostile=True, live=True))
    served.start()
    try:
        name = quote(f"ns/{HOSTILE}")
        own = (f"/gang?name={name}", f"/queue?name={quote(HOSTILE)}", f"/gangs?q={quote(HOSTILE)}")
        for path in ("/cluster", "/queues", "/gangs", *own):
            assert page.goto(served.url + path).status == 200
            page.wait_for_selector("html[data-version]", state="attached")
            assert page.locator("main img, main script").count() == 0
    finally:
        served.stop()


@contextlib.contextmanager
def served_file(file):
    """Run `gangsched web` on a file; yield its address."""
    command = [sys.executable, "-u", "-m", "gangsched", "web", str(file), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield re.search(r"http://[^\s/]+", program.stdout.readline())[0]
        finally:
            program.terminate()


def test_the_command_serves_a_snapshot(page, tmp_path):
    facts = [GangSeen(Gang(GangId("ns/of-file"), 1))]
    engine = page_source().engine
    for fact in facts:
        engine.observe(fact, 1.0)
    file = tmp_path / "now.jsonl"
    write_facts(file, RestoredEngine(engine, 1.0, facts))
    with served_file(file) as url:
        page.goto(url)
        page.click("#nav-gangs")
        page.wait_for_selector("text=ns/of-file")
        assert page.locator("#moment").count() == 0, "a snapshot has one moment"


def test_a_slider_goes_to_any_moment_of_a_journal_and_views_keep_it(page, tmp_path):
    file = write_journal(tmp_path / "journal.jsonl", 10)
    with served_file(file) as url:
        page.goto(url)
        page.click("#nav-gangs")
        page.wait_for_selector("text=No gang matches")
        page.focus("#part")
        for _ in range(500):
            page.keyboard.press("ArrowLeft", delay=0)
            if "/at/" in page.url:
                break
        page.wait_for_url("**/at/*/gangs")
        page.goto(url + "/moment?view=gangs&part=500")
        page.wait_for_selector("text=ns/g5")
        names = page.locator("tbody th").all_inner_texts()
        assert set(names) == {"ns/g4", "ns/g5"}
        page.click("#later")
        page.wait_for_url("**/at/70.000/gangs")
        assert set(page.locator("tbody th").all_inner_texts()) == {"ns/g5", "ns/g6"}
        page.click("text=ns/g5")
        page.wait_for_url("**/at/70.000/gang?name=ns/g5")
        assert "The plan assigns 1 pod to a." in page.inner_text(".story")
        page.click("#nav-timeline")
        page.wait_for_url("**/at/70.000/timeline")
        texts = page.inner_text("table.timeline")
        assert all(name in texts for name in ("ns/g0", "ns/g6"))
        assert "ns/g7" not in texts, "that is the future"
        result = axe.Axe().run(page).response["violations"]
        assert [found["id"] for found in result] == []


def test_each_view_of_a_simulation(page, tmp_path):
    simulate(tmp_path / "out", "--journal")
    with served_file(tmp_path / "out" / "three-teams" / "seed-0" / "journal.jsonl") as url:
        page.goto(url + "/moment?view=gangs&part=500")
        gang = page.locator("tbody th a").first.get_attribute("href")
        node = page.goto(url + "/moment?view=cluster&part=500") and page.locator(
            "a[href^='node?']"
        ).first.get_attribute("href")
        here = page.url.rpartition("/")[0]
        queue = "queue?name=research"
        for view in ("cluster", node, "queues", queue, "gangs", gang, "timeline", "what-if"):
            assert page.goto(f"{here}/{view}").status == 200, view
            result = axe.Axe().run(page).response["violations"]
            assert [(found["id"], view) for found in result] == []
