"""The watches of one scheduler: each gives its informer what it receives, unless set aside."""

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
    """Watches of every kind. Objects are held until `hand_over`, except that they are predecoded.

    The engine must not follow the world while another process changes it.
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

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start the watches in a task group; return once everything has been read.

        Groups come last: a group whose members run already must not look empty.
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
                        ahead=informer.predecode,
                    )
                    group.create_task(self._watches[kind].run())
                for kind in kinds:
                    await self._watches[kind].synced.wait()

    async def hand_over(self) -> None:
        """Give the informers what was held, and from now on everything at once."""
        with long_lived():
            for watch in self._watches.values():
                await watch.hand_over()

    def restarts(self) -> Iterator[tuple[str, int]]:
        """Return how often the watch of each kind was begun again."""
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
        """Apply that an object was deleted."""


class Guarded:
    """Wraps an informer: objects in quarantine are malformed to it."""

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
            EngineError: the engine failed on the object, which is quarantined in the next process.

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
        """Apply that an object was deleted."""
        self._receiver.on_delete(uid, raw)
