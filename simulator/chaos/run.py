"""Runs seeds on one control plane: two schedulers behind proxies, gangs, faults, and the verdict.

    python -m simulator.chaos --seeds 20 --first 1

Exit 1 at the first seed with a violation, or with a gang that could run and does not; the seed is
printed, and says the same again.
"""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gangsched.api.names import POD_GROUP_LABEL
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Conflict, KubeError, NotFound
from gangsched.kube.watch import Watch
from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Options, Plane
from simulator.chaos.plan import FAIR, FAULTS_S, PROCESSES, Fault, Gang, Plan, plan
from simulator.chaos.proxy import Proxy
from simulator.chaos.witness import Witness

NODES, GPUS = 4, 8
SCHEDULERS = PROCESSES[:2]
RECOVERS_S = 60.0
"""How long after the last fault every gang that can run has to be whole."""

_JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
_GROUPS = "/apis/gangsched.io/v1alpha1/namespaces/{}/podgroups"
_PODS = "/api/v1/namespaces/{}/pods"
_RESTART_S = 0.5
_SETTINGS = "backfill: greedy\n"
"""No room is kept in time: whatever fits has to run."""


class Chaos:
    """A control plane that is mistreated, one seed after another."""

    def __init__(self, plane: Plane, say: Callable[[str], None]) -> None:
        self._plane = plane
        self._say = say
        self._proxies: dict[str, Proxy] = {}
        self._away: set[str] = set()

    async def open(self) -> None:
        """Start two schedulers, each behind a proxy."""
        settings = self._plane.folder / "chaos.yaml"
        settings.write_text(_SETTINGS)
        for number, name in enumerate(SCHEDULERS):
            proxy = Proxy(self._plane.folder / "gangsched.kubeconfig", number)
            path = self._plane.folder / f"{name}-by-proxy.kubeconfig"
            await proxy.open(path)
            self._proxies[name] = proxy
            command = [sys.executable, "-m", "gangsched", "run", "--kubeconfig", str(path)]
            command += ["--binding", "direct", "--leader-elect", "--config", str(settings)]
            self._plane.programs.start(name, command, {"PYTHONUNBUFFERED": "1"})

    async def close(self) -> None:
        """Close the proxies."""
        for proxy in self._proxies.values():
            await proxy.close()

    async def seed(self, seed: int) -> list[str]:
        """Run one seed; return what was wrong."""
        todo = plan(seed)
        namespace = f"chaos-{seed}"
        async with KubeClient(self._plane.kubeconfig) as client, asyncio.TaskGroup() as group:
            witness = Witness({f"n-{i}": GPUS for i in range(NODES)})
            pods = Watch(client, "/api/v1/pods", witness)
            tasks = [group.create_task(pods.run()), group.create_task(self._revive())]
            await pods.synced.wait()
            await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            try:
                wrong = await self._run(client, witness, todo, namespace)
            finally:
                for task in tasks:
                    task.cancel()
            await self._clear(client, namespace)
        return wrong

    async def _run(
        self, client: KubeClient, witness: Witness, todo: Plan, namespace: str
    ) -> list[str]:
        started_s = time.monotonic()

        async def at(moment_s: float, work: Any) -> None:
            await asyncio.sleep(max(started_s + moment_s - time.monotonic(), 0.0))
            await work()

        async with asyncio.TaskGroup() as group:
            for gang in todo.gangs:
                group.create_task(at(gang.at_s, lambda gang=gang: _create(client, namespace, gang)))
            for fault in todo.faults:
                group.create_task(at(fault.at_s, lambda fault=fault: self._inflict(fault)))
        for gang in todo.gangs:
            if gang.leaves_s is not None:
                await _remove(client, namespace, gang)
        stay = [gang for gang in todo.gangs if gang.leaves_s is None]
        late: list[str] = []
        deadline_s = time.monotonic() + RECOVERS_S
        while time.monotonic() < deadline_s and not witness.violations:
            late = [word for gang in stay if (word := _standing(witness, gang))]
            if not late:
                break
            await asyncio.sleep(0.5)
        took_s = time.monotonic() - started_s - FAULTS_S
        self._say(f"  recovered {max(took_s, 0.0):.1f} s after the last fault")
        return [*witness.violations, *late]

    # -- faults -------------------------------------------------------------------------------

    async def _inflict(self, fault: Fault) -> None:
        self._say(f"  {fault.at_s:5.1f} s: {_told(fault)}")
        if fault.kind == "weather":
            proxy = self._proxies[fault.who]
            proxy.weather = fault.weather
            await asyncio.sleep(fault.lasts_s)
            proxy.weather = FAIR
            return
        program = self._plane.programs.get(fault.who)
        if fault.kind == "stop":
            with suppress(ProcessLookupError):
                os.kill(program.pid, signal.SIGSTOP)
            await asyncio.sleep(fault.lasts_s)
            with suppress(ProcessLookupError):
                os.kill(program.pid, signal.SIGCONT)
            return
        self._away.add(fault.who)
        await asyncio.to_thread(self._plane.programs.stop, fault.who, hard=True)
        await asyncio.sleep(fault.lasts_s)
        self._away.discard(fault.who)

    async def _revive(self) -> None:
        """Start again what ended, as a kubelet does."""
        while True:
            await asyncio.sleep(_RESTART_S)
            for name in PROCESSES:
                if name not in self._away and not self._plane.programs.get(name).alive():
                    await asyncio.to_thread(self._plane.programs.restart, name)

    async def _clear(self, client: KubeClient, namespace: str) -> None:
        """Take everything of a seed away."""
        now = {"gracePeriodSeconds": "0"}
        for path in (_JOBS, _GROUPS):
            await client.request("DELETE", path.format(namespace))
        while True:
            await client.request("DELETE", _PODS.format(namespace), params=now)
            if b'"items":[]' in await client.get(_PODS.format(namespace), limit="1"):
                break
            await asyncio.sleep(0.5)
        await client.delete(f"/api/v1/namespaces/{namespace}")


