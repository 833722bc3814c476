"""Commands read pods with the scheduler names that the running scheduler serves."""

import asyncio

import pytest
from builders import POLICIES
from stub_config_map import StubConfigMap

from gangsched.config import SchedulerConfig
from gangsched.kube.informers import watches as module
from gangsched.kube.service import Scheduler
from gangsched.kube.stored.scheduler_names import ServedNames
from gangsched.metrics import Metrics


async def kept(api: StubConfigMap, names: set[str]) -> None:
    """Let a scheduler serve these names for a while."""
    served = ServedNames(api, "ns/kept")
    running = asyncio.create_task(served.run(names))

    async def known() -> bool:
        return await served.read() == names

    while not await known():
        await asyncio.sleep(0)
    running.cancel()


async def test_names_are_kept_and_written_once():
    api = StubConfigMap()
    for _ in range(2):
        await kept(api, {"gangsched", "volcano"})
    assert api.writes == 1
    await kept(api, {"gangsched"})
    assert api.writes == 2


@pytest.mark.parametrize("text", ["", "{}", "[", '[1, ""]', "[" * 100_000])
async def test_a_scribble_is_no_name(text):
    api = StubConfigMap()
    api.data = {"scheduler-names.json": text}
    assert await ServedNames(api, "ns/kept").read() == frozenset()


class Silent:
    """A watch that hears nothing."""

    def __init__(self, *_, **__) -> None:
        self.synced = asyncio.Event()
        self.synced.set()

    async def run(self) -> None:
        """Hear nothing."""

    async def hand_over(self) -> None:
        """Have nothing to hand over."""


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_look_takes_the_names_over_and_a_scheduler_has_its_own(monkeypatch, read_only):
    monkeypatch.setattr(module, "Watch", Silent)
    api = StubConfigMap()
    await kept(api, {"gangsched", "volcano"})
    scheduler = Scheduler(api, SchedulerConfig(), POLICIES, Metrics(), read_only=read_only)
    async with asyncio.TaskGroup() as group:
        await scheduler.read(group)
    assert ("volcano" in scheduler.cluster.names) == read_only
