"""Injects the faults of a plan into a control plane, and removes them."""

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.local.processes import Programs
from simulator.chaos.gangs import surely
from simulator.chaos.observer import IndependentObserver
from simulator.chaos.plan import NO_FAULTS, Fault
from simulator.chaos.proxy import Proxy
from simulator.chaos.skewed import set_off

_RESTART_S = 0.5


class FaultInjector:
    """Injects faults into one control plane.

    `proxies` has the proxy of each component, `clocks` the file of each scheduler's clock
    (skewed.py).
    """

    def __init__(
        self, programs: Programs, proxies: Mapping[str, Proxy], clocks: Mapping[str, Path]
    ) -> None:
        self._programs = programs
        self._proxies = proxies
        self._clocks = clocks
        self._away: set[str] = set()

    async def inject(self, fault: Fault, client: KubeClient, observer: IndependentObserver) -> None:
        """Inject a fault now, and remove it when its time is over."""
        match fault.kind:
            case "network":
                proxy = self._proxies[fault.target]
                proxy.faults = fault.network
                await asyncio.sleep(fault.lasts_s)
                proxy.faults = NO_FAULTS
            case "clock":
                set_off(self._clocks[fault.target], fault.jump_s)
                await asyncio.sleep(fault.lasts_s)
                set_off(self._clocks[fault.target], 0.0)
            case "stop":
                pid = self._programs.get(fault.target).pid
                for number, wait_s in ((signal.SIGSTOP, fault.lasts_s), (signal.SIGCONT, 0.0)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                    await asyncio.sleep(wait_s)
            case "kill":
                await self.end(fault.target, hard=True)
                await asyncio.sleep(fault.lasts_s)
                self._away.discard(fault.target)
            case "node":
                await _lose(fault, client, observer)

    async def end(self, name: str, *, hard: bool = False) -> None:
        """Stop a program, by SIGKILL if `hard`, and do not restart it until `begin_again`."""
        self._away.add(name)
        await asyncio.to_thread(self._programs.stop, name, hard=hard)

    async def begin_again(self, names: Iterable[str]) -> None:
        """Restart programs, running or not."""
        for name in names:
            self._away.add(name)
            await asyncio.to_thread(self._programs.restart, name)
            self._away.discard(name)

    async def revive(self) -> None:
        """Restart programs that ended, as a kubelet does, until cancelled."""
        while True:
            await asyncio.sleep(_RESTART_S)
            for program in self._programs.all():
                if program.name not in self._away and not program.alive():
                    await asyncio.to_thread(self._programs.restart, program.name)


async def _lose(fault: Fault, client: KubeClient, observer: IndependentObserver) -> None:
    """Delete a node with its pods, as a cloud provider does, and create it again."""
    path = f"/api/v1/nodes/{fault.target}"
    try:
        node: dict[str, Any] = msgspec.json.decode(await client.get(path))
    except KubeError:
        return  # the API server is away, or the node is deleted already
    observer.lose(fault.target)
    await surely(lambda: client.delete(path))
    now = {"gracePeriodSeconds": 0}
    for pod in [pod for pod in observer.pods.values() if pod.spec.nodeName == fault.target]:
        gone = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        await surely(partial(client.delete, gone, now))
    await asyncio.sleep(fault.lasts_s)
    fields = ("name", "labels", "annotations")
    node["metadata"] = {key: node["metadata"][key] for key in fields if key in node["metadata"]}
    await surely(lambda: client.create("/api/v1/nodes", node))


def described(fault: Fault) -> str:
    """Return a fault as a line of text."""
    duration = f"for {fault.lasts_s:.1f} s"
    match fault.kind:
        case "network":
            faults = {
                key: value if isinstance(value, str) else round(value, 2)
                for key in ("late_s", "lag_s", "errors", "lost", "cuts", "outage")
                if (value := getattr(fault.network, key))
            }
            listed = ", ".join(f"{key} {value}" for key, value in faults.items())
            return f"connection of {fault.target}: {listed}, {duration}"
        case "clock":
            return f"the clock of {fault.target} is off by {fault.jump_s:+.0f} s {duration}"
        case "node":
            return f"node {fault.target} is lost {duration}"
        case _:
            return f"{fault.kind} {fault.target} {duration}"
