"""A look at the live cluster: everything read once, nothing changed."""

import asyncio
from pathlib import Path

from gangsched.config import SchedulerConfig
from gangsched.core.policy import Policies
from gangsched.kube.client import KubeClient
from gangsched.kube.scheduler import Scheduler
from gangsched.metrics import Metrics


async def look(kubeconfig: Path | None, config: SchedulerConfig, policies: Policies) -> Scheduler:
    """Read the cluster; the scheduler that is returned knows it and does nothing."""
    async with KubeClient(kubeconfig) as client:
        return await read(client, config, policies)


async def read(client: KubeClient, config: SchedulerConfig, policies: Policies) -> Scheduler:
    """Read the cluster through a client, then stop the watches."""
    scheduler = Scheduler(client, config, policies, Metrics(), look_only=True)
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
    return scheduler
