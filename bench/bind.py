"""Bind throughput: raw bindings, direct, extender, and kube-scheduler's own gang scheduling.

One control plane and one run, with the same load for each path: 32 workers create groups and their
pods while the scheduler runs. A pod counts as bound when a watch shows spec.nodeName. Raw is the
limit: the load client binds each pod itself as soon as it is created, without a scheduler.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field

import msgspec
from bind_paths import GATES, LOADS, NAMESPACE, NATIVE, PATHS, PODS, TIMEOUT_S, WORKERS, Load, Path
from meters import cpu, writes

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from gangsched.kube.client.watch import Watch
from gangsched.local import components
from gangsched.local.network import answers, free_ports
from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Plane, PlaneOptions


class _Meta(msgspec.Struct):
    name: str
    resourceVersion: str = ""  # noqa: N815 -- the API's name


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


_decode = msgspec.json.Decoder(_Pod).decode


@dataclass
class Seen:
    """Receives the watch: records when and where each pod was first bound."""

    bound_s: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)

    def on_update(self, raw: bytes) -> None:
        """Record the time when a pod is bound."""
        pod = _decode(raw)
        if pod.spec.nodeName and pod.metadata.name not in self.bound_s:
            self.bound_s[pod.metadata.name] = time.monotonic()
            self.nodes[pod.metadata.name] = pod.spec.nodeName

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Deletions are the clean-up's."""


# -- measuring ----------------------------------------------------------------------------------


