"""The pages with 5,000 nodes and 10,000 gangs: first paint, weight, updates, accessibility.

The browser's figures need `make web-tests` once, and a chromium; without them they are left out.
"""

import asyncio
import importlib
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp
import web_viewers

from gangsched.cli.web import page_queues
from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.limits import Limits
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.model.topology import Level, Topology
from gangsched.core.planning.forecast import Effort
from gangsched.web.keeper import ModelKeeper, PageSource
from gangsched.web.server import WebServer

NODES, GANGS = 5000, 10_000
VIEWS = (
    "/cluster",
    "/queues",
    "/gangs",
    "/queue?name=q1",
    "/gang?name=team/wait-0",
    "/timeline",
    "/what-if",
)
VIEWERS = 20
_NOW_S = 1_000_000.0
_TIMES = 5


def run() -> dict[str, float]:
    """Return the figures."""
    served = _Served()
    try:
        figures = asyncio.run(_over_http(served))
        figures |= _in_browser(served)
    finally:
        served.stop()
    return figures | web_viewers.run()


def _source() -> PageSource:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    tests = importlib.import_module("builders")  # tests are no package
    needs, node = tests.needs, tests.node

    engine = Engine(Limits())
    levels = (Level("block", "block"), Level("rack", "rack"))
    engine.observe(f.TopologySeen(Topology("default", levels)), _NOW_S)
    for number in range(4):
        quotas = (Quota(tests.GPU, NODES * 2000),)
        engine.observe(f.QueueSeen(Queue(f"q{number}", quotas=quotas)), _NOW_S)
    for number in range(NODES):
        labels = {"block": f"b{number // 256}", "rack": f"r{number // 16 % 16:02d}"}
        engine.observe(f.NodeSeen(node(f"node-{number:05d}", labels=labels)), _NOW_S)
    for number in range(GANGS):
        runs = number < NODES
        name = f"team/{'run' if runs else 'wait'}-{number if runs else number - NODES}"
        role = Role("worker", 1, 1, needs(6 + number % 3))
        gang = Gang(
            GangId(name),
            1,
            roles=(role,),
            queue=f"q{number % 4}",
            expected_runtime_s=3600.0 + number % 97 * 60,
            created_s=_NOW_S - 600,
        )
        engine.observe(f.GangSeen(gang), _NOW_S)
        if runs:
            pod = f.PodSeen(
                PodUid(name),
                PodName(f"{name}-worker-0"),
                needs(6 + number % 3),
                gang.id,
                node=NodeName(f"node-{number:05d}"),
                role="worker",
                started_s=_NOW_S - 60,
            )
            engine.observe(pod, _NOW_S)
    return PageSource(
        engine,
        tests.POLICIES,
        lambda: _NOW_S,
        "benchmark",
        live=True,
        queue_rows=lambda: page_queues(engine, tests.POLICIES),
        redact=lambda text, _: text,
        effort=Effort(),
    )


class _Served:
    """The server in a thread of its own."""

    def __init__(self) -> None:
        self.source, self.port = _source(), 0
        ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(ready),), daemon=True)
        self._thread.start()
        ready.wait()
        self.url = f"http://127.0.0.1:{self.port}"

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self.keeper = asyncio.get_running_loop(), ModelKeeper(self.source)
        self._task = asyncio.ensure_future(self.keeper.run())
        runner, self.port = await WebServer(self.keeper).start(0)
        await self.keeper.after(0)
        ready.set()
        await asyncio.gather(self._task, return_exceptions=True)
        await runner.cleanup()

    def observe(self, fact: f.Fact) -> None:
        """Let the engine observe a fact, and the pages know."""

        def apply() -> None:
            self.source.engine.observe(fact, _NOW_S)
            self.keeper.changed()

        self._loop.call_soon_threadsafe(apply)

    def stop(self) -> None:
        """Stop the server."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()


async def _over_http(served: _Served) -> dict[str, float]:
    """Measure answers with viewers that never read their updates."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        stuck = [await session.get(f"{served.url}/events") for _ in range(VIEWERS)]
        slowest_s, heaviest = 0.0, 0
        for view in VIEWS:
            took_s = []
            for _ in range(_TIMES):
                began_s = time.perf_counter()
                headers = {"Accept-Encoding": "gzip"}
                async with session.get(served.url + view, headers=headers) as answer:
                    body = await answer.read()
                took_s.append(time.perf_counter() - began_s)
            slowest_s = max(slowest_s, sorted(took_s)[_TIMES // 2])
            heaviest = max(heaviest, len(body))
        for stream in stuck:
            stream.close()
    return {
        "web_answer_ms": slowest_s * 1000,
        "web_bytes": float(heaviest),
    }


def _in_browser(served: _Served) -> dict[str, float]:
    """Measure what a viewer sees, if there is a browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:  # an extra, without types
        axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
        sync_playwright = importlib.import_module("playwright.sync_api").sync_playwright
    except ModuleNotFoundError:
        return {}
    if chromium is None:
        return {}
    with sync_playwright() as program:
        browser = program.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        paints, serious = [], 0
        for view in VIEWS:
            for _ in range(_TIMES):
                page.goto(served.url + view)
                paints.append((view, page.evaluate(_FIRST_PAINT)))
            for found in axe.run(page).response["violations"]:
                serious += found["impact"] in ("serious", "critical")
        updates = _updates(served, page)
        browser.close()
    medians = [_median([ms for seen, ms in paints if seen == view]) for view in VIEWS]
    return {
        "web_first_paint_ms": max(medians),
        "web_update_ms": _median(updates),
        "axe_serious": float(serious),
    }


_FIRST_PAINT = """new Promise(done => new PerformanceObserver(seen => {
  const first = seen.getEntriesByName("first-contentful-paint")[0];
  if (first) done(first.startTime);
}).observe({type: "paint", buffered: true}))"""


def _updates(served: _Served, page: Any) -> list[float]:
    """Return how long after a fact its gang is on the screen."""
    took_ms = []
    page.goto(f"{served.url}/gangs?q=team%2Fnew")
    for number in range(_TIMES):
        page.wait_for_timeout(3000)  # the model of the last change may take its share of time
        name = f"team/new-{number}"
        began_s = time.perf_counter()
        served.observe(f.GangSeen(Gang(GangId(name), 1)))
        page.wait_for_selector(f"text={name}")
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return took_ms


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
