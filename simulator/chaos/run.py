"""Runs seeds on a control plane: two schedulers behind proxies, gangs, faults, and the verdict.

Beside the users is a tenant who means harm, and has a queue without GPUs.

    python -m simulator.chaos --seeds 20 --first 1

Exit 1 at the first seed with a violation, or with a gang that could run and does not; the seed is
printed, and says the same again.
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
from gangsched.local.plane import Options, Plane
from simulator.chaos.faults import Faults, told
from simulator.chaos.gangs import GROUPS, JOBS, PODS, Users, surely
from simulator.chaos.plan import (
    EXTENDED,
    FAULTS_S,
    GPUS,
    NODES,
    SCHEDULERS,
    Binding,
    Gang,
    Plan,
    plan,
)
from simulator.chaos.proxy import Proxy
from simulator.chaos.restarts import GREEDY, Restarts, Tellers, settings
from simulator.chaos.service import LeaderService
from simulator.chaos.skewed import set_off
from simulator.chaos.witness import IndependentObserver
from simulator.hostile.intruder import TENANT, Intruder, divide

RECOVERS_S = 60.0
"""How long after the last fault every gang that can run has to be whole."""

_LOOK_S = 0.5
HOSTILE = "hostile"
"""Who creates, changes and deletes whatever an API server takes, beside the users, all the time."""

_BETWEEN_S = 0.25
"""Between two objects of his: the API server's time is the users' too."""

_DRIFT = "gangsched_quota_drift_total{"


class Chaos:
    """A control plane that is mistreated, one seed after another."""

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
        self.faults = Faults(plane.programs, self._proxies, self._clocks)
        metrics = {name: port for name, (port, _) in self._ports.items()}
        self._settings = plane.folder / "chaos.yaml"
        self._patience = patience
        self._restarts = Restarts(self.faults, metrics, self._declare, say, self._recovers_s)

    async def open(self, nodes: NodeFile) -> None:
        """Start two schedulers, and the kube-scheduler before them, each behind a proxy."""
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
        """Write the settings of the schedulers that begin from now on."""
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

    async def seed(self, todo: Plan) -> list[str]:
        """Run one seed; return what was wrong."""
        namespace = f"chaos-{todo.seed}"
        theirs = f"{namespace}-{HOSTILE}"
        async with KubeClient(self._plane.kubeconfig) as client, asyncio.TaskGroup() as group:
            tellers = Tellers()
            witness = IndependentObserver(
                {f"n-{i}": GPUS for i in range(NODES)},
                {gang.name: gang.pods for gang in todo.gangs},
                tellers.placed,
                namespace,
            )
            pods = Watch(client, "/api/v1/pods", witness)
            tasks = [group.create_task(pods.run()), group.create_task(self.faults.revive())]
            await pods.synced.wait()
            for name, tenant in ((namespace, "users"), (theirs, HOSTILE)):
                body = {"metadata": {"name": name, "labels": {TENANT: tenant}}}
                await surely(partial(client.create, "/api/v1/namespaces", body))
            intruder = Intruder(client, theirs, todo.seed, pause_s=_BETWEEN_S)
            harm = group.create_task(intruder.run())
            users = Users(client, namespace)
            try:
                async with tellers.watching(client, namespace):
                    wrong = await self._run(client, witness, todo, users)
                    harm.cancel()
                    await surely(partial(client.delete, f"/api/v1/namespaces/{theirs}"))
                    if not wrong:
                        wrong = await self._gone(client, theirs)
                    if not wrong:
                        wrong = await self._restarts.compare(client, tellers, users, todo)
                    wrong += [*witness.violations, *tellers.groups.violations]
                self._say(f"  {intruder.accepted} of {intruder.tried} hostile objects accepted")
                await _clear(client, namespace)
            finally:
                for task in (*tasks, harm):
                    task.cancel()
        return wrong

    async def _gone(self, client: KubeClient, namespace: str) -> list[str]:
        """Wait until nothing of a namespace is left: its gangs count in queues until then."""
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
        self, client: KubeClient, witness: IndependentObserver, todo: Plan, users: Users
    ) -> list[str]:
        started_s = time.monotonic()

        async def until(moment_s: float) -> None:
            await asyncio.sleep(max(started_s + moment_s - time.monotonic(), 0.0))

        async def live(gang: Gang) -> None:
            await until(gang.at_s)
            await users.create(gang)
            if gang.leaves_s is not None:
                await until(gang.leaves_s)
                witness.excuse(gang.name)
                await users.remove(gang)

        async def suffer() -> None:
            async with asyncio.TaskGroup() as group:
                for fault in todo.faults:
                    await until(fault.at_s)
                    self._say(f"  {fault.at_s:5.1f} s: {told(fault)}")
                    group.create_task(self.faults.inflict(fault, client, witness))

        async with asyncio.TaskGroup() as group:
            group.create_task(suffer())
            for gang in todo.gangs:
                group.create_task(live(gang))
        stay = [gang for gang in todo.gangs if gang.leaves_s is None]
        late: list[str] = []
        deadline_s = time.monotonic() + self._recovers_s
        while time.monotonic() < deadline_s and not witness.violations:
            for gang in stay:
                if not gang.job and witness.members(gang.name) < gang.pods:
                    await users.put_back(gang)
            phases = await _phases(client, users.namespace)
            late = [word for gang in stay if (word := standing(witness, gang, phases))]
            if not late:
                break
            await asyncio.sleep(_LOOK_S)
        took_s = time.monotonic() - started_s - FAULTS_S
        self._say(f"  recovered {max(took_s, 0.0):.1f} s after the last fault")
        return [*late, *await asyncio.to_thread(self._drifts)]

    def _drifts(self) -> list[str]:
        """Return what the schedulers' own audits found wrong in their books."""
        found = []
        for name, (metrics, _) in self._ports.items():
            lines = _metrics(metrics, self._recovers_s)
            if not lines:
                within = f"within {self._recovers_s:g} s of its last fault"
                found.append(f"{name} does not answer {within}")
            found += [f"{name}: {line}" for line in lines if line.startswith(_DRIFT)]
        return found


