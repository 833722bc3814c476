"""The scheduler at 5,000 KWOK nodes, 50,000 running pods and 1,000 queues.

Measures the cold start to the first decision, memory, CPU when idle, failover, the time to the
first status of a gang, and how fast gangs are planned and bound. A leader and a standby run with
direct binding.
"""

import asyncio
import statistics
import time
from typing import Any

import psutil
from meters import on_plane

from gangsched.api.names import POD_GROUP_LABEL
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict
from gangsched.local.nodes import NodeGroup
from gangsched.local.plane import Plane, PlaneOptions

NODES, GPUS = 5_000, 8
PODS, WITH_GPU = 50_000, 36_000
"""A tenth of the GPUs stays free for the measured gangs."""

COHORTS, TEAMS = 10, 990
"""Queues: teams with nominal quota, which borrow within their cohort."""

STREAM = 250
"""Gangs of 8, created as fast as the API server accepts them."""

WORKERS = 48
SETTLES_S, IDLE_S = 120.0, 300.0
"""Heartbeats of nodes come every five minutes."""

TIMEOUT_S = 300.0
_PODS = "/api/v1/namespaces/default/pods"
_GROUPS = "/apis/gangsched.io/v1beta1/namespaces/default/podgroups"
_QUEUES = "/apis/gangsched.io/v1beta1/queues"
BOTH = ("gangsched", "gangsched-standby")