def _standing(witness: Witness, gang: Gang) -> str:
    """Return what is wrong with a gang that should run, or nothing."""
    bound = witness.bound(gang.name)
    if bound == gang.pods:
        return ""
    if bound:
        return f"gang {gang.name} runs in part: {bound} of {gang.pods} pods"
    if witness.would_fit(gang.pods, gang.gpus):
        return f"gang {gang.name} of {gang.pods} x {gang.gpus} GPUs would fit, and waits"
    return ""


def _told(fault: Fault) -> str:
    if fault.kind == "weather":
        bad = {
            key: value if isinstance(value, str) else round(value, 2)
            for key in ("late_s", "lag_s", "errors", "lost", "cuts", "dark")
            if (value := getattr(fault.weather, key))
        }
        said = ", ".join(f"{key} {value}" for key, value in bad.items())
        return f"connection of {fault.who}: {said}, for {fault.lasts_s:.1f} s"
    return f"{fault.kind} {fault.who} for {fault.lasts_s:.1f} s"


# -- gangs --------------------------------------------------------------------------------------


def _spec(gang: Gang) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": str(gang.gpus)}},
    }
    return {
        "schedulerName": "gangsched",
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }


async def _create(client: KubeClient, namespace: str, gang: Gang) -> None:
    if gang.job:
        template = {"spec": _spec(gang)}
        roles = {"Worker": {"replicas": gang.pods, "template": template}}
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": gang.name},
            "spec": {"pytorchReplicaSpecs": roles},
        }
        await _surely(client, _JOBS.format(namespace), body)
        return
    group = {
        "apiVersion": "gangsched.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": gang.name},
        "spec": {"minMember": gang.pods},
    }
    await _surely(client, _GROUPS.format(namespace), group)
    for index in range(gang.pods):
        metadata = {"name": f"{gang.name}-{index}", "labels": {POD_GROUP_LABEL: gang.name}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(gang)}
        await _surely(client, _PODS.format(namespace), pod)


async def _surely(client: KubeClient, path: str, body: dict[str, Any]) -> None:
    """Create an object, however long the API server is away."""
    while True:
        try:
            await client.create(path, body)
        except Conflict:
            return
        except KubeError:
            await asyncio.sleep(0.5)
        else:
            return


async def _remove(client: KubeClient, namespace: str, gang: Gang) -> None:
    kinds = (_JOBS,) if gang.job else (_GROUPS,)
    for path in kinds:
        with suppress(NotFound):
            await client.delete(f"{path.format(namespace)}/{gang.name}")
    if not gang.job:
        for index in range(gang.pods):
            with suppress(NotFound):
                await client.delete(f"{_PODS.format(namespace)}/{gang.name}-{index}")


async def run(seeds: range, say: Callable[[str], None]) -> int:
    """Run seeds; return how many went wrong."""
    plane = Plane("chaos")
    plane.down()
    group = NodeGroup(name="n", count=NODES, gpus=GPUS, taints=())
    options = Options(binding="off", operators=False)
    await asyncio.to_thread(plane.up, NodeFile(nodes=(group,)), options, lambda _: None)
    chaos = Chaos(plane, say)
    bad = 0
    try:
        await chaos.open()
        for seed in seeds:
            say(f"seed {seed}")
            wrong = await chaos.seed(seed)
            bad += bool(wrong)
            for sentence in wrong:
                say(f"  VIOLATION (seed {seed}): {sentence}")
            if wrong:
                kept = Path("build") / "chaos" / f"seed-{seed}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(plane.programs.logs, kept)
                say(f"  the logs are in {kept}")
                break
    finally:
        await chaos.close()
        await asyncio.to_thread(plane.down)
    return bad
