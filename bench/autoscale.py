"""Nodes for whole gangs: gangsched with Karpenter against Karpenter and kube-scheduler alone.

The real Karpenter buys KWOK nodes within the limit of a pool. Gangs arrive in the order of a seed:
most fit, two are larger than the limit. A gang runs for a while once all its pods are bound, and
is deleted then. At moments of the seed the provider is short of nodes: Karpenter deletes a
NodeClaim for which there is no capacity, and so does the benchmark. Once with gangsched, and once
with the same pods for kube-scheduler.

In virtual time, larger pools show the cost beside the least, and how good forecasts are.
"""

import asyncio
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from meters import on_plane

from gangsched.api.names import POD_GROUP_LABEL
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.local.nodes import NodeGroup
from gangsched.local.plane import Plane, PlaneOptions, client_environment
from simulator.studies.purchases import measure_purchases

GPU, GPUS, LIMIT = "nvidia.com/gpu", 8, 500
"""GPUs of a node, and nodes that the pool may have."""
GANGS, NODES_MAX, TOO_LARGE = 14, 80, (520, 640)
SEED, EVERY_S, RUNS_S, LASTS_S, SAMPLE_S = 7, 4.0, 60.0, 300.0, 1.0
PRICE = 98.25
SHORTAGES, SHORT_S, RETRY_S = 3, 15.0, 20.0
"""How often the provider is short of nodes, for how long, and when gangsched first tries again."""
SIMULATED_SEEDS = 3
_PODS = "/api/v1/namespaces/default/pods"
_GROUPS = "/apis/gangsched.io/v1beta1/namespaces/default/podgroups"
_RESOURCES = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(GPUS)}
_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_KIND = {"bought": "true"}
_BOUGHT = {"labelSelector": "bought=true"}
_UNREGISTERED = "karpenter.sh/unregistered"


@dataclass(slots=True)
class Gang:
    """A gang of one pod for each node, and when it was created and whole."""

    name: str
    nodes: int
    created_s: float = 0.0
    whole_s: float | None = None
    ended: bool = False


@dataclass(slots=True)
class Seen:
    """Seconds of nodes by what they had: a gang that was whole at some time, or not; or nothing."""

    node_s: float = 0.0
    by_gang: dict[str, float] = field(default_factory=dict)
    bought_for: dict[str, float] = field(default_factory=dict)


