"""What viewers of the pages cost the scheduler's process and the pages' own process.

Gangs start and end without pause on 100 KWOK nodes. Two spans without pages alternate with two
spans in which `gangsched web` serves 20 viewers, each of whom reads its updates.
"""

import asyncio
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import psutil
from meters import on_plane
from scale import cpu_s, gang, process

from gangsched.kube.client.client import KubeClient
from gangsched.local.nodes import NodeGroup
from gangsched.local.plane import Plane, PlaneOptions

VIEWERS, SPAN_S, SPANS = 20, 30.0, 2
_NAMESPACE = "/api/v1/namespaces/default/pods"
_GROUPS = "/apis/gangsched.io/v1beta1/namespaces/default/podgroups"


def run() -> dict[str, float]:
    """Return the shares of a core."""
    group = NodeGroup(name="n", count=100, gpus=8, cpu="96", pods=256, taints=())
    return on_plane("bench-web", group, PlaneOptions(binding="direct"), _measure)


async def _measure(plane: Plane) -> dict[str, float]:
    async with KubeClient(plane.kubeconfig) as client:
        ended = asyncio.Event()
        gangs = asyncio.create_task(_gangs(client, ended))
        scheduler = process(plane, "gangsched")
        without, beside, pages = [], [], []
        await asyncio.sleep(10.0)  # the first gangs warm the caches
        for _ in range(SPANS):
            without.append((await _shares([scheduler]))[0])
            async with _watched_pages(plane) as served:
                shares = await _shares([scheduler, served])
            beside.append(shares[0])
            pages.append(shares[1])
        ended.set()
        await gangs
    return {
        "web_scheduler_core_share": statistics.mean(beside) - statistics.mean(without),
        "web_scheduler_core_share_without": statistics.mean(without),
        "web_process_core_share": statistics.mean(pages),
    }


async def _gangs(client: KubeClient, ended: asyncio.Event) -> None:
    """Start a gang of four and remove it, again and again, once a second."""
    number = 0
    while not ended.is_set():
        began_s, name = time.monotonic(), f"g-{number}"
        await gang(client, name, 4)
        for index in range(4):
            await client.delete(f"{_NAMESPACE}/{name}-{index}")
        await client.delete(f"{_GROUPS}/{name}")
        number += 1
        await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began_s)))


async def _shares(processes: list[psutil.Process]) -> list[float]:
    """Return the share of a core that each process takes over a span."""
    before, began_s = [cpu_s(one) for one in processes], time.monotonic()
    await asyncio.sleep(SPAN_S)
    took_s = time.monotonic() - began_s
    return [(cpu_s(one) - used_s) / took_s for one, used_s in zip(processes, before, strict=True)]


@asynccontextmanager
async def _watched_pages(plane: Plane) -> AsyncIterator[psutil.Process]:
    """Serve the pages to viewers; yield the process once every viewer has its first update."""
    command = (sys.executable, "-m", "gangsched", "web", "--port", "0")
    options = ("--kubeconfig", str(plane.kubeconfig))
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *command, *options, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        url, code = await _address(program)
        async with AsyncExitStack() as stack:
            jar = aiohttp.CookieJar(unsafe=True)  # the address is a number
            session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
            form = {"token": code}
            headers = {"Origin": url}
            async with session.post(f"{url}/login", data=form, headers=headers) as answer:
                answer.raise_for_status()
            heard = [asyncio.Event() for _ in range(VIEWERS)]
            views = [asyncio.create_task(_view(session, url, event)) for event in heard]
            try:
                await asyncio.gather(*(event.wait() for event in heard))
                yield psutil.Process(program.pid)
            finally:
                for view in views:
                    view.cancel()
                await asyncio.gather(*views, return_exceptions=True)
    finally:
        program.terminate()
        await program.wait()


async def _address(program: asyncio.subprocess.Process) -> tuple[str, str]:
    """Return the address and the code that the pages print."""
    if program.stdout is None:
        raise RuntimeError("the process has no output")
    text = ""
    while not (url := re.search(r"http://\S+:\d+", text)) or not (
        code := re.search(r"code (\S+)", text)
    ):
        line = await program.stdout.readline()
        if not line:
            raise SystemExit(f"gangsched web ended: {text}")
        text += line.decode()
    return url[0], code[1]


async def _view(session: aiohttp.ClientSession, url: str, heard: asyncio.Event) -> None:
    """Read the updates of a view as its script does: with each one, the view again."""
    async with session.get(f"{url}/events", timeout=aiohttp.ClientTimeout()) as events:
        events.raise_for_status()
        async for line in events.content:
            if line.startswith(b"data:"):
                async with session.get(f"{url}/cluster") as answer:
                    await answer.read()
                heard.set()
