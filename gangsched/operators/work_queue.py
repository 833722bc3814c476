"""A queue of keys to work on: each by one task at a time, and again after a failure, later."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from gangsched.kube.client.errors import KubeError
from gangsched.kube.client.namespace_queue import NamespaceFairQueue

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name of an object."""

_WORKERS = 8
_WORKERS_OF_NAMESPACE = 6
"""Workers that one namespace may keep busy at a time, so that no other waits for it."""

_BUSY_S = 0.02
_RETRY_S, _RETRY_MAX_S = 0.2, 30.0
_FAILURES_COUNTED = 10


class WorkQueue:
    """Calls `step` with every key that is woken; a failed key is retried with back-off.

    A failure of one object does not delay the others.
    """

    def __init__(self, step: Callable[[Key], Awaitable[None]]) -> None:
        self._step = step
        self._queue: NamespaceFairQueue[Key] = NamespaceFairQueue(
            lambda key: key[0], _WORKERS_OF_NAMESPACE
        )
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._logged: dict[Key, str] = {}

    def wake(self, key: Key) -> None:
        """Work on a key soon."""
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put(key)

    def later(self, key: Key, in_s: float) -> None:
        """Work on a key after a while."""
        asyncio.get_running_loop().call_later(in_s, self.wake, key)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work_on())

    async def _work_on(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            try:
                if key in self._busy:
                    self.later(key, _BUSY_S)
                else:
                    await self._work(key)
            finally:
                self._queue.done(key)

    async def _work(self, key: Key) -> None:
        self._busy.add(key)
        try:
            await self._step(key)
            self._failures.pop(key, None)
            self._logged.pop(key, None)
        except KubeError as error:
            repeats = self._logged.get(key) == str(error)
            log.log(logging.DEBUG if repeats else logging.WARNING, "%s/%s: %s", *key, error)
            self._logged[key] = str(error)
            self._retry(key)
        except Exception:
            log.exception("%s/%s: cannot be worked on", *key)
            self._retry(key)
        finally:
            self._busy.discard(key)

    def _retry(self, key: Key) -> None:
        failures = self._failures[key] = min(self._failures.get(key, 0) + 1, _FAILURES_COUNTED)
        self.later(key, min(_RETRY_S * 2**failures, _RETRY_MAX_S))


async def gather_all(work: Iterable[Awaitable[None]]) -> None:
    """Await everything, and only then raise the first error there was."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
