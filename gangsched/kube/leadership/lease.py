"""Leader election by a Lease, and the fence that keeps a former leader from writing.

A candidate uses only its own clock: it waits until a Lease has not changed for the Lease's duration
(k8s.io/client-go, tools/leaderelection). A leader stops acting `deadline_s` after the beginning of
its last successful renewal, which is before another process may lead.

    candidate --Lease free or unchanged for duration_s--> leader --not renewed in deadline_s--> lost
"""

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gangsched.api.timestamps import rfc3339_micro
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, LeadershipLostError, NotFound

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds that a Lease is valid, that its holder relies on it, and between two reads of it."""

    duration_s: float = 8.0
    deadline_s: float = 5.0
    retry_s: float = 1.0


_RELEASES = 3
"""Tries to release a Lease."""


class Election:
    """One candidate for the Lease `namespace/name`: `acquire`, `hold`, at the end `release`."""

    def __init__(
        self,
        client: KubeClient,
        lease: str,
        timing: LeaseTiming | None = None,
        identity: str = "",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace, _, self._name = lease.partition("/")
        self._timing = timing or LeaseTiming()
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._now = now
        self._seen: Mapping[str, Any] | None = None
        self._seen_s = 0.0
        self._good_until_s = 0.0
        self._given_back = False

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"

    def through(self, client: KubeClient) -> None:
        """Use another client from now on, because a client belongs to one event loop."""
        self._client = client

    def leads(self) -> bool:
        """Return whether this process may act now."""
        return self._now() < self._good_until_s

    async def acquire(self) -> None:
        """Wait until this process leads."""
        reported = ""
        while not await self._try():
            holder = ((self._seen or {}).get("spec") or {}).get("holderIdentity") or ""
            if holder != reported:
                log.info("standing by: %s leads", holder or "no process")
                reported = holder
            left_s = self._left_s()
            await asyncio.sleep(
                left_s if 0 < left_s < self._timing.retry_s else self._timing.retry_s
            )
        log.info("leading as %s", self.identity)

    async def hold(self) -> None:
        """Renew the Lease until a renewal fails for too long.

        Raises:
            LeadershipLostError: it did not, for too long.

        """
        while True:
            await asyncio.sleep(self._timing.retry_s)
            until_s = self._good_until_s
            renewed = await self._try()
            # A lapsed Lease is lost, even if this process could take it again: the fence rejected
            # writes, and the engine drew wrong conclusions from that.
            if self._now() >= until_s or (not renewed and self._taken()):
                self._good_until_s = 0.0
                raise LeadershipLostError(f"{self.identity} leads no more: {self._why()}")

    async def release(self, client: KubeClient | None = None) -> None:
        """Release the Lease, by `client` if it is given, so that a successor need not wait."""
        if not self.leads():
            return
        self._given_back = True  # no renewal may follow
        self._client = client or self._client
        self._good_until_s = 0.0
        for _ in range(_RELEASES):
            try:
                lease = await self._read()
                if lease is None or lease["spec"].get("holderIdentity") != self.identity:
                    return
                await self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
            except Conflict:
                continue  # a renewal was under way
            except KubeError as error:
                log.warning("Lease %s/%s is not given back: %s", self._namespace, self._name, error)
                return
            return

    async def _try(self) -> bool:
        """Take or renew the Lease; return whether this process holds it now."""
        if self._given_back:
            return False
        began_s = self._now()
        try:
            async with asyncio.timeout(self._timing.deadline_s):
                lease = await self._read()
                self._note(lease)
                if self._taken():
                    return False
                spec = (lease or {}).get("spec") or {}
                mine = spec.get("holderIdentity") == self.identity
                changes = {
                    "holderIdentity": self.identity,
                    "leaseDurationSeconds": max(round(self._timing.duration_s), 1),
                    "renewTime": rfc3339_micro(),
                }
                if not mine:
                    changes["acquireTime"] = changes["renewTime"]
                    changes["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
                self._note(await self._write(lease, changes))
        except (KubeError, TimeoutError) as error:
            if not isinstance(error, Conflict):  # another process was quicker
                log.warning("Lease %s/%s: %s", self._namespace, self._name, error or "no answer")
            return False
        if self._given_back:
            return False
        self._good_until_s = began_s + self._timing.deadline_s
        return True

    def _note(self, lease: Mapping[str, Any] | None) -> None:
        if lease is None or self._seen is None or lease["spec"] != self._seen["spec"]:
            self._seen, self._seen_s = lease, self._now()

    def _taken(self) -> bool:
        """Return whether another process holds the Lease, as far as is known."""
        spec = (self._seen or {}).get("spec") or {}
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return False
        return self._left_s() > 0

    def _left_s(self) -> float:
        """Return the seconds until other processes may lead, by the last state of the Lease."""
        spec = (self._seen or {}).get("spec") or {}
        lasts_s = max(float(spec.get("leaseDurationSeconds") or 0), self._timing.duration_s)
        return self._seen_s + lasts_s - self._now()

    def _why(self) -> str:
        holder = ((self._seen or {}).get("spec") or {}).get("holderIdentity")
        if holder and holder != self.identity:
            return f"{holder} holds the Lease {self._namespace}/{self._name}"
        return f"the Lease {self._namespace}/{self._name} was not renewed in time"

    async def _read(self) -> dict[str, Any] | None:
        path = f"{self._folder}/{self._name}"
        try:
            lease: dict[str, Any] = msgspec.json.decode(
                await self._client.request("GET", path, tries=1)
            )
        except NotFound:
            return None
        lease.setdefault("spec", {})
        return lease

    async def _write(
        self, before: Mapping[str, Any] | None, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write changes to the Lease as it was read; a write in between is a Conflict."""
        if before is None:
            method, path = "POST", self._folder
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        else:
            method, path, body = "PUT", f"{self._folder}/{self._name}", dict(before)
        body["spec"] = {**((before or {}).get("spec") or {}), **changes}
        written: dict[str, Any] = msgspec.json.decode(
            await self._client.request(method, path, body=body, tries=1)
        )
        return written