def run() -> dict[str, float]:
    """Measure both on one plane, one after the other."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))
    head = NodeGroup(name="head", kind="kwok", count=1, taints=())
    options = PlaneOptions(binding="off", operators=False)
    figures = on_plane("bench-autoscale", head, options, _measure)
    simulated = measure_purchases(range(SIMULATED_SEEDS)).flat()
    return figures | {f"simulated_{name}": value for name, value in simulated.items()}


async def _measure(plane: Plane) -> dict[str, float]:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with KubeClient(plane.kubeconfig) as client:
            karpenter = await _karpenter(plane, client, Path(folder))
            try:
                for prefix, ours in (("", True), ("karpenter_", False)):
                    process = _gangsched(plane, Path(folder)) if ours else None
                    try:
                        gangs, seen = await _play(client, ours=ours)
                    finally:
                        if process is not None:
                            process.terminate()
                            process.wait()
                    figures |= _figures(gangs, seen, prefix)
            finally:
                karpenter.kill()
                karpenter.wait()
    return figures


def _figures(gangs: list[Gang], seen: Seen, prefix: str) -> dict[str, float]:
    started = [gang for gang in gangs if gang.whole_s is not None]
    names = {gang.name for gang in started}
    wasted_s = sum(s for name, s in seen.by_gang.items() if name not in names)
    wasted_s += sum(s for name, s in seen.bought_for.items() if name not in names)
    least_s = sum(gang.nodes * RUNS_S for gang in started)
    took_s = [(gang.whole_s or 0.0) - gang.created_s for gang in started]
    return {
        f"{prefix}gangs_started": float(len(started)),
        f"{prefix}wasted_node_minutes": wasted_s / 60,
        f"{prefix}bought_node_minutes": seen.node_s / 60,
        f"{prefix}cost_ratio_to_least": seen.node_s / least_s if least_s else 0.0,
        f"{prefix}to_all_bound_p50_s": statistics.median(took_s) if took_s else 0.0,
        f"{prefix}to_all_bound_max_s": max(took_s, default=0.0),
    }


# -- arrivals ---------------------------------------------------------------------------------


def _arrivals() -> list[Gang]:
    rng = random.Random(SEED)
    sizes = [rng.randint(1, NODES_MAX) for _ in range(GANGS)]
    for at, size in zip((2, 6), TOO_LARGE, strict=True):
        sizes.insert(at, size)
    return [Gang(f"g{number:02d}", size) for number, size in enumerate(sizes)]


async def _play(client: KubeClient, *, ours: bool) -> tuple[list[Gang], Seen]:
    """Let the gangs arrive, run and end; return when they started, and what nodes did."""
    gangs, seen = _arrivals(), Seen()
    ends = time.monotonic() + EVERY_S * len(gangs) + LASTS_S
    arriving = asyncio.create_task(_arrive(client, gangs, ours=ours))
    short = asyncio.create_task(_be_short(client))
    sampled_s = time.monotonic()
    while time.monotonic() < ends and not all(gang.ended or gang.nodes > LIMIT for gang in gangs):
        await asyncio.sleep(SAMPLE_S)
        now_s = time.monotonic()
        await _sample(client, gangs, seen, now_s - sampled_s)
        sampled_s = now_s
    await arriving
    await short  # it ended long ago, or failed
    await client.request("DELETE", _PODS, params={"gracePeriodSeconds": "0"})
    await client.request("DELETE", _GROUPS)
    if ours:  # the other play begins at zero
        await _until_empty(client, _CLAIMS)
        # The provider of KWOK nodes makes a node although its claim was deleted meanwhile.
        await client.request("DELETE", "/api/v1/nodes", params=_BOUGHT)
        await _until_empty(client, "/api/v1/nodes", **_BOUGHT)
    return gangs, seen


async def _arrive(client: KubeClient, gangs: list[Gang], *, ours: bool) -> None:
    for gang in gangs:
        gang.created_s = time.monotonic()
        if ours:
            group = {"minMember": gang.nodes}
            body = {"apiVersion": "gangsched.io/v1beta1", "kind": "PodGroup"}
            await client.create(_GROUPS, {**body, "metadata": {"name": gang.name}, "spec": group})
        for number in range(gang.nodes):
            await client.create(_PODS, _pod(gang.name, number, ours=ours))
        await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - gang.created_s)))


async def _be_short(client: KubeClient) -> None:
    """At moments of the seed, delete the NodeClaims that have no node yet."""
    rng, begun_s = random.Random(SEED), time.monotonic()
    arrivals_s = EVERY_S * (GANGS + len(TOO_LARGE))
    for start_s in sorted(rng.uniform(0, arrivals_s) for _ in range(SHORTAGES)):
        await asyncio.sleep(max(0.0, begun_s + start_s - time.monotonic()))
        while time.monotonic() < begun_s + start_s + SHORT_S:
            for claim in json.loads(await client.get(_CLAIMS))["items"]:
                conditions = claim.get("status", {}).get("conditions", ())
                there = {one["type"] for one in conditions if one["status"] == "True"}
                if "Registered" not in there and "deletionTimestamp" not in claim["metadata"]:
                    with suppress(KubeError):  # it is gone already
                        await client.request("DELETE", f"{_CLAIMS}/{claim['metadata']['name']}")
            await asyncio.sleep(SAMPLE_S)


def _pod(gang: str, number: int, *, ours: bool) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"}, "limits": {GPU: str(GPUS)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-{number}", "labels": {POD_GROUP_LABEL: gang}},
        "spec": {
            "schedulerName": "gangsched" if ours else "default-scheduler",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": _KIND,
            "containers": [{"name": "c", "image": "x", "resources": resources}],
        },
    }


async def _sample(client: KubeClient, gangs: list[Gang], seen: Seen, passed_s: float) -> None:
    """Note what each node is used for, and end the gangs that ran."""
    listed = json.loads(await client.get(_PODS))["items"]
    gang_of = {
        pod["spec"]["nodeName"]: pod["metadata"]["labels"][POD_GROUP_LABEL]
        for pod in listed
        if pod["spec"].get("nodeName")
    }
    nodes = json.loads(await client.get("/api/v1/nodes", **_BOUGHT))["items"]
    for node in nodes:
        if any(taint["key"] == _UNREGISTERED for taint in node["spec"].get("taints") or ()):
            continue
        seen.node_s += passed_s
        gang = gang_of.get(node["metadata"]["name"])
        bought_for = node["metadata"].get("annotations", {}).get("gangsched.io/gang", "")
        kept, name = (
            (seen.by_gang, gang) if gang else (seen.bought_for, bought_for.partition("/")[2])
        )
        if name:
            kept[name] = kept.get(name, 0.0) + passed_s
    now_s = time.monotonic()
    for gang in gangs:
        bound = sum(name == gang.name for name in gang_of.values())
        if gang.whole_s is None and bound == gang.nodes:
            gang.whole_s = now_s
        elif gang.whole_s is not None and not gang.ended and now_s - gang.whole_s >= RUNS_S:
            gang.ended = True
            params = {"labelSelector": f"{POD_GROUP_LABEL}={gang.name}", "gracePeriodSeconds": "0"}
            await client.request("DELETE", _PODS, params=params)


# -- programs ---------------------------------------------------------------------------------


async def _karpenter(plane: Plane, client: KubeClient, folder: Path) -> subprocess.Popen[bytes]:
    """Install Karpenter with a pool at zero, and start it."""
    tests = importlib.import_module("karpenter_plane")  # tests are no package
    program = importlib.import_module("upstream").KARPENTER
    source = program.source()
    for path in (*(source / "pkg/apis/crds").iterdir(), *(source / "kwok/apis/crds").iterdir()):
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await client.create(crds, yaml.safe_load(path.read_text()))
    pool = tests.node_pool("gpu", LIMIT * GPUS)
    pool["spec"]["template"]["metadata"]["labels"] = _KIND
    pool["spec"]["disruption"] |= {"consolidateAfter": "2s", "budgets": [{"nodes": "100%"}]}
    node_class = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": "5s"},
    }
    await _served(client, "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", node_class)
    await _served(client, "/apis/karpenter.sh/v1/nodepools", pool)
    (folder / "types.json").write_text(json.dumps([tests.instance_type("h100", PRICE)]))
    environment = {
        **os.environ,
        **client_environment(plane),
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": "0",
        "KARPENTER_SERVICE": "karpenter",
        "SYSTEM_NAMESPACE": "default",
        "INSTANCE_TYPES_FILE_PATH": str(folder / "types.json"),
    }
    return _started(plane, [str(program.program())], environment, "karpenter")


def _gangsched(plane: Plane, folder: Path) -> subprocess.Popen[bytes]:
    pool = {"name": "h100", "node_pool": "gpu", "instance_type": "h100", "price": PRICE}
    pool |= {"resources": _RESOURCES, "labels": _KIND, "arrival_s": 10}
    settings = {"karpenter": {"pools": [pool], "after_s": 1, "idle_s": 2, "retry_s": RETRY_S}}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "gangsched", "run", "--binding", "direct"]
    command += ["--config", str(folder / "config.yaml"), "--kubeconfig", str(plane.kubeconfig)]
    return _started(plane, command, {**os.environ, **client_environment(plane)}, "gangsched")


def _started(
    plane: Plane, command: list[str], environment: dict[str, str], name: str
) -> subprocess.Popen[bytes]:
    with (plane.programs.logs / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


async def _served(client: KubeClient, path: str, body: dict[str, Any]) -> None:
    """Create an object as soon as its kind is served."""
    for _ in range(100):
        try:
            await client.create(path, body)
        except KubeError:  # not served yet
            await asyncio.sleep(0.2)
        else:
            return
    raise SystemExit(f"{path} was not served within 20 s")


async def _until_empty(client: KubeClient, path: str, **params: str) -> None:
    """Wait until a list is empty."""
    for _ in range(600):
        if not json.loads(await client.get(path, **params))["items"]:
            return
        await asyncio.sleep(1.0)
    raise SystemExit(f"{path} had objects for 600 s")
