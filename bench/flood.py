"""The effect of one user with 100,000 PodGroups on others.

Half of the groups have `roles` with templates, each with another number of pods, and are planned;
the others wait for pods. Beside them, another namespace starts one gang of 8 pods after the other.
"""

import asyncio
import statistics
import time

from meters import on_plane
from scale import gang, process

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.local.nodes import NodeGroup
from gangsched.local.plane import Plane, PlaneOptions

GROUPS, GANGS, WORKERS = 100_000, 30, 24
_FLOOD = "/apis/gangsched.io/v1beta1/namespaces/flood/podgroups"


async def calm(client: KubeClient, stem: str) -> list[float]:
    """Start gangs one after the other; return the times in seconds."""
    took = []
    for number in range(GANGS):
        took.append(await gang(client, f"{stem}-{number}", 8))
        await asyncio.sleep(1.0)
    return took


async def flood(client: KubeClient) -> None:
    """Create the groups in any order."""
    numbers = iter(range(GROUPS))

    async def hand() -> None:
        for number in numbers:
            spec: dict[str, object] = {"minMember": 2 + number % 40}
            if number % 2:
                resources = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "8"}}
                pods = {"containers": [{"name": "c", "resources": resources}]}
                template = {"spec": pods | {"nodeSelector": {"there-is": "none"}}}
                count = 2 + number % 40
                spec = {"roles": [{"name": "worker", "count": count, "template": template}]}
            body = {
                "apiVersion": "gangsched.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": f"g-{number}"},
                "spec": spec,
            }
            try:
                await client.create(_FLOOD, body)
            except KubeError as error:
                raise SystemExit(str(error)) from error

    await asyncio.gather(*(hand() for _ in range(WORKERS)))


async def measure(plane: Plane) -> dict[str, float]:
    """Measure before, during and after the creation of the groups."""
    figures: dict[str, float] = {}
    async with KubeClient(plane.kubeconfig) as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": "flood"}})
        before = await calm(client, "before")
        figures["gang_of_8_alone_p50_s"] = statistics.median(before)
        print(f"  alone {statistics.median(before):.3f} s", flush=True)
        started_s = time.monotonic()
        flooding = asyncio.create_task(flood(client))
        await asyncio.sleep(5.0)
        within = await calm(client, "within")
        figures["gang_of_8_in_flood_p50_s"] = statistics.median(within)
        figures["gang_of_8_in_flood_max_s"] = max(within)
        print(f"  in it {statistics.median(within):.3f} s, at most {max(within):.3f}", flush=True)
        await flooding
        took_s = time.monotonic() - started_s
        figures["flood_groups_per_s"] = GROUPS / took_s
        print(f"  {GROUPS} groups in {took_s:.0f} s", flush=True)
        after = await calm(client, "after")
        figures["gang_of_8_behind_flood_p50_s"] = statistics.median(after)
        figures["gang_of_8_behind_flood_max_s"] = max(after)
        print(f"  behind it {statistics.median(after):.3f} s, at most {max(after):.3f}", flush=True)
        figures["rss_mib"] = process(plane, "gangsched").memory_info().rss / 2**20
    return figures


def run() -> dict[str, float]:
    """Run once; return flat figures."""
    group = NodeGroup(name="n", count=100, gpus=8, cpu="96", pods=256, taints=())
    return on_plane("bench-flood", group, PlaneOptions(binding="direct"), measure)
