"""Checks that a change of leader alters no status, while nothing else happens.

After a seed has recovered, more gangs are created than the cluster has capacity for. Then two
leaders end, one in order and one by SIGKILL. Every version of every object that their successors
write is compared with the version before, and so are the stored gang histories.
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
from simulator.chaos.faults import FaultInjector
from simulator.chaos.gangs import GROUPS, PODS, NamespaceUsers
from simulator.chaos.plan import SCHEDULERS, ChaosPlan
from simulator.chaos.reports import (
    Reports,
    compared_group,
    compared_pod,
    ends_within,
    past_view,
    queue_view,
    view_differences,
)

GREEDY = "greedy"
"""No backfill reservations: every gang that fits has to run."""

_RESERVING = "conservative"
"""Every pending gang gets a backfill reservation."""

_FORECASTING = (
    "forecast_interval_s: 1\nforecast_runs: 1\nforecast_cycles: 10\nbackground_cpu_share: 1\n"
)
"""Positions and reservations are reported at once; too expensive while the hostile tenant works."""

_LEASE_S, _LEASE_MAX_S = 8.0, 300.0

_QUEUES = f"/apis/{names.GROUP}/{names.VERSION}/queues"
_PAST = "/api/v1/namespaces/gangsched-system/configmaps/gangsched-past"
_LOOK_S = 0.5
_SETTLED = 3
"""How many forecasts, at least a second apart, must bring no change of a status."""

_SAVED = 13
"""After so many forecasts the gang histories are stored, too."""

_FORECASTS = "gangsched_forecast_seconds_count "


class WaitTimeoutError(Exception):
    """A condition was not met within the time limit of the run."""


@dataclass(slots=True)
class ReportWatches:
    """The views of one namespace's objects, updated while its watches run."""

    groups: Reports = field(default_factory=lambda: Reports(compared_group, _of_group))
    queues: Reports = field(default_factory=lambda: Reports(queue_view, _of_queue))
    pods: Reports = field(default_factory=lambda: Reports(compared_pod, _of_pod))

    @property
    def all(self) -> tuple[Reports, Reports, Reports]:
        """Return the views of all kinds."""
        return self.groups, self.queues, self.pods

    @asynccontextmanager
    async def watching(self, client: KubeClient, namespace: str) -> AsyncIterator[None]:
        """Run the watches; they are synced on entry."""
        paths = (GROUPS.format(namespace), _QUEUES, PODS.format(namespace))
        watches = [
            Watch(client, path, reported) for path, reported in zip(paths, self.all, strict=True)
        ]
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
        """Return whether the scheduler reports that a gang runs."""
        return self.groups.named(_group(gang)).get("phase") == "Placed"


def _of_group(group: Mapping[str, Any]) -> str:
    return _group(group["metadata"]["name"])


def _group(gang: str) -> str:
    return f"gang {gang.rpartition('/')[2]}"


def _of_pod(pod: Mapping[str, Any]) -> str:
    labels = pod["metadata"].get("labels") or {}
    return f"pod {pod['metadata']['name']}" if POD_GROUP_LABEL in labels else ""


def _of_queue(queue: Mapping[str, Any]) -> str:
    """Return the name of the users' queue, "" for others: the tenant's gangs are still ending."""
    name = queue["metadata"]["name"]
    return f"queue {name}" if name == "default" else ""


def settings(backfill: str, patience: float) -> str:
    """Return the settings of a scheduler; its Lease lasts longer on a slow machine."""
    lease_s = min(_LEASE_S * patience, _LEASE_MAX_S)
    text = f"backfill: {backfill}\nlease_s: {lease_s:g}\n"
    return text + (_FORECASTING if backfill == _RESERVING else "")


