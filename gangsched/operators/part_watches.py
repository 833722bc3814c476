"""Watches of the objects that jobs own: one for each kind of part.

kopf would decode every pod of the cluster to read its labels; these watches select those of jobs
in the API server, and decode an object's owner before the rest.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from gangsched.jobs.common.model import GROUP_VERSION, Json
from gangsched.jobs.katib.suggestion import KIND as SUGGESTION
from gangsched.jobs.katib.trial import API_VERSION, JOBS, KIND
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.watch import Watch

_OPERATOR_LABEL = "training.kubeflow.org/operator-name"

_PARTS: Mapping[str, tuple[str, dict[str, str]]] = {
    "Pod": ("/api/v1/pods", {"labelSelector": _OPERATOR_LABEL}),
    "Service": ("/api/v1/services", {}),
    "PersistentVolumeClaim": ("/api/v1/persistentvolumeclaims", {}),
    **{
        kind: (f"/apis/{version}/{kind.lower()}s", {})
        for version, kind in (
            *JOBS,
            (API_VERSION, KIND),
            (API_VERSION, SUGGESTION),
            (GROUP_VERSION, "PodGroup"),
        )
    },
}
"""Kinds of parts, and how all of them are listed."""

_BUILT_IN = ("Pod", "Service", "PersistentVolumeClaim", "Job")
"""Kinds no cluster is without."""


class PartHandler(Protocol):
    """A controller of jobs, as far as parts are concerned."""

    @property
    def part_kinds(self) -> frozenset[str]:
        """Return which kinds of parts have to be watched."""

    def part_seen(self, kind: str, body: Json, owner: str) -> None:
        """Record a part's newest state."""

    def part_gone(self, kind: str, body: Json, owner: str) -> None:
        """Record that a part is gone (body: at least its names and uid)."""


class _Owner(msgspec.Struct):
    kind: str
    name: str
    controller: bool = False


class _Metadata(msgspec.Struct):
    uid: str
    name: str
    namespace: str
    ownerReferences: list[_Owner] = []  # noqa: N815 -- the API's name


class _Part(msgspec.Struct):
    metadata: _Metadata


_part = msgspec.json.Decoder(_Part)


@dataclass(frozen=True, slots=True)
class _Known:
    """The owner of a part, and its names for when it is gone."""

    owner: tuple[str, str]
    body: Json


class PartReceiver:
    """Reports the parts of one kind to the controllers of their owners, by the owners' kinds."""

    def __init__(self, kind: str, controllers: Mapping[str, PartHandler]) -> None:
        self._kind = kind
        self._controllers = controllers
        self._known: dict[str, _Known] = {}

    def on_update(self, raw: bytes) -> None:
        """Record an object that exists now."""
        try:
            metadata = _part.decode(raw).metadata
        except msgspec.DecodeError:
            return  # nothing of ours: all that is needed is what the API server fills in
        owner = next((o for o in metadata.ownerReferences if o.controller), None)
        if owner is None or owner.kind not in self._controllers:
            return
        names = {"uid": metadata.uid, "name": metadata.name, "namespace": metadata.namespace}
        self._known[metadata.uid] = _Known((owner.kind, owner.name), {"metadata": names})
        body: Json = msgspec.json.decode(raw)
        self._controllers[owner.kind].part_seen(self._kind, body, owner.name)

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Record that an object no longer exists."""
        known = self._known.pop(uid, None)
        if known is not None:
            kind, name = known.owner
            body: Json = known.body if raw is None else msgspec.json.decode(raw)
            self._controllers[kind].part_gone(self._kind, body, name)


@asynccontextmanager
async def watching_parts(
    client: KubeClient, controllers: Mapping[str, PartHandler], more: Sequence[Watch] = ()
) -> AsyncIterator[asyncio.Task[None]]:
    """Watch the parts of jobs, and `more`; the body starts when all existing objects are known.

    If the step of a job ran before its pods are known, the job would seem to have lost its pods.

    Yields:
        The task that watches; it ends by a failure only.

    """
    watches = [
        Watch(
            client,
            path,
            PartReceiver(kind, controllers),
            params=params,
            optional=kind not in _BUILT_IN,
        )
        for kind, (path, params) in _PARTS.items()
        if any(kind in controller.part_kinds for controller in controllers.values())
    ]
    watches += more

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for watch in watches:
                group.create_task(watch.run())

    task = asyncio.create_task(run())
    try:
        for watch in watches:
            await watch.synced.wait()
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
