"""Runs seeds on a control plane: two schedulers behind proxies, gangs, faults, and checks.

A hostile tenant with a queue without GPUs works beside the users.

    python -m simulator.chaos --seeds 20 --first 1

Exits with 1 at the first seed with a violation, or with a gang that could run and does not. The
seed is printed; it makes the same plan again.
"""

import asyncio
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.watch import Watch
from gangsched.local import components
from gangsched.local.bootstrap import bootstrap
from gangsched.local.network import free_ports
from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Plane, PlaneOptions
from simulator.chaos.faults import FaultInjector, described
from simulator.chaos.gangs import GROUPS, JOBS, PODS, NamespaceUsers, surely
from simulator.chaos.observer import IndependentObserver
from simulator.chaos.plan import (
    EXTENDED,
    FAULTS_S,
    GPUS,
    NODES,
    SCHEDULERS,
    Binding,
    ChaosGang,
    ChaosPlan,
    plan,
)
from simulator.chaos.proxy import Proxy
from simulator.chaos.restarts import GREEDY, ReportWatches, Restarts, settings
from simulator.chaos.service import LeaderService
from simulator.chaos.skewed import set_off
from simulator.hostile.intruder import TENANT, Intruder, divide

RECOVERS_S = 60.0
"""How long after the last fault every gang that can run must be whole."""

_LOOK_S = 0.5
HOSTILE = "hostile"
"""The tenant that creates, changes and deletes hostile objects during the whole run."""

_BETWEEN_S = 0.25
"""Pause between two hostile objects, because the users need the API server too."""

_DRIFT = "gangsched_quota_drift_total{"