async def measure(plane: Plane, path: Path, load: Load) -> dict[str, float]:
    """Run the load once and return the figures."""
    async with KubeClient(plane.kubeconfig) as client:
        seen = Seen()
        watch = Watch(client, PODS, seen)  # resumes when the API server drops it under load
        watching = asyncio.create_task(watch.run())
        await watch.synced.wait()
        before, wrote = cpu(plane), writes(plane).total()
        started_s = time.monotonic()
        gangs: asyncio.Queue[int] = asyncio.Queue()
        for gang in range(load.gangs):
            gangs.put_nowait(gang)

        async def work() -> None:
            while not gangs.empty():
                await path.gang(client, load, gangs.get_nowait())

        await asyncio.gather(*(work() for _ in range(min(WORKERS, load.gangs))))
        total = load.gangs * load.pods
        while len(seen.bound_s) < total and time.monotonic() - started_s < TIMEOUT_S:
            await asyncio.sleep(0.05)
        after, wrote_now = cpu(plane), writes(plane).total()
        watching.cancel()
        judge(path, load, seen)
        times = sorted(seen.bound_s.values())
        waits = gang_waits(load, seen, started_s)
        await clean(client)
        took_s = times[-1] - started_s if len(times) == total else TIMEOUT_S
        result = {
            "pods_per_s": len(times) / took_s,
            "unbound": float(total - len(times)),
            "writes_per_pod": (wrote_now - wrote) / total,
        }
        if times:
            result["bound_pods_per_s"] = len(times) / max(times[-1] - times[0], 1e-9)
            result["gang_p50_s"] = waits[len(waits) // 2]
            result["gang_p99_s"] = waits[int(len(waits) * 0.99)]
        for name, (seconds, memory) in after.items():
            result[f"cpu_s.{name}"] = seconds - before.get(name, (0.0, 0.0))[0]
            result[f"rss_mib.{name}"] = memory
        return result


def gang_waits(load: Load, seen: Seen, started_s: float) -> list[float]:
    """Return the sorted times at which gangs had their last member bound, from the load's start."""
    last: dict[str, float] = {}
    for name, at_s in seen.bound_s.items():
        gang = name.split("-")[0]
        last[gang] = max(last.get(gang, 0.0), at_s)
    return sorted(at_s - started_s for at_s in last.values())


def judge(path: Path, load: Load, seen: Seen) -> None:
    """Reject the figures of a wrong run: with missing pods, or over-committed nodes.

    If another scheduler does not bind all pods, that is printed, and the bound pods count.
    """
    total = load.gangs * load.pods
    if len(seen.bound_s) < total:
        short = (
            f"{path.name} {load.name}: {len(seen.bound_s)} of {total} pods bound "
            f"within {TIMEOUT_S:g} s"
        )
        if not path.native:
            raise SystemExit(short)
        print(f"  {short}", flush=True)
    used: dict[str, int] = {}
    for node in seen.nodes.values():
        used[node] = used.get(node, 0) + load.gpus
    over = [node for node, gpus in used.items() if gpus > 8]  # other resources never run out
    if over:
        raise SystemExit(f"{path.name} {load.name}: over-committed {over[:3]}")


async def clean(client: KubeClient) -> None:
    """Delete all objects of the run, and wait until they are gone."""
    for collection in (
        f"/apis/gangsched.io/v1beta1/namespaces/{NAMESPACE}/podgroups",
        f"/apis/{NATIVE}/namespaces/{NAMESPACE}/podgroups",
        f"/api/v1/namespaces/{NAMESPACE}/events",
    ):
        try:
            await client.delete(collection)
        except NotFound:
            continue  # not every plane has every kind
        except KubeError as error:
            print(f"  cleaning {collection}: {error}", file=sys.stderr)
    for _ in range(60):
        await client.request("DELETE", PODS, params={"gracePeriodSeconds": "0"}, timeout_s=300)
        try:
            natives = json.loads(await client.get(f"/apis/{NATIVE}/podgroups", limit="1"))["items"]
        except NotFound:
            natives = []  # not every plane has them
        if not natives and not json.loads(await client.get(PODS, limit="1"))["items"]:
            return
        await asyncio.sleep(1.0)


# -- programs -----------------------------------------------------------------------------------


def start(plane: Plane, path: Path) -> list[str]:
    """Start the programs that a path needs; return their names."""
    binaries = components.ensure(lambda _: None)
    if path.native:
        plane.scheduler(binaries, "native", free_ports(1)[0], f"--feature-gates={GATES}")
        time.sleep(3)
        return ["native"]
    if not path.binding:
        return []
    extender, metrics, port = free_ports(3)
    options = PlaneOptions(binding=path.binding, operators=False)  # type: ignore[arg-type]
    plane._gangsched("gangsched", options, extender, metrics)
    while not answers(f"http://127.0.0.1:{metrics}/readyz"):
        time.sleep(0.1)
    if path.binding == "direct":
        return ["gangsched"]
    config = plane.scheduler_config(extender)
    plane.scheduler(binaries, "kube-scheduler-gangsched", port, f"--config={config}", config)
    asyncio.run(gate(plane, on=True))
    time.sleep(3)
    return ["gangsched", "kube-scheduler-gangsched"]


async def gate(plane: Plane, *, on: bool) -> None:
    """Create or delete the admission policy that gates pods of other controllers."""
    from gangsched.local.bootstrap import apply  # noqa: PLC0415
    from gangsched.shipped import shipped  # noqa: PLC0415

    async with KubeClient(plane.kubeconfig) as client:
        root = "/apis/admissionregistration.k8s.io/v1"
        for document in shipped("manifests/extender", "gate.yaml"):
            if on:
                await apply(client, document)
            else:
                plural = (
                    "mutatingadmissionpolicies"
                    if document["kind"].endswith("Policy")
                    else ("mutatingadmissionpolicybindings")
                )
                try:
                    await client.delete(f"{root}/{plural}/{document['metadata']['name']}")
                except (KubeError, Conflict):
                    return


def run_all(
    name: str, nodes: int, loads: tuple[Load, ...], paths: tuple[Path, ...]
) -> dict[str, float]:
    """Run loads by some ways of binding on one plane; return flat figures by the loads' names."""
    plane = Plane(name)
    plane.down()
    group = NodeGroup(name="n", count=nodes, gpus=8, pods=256, taints=(), rack_size=16)
    gates = f"--feature-gates={GATES}"
    flags = (
        ("kube-apiserver", f"{gates} --runtime-config={NATIVE}=true"),
        ("kube-controller-manager", gates),  # it releases upstream's PodGroups when deleted
    )
    options = PlaneOptions(binding="off", flags=flags)
    plane.up(NodeFile(nodes=(group,)), options, lambda line: print(f"  {line}", flush=True))
    figures: dict[str, float] = {}
    try:
        plane.programs.stop("kube-scheduler")
        for load in loads:
            for path in paths:
                programs = start(plane, path)
                result = asyncio.run(measure(plane, path, load))
                for program in programs:
                    plane.programs.stop(program, hard=True)
                if path.binding == "extender":
                    asyncio.run(gate(plane, on=False))
                figures |= {f"{path.name}_{key}_{load.name}": v for key, v in result.items()}
                print(
                    f"  {load.name} {path.name}: {result['pods_per_s']:.0f} pods/s, "
                    f"{result['writes_per_pod']:.2f} writes a pod",
                    flush=True,
                )
    finally:
        plane.down()
    return figures


def run() -> dict[str, float]:
    """Run every path and load; return flat figures, without a name for the first load."""
    figures = run_all("bench-bind", 500, LOADS, PATHS)
    first = f"_{LOADS[0].name}"
    figures = {key.removesuffix(first): value for key, value in figures.items()}
    for suffix in ("", "_1x1000"):
        raw = figures[f"raw_pods_per_s{suffix}"]
        native = figures[f"native_pods_per_s{suffix}"]
        figures[f"direct_vs_raw{suffix}"] = figures[f"direct_pods_per_s{suffix}"] / raw
        figures[f"direct_planned_vs_raw{suffix}"] = (
            figures[f"direct_planned_pods_per_s{suffix}"] / raw
        )
        figures[f"extender_vs_native{suffix}"] = figures[f"extender_pods_per_s{suffix}"] / native
        figures[f"extender_gated_vs_native{suffix}"] = (
            figures[f"extender_gated_pods_per_s{suffix}"] / native
        )
    return figures
