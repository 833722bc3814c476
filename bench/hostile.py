"""The effect of a hostile tenant on others: on a real control plane, and in 100,000 objects.

First a real leader: one tenant starts gangs of 8 pods one after the other, alone, and then beside
a tenant that creates, changes and deletes any objects. Then histories of such objects in the
cluster of `simulator/hostile`, which checks every invariant on its record of real pods.
"""

import asyncio
import contextlib
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

from meters import on_plane
from scale import gang, process

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.watch import Watch
from gangsched.local.nodes import NodeGroup
from gangsched.local.plane import Plane, PlaneOptions
from simulator.chaos.observer import IndependentObserver
from simulator.hostile.intruder import TENANT, Intruder, divide
from simulator.hostile.objects import NAMESPACE, OFTEN
from simulator.hostile.worker import HistoryWorker

GANGS, PAUSE_S = 100, 0.2
NODES, GPUS = 100, 8
LEADER = "gangsched"

OBJECTS = int(os.environ.get("HOSTILE_OBJECTS", "100000"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
STEPS = 60
DEADLINE_S = 120.0
SIZES = (*[0] * 12, 1, 1, 2)
"""Mostly small: absurd objects take seconds, and the property tests try more of them."""

_SEARCHED = ("Experiment", "Trial")
"""Kinds with expressions and searches that run for seconds, in separate processes."""


# -- a real control plane -----------------------------------------------------------------------


async def gangs(client: KubeClient, stem: str) -> list[float]:
    """Start gangs one after the other; return the sorted times in seconds."""
    took = []
    for number in range(GANGS):
        took.append(await gang(client, f"{stem}-{number}", 8, gpus=1))
        await client.delete(
            f"/apis/gangsched.io/v1beta1/namespaces/default/podgroups/{stem}-{number}"
        )
        now = {
            "gracePeriodSeconds": "0",
            "labelSelector": f"gangsched.io/pod-group={stem}-{number}",
        }
        await client.request("DELETE", "/api/v1/namespaces/default/pods", params=now)
        await asyncio.sleep(PAUSE_S)
    return sorted(took)


async def revive(plane: Plane, ended: list[float]) -> None:
    """Restart the leader when it ended, as a kubelet does, and count it."""
    while True:
        await asyncio.sleep(0.5)
        if not plane.programs.get(LEADER).alive():
            ended.append(time.monotonic())
            await asyncio.to_thread(plane.programs.restart, LEADER)


async def measure(plane: Plane) -> dict[str, float]:
    """Measure the victim alone, then beside the hostile tenant."""
    ended: list[float] = []
    async with KubeClient(plane.kubeconfig) as client:
        await client.patch("/api/v1/namespaces/default", {"metadata": {"labels": {TENANT: "calm"}}})
        space = {"metadata": {"name": NAMESPACE, "labels": {TENANT: NAMESPACE}}}
        await client.create("/api/v1/namespaces", space)
        await divide(client, "calm")
        width = len(str(NODES - 1))
        observer = IndependentObserver({f"n-{index:0{width}}": GPUS for index in range(NODES)})
        watch = Watch(client, "/api/v1/pods", observer)
        tasks = [asyncio.create_task(watch.run()), asyncio.create_task(revive(plane, ended))]
        await watch.synced.wait()
        alone = await gangs(client, "alone")
        print(f"  alone: p50 {alone[GANGS // 2]:.3f} s, p99 {alone[-2]:.3f} s", flush=True)
        intruder = Intruder(client, NAMESPACE, SEED)
        tasks.append(asyncio.create_task(intruder.run()))
        beside = await gangs(client, "beside")
        print(f"  beside: p50 {beside[GANGS // 2]:.3f} s, p99 {beside[-2]:.3f} s", flush=True)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    rss_mib = process(plane, LEADER).memory_info().rss / 2**20
    return {
        "victim_alone_p50_s": alone[GANGS // 2],
        "victim_alone_p99_s": alone[-2],
        "victim_beside_p50_s": beside[GANGS // 2],
        "victim_beside_p99_s": beside[-2],
        "victim_bind_p99_ratio": beside[-2] / alone[-2],
        "leader_rss_mib": rss_mib,
        "plane_objects_tried": float(intruder.tried),
        "plane_objects_accepted": float(intruder.accepted),
        "violations": float(len(observer.violations)),
        "crash_loops": float(len(ended)),
    }


# -- by the hundred thousand --------------------------------------------------------------------


def history(seed: int) -> dict[str, object]:
    """Return a history of a seed."""
    rng = random.Random(seed)
    steps = []
    for _ in range(STEPS):
        kind = rng.choice(OFTEN)
        while kind in _SEARCHED and rng.random() < 0.9:
            kind = rng.choice(OFTEN)
        words = ("create", "create", "create", "create", "edit", "delete")
        word = rng.choice(words)
        if rng.random() < 0.05:
            word = rng.choice(("plan", "serve", "restart", "think"))
        step = {"do": word, "kind": kind, "seed": rng.randrange(2**32)}
        steps.append(step | {"scale": rng.choice(SIZES), "at": rng.randrange(1000)})
    return {"borrowing": rng.random() < 0.2, "steps": steps}


def live(seeds: range, most: int) -> tuple[int, int, int, int]:
    """Run histories; return objects, violations, ended processes and the most cycles."""
    objects = wrong = died = cycles = 0
    with HistoryWorker(DEADLINE_S) as worker:
        for seed in seeds:
            result = worker.run(history(seed))
            objects += result.get("objects", 0)
            cycles = max(cycles, result.get("cycles", 0))
            died += bool(result.get("died"))
            wrong += len(result["violations"])
            for sentence in result["violations"][:1]:
                print(f"  VIOLATION (seed {seed}): {sentence[:500]}", flush=True)
            if objects >= most:
                break
    return objects, wrong, died, cycles


def by_the_thousand() -> dict[str, float]:
    """Try OBJECTS objects, with a process for each core."""
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        parts = [
            pool.submit(live, range(SEED + core, 2**31, cores), OBJECTS // cores)
            for core in range(cores)
        ]
        objects, wrong, died, cycles = zip(*(part.result() for part in parts), strict=True)
    return {
        "hostile_objects_tried": float(sum(objects)),
        "violations": float(sum(wrong)),
        "crash_loops": float(sum(died)),
        "victim_cycles_max": float(max(cycles)),
    }


def run() -> dict[str, float]:
    """Run once; return flat figures."""
    group = NodeGroup(name="n", count=NODES, gpus=GPUS, cpu="96", pods=256, taints=())
    figures = on_plane("bench-hostile", group, PlaneOptions(binding="direct"), measure)
    started_s = time.monotonic()
    measured = by_the_thousand()
    objects, took_s = measured["hostile_objects_tried"], time.monotonic() - started_s
    print(f"  {objects:.0f} objects in {took_s:.0f} s", flush=True)
    for key, value in measured.items():
        figures[key] = figures.get(key, 0.0) + value
    figures["hostile_objects_tried"] += figures.pop("plane_objects_tried")
    return figures
