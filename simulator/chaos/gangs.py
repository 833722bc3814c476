"""The users of one run: they create gangs, create lost pods again, and delete gangs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gangsched.api.names import POD_GROUP_LABEL
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from simulator.chaos.plan import ChaosGang

JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
GROUPS = "/apis/gangsched.io/v1beta1/namespaces/{}/podgroups"
PODS = "/api/v1/namespaces/{}/pods"

_AGAIN_S = 0.5


class NamespaceUsers:
    """The users of one namespace; they retry their calls while the API server is away."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._leaving: set[str] = set()

    async def create(self, gang: ChaosGang) -> None:
        """Create a gang."""
        if gang.job:
            template = {"spec": _spec(gang)}
            roles = {"Worker": {"replicas": gang.pods, "template": template}}
            body = {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": gang.name},
                "spec": {"pytorchReplicaSpecs": roles},
            }
            await self._create(JOBS, body)
            return
        group = {
            "apiVersion": "gangsched.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": gang.name},
            "spec": {"minMember": gang.pods},
        }
        await self._create(GROUPS, group)
        await self.put_back(gang)

    async def put_back(self, gang: ChaosGang) -> None:
        """Create the missing pods of a user's gang."""
        for index in range(gang.pods):
            if gang.job or gang.name in self._leaving:
                return
            metadata = {"name": f"{gang.name}-{index}", "labels": {POD_GROUP_LABEL: gang.name}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(gang)}
            await self._create(PODS, pod)

    async def remove(self, gang: ChaosGang) -> None:
        """Delete a gang."""
        self._leaving.add(gang.name)
        await self._delete(JOBS if gang.job else GROUPS, gang.name)
        if not gang.job:
            for index in range(gang.pods):
                await self._delete(PODS, f"{gang.name}-{index}")

    async def _create(self, path: str, body: dict[str, Any]) -> None:
        await surely(lambda: self._client.create(path.format(self.namespace), body))

    async def _delete(self, path: str, name: str) -> None:
        await surely(lambda: self._client.delete(f"{path.format(self.namespace)}/{name}"))


async def surely(call: Callable[[], Awaitable[Any]]) -> None:
    """Repeat a call until it succeeds; NotFound and Conflict mean that it was done before."""
    while True:
        try:
            await call()
        except (Conflict, NotFound):
            return
        except KubeError:
            await asyncio.sleep(_AGAIN_S)
        else:
            return


def _spec(gang: ChaosGang) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": str(gang.gpus)}},
    }
    return {
        "schedulerName": "gangsched",
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
