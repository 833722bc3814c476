"""What another leader makes of what the last one told, while nothing else happens.

Once a seed has recovered, more gangs come than there is room for, and those that lead end, one in
order and one by SIGKILL. Every version of every object that their successors write is compared
with what stood there before, and so is what is kept of gangs' pasts.
"""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.api.names import POD_GROUP_LABEL
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.client.watch import Watch
from simulator.chaos.faults import Faults
from simulator.chaos.gangs import GROUPS, PODS, Users
from simulator.chaos.plan import SCHEDULERS, Plan
from simulator.chaos.told import (
    Told,
    compared,
    ends_within,
    group_view,
    past_view,
    pod_view,
    queue_view,
)

GREEDY = "greedy"
"""No room is kept in time: whatever fits has to run."""

_PROMISES = "conservative"
"""Every gang that waits is promised a start."""

_TELLING = "forecast_interval_s: 1\nforecast_runs: 1\nforecast_cycles: 10\ncourtesy_share: 1\n"
"""Positions and promises are told as soon as they change; too much while a tenant means harm."""

_LEASE_S, _LEASE_MAX_S = 8.0, 300.0

_QUEUES = f"/apis/{names.GROUP}/{names.VERSION}/queues"
_PAST = "/api/v1/namespaces/gangsched-system/configmaps/gangsched-past"
_LOOK_S = 0.5
_SETTLED = 3
"""Forecasts, a second apart at least, in which nothing changes that is told."""

_SAVED = 13
"""In so many what gangs have been through is written, too."""

_FORECASTS = "gangsched_forecast_seconds_count "


class LateError(Exception):
    """Something did not come within the patience of the run."""


@dataclass(slots=True)
class Tellers:
    """What is told of one namespace, while its watches run."""

    groups: Told = field(default_factory=lambda: Told(group_view, _of_group))
    queues: Told = field(default_factory=lambda: Told(queue_view, _of_queue))
    pods: Told = field(default_factory=lambda: Told(pod_view, _of_pod))

    @property
    def all(self) -> tuple[Told, Told, Told]:
        """Return them."""
        return self.groups, self.queues, self.pods

    @asynccontextmanager
    async def watching(self, client: KubeClient, namespace: str) -> AsyncIterator[None]:
        """Hear what is told, from the first lists on."""
        paths = (GROUPS.format(namespace), _QUEUES, PODS.format(namespace))
        watches = [Watch(client, path, told) for path, told in zip(paths, self.all, strict=True)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch.run()) for watch in watches]
            for watch in watches:
                await watch.synced.wait()
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def placed(self, gang: str) -> bool:
        """Tell whether a gang is told that it runs."""
        return self.groups.named(_group(gang)).get("phase") == "Placed"


def _of_group(one: Mapping[str, Any]) -> str:
    return _group(one["metadata"]["name"])


def _group(gang: str) -> str:
    return f"gang {gang.rpartition('/')[2]}"


def _of_pod(one: Mapping[str, Any]) -> str:
    labels = one["metadata"].get("labels") or {}
    return f"pod {one['metadata']['name']}" if POD_GROUP_LABEL in labels else ""


def _of_queue(one: Mapping[str, Any]) -> str:
    """Return the users' queue: the other tenant's objects still go."""
    name = one["metadata"]["name"]
    return f"queue {name}" if name == "default" else ""


def settings(backfill: str, patience: float) -> str:
    """Return the settings of a scheduler, whose Lease lasts longer on a slow machine."""
    lease_s = min(_LEASE_S * patience, _LEASE_MAX_S)
    found = f"backfill: {backfill}\nlease_s: {lease_s:g}\n"
    return found + (_TELLING if backfill == _PROMISES else "")


