"""The watches of one scheduler: each gives its objects to an informer, except in quarantine."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import EngineError
from gangsched.kube.client.watch import Watch, long_lived
from gangsched.kube.informers.informers import Informers
from gangsched.kube.stored.quarantine import Quarantine
from gangsched.metrics import Metrics


class Watches:
    """The watches of all kinds. They hold the objects, already predecoded, until `hand_over`.

    The engine must not observe the cluster while another process leads and changes it.
    """

    def __init__(
        self,
        client: KubeClient,
        informers: Informers,
        quarantine: Quarantine,
        metrics: Metrics,
        *,
        now_s: Callable[[], float],
        on_batch: Callable[[], None],
    ) -> None:
        self._client, self._informers, self._on_batch = client, informers, on_batch
        self._quarantine, self._metrics, self._now_s = quarantine, metrics, now_s
        self._watches: dict[str, Watch] = {}

    async def start(self, group: asyncio.TaskGroup, *, once: bool = False) -> None:
        """Start the watches in a task group; return when all objects have been read.

        Groups are read last, because a group with running members must not seem empty. `once` lists
        the objects, and watches only those that may come before the groups are read: the pods.
        """
        with long_lived():
            for kinds in (self._informers.first(), self._informers.groups()):
                for kind, (path, informer, optional) in kinds.items():
                    self._watches[kind] = Watch(
                        self._client,
                        path,
                        Guarded(informer, self._quarantine, self._metrics, self._now_s),
                        optional=optional,
                        on_batch=self._on_batch,
                        held=True,
                        once=once and kind != "Pod",
                        ahead=informer.predecode,
                    )
                    group.create_task(self._watches[kind].run())
                for kind in kinds:
                    await self._watches[kind].synced.wait()

    async def hand_over(self) -> None:
        """Give the held objects to the informers, and from now on every object at once."""
        with long_lived():
            for watch in self._watches.values():
                await watch.hand_over()

    def restarts(self) -> Iterator[tuple[str, int]]:
        """Return how often the watch of each kind was restarted."""
        return ((kind, watch.restarts) for kind, watch in self._watches.items())


class ObjectReceiver(Protocol):
    """An informer of one kind."""

    @property
    def kind(self) -> str:
        """The kind of the objects."""

    def on_update(self, raw: bytes) -> None:
        """Decode an object and apply it."""

    def malformed(self, raw: bytes, message: str) -> None:
        """Report that the object is not applied."""

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object."""


class Guarded:
    """Wraps an informer, and reports objects in quarantine to it as malformed."""

    def __init__(
        self,
        receiver: ObjectReceiver,
        quarantine: Quarantine,
        metrics: Metrics,
        now_s: Callable[[], float],
    ) -> None:
        self._receiver = receiver
        self._quarantine, self._metrics, self._now_s = quarantine, metrics, now_s

    def on_update(self, raw: bytes) -> None:
        """Decode an object and apply it.

        Raises:
            EngineError: the engine failed on the object; the next process has it in quarantine.

        """
        receiver = self._receiver
        aside = self._quarantine.of_object(raw, self._now_s())
        if aside:
            self._metrics.malformed.labels(receiver.kind).inc()
            receiver.malformed(raw, aside)
            return
        try:
            receiver.on_update(raw)
        except EngineError as error:
            self._quarantine.add_object(receiver.kind, raw, error, self._now_s())
            raise

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object."""
        self._receiver.on_delete(uid, raw)
