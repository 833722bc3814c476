"""A look at the live cluster: everything read once, nothing changed."""

import asyncio
from collections.abc import Callable
from typing import Any

from gangsched import lookup
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine import Engine
from gangsched.core.policy import Policies
from gangsched.journal import Recalled
from gangsched.kube.access import Access
from gangsched.kube.client import KubeClient
from gangsched.kube.scheduler import Scheduler
from gangsched.metrics import Metrics


async def look(access: Access, config: SchedulerConfig, policies: Policies) -> Scheduler:
    """Read the cluster; the scheduler that is returned knows it and does nothing."""
    async with KubeClient(access) as client:
        return await read(client, config, policies)


def own_words(access: Access) -> Callable[[str], dict[str, Any] | None]:
    """Return who asks the cluster what the job of a name says of itself."""

    async def ask(gang: str) -> dict[str, Any] | None:
        async with KubeClient(access) as client:
            return await lookup.ask(client, gang)

    return lambda gang: asyncio.run(ask(gang))


async def take(access: Access, config: SchedulerConfig, policies: Policies) -> Recalled:
    """Read the cluster, and keep the facts it came in, the last of each object."""
    told: list[f.Fact] = []

    class Listening(Engine):
        def observe(self, fact: f.Fact, now_s: float) -> tuple[o.Order, ...]:
            told.append(fact)
            return super().observe(fact, now_s)

    async with KubeClient(access) as client:
        seen = await read(client, config, policies, Listening)
    return Recalled(seen.engine, seen.now_s(), told)


async def read(
    client: KubeClient,
    config: SchedulerConfig,
    policies: Policies,
    engine: type[Engine] = Engine,
) -> Scheduler:
    """Read the cluster through a client, then stop the watches."""
    scheduler = Scheduler(client, config, policies, Metrics(), look_only=True, engine=engine)
    done = asyncio.Event()

    async def watch() -> None:
        async with asyncio.TaskGroup() as group:
            await scheduler.read(group)
            done.set()

    task = asyncio.ensure_future(watch())
    waiter = asyncio.ensure_future(done.wait())
    await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    task.cancel()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    if not done.is_set() and isinstance(result, BaseException):
        raise result
    scheduler.thinking.sort_out()
    return scheduler