class Restarts:
    """Two leaders that end, and what their successors say."""

    def __init__(
        self,
        faults: Faults,
        ports: Mapping[str, int],
        declare: Callable[[str], None],
        say: Callable[[str], None],
        patience_s: float,
    ) -> None:
        """`ports` are those of schedulers' metrics, by their names.

        `declare` sets by which backfill those work that begin from now on.
        """
        self._faults = faults
        self._ports = ports
        self._declare = declare
        self._say = say
        self._patience_s = patience_s

    async def compare(
        self, client: KubeClient, tellers: Tellers, users: Users, todo: Plan
    ) -> list[str]:
        """Have both leaders end; return what their successors changed."""
        try:
            for gang in todo.line:
                await users.create(gang)
            return await self._compare(client, tellers)
        except LateError as error:
            return [f"while leaders changed: {error}"]
        finally:
            self._declare(GREEDY)
            await self._faults.begin_again(SCHEDULERS)

    async def _compare(self, client: KubeClient, tellers: Tellers) -> list[str]:
        self._declare(_PROMISES)
        await self._faults.begin_again(SCHEDULERS)  # by clocks that are right
        first = await self._leader()
        second = next(name for name in SCHEDULERS if name != first)
        await self._until(lambda: self._ready(second), f"{second} to stand by")
        await self._settled(client, tellers, first, _SETTLED)
        wrong = await self._change(tellers, first, second, hard=False)
        await self._faults.begin_again((first,))
        await self._until(lambda: self._ready(first), f"{first} to stand by")
        before = await self._settled(client, tellers, second, _SAVED)
        wrong += await self._change(tellers, second, first, hard=True)
        await self._faults.end(first)  # in order: it writes what it knows of gangs' pasts
        now_s = time.time()
        texts = (before, await _kept(client))
        pasts = [past_view(text, now_s) for text in texts]
        told = {name for name, one in tellers.groups.by_name() if one["promise"] is not None}
        promised = {_group(gang) for gang, one in pasts[0].items() if one["promise"] is not None}
        self._say(
            f"  two leaders ended: {len(tellers.groups.now)} gangs, {len(told)} promises and "
            f"{len(pasts[0])} pasts compared"
        )
        wrong += [f"{name}: its promise is kept, and not told" for name in promised - told]
        return [*wrong, *(f"what is kept: {one}" for one in compared(*pasts))]

    async def _change(self, tellers: Tellers, old: str, new: str, *, hard: bool) -> list[str]:
        """Have one that leads end, and return what differs once the other one is at work."""
        for told in tellers.all:
            told.mark()
        await self._faults.end(old, hard=hard)
        await self._until(lambda: self._leads(new), f"{new} to lead")
        await self._forecasts(new, _SETTLED)
        how = "was killed" if hard else "handed over"
        return [f"{old} {how}: {one}" for told in tellers.all for one in told.unmark()]

    async def _settled(
        self, client: KubeClient, tellers: Tellers, leader: str, forecasts: int
    ) -> str:
        """Wait until nothing changes any more; return what is kept of gangs' pasts."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            for told in tellers.all:
                told.mark()
            before = await _kept(client)
            await self._forecasts(leader, forecasts)
            text = await _kept(client)
            moved = [one for told in tellers.all for one in told.unmark()]
            if text != before:
                now_s = time.time()
                moved += compared(past_view(before, now_s), past_view(text, now_s))
            if not moved and not self._ends_soon(text):
                return text
            if time.monotonic() > deadline_s:
                last = moved[0] if moved else "a back-off"
                raise LateError(f"{leader} does not come to rest; last: {last}")

    def _ends_soon(self, text: str) -> bool:
        """Tell whether a gang may be tried again before all is compared: then it has to wait."""
        now_s = time.time()
        return ends_within(text, now_s, now_s + self._patience_s)

    async def _forecasts(self, name: str, count: int) -> None:
        """Wait for so many more forecasts of a scheduler: what is found is written between them."""
        begun: float | None = None

        async def made() -> bool:
            nonlocal begun
            figure = await self._figure(name)
            if figure is None:  # it does not answer now: that says nothing of its forecasts
                return False
            begun = figure if begun is None else begun
            return figure >= begun + count

        await self._until(made, f"{name} to predict starts")

    async def _figure(self, name: str) -> float | None:
        """Return how many forecasts a scheduler has made, or None where it does not answer."""
        for line in (await self._asked(name, "metrics")).splitlines():
            if line.startswith(_FORECASTS):
                return float(line.split()[1])
        return None

    async def _leader(self) -> str:
        found: list[str] = []

        async def leads() -> bool:
            found.extend([name for name in SCHEDULERS if await self._leads(name)])
            return bool(found)

        await self._until(leads, "a leader")
        return found[0]

    async def _leads(self, name: str) -> bool:
        return await self._asked(name, "readyz") == "leading"

    async def _ready(self, name: str) -> bool:
        return await self._asked(name, "readyz") in ("leading", "standing by")

    async def _asked(self, name: str, path: str) -> str:
        return await asyncio.to_thread(_text, self._ports[name], path)

    async def _until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline_s = time.monotonic() + self._patience_s
        while not await holds():
            if time.monotonic() > deadline_s:
                raise LateError(f"waited {self._patience_s:g} s for {what}")
            await asyncio.sleep(_LOOK_S)


def _text(port: int, path: str) -> str:
    """Return what a scheduler answers, or nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


async def _kept(client: KubeClient) -> str:
    """Return what is kept of gangs' pasts."""
    try:
        found: Any = msgspec.json.decode(await client.get(_PAST))
    except KubeError:
        return ""
    return str((found.get("data") or {}).get("gangs.json", ""))
