"""Inflicts the faults of a plan on a control plane, and mends them."""

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
from simulator.chaos.plan import FAIR, Fault
from simulator.chaos.proxy import Proxy
from simulator.chaos.skewed import set_off
from simulator.chaos.witness import IndependentObserver

_RESTART_S = 0.5


class Faults:
    """Who is mistreated how, on one control plane.

    `proxies` are by component, `clocks` the files of schedulers' clocks (skewed.py).
    """

    def __init__(
        self, programs: Programs, proxies: Mapping[str, Proxy], clocks: Mapping[str, Path]
    ) -> None:
        self._programs = programs
        self._proxies = proxies
        self._clocks = clocks
        self._away: set[str] = set()

    async def inflict(self, fault: Fault, client: KubeClient, witness: IndependentObserver) -> None:
        """Have a fault, from now until it is mended."""
        match fault.kind:
            case "weather":
                proxy = self._proxies[fault.who]
                proxy.weather = fault.weather
                await asyncio.sleep(fault.lasts_s)
                proxy.weather = FAIR
            case "clock":
                set_off(self._clocks[fault.who], fault.jump_s)
                await asyncio.sleep(fault.lasts_s)
                set_off(self._clocks[fault.who], 0.0)
            case "stop":
                pid = self._programs.get(fault.who).pid
                for number, wait_s in ((signal.SIGSTOP, fault.lasts_s), (signal.SIGCONT, 0.0)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                    await asyncio.sleep(wait_s)
            case "kill":
                await self.end(fault.who, hard=True)
                await asyncio.sleep(fault.lasts_s)
                self._away.discard(fault.who)
            case "node":
                await _lose(fault, client, witness)

    async def end(self, name: str, *, hard: bool = False) -> None:
        """Have a program end, with SIGKILL when `hard`, and stay away until it begins again."""
        self._away.add(name)
        await asyncio.to_thread(self._programs.stop, name, hard=hard)

    async def begin_again(self, names: Iterable[str]) -> None:
        """Have programs begin anew, those that still run too."""
        for name in names:
            self._away.add(name)
            await asyncio.to_thread(self._programs.restart, name)
            self._away.discard(name)

    async def revive(self) -> None:
        """Start again what ended, as a kubelet does, until cancelled."""
        while True:
            await asyncio.sleep(_RESTART_S)
            for program in self._programs.all():
                if program.name not in self._away and not program.alive():
                    await asyncio.to_thread(self._programs.restart, program.name)


async def _lose(fault: Fault, client: KubeClient, witness: IndependentObserver) -> None:
    """Take a node away with its pods, as a cloud does, and bring it back."""
    path = f"/api/v1/nodes/{fault.who}"
    try:
        node: dict[str, Any] = msgspec.json.decode(await client.get(path))
    except KubeError:
        return  # nobody can take a node away while the API server is away, or twice
    witness.lose(fault.who)
    await surely(lambda: client.delete(path))
    now = {"gracePeriodSeconds": 0}
    for pod in [one for one in witness.pods.values() if one.spec.nodeName == fault.who]:
        gone = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        await surely(partial(client.delete, gone, now))
    await asyncio.sleep(fault.lasts_s)
    kept = ("name", "labels", "annotations")
    node["metadata"] = {key: node["metadata"][key] for key in kept if key in node["metadata"]}
    await surely(lambda: client.create("/api/v1/nodes", node))


def told(fault: Fault) -> str:
    """Return a fault as one line."""
    lasts = f"for {fault.lasts_s:.1f} s"
    match fault.kind:
        case "weather":
            bad = {
                key: value if isinstance(value, str) else round(value, 2)
                for key in ("late_s", "lag_s", "errors", "lost", "cuts", "dark")
                if (value := getattr(fault.weather, key))
            }
            said = ", ".join(f"{key} {value}" for key, value in bad.items())
            return f"connection of {fault.who}: {said}, {lasts}"
        case "clock":
            return f"the clock of {fault.who} is off by {fault.jump_s:+.0f} s {lasts}"
        case "node":
            return f"node {fault.who} is lost {lasts}"
        case _:
            return f"{fault.kind} {fault.who} {lasts}"
