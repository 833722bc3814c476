"""The job controllers are told to stop: they do at once, and leave what runs beside them alone."""

import asyncio
import signal
from contextlib import asynccontextmanager

import kopf
from test_parts import Server

from gangsched.operators import runner


async def test_told_to_stop_they_wait_for_nothing_that_is_not_theirs(monkeypatch):
    began = asyncio.Event()

    def register(registry, *_):
        @kopf.on.login(registry=registry)
        async def login(**_):
            began.set()
            await asyncio.Event().wait()

    @asynccontextmanager
    async def watched(*_):
        yield asyncio.create_task(asyncio.Event().wait())

    monkeypatch.setattr(runner, "_register", register)
    monkeypatch.setattr(runner, "watched", watched)
    running = asyncio.create_task(runner.run_operators(None, Server(None), kinds=("JAXJob",)))
    await asyncio.wait([running, asyncio.create_task(began.wait())], return_when="FIRST_COMPLETED")
    assert not running.done()
    beside = asyncio.create_task(asyncio.Event().wait())
    try:
        signal.raise_signal(signal.SIGTERM)
        await running
        assert not beside.done()
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
