"""The loads of the bind benchmark, and the ways of getting their pods bound."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from gangsched.kube.client.client import KubeClient

GPU = "nvidia.com/gpu"
NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GATES = "GenericWorkload=true,GangScheduling=true"
NATIVE = "scheduling.k8s.io/v1alpha2"
WORKERS = 32
TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Load:
    """A number of gangs and pods, on nodes of eight GPUs; without GPUs, ten pods share a node."""

    name: str
    gangs: int
    pods: int
    gpus: int

    @property
    def per_node(self) -> int:
        """Return how many pods fit on a node."""
        return 8 // self.gpus if self.gpus else 10


LOADS = (Load("200x20", 200, 20, 1), Load("1x1000", 1, 1000, 4))


def pod(name: str, load: Load, scheduler: str, **extra: Any) -> dict[str, Any]:
    """Return a pod of the load."""
    gpus = {GPU: str(load.gpus)} if load.gpus else {}
    amounts = {"cpu": "1", "memory": "4Gi", **gpus}
    metadata = {
        "name": name,
        "labels": extra.pop("labels", {}),
        "annotations": extra.pop("annotations", {}),
    }
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": amounts, "limits": gpus},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler,
            "automountServiceAccountToken": False,
            "containers": [container],
            **extra,
        },
    }


async def raw_gang(client: KubeClient, load: Load, gang: int) -> None:
    """Create each pod and bind it at once."""
    names = [f"g{gang}-{index}" for index in range(load.pods)]
    slots = asyncio.Semaphore(2 if load.gangs > 1 else 64)

    async def create(index: int, name: str) -> None:
        async with slots:
            await client.create(PODS, pod(name, load, "nobody"))
            node = f"n-{(gang * load.pods + index) // load.per_node:03}"
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            await client.create(
                f"{PODS}/{name}/binding",
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name},
                    "target": target,
                },
            )

    await asyncio.gather(*(create(i, n) for i, n in enumerate(names)))


async def ours_gang(client: KubeClient, load: Load, gang: int) -> None:
    """Create a PodGroup, then its pods, as a user does."""
    await client.create(
        f"/apis/gangsched.io/v1beta1/namespaces/{NAMESPACE}/podgroups",
        {
            "apiVersion": "gangsched.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": f"g{gang}"},
            "spec": {"minMember": load.pods},
        },
    )
    labels = {"gangsched.io/pod-group": f"g{gang}"}
    await create_pods(client, load, gang, lambda n: pod(n, load, "gangsched", labels=labels))


async def planned_gang(client: KubeClient, load: Load, gang: int) -> None:
    """Do as our job controller: declare the gang, wait for its nodes, create its pods there."""
    groups = f"/apis/gangsched.io/v1beta1/namespaces/{NAMESPACE}/podgroups"
    template = {"spec": pod("x", load, "gangsched")["spec"]}
    await client.create(
        groups,
        {
            "apiVersion": "gangsched.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": f"g{gang}"},
            "spec": {"roles": [{"name": "w", "count": load.pods, "template": template}]},
        },
    )
    params = {"watch": "1", "fieldSelector": f"metadata.name=g{gang}", "timeoutSeconds": "200"}
    places: dict[str, str] = {}
    async for lines in client.stream(groups, params):
        for line in lines:
            status = json.loads(line)["object"].get("status") or {}
            places = {a["pod"]: a["node"] for a in status.get("assignments") or []}
        if places:
            break

    def pinned(name: str) -> dict[str, Any]:
        node = places[f"g{gang}-w-{name.rsplit('-', 1)[1]}"]
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        required = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        return pod(
            f"g{gang}-w-{name.rsplit('-', 1)[1]}",
            load,
            "gangsched",
            labels={"gangsched.io/pod-group": f"g{gang}"},
            annotations={"gangsched.io/pinned": node},
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        )

    await create_pods(client, load, gang, pinned)


async def native_gang(client: KubeClient, load: Load, gang: int) -> None:
    """Create upstream's PodGroup and pods that name it."""
    await client.create(
        f"/apis/{NATIVE}/namespaces/{NAMESPACE}/podgroups",
        {
            "apiVersion": NATIVE,
            "kind": "PodGroup",
            "metadata": {"name": f"g{gang}"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": load.pods}}},
        },
    )
    group = {"podGroupName": f"g{gang}"}
    await create_pods(
        client, load, gang, lambda n: pod(n, load, "default-scheduler", schedulingGroup=group)
    )


async def create_pods(client: KubeClient, load: Load, gang: int, make: Any) -> None:
    """Create a gang's pods: one after another if there are many gangs, else many at once."""
    slots = asyncio.Semaphore(2 if load.gangs > 1 else 64)

    async def create(index: int) -> None:
        async with slots:
            await client.create(PODS, make(f"g{gang}-{index}"))

    await asyncio.gather(*(create(index) for index in range(load.pods)))


@dataclass(frozen=True)
class Path:
    """One way of binding pods, with the programs that it needs."""

    name: str
    gang: Any
    binding: str = ""
    native: bool = False


PATHS = (
    Path("raw", raw_gang),
    Path("direct", ours_gang, "direct"),
    Path("direct_planned", planned_gang, "direct"),
    Path("extender", planned_gang, "extender"),
    Path("extender_gated", ours_gang, "extender"),
    Path("native", native_gang, native=True),
)
