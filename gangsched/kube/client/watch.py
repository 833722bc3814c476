"""List and watch one kind: resume after a break, list again on 410, and retry with back-off.

The receiver gets each object as raw JSON. It skips malformed objects, so no object stops a watch.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Gone, KubeError, NotFound
from gangsched.kube.client.json_depth import decode_bounded

log = logging.getLogger(__name__)

_BACKOFF_MAX_S = 5.0
_ABSENT_S = 10.0
_PAGE = "5000"
_HANDED_AT_ONCE = 200
_ONLY_YOUNG = 200_000, 100, 1_000_000
"""Thresholds of the garbage collector that collect new objects and skip old ones."""


class Receiver(Protocol):
    """Receives the objects of one kind."""

    def on_update(self, raw: bytes) -> None:
        """Apply an object that exists now."""

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object (raw: its last state, if known)."""


@dataclass(slots=True)
class _Watched:
    path: str
    params: dict[str, str]


class _Metadata(msgspec.Struct):
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 -- the API's name


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _ListMetadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_list = msgspec.json.Decoder(_List)
_event = msgspec.json.Decoder(_Event)
_object = msgspec.json.Decoder(_Object)
_status = msgspec.json.Decoder(_Status)


@contextmanager
def long_lived() -> Iterator[None]:
    """Spare the garbage collector the objects that are read, because all of them stay.

    Full collections over it take a third of the time of a takeover at 5,000 nodes, and later pause
    planning for a tenth of a second at 10,000.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*_ONLY_YOUNG)  # failed and retried reads must not fill the memory
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*usual)


def _nothing(_: bytes) -> None:
    """Prepare nothing."""


class Watch:
    """The watch of one kind, while `run` runs. `synced` is set after the first full list."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        receiver: Receiver,
        *,
        optional: bool = False,
        on_batch: Callable[[], None] | None = None,
        params: dict[str, str] | None = None,
        held: bool = False,
        once: bool = False,
        ahead: Callable[[bytes], None] = _nothing,
    ) -> None:
        """`optional` kinds may be absent from the cluster: they count as synced and empty.

        What is `held` is kept back, each object in its newest state, until `hand_over`; `ahead`
        does with it at once what need not wait. `once` lists the objects, and does not watch.
        """
        self.synced = asyncio.Event()
        self.restarts = 0
        self._client = client
        self._watched = _Watched(path, params or {})
        self._receiver = receiver
        self._optional = optional
        self._once = once
        self._on_batch = on_batch or (lambda: None)
        self._known: dict[str, None] = {}
        self._held: dict[str, bytes] | None = {} if held else None
        self._ahead = ahead

    async def hand_over(self) -> None:
        """Give the held objects to the receiver, and from now on every object at once."""
        while self._held:
            for uid in list(self._held)[:_HANDED_AT_ONCE]:
                decode_bounded(self._receiver.on_update, self._held.pop(uid))
            await asyncio.sleep(0)  # other tasks need the event loop: the Lease, the next events
        self._held = None
        self._on_batch()

    def _seen(self, uid: str, raw: bytes) -> None:
        if self._held is None:
            decode_bounded(self._receiver.on_update, raw)
        else:
            self._held[uid] = raw
            decode_bounded(self._ahead, raw)

    def _gone(self, uid: str, raw: bytes | None) -> None:
        if self._held is not None:
            self._held.pop(uid, None)
        self._receiver.on_delete(uid, raw)  # the receiver may have the object already

    async def run(self) -> None:
        """Watch until cancelled, or list once."""
        failures = 0
        version = ""
        while True:
            try:
                if not version:
                    version = await self._relist()
                    self.synced.set()
                    if self._once:
                        return
                async for reached in self._follow(version):
                    version, failures = reached, 0
            except Gone:
                version = ""
                self.restarts += 1
            except NotFound:
                if not self._optional:
                    log.warning("%s does not exist in this cluster (yet)", self._watched.path)
                else:
                    self.synced.set()
                version = ""
                await asyncio.sleep(_ABSENT_S if self._optional else 1.0)
            except KubeError as error:
                failures += 1
                self.restarts += 1
                if failures in (1, 10) or failures % 100 == 0:
                    log.warning("watching %s: %s (try %d)", self._watched.path, error, failures)
                await asyncio.sleep(min(0.1 * 2 ** min(failures, 10), _BACKOFF_MAX_S))

    async def _relist(self) -> str:
        """List all objects, and report those that vanished since the last watch."""
        there: dict[str, None] = {}
        token = ""
        while True:
            params = self._watched.params | {"limit": _PAGE}
            if token:
                params["continue"] = token
            page = decode_bounded(
                _list.decode, await self._client.get(self._watched.path, **params)
            )
            for item in page.items:
                raw = bytes(item)
                uid = self._identify(raw).uid
                there[uid] = None
                self._seen(uid, raw)
            token = page.metadata.continue_
            if not token:
                break
        for uid in self._known:
            if uid not in there:
                self._gone(uid, None)
        self._known = there
        self._on_batch()
        return page.metadata.resourceVersion

    async def _follow(self, version: str) -> AsyncIterator[str]:
        params = self._watched.params | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": "300",
        }
        async for lines in self._client.stream(self._watched.path, params):
            for line in lines:
                if not line:
                    continue
                event = decode_bounded(_event.decode, line)
                if event.type == "ERROR":
                    status = _status.decode(event.object)
                    kind = Gone if status.code == 410 else KubeError
                    raise kind(status.code, status.message)
                raw = bytes(event.object)
                metadata = self._identify(raw)
                version = metadata.resourceVersion or version
                if event.type == "BOOKMARK":
                    continue
                if event.type == "DELETED":
                    self._known.pop(metadata.uid, None)
                    self._gone(metadata.uid, raw)
                else:
                    self._known[metadata.uid] = None
                    self._seen(metadata.uid, raw)
            self._on_batch()
            yield version

    def _identify(self, raw: bytes) -> _Metadata:
        try:
            return decode_bounded(_object.decode, raw).metadata
        except msgspec.DecodeError as error:
            log.warning("%s: an object without readable metadata: %s", self._watched.path, error)
            return _Metadata()