def _metrics(port: int, within_s: float) -> list[str]:
    """Return what a scheduler says of itself; one that was killed a moment ago has to start."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return list(answer.read().decode().splitlines())
        except OSError:
            time.sleep(_LOOK_S)
    return []


async def _phases(client: KubeClient, namespace: str) -> dict[str, str]:
    """Return what the PodGroups of a namespace say of themselves."""
    try:
        listed: Any = msgspec.json.decode(await client.get(GROUPS.format(namespace)))
    except KubeError:
        return {}
    return {
        one["metadata"]["name"]: (one.get("status") or {}).get("phase", "")
        for one in listed["items"]
    }


def standing(witness: IndependentObserver, gang: Gang, phases: dict[str, str]) -> str:
    """Return what is wrong with a gang that should run, or nothing."""
    bound = witness.bound(gang.name)
    if bound == gang.pods:
        phase = phases.get(gang.name, "none")
        return "" if phase == "Placed" else f"gang {gang.name} runs, and its phase is {phase!r}"
    if bound:
        return f"gang {gang.name} runs in part: {bound} of {gang.pods} pods"
    if witness.would_fit(gang.pods, gang.gpus):
        return f"gang {gang.name} of {gang.pods} x {gang.gpus} GPUs would fit, and waits"
    return ""


async def _clear(client: KubeClient, namespace: str) -> None:
    """Take everything of a seed away."""
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
    """Run seeds, both ways of binding side by side; return how many are bad.

    Faults are mostly waiting, so two control planes fit where one does. No seed begins once one
    went wrong. A slow machine recovers in `patience` times as long.
    """
    plans = [plan(seed) for seed in seeds]
    bindings: tuple[Binding, ...] = ("direct", "extender")
    bad: list[int] = []
    async with asyncio.TaskGroup() as group:
        for binding in bindings:
            if todo := [one for one in plans if one.binding == binding]:
                said = partial(_by, say, binding)
                group.create_task(_run_all(todo, binding, bad, said, patience))
    return len(bad)


def _by(say: Callable[[str], None], binding: Binding, line: str) -> None:
    say(f"{binding:8}  {line}")


async def _run_all(
    plans: list[Plan],
    binding: Binding,
    bad: list[int],
    say: Callable[[str], None],
    patience: float,
) -> None:
    """Run seeds until one, here or elsewhere, is bad."""
    plane = Plane(f"chaos-{binding}")
    plane.down()
    nodes = NodeFile(nodes=(NodeGroup(name="n", count=NODES, gpus=GPUS, taints=()),))
    options = Options(binding="off", operators=False)
    await asyncio.to_thread(plane.up, nodes, options, lambda _: None)
    chaos = Chaos(plane, binding, say, patience)
    try:
        await chaos.open(nodes)
        for one in plans:
            if bad:
                break
            say(f"seed {one.seed}")
            wrong = await chaos.seed(one)
            for sentence in wrong:
                say(f"  VIOLATION (seed {one.seed}): {sentence}")
            if wrong:
                bad.append(one.seed)
                kept = Path("build") / "chaos" / f"seed-{one.seed}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(plane.programs.logs, kept)
                say(f"  the logs are in {kept}")
    finally:
        await chaos.close()
        await asyncio.to_thread(plane.down)