class Chaos:
    """A control plane for one seed after another."""

    def __init__(
        self, plane: Plane, binding: Binding, say: Callable[[str], None], patience: float = 1.0
    ) -> None:
        self._plane = plane
        self._recovers_s = RECOVERS_S * patience
        self._binding = binding
        self._say = say
        ports = free_ports(2 * len(SCHEDULERS))
        self._ports = {name: (ports.pop(), ports.pop()) for name in SCHEDULERS}
        self._service = LeaderService(dict(self._ports.values()))
        self._proxies: dict[str, Proxy] = {}
        self._clocks = {name: plane.folder / f"{name}.clock" for name in SCHEDULERS}
        self.faults = FaultInjector(plane.programs, self._proxies, self._clocks)
        metrics = {name: port for name, (port, _) in self._ports.items()}
        self._settings = plane.folder / "chaos.yaml"
        self._patience = patience
        self._restarts = Restarts(self.faults, metrics, self._declare, say, self._recovers_s)

    async def open(self, nodes: NodeFile) -> None:
        """Start two schedulers, and a kube-scheduler for the extender, each behind a proxy."""
        self._declare(GREEDY)
        for name, (metrics, extender) in self._ports.items():
            set_off(self._clocks[name], 0.0)
            kubeconfig = await self._behind_proxy(name, "gangsched")
            command = [sys.executable, "-m", "simulator.chaos.skewed", str(self._clocks[name])]
            command += ["run", "--kubeconfig", str(kubeconfig), "--config", str(self._settings)]
            command += ["--binding", self._binding, "--leader-elect"]
            command += ["--metrics-port", str(metrics), "--extender-port", str(extender)]
            self._plane.programs.start(name, command, {"PYTHONUNBUFFERED": "1"})
        async with KubeClient(self._plane.kubeconfig) as client:
            await divide(client, "users")
        port = await self._service.open()
        if self._binding == "extender":
            await asyncio.to_thread(bootstrap, self._plane.kubeconfig, nodes, gate=True)
            kubeconfig = await self._behind_proxy(EXTENDED, "own-scheduler")
            config = self._plane.scheduler_config(port, kubeconfig)
            binaries = components.ensure(lambda _: None)
            flags = f"--config={config}"
            self._plane.scheduler(binaries, EXTENDED, free_ports(1)[0], flags, config=config)

    def _declare(self, backfill: str) -> None:
        """Write the settings of schedulers that start later."""
        self._settings.write_text(settings(backfill, self._patience))

    async def _behind_proxy(self, name: str, user: str) -> Path:
        proxy = Proxy(self._plane.folder / f"{user}.kubeconfig", len(self._proxies))
        path = self._plane.folder / f"{name}-by-proxy.kubeconfig"
        await proxy.open(path)
        self._proxies[name] = proxy
        return path

    async def close(self) -> None:
        """Close the proxies and the Service."""
        await self._service.close()
        for proxy in self._proxies.values():
            await proxy.close()

    async def seed(self, todo: ChaosPlan) -> list[str]:
        """Run one seed; return the violations."""
        namespace = f"chaos-{todo.seed}"
        theirs = f"{namespace}-{HOSTILE}"
        async with KubeClient(self._plane.kubeconfig) as client, asyncio.TaskGroup() as group:
            reports = ReportWatches()
            observer = IndependentObserver(
                {f"n-{i}": GPUS for i in range(NODES)},
                {gang.name: gang.pods for gang in todo.gangs},
                reports.placed,
                namespace,
            )
            pods = Watch(client, "/api/v1/pods", observer)
            tasks = [group.create_task(pods.run()), group.create_task(self.faults.revive())]
            await pods.synced.wait()
            for name, tenant in ((namespace, "users"), (theirs, HOSTILE)):
                body = {"metadata": {"name": name, "labels": {TENANT: tenant}}}
                await surely(partial(client.create, "/api/v1/namespaces", body))
            intruder = Intruder(client, theirs, todo.seed, pause_s=_BETWEEN_S)
            harm = group.create_task(intruder.run())
            users = NamespaceUsers(client, namespace)
            try:
                async with reports.watching(client, namespace):
                    wrong = await self._run(client, observer, todo, users)
                    harm.cancel()
                    await surely(partial(client.delete, f"/api/v1/namespaces/{theirs}"))
                    if not wrong:
                        wrong = await self._gone(client, theirs)
                    if not wrong:
                        wrong = await self._restarts.compare(client, reports, users, todo)
                    wrong += [*observer.violations, *reports.groups.violations]
                self._say(f"  {intruder.accepted} of {intruder.tried} hostile objects accepted")
                await _clear(client, namespace)
            finally:
                for task in (*tasks, harm):
                    task.cancel()
        return wrong

    async def _gone(self, client: KubeClient, namespace: str) -> list[str]:
        """Wait until a namespace is deleted: its gangs count in queues until then."""
        deadline_s = time.monotonic() + self._recovers_s
        while time.monotonic() < deadline_s:
            try:
                await client.get(f"/api/v1/namespaces/{namespace}")
            except NotFound:
                return []
            except KubeError:
                pass
            await asyncio.sleep(_LOOK_S)
        return [f"namespace {namespace} is not gone {self._recovers_s:g} s after its deletion"]

    async def _run(
        self,
        client: KubeClient,
        observer: IndependentObserver,
        todo: ChaosPlan,
        users: NamespaceUsers,
    ) -> list[str]:
        started_s = time.monotonic()

        async def until(moment_s: float) -> None:
            await asyncio.sleep(max(started_s + moment_s - time.monotonic(), 0.0))

        async def live(gang: ChaosGang) -> None:
            await until(gang.at_s)
            await users.create(gang)
            if gang.leaves_s is not None:
                await until(gang.leaves_s)
                observer.excuse(gang.name)
                await users.remove(gang)

        async def suffer() -> None:
            async with asyncio.TaskGroup() as group:
                for fault in todo.faults:
                    await until(fault.at_s)
                    self._say(f"  {fault.at_s:5.1f} s: {described(fault)}")
                    group.create_task(self.faults.inject(fault, client, observer))

        async with asyncio.TaskGroup() as group:
            group.create_task(suffer())
            for gang in todo.gangs:
                group.create_task(live(gang))
        stay = [gang for gang in todo.gangs if gang.leaves_s is None]
        late: list[str] = []
        deadline_s = time.monotonic() + self._recovers_s
        while time.monotonic() < deadline_s and not observer.violations:
            for gang in stay:
                if not gang.job and observer.members(gang.name) < gang.pods:
                    await users.put_back(gang)
            phases = await _phases(client, users.namespace)
            late = [problem for gang in stay if (problem := standing(observer, gang, phases))]
            if not late:
                break
            await asyncio.sleep(_LOOK_S)
        took_s = time.monotonic() - started_s - FAULTS_S
        self._say(f"  recovered {max(took_s, 0.0):.1f} s after the last fault")
        return [*late, *await asyncio.to_thread(self._drifts)]

    def _drifts(self) -> list[str]:
        """Return the corrections that the schedulers' own audits made to queue usage."""
        drifts = []
        for name, (metrics, _) in self._ports.items():
            lines = _metrics(metrics, self._recovers_s)
            if not lines:
                drifts.append(
                    f"{name} does not answer within {self._recovers_s:g} s of its last fault"
                )
            drifts += [f"{name}: {line}" for line in lines if line.startswith(_DRIFT)]
        return drifts


