"""Releases the gangs of a kind of job that gangsched does not run any more.

It watches the PodGroups of the kind, and never its jobs: it creates nothing and writes no status.
The PodGroups come from gangsched's controller, in this process or an earlier one.
"""

import logging

import msgspec

from gangsched.api.names import POD_GROUP_LABEL
from gangsched.jobs.common.model import GROUP_VERSION, Json
from gangsched.jobs.release import release
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import NotFound
from gangsched.kube.client.paths import object_path
from gangsched.operators.api_objects import collection, delete_object, uid_precondition
from gangsched.operators.work_queue import Key, WorkQueue

log = logging.getLogger(__name__)


class Releaser:
    """Releases the gangs of one kind of job."""

    part_kinds = frozenset({"PodGroup"})

    def __init__(self, client: KubeClient, kind: str) -> None:
        self._client, self._kind = client, kind
        self._known: dict[Key, tuple[str, Json]] = {}
        self._work = WorkQueue(self._step)

    def part_seen(self, kind: str, body: Json, owner: str) -> None:
        """Record a PodGroup's newest state."""
        del kind
        key = _key(body)
        self._known[key] = owner, body
        self._work.wake(key)

    def part_gone(self, kind: str, body: Json, owner: str) -> None:
        """Forget a PodGroup, unless a successor took its name."""
        del kind, owner
        known = self._known.get(_key(body))
        if known is not None and known[1]["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._known[_key(body)]

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    async def _step(self, key: Key) -> None:
        known = self._known.get(key)
        if known is None:
            return
        (owner, group), (namespace, name) = known, key
        pods_path = f"/api/v1/namespaces/{namespace}/pods"
        selector = f"{POD_GROUP_LABEL}={name}"
        listed = msgspec.json.decode(await self._client.get(pods_path, labelSelector=selector))
        todo = release(self._kind, owner, group, listed["items"])
        path = object_path(collection(GROUP_VERSION, "PodGroup", namespace), name)
        if todo.spec is not None:
            try:
                await self._client.patch(path, uid_precondition(group) | {"spec": todo.spec})
            except NotFound:
                return
            log.info(
                "gang released: %s %s/%s continues with the %d pods that run",
                self._kind,
                namespace,
                owner,
                todo.spec["minMember"],
            )
        if todo.delete_group:
            await delete_object(self._client, path, group["metadata"]["uid"])
            log.info("gang released: %s %s/%s does not run", self._kind, namespace, owner)
        for pod in todo.delete_pods:
            metadata = pod["metadata"]
            await delete_object(
                self._client, object_path(pods_path, metadata["name"]), metadata["uid"]
            )


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