class Restarts:
    """Ends two leaders, and compares the statuses that their successors write."""

    def __init__(
        self,
        faults: FaultInjector,
        ports: Mapping[str, int],
        declare: Callable[[str], None],
        say: Callable[[str], None],
        patience_s: float,
    ) -> None:
        """`ports` has the metrics port of each scheduler by name.

        `declare` sets the backfill policy of schedulers that start later.
        """
        self._faults = faults
        self._ports = ports
        self._declare = declare
        self._say = say
        self._patience_s = patience_s

    async def compare(
        self, client: KubeClient, reports: ReportWatches, users: NamespaceUsers, todo: ChaosPlan
    ) -> list[str]:
        """End both leaders; return what their successors changed."""
        try:
            for gang in todo.line:
                await users.create(gang)
            return await self._compare(client, reports)
        except WaitTimeoutError as error:
            return [f"while leaders changed: {error}"]
        finally:
            self._declare(GREEDY)
            await self._faults.begin_again(SCHEDULERS)

    async def _compare(self, client: KubeClient, reports: ReportWatches) -> list[str]:
        self._declare(_RESERVING)
        await self._faults.begin_again(SCHEDULERS)  # with the right clocks
        first = await self._leader()
        second = next(name for name in SCHEDULERS if name != first)
        await self._until(lambda: self._ready(second), f"{second} to stand by")
        await self._settled(client, reports, first, _SETTLED)
        wrong = await self._change(reports, first, second, hard=False)
        await self._faults.begin_again((first,))
        await self._until(lambda: self._ready(first), f"{first} to stand by")
        before = await self._settled(client, reports, second, _SAVED)
        wrong += await self._change(reports, second, first, hard=True)
        await self._faults.end(first)  # in order: it stores the gang histories
        now_s = time.time()
        texts = (before, await _stored(client))
        pasts = [past_view(text, now_s) for text in texts]
        reported = {
            name for name, view in reports.groups.by_name() if view["reservation"] is not None
        }
        reserved = {
            _group(gang) for gang, view in pasts[0].items() if view["reservation"] is not None
        }
        self._say(
            f"  two leaders ended: {len(reports.groups.now)} gangs, {len(reported)} reservations "
            f"and {len(pasts[0])} histories compared"
        )
        wrong += [
            f"{name}: its backfill reservation is stored but not reported"
            for name in reserved - reported
        ]
        return [*wrong, *(f"stored history: {sentence}" for sentence in view_differences(*pasts))]

    async def _change(self, reports: ReportWatches, old: str, new: str, *, hard: bool) -> list[str]:
        """End the leader, and return what differs once its successor works."""
        for watched in reports.all:
            watched.mark()
        await self._faults.end(old, hard=hard)
        await self._until(lambda: self._leads(new), f"{new} to lead")
        await self._forecasts(new, _SETTLED)
        end = "was killed" if hard else "handed over"
        return [
            f"{old} {end}: {difference}"
            for watched in reports.all
            for difference in watched.unmark()
        ]

    async def _settled(
        self, client: KubeClient, reports: ReportWatches, leader: str, forecasts: int
    ) -> str:
        """Wait until no status changes; return the stored gang histories."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            for watched in reports.all:
                watched.mark()
            before = await _stored(client)
            await self._forecasts(leader, forecasts)
            text = await _stored(client)
            changes = [difference for watched in reports.all for difference in watched.unmark()]
            if text != before:
                now_s = time.time()
                changes += view_differences(past_view(before, now_s), past_view(text, now_s))
            if not changes and not self._ends_soon(text):
                return text
            if time.monotonic() > deadline_s:
                last = changes[0] if changes else "a back-off"
                raise WaitTimeoutError(f"{leader} does not come to rest; last: {last}")

    def _ends_soon(self, text: str) -> bool:
        """Return whether a back-off ends before everything is compared: then the check waits."""
        now_s = time.time()
        return ends_within(text, now_s, now_s + self._patience_s)

    async def _forecasts(self, name: str, count: int) -> None:
        """Wait for `count` more forecasts of a scheduler: statuses are written between them."""
        begun: float | None = None

        async def made() -> bool:
            nonlocal begun
            figure = await self._figure(name)
            if figure is None:  # no answer now, which says nothing about its forecasts
                return False
            begun = figure if begun is None else begun
            return figure >= begun + count

        await self._until(made, f"{name} to predict starts")

    async def _figure(self, name: str) -> float | None:
        """Return how many forecasts a scheduler has made, None if it does not answer."""
        for line in (await self._asked(name, "metrics")).splitlines():
            if line.startswith(_FORECASTS):
                return float(line.split()[1])
        return None

    async def _leader(self) -> str:
        leaders: list[str] = []

        async def leads() -> bool:
            leaders.extend([name for name in SCHEDULERS if await self._leads(name)])
            return bool(leaders)

        await self._until(leads, "a leader")
        return leaders[0]

    async def _leads(self, name: str) -> bool:
        return await self._asked(name, "readyz") == "leading"

    async def _ready(self, name: str) -> bool:
        return await self._asked(name, "readyz") in ("leading", "standing by")

    async def _asked(self, name: str, path: str) -> str:
        return await asyncio.to_thread(_text, self._ports[name], path)

    async def _until(self, holds: Callable[[], Awaitable[bool]], condition: str) -> None:
        deadline_s = time.monotonic() + self._patience_s
        while not await holds():
            if time.monotonic() > deadline_s:
                raise WaitTimeoutError(f"waited {self._patience_s:g} s for {condition}")
            await asyncio.sleep(_LOOK_S)


def _text(port: int, path: str) -> str:
    """Return the answer of a scheduler, "" without one."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


async def _stored(client: KubeClient) -> str:
    """Return the stored gang histories."""
    try:
        config_map: Any = msgspec.json.decode(await client.get(_PAST))
    except KubeError:
        return ""
    return str((config_map.get("data") or {}).get("gangs.json", ""))