def pod(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    """Return a pod."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    if gpus:
        resources["limits"] = {"nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": spec.pop("labels", {})},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "x", "resources": resources}],
            **spec,
        },
    }


async def divide(client: KubeClient) -> None:
    """Create the queues: cohorts and their teams."""
    for number in range(COHORTS):
        await client.create(_QUEUES, queue(f"cohort-{number}", NODES * GPUS // COHORTS))
    share = NODES * GPUS // TEAMS
    for number in range(TEAMS):
        body = queue(f"team-{number}", share, parent=f"cohort-{number % COHORTS}")
        await client.create(_QUEUES, body)


def queue(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    """Return a queue with nominal quota."""
    quotas = [{"resource": "nvidia.com/gpu", "nominal": gpus}]
    return {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"quotas": quotas, **spec},
    }


async def fill(client: KubeClient) -> None:
    """Create the running pods, already on their nodes."""
    numbers = iter(range(PODS))

    async def hand() -> None:
        for number in numbers:
            body = pod(
                f"p{number}",
                int(number < WITH_GPU),
                nodeName=f"n-{number % NODES:0{len(str(NODES - 1))}}",
            )
            try:
                await client.create(_PODS, body)
            except Conflict:
                continue

    await asyncio.gather(*(hand() for _ in range(WORKERS)))


def group(name: str, pods: int, **spec: Any) -> dict[str, Any]:
    """Return a PodGroup."""
    return {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": pods, **spec},
    }


async def observed_after_s(client: KubeClient, name: str) -> float:
    """Create a pod that fits no node; return the seconds until its group has a refusal."""
    started_s = time.monotonic()
    await client.create(_GROUPS, group(name, 1))
    labels, nowhere = {POD_GROUP_LABEL: name}, {"there-is": "none"}
    body = pod(name, 1, labels=labels, schedulerName="gangsched", nodeSelector=nowhere)
    await client.create(_PODS, body)
    while time.monotonic() - started_s < TIMEOUT_S:
        if b'"phase":' in await client.get(f"{_GROUPS}/{name}"):
            return time.monotonic() - started_s
        await asyncio.sleep(0.005)
    raise SystemExit(f"PodGroup {name} was not observed within {TIMEOUT_S:g} s")


async def stream(client: KubeClient) -> float:
    """Create gangs of many teams at once; return the placed gangs per second."""
    started_s = time.monotonic()
    numbers = iter(range(STREAM))

    async def hand() -> None:
        for number in numbers:
            await gang(client, f"stream-{number}", 8, queue=f"team-{number}")

    await asyncio.gather(*(hand() for _ in range(WORKERS)))
    return STREAM / (time.monotonic() - started_s)


async def gang(client: KubeClient, name: str, pods: int, gpus: int = 1, **spec: Any) -> float:
    """Create a gang; return the seconds until its last pod is bound."""
    started_s = time.monotonic()
    await client.create(_GROUPS, group(name, pods, **spec))
    labels = {POD_GROUP_LABEL: name}
    slots = asyncio.Semaphore(16)

    async def one(index: int) -> None:
        async with slots:
            body = pod(f"{name}-{index}", gpus, labels=labels, schedulerName="gangsched")
            await client.create(_PODS, body)

    await asyncio.gather(*(one(index) for index in range(pods)))
    while time.monotonic() - started_s < TIMEOUT_S:
        raw = await client.get(f"{_GROUPS}/{name}")
        if b'"phase":"Placed"' in raw:
            return time.monotonic() - started_s
        await asyncio.sleep(0.05)
    raise SystemExit(f"gang {name} was not placed within {TIMEOUT_S:g} s")


def process(plane: Plane, name: str) -> psutil.Process:
    """Return a program's process."""
    return psutil.Process(plane.programs.get(name).pid)


def cpu_s(one: psutil.Process) -> float:
    """Return the CPU seconds of a process."""
    times = one.cpu_times()
    return float(times.user + times.system)


async def measure(plane: Plane) -> dict[str, float]:
    """Fill the cluster, then measure."""
    figures: dict[str, float] = {}
    async with KubeClient(plane.kubeconfig) as client:
        began_s = time.monotonic()
        await divide(client)
        await fill(client)
        print(f"  {PODS} pods in {time.monotonic() - began_s:.0f} s", flush=True)
        await asyncio.sleep(90.0)  # KWOK runs them
        for name in BOTH:
            plane.programs.stop(name, hard=True)
        await client.delete(
            "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"
        )
        first = asyncio.create_task(gang(client, "first", 8))
        await asyncio.sleep(1.0)
        began_s = time.monotonic()
        plane.programs.restart(BOTH[0])
        await first
        figures["restart_5000_nodes_s"] = time.monotonic() - began_s
        print(f"  restart {figures['restart_5000_nodes_s']:.1f} s", flush=True)
        await asyncio.sleep(SETTLES_S)
        if not plane.programs.get(BOTH[0]).alive():
            raise SystemExit(plane.programs.tail(BOTH[0], 2))
        leader = process(plane, BOTH[0])
        figures["rss_5000_nodes_mib"] = leader.memory_info().rss / 2**20
        before_s = cpu_s(leader)
        await asyncio.sleep(IDLE_S)
        figures["idle_cpu_share"] = (cpu_s(leader) - before_s) / IDLE_S
        print(f"  idle {figures['idle_cpu_share']:.3f} of a core", flush=True)
        lags = [await observed_after_s(client, f"heard-{i}") for i in range(50)]
        figures["heard_p50_s"] = statistics.median(lags)
        figures["heard_max_s"] = max(lags)
        times = [await gang(client, f"small-{i}", 8) for i in range(20)]
        figures["gang_of_8_p50_s"] = sorted(times)[len(times) // 2]
        figures["gang_of_1000_s"] = await gang(client, "large", 1000)
        figures["gangs_per_s"] = await stream(client)
        print(f"  {figures['gangs_per_s']:.1f} gangs/s", flush=True)
        plane.programs.restart(BOTH[1])
        await asyncio.sleep(30.0)
        figures["rss_standby_mib"] = process(plane, BOTH[1]).memory_info().rss / 2**20
        began_s = time.monotonic()
        plane.programs.stop(BOTH[0], hard=True)
        await gang(client, "after", 8)
        figures["failover_s"] = time.monotonic() - began_s
    return figures


def run() -> dict[str, float]:
    """Run once; return flat figures."""
    nodes = NodeGroup(name="n", count=NODES, gpus=GPUS, cpu="96", pods=256, taints=())
    return on_plane("bench-scale", nodes, PlaneOptions(binding="direct", standby=True), measure)
