"""One pod of each kind of a gang, as the API server has it, for autoscalers to look at."""

import json
from collections.abc import Sequence
from typing import Any

from gangsched.api import names
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId, PodName
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import NotFound
from gangsched.kube.provisioning.request import PodSet
from gangsched.kube.provisioning.templates import PodTemplateError


class PodSamples:
    """Reads pods of gangs, or the templates of their roles."""

    def __init__(self, client: KubeClient, view: EngineView) -> None:
        self._client, self._view = client, view

    async def read(self, gang: GangId, sets: Sequence[PodSet]) -> list[dict[str, Any]]:
        """Return one pod of each set.

        Raises:
            NotFound: a pod is gone.
            PodTemplateError: no object describes a pod.

        """
        return [await self._sample(gang, pods.sample.name) for pods in sets]

    async def _sample(self, gang: GangId, member: PodName) -> dict[str, Any]:
        state = self._view.gangs.get(gang)
        namespace, _, group = gang.partition("/")
        if state is None or member not in state.members:
            raise NotFound(404, f"member {member} is gone")
        entry = state.members[member]
        pod = self._view.pod(entry.pod) if entry.pod is not None else None
        if pod is not None:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod.name.partition('/')[2]}"
            return _decoded(await self._client.get(path))
        if ":" in group:
            raise PodTemplateError("its pods do not exist yet")
        path = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{namespace}/podgroups/{group}"
        spec = _decoded(await self._client.get(path)).get("spec") or {}
        templates = {role.get("name"): role.get("template") for role in spec.get("roles") or ()}
        template = templates.get(entry.role)
        if not isinstance(template, dict):
            raise PodTemplateError(f"its role {entry.role} has no template")
        return template


def _decoded(content: bytes) -> dict[str, Any]:
    value = json.loads(content)
    return value if isinstance(value, dict) else {}
