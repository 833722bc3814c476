"""A day of churn in compressed time: the memory that gangs leave after they are deleted.

20 rounds of 500 gangs of 4 pods, all deleted after each round: as many as a cluster of a few
hundred users starts in a day.
"""

import asyncio

from bind import Seen, clean
from bind_paths import PODS, WORKERS, Load, ours_gang
from meters import on_plane
from scale import process

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.watch import Watch
from gangsched.local.nodes import NodeGroup
from gangsched.local.plane import Plane, PlaneOptions

ROUNDS = 20
LOAD = Load("500x4", 500, 4, 1)
TIMEOUT_S = 120.0


async def once(client: KubeClient) -> None:
    """Start every gang, and delete all of them once they are bound."""
    seen = Seen()
    watching = asyncio.create_task((watch := Watch(client, PODS, seen)).run())
    await watch.synced.wait()
    gangs = iter(range(LOAD.gangs))

    async def work() -> None:
        for gang in gangs:
            await ours_gang(client, LOAD, gang)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    async with asyncio.timeout(TIMEOUT_S):
        while len(seen.bound_s) < LOAD.gangs * LOAD.pods:
            await asyncio.sleep(0.1)
    watching.cancel()
    await clean(client)


async def measure(plane: Plane) -> dict[str, float]:
    """Return memory after the third and the last round, and its growth per thousand gangs."""
    scheduler, memory = process(plane, "gangsched"), []
    async with KubeClient(plane.kubeconfig) as client:
        for number in range(ROUNDS):
            await once(client)
            await asyncio.sleep(2.0)
            memory.append(scheduler.memory_info().rss / 2**20)
            print(f"  round {number + 1}: {memory[-1]:.1f} MiB", flush=True)
    warm = 3
    gangs = (ROUNDS - warm) * LOAD.gangs
    return {
        "gangs": float(ROUNDS * LOAD.gangs),
        "rss_warm_mib": memory[warm - 1],
        "rss_last_mib": memory[-1],
        "growth_kib_per_1000_gangs": (memory[-1] - memory[warm - 1]) * 2**10 / gangs * 1000,
    }


def run() -> dict[str, float]:
    """Run once; return flat figures."""
    group = NodeGroup(name="n", count=300, gpus=8, cpu="96", pods=256, taints=())
    return on_plane("bench-churn", group, PlaneOptions(binding="direct"), measure)
