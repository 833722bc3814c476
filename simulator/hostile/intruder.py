"""The hostile tenant at a real API server: creates, changes and deletes objects until cancelled."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gangsched.api import names
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.operators.api_objects import collection
from simulator.hostile.objects import NAMESPACE, OFTEN, SCALES, made, retouched
from simulator.hostile.templates import Json

TENANT = "tenant"
"""Label of namespaces with their tenant, which decides the queues that they may use."""

_QUEUES = f"/apis/{names.GROUP}/{names.VERSION}/queues"
_KEPT = 400
"""How many of its objects exist at a time; for each further one, the oldest is deleted."""

_SOME: Json = {"cpu": "4", "memory": "8Gi", "pods": 20, "nvidia.com/gpu": 0}
"""The quota of its queue: no GPUs, so that it takes no capacity from the users' gangs."""


async def divide(client: KubeClient, other: str) -> None:
    """Create a queue for the hostile tenant, and the default queue for the `other` tenant."""
    quotas = [
        {"resource": key, "nominal": amount, "borrowingLimit": 0} for key, amount in _SOME.items()
    ]
    for name, tenant, spec in (
        (NAMESPACE, NAMESPACE, {"quotas": quotas}),
        ("default", other, {}),
    ):
        selector = {"namespaceSelector": {"matchLabels": {TENANT: tenant}}}
        head = {"apiVersion": f"{names.GROUP}/{names.VERSION}", "kind": "Queue"}
        await client.create(_QUEUES, {**head, "metadata": {"name": name}, "spec": spec | selector})


@dataclass(slots=True)
class Intruder:
    """One hostile tenant with a seed; counts the calls it `tried`, and those `accepted`."""

    client: KubeClient
    namespace: str
    seed: int
    pause_s: float = 0.05
    tried: int = 0
    accepted: int = 0
    _there: list[Json] = field(default_factory=list)

    async def run(self) -> None:
        """Send objects until cancelled; an API server that is away is tried again."""
        rng = random.Random(self.seed)  # noqa: S311
        for number in range(2**31):
            seed, scale = rng.randrange(2**32), rng.choice(SCALES)
            if self._there and rng.random() < 0.25:
                await self._change(rng.choice(self._there), seed, scale)
            else:
                for document in made(rng.choice(OFTEN), f"h{number}", seed, scale):
                    await self._create(document)
            while len(self._there) > _KEPT:
                await self._delete(self._there.pop(0))

    async def _create(self, document: Json) -> None:
        document = _without_node(document)
        metadata = {**document["metadata"], "namespace": self.namespace}
        document = {**document, "metadata": metadata}
        if await self._ask(lambda: self.client.create(_path(document), document)):
            self._there.append(document)

    async def _change(self, document: Json, seed: int, scale: int) -> None:
        changed = retouched(document, seed, scale)
        body: Json = {
            "metadata": {key: changed["metadata"][key] for key in ("labels", "annotations")}
        }
        if document["kind"] != "Pod":
            body["spec"] = changed["spec"]
        path = f"{_path(document)}/{document['metadata']['name']}"
        await self._ask(lambda: self.client.patch(path, body))

    async def _delete(self, document: Json) -> None:
        path = f"{_path(document)}/{document['metadata']['name']}"
        now = {"gracePeriodSeconds": 0}
        with suppress(KubeError):
            await self.client.delete(path, now)

    async def _ask(self, call: Callable[[], Awaitable[Any]]) -> bool:
        self.tried += 1
        await asyncio.sleep(self.pause_s)
        try:
            await call()
        except KubeError:
            return False
        self.accepted += 1
        return True


def _path(document: Json) -> str:
    metadata = document["metadata"]
    return collection(document["apiVersion"], document["kind"], metadata["namespace"])


def _without_node(document: Json) -> Json:
    """Return a pod without a node of its own: KWOK would run it whether it fits or not."""
    if document["kind"] != "Pod" or "nodeName" not in document["spec"]:
        return document
    spec = {key: value for key, value in document["spec"].items() if key != "nodeName"}
    return {**document, "spec": spec}