def _metrics(port: int, within_s: float) -> list[str]:
    """Return the metrics of a scheduler; a scheduler that was just killed has to start first."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return list(answer.read().decode().splitlines())
        except OSError:
            time.sleep(_LOOK_S)
    return []


async def _phases(client: KubeClient, namespace: str) -> dict[str, str]:
    """Return the phase of each PodGroup of a namespace."""
    try:
        listed: Any = msgspec.json.decode(await client.get(GROUPS.format(namespace)))
    except KubeError:
        return {}
    return {
        group["metadata"]["name"]: (group.get("status") or {}).get("phase", "")
        for group in listed["items"]
    }


def standing(observer: IndependentObserver, gang: ChaosGang, phases: dict[str, str]) -> str:
    """Return what is wrong with a gang that should run, "" if nothing."""
    bound = observer.bound(gang.name)
    if bound == gang.pods:
        phase = phases.get(gang.name, "none")
        return "" if phase == "Placed" else f"gang {gang.name} runs, and its phase is {phase!r}"
    if bound:
        return f"gang {gang.name} runs in part: {bound} of {gang.pods} pods"
    if observer.would_fit(gang.pods, gang.gpus):
        return f"gang {gang.name} of {gang.pods} x {gang.gpus} GPUs would fit, and is pending"
    return ""


async def _clear(client: KubeClient, namespace: str) -> None:
    """Delete all objects of a seed."""
    now = {"gracePeriodSeconds": "0"}
    pods = PODS.format(namespace)
    for path in (JOBS, GROUPS):
        await surely(partial(client.request, "DELETE", path.format(namespace)))
    while True:
        await surely(lambda: client.request("DELETE", pods, params=now))
        if b'"items":[]' in await client.get(pods, limit="1"):
            break
        await asyncio.sleep(_LOOK_S)
    await surely(lambda: client.delete(f"/api/v1/namespaces/{namespace}"))


async def run(seeds: Iterable[int], say: Callable[[str], None], patience: float = 1.0) -> int:
    """Run seeds, both ways of binding in parallel; return how many have violations.

    Runs mostly wait, so two control planes fit on one machine. After a violation, no further seed
    starts. On a slow machine, `patience` multiplies the time for recovery.
    """
    plans = [plan(seed) for seed in seeds]
    bindings: tuple[Binding, ...] = ("direct", "extender")
    bad: list[int] = []
    async with asyncio.TaskGroup() as group:
        for binding in bindings:
            if todo := [seed_plan for seed_plan in plans if seed_plan.binding == binding]:
                say_binding = partial(_by, say, binding)
                group.create_task(_run_all(todo, binding, bad, say_binding, patience))
    return len(bad)


def _by(say: Callable[[str], None], binding: Binding, line: str) -> None:
    say(f"{binding:8}  {line}")


async def _run_all(
    plans: list[ChaosPlan],
    binding: Binding,
    bad: list[int],
    say: Callable[[str], None],
    patience: float,
) -> None:
    """Run seeds until one has a violation, with this binding or the other."""
    plane = Plane(f"chaos-{binding}")
    plane.down()
    nodes = NodeFile(nodes=(NodeGroup(name="n", count=NODES, gpus=GPUS, taints=()),))
    options = PlaneOptions(binding="off", operators=False)
    await asyncio.to_thread(plane.up, nodes, options, lambda _: None)
    chaos = Chaos(plane, binding, say, patience)
    try:
        await chaos.open(nodes)
        for seed_plan in plans:
            if bad:
                break
            say(f"seed {seed_plan.seed}")
            wrong = await chaos.seed(seed_plan)
            for sentence in wrong:
                say(f"  VIOLATION (seed {seed_plan.seed}): {sentence}")
            if wrong:
                bad.append(seed_plan.seed)
                folder = Path("build") / "chaos" / f"seed-{seed_plan.seed}"
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(plane.programs.logs, folder)
                say(f"  the logs are in {folder}")
    finally:
        await chaos.close()
        await asyncio.to_thread(plane.down)
