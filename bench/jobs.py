"""Job controllers: a thousand PyTorchJobs of four pods, without and with ten thousand finished.

In the same run, a bare client writes the same objects without scheduling: that is this machine's
limit. KWOK runs the nodes. A job counts when a watch shows its condition Running. The API server
counts writes; "writes beyond creation" leave out the creation of pods, Services and PodGroups.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field

import msgspec
from meters import cpu, writes

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.watch import Watch
from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Plane, PlaneOptions

JOBS, PODS, FINISHED = 1000, 4, 10_000
WORKERS = 32
TIMEOUT_S = 600.0
NAMESPACE = "default"
_PATH = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Meta(msgspec.Struct):
    name: str


class _Job(msgspec.Struct):
    metadata: _Meta
    status: _Status = _Status()


_decode = msgspec.json.Decoder(_Job).decode


@dataclass
class Running:
    """Receives the watch: records when each job was first running."""

    at_s: dict[str, float] = field(default_factory=dict)

    def on_update(self, raw: bytes) -> None:
        """Record the time when a job runs."""
        job = _decode(raw)
        if job.metadata.name not in self.at_s and any(
            condition.type == "Running" and condition.status == "True"
            for condition in job.status.conditions
        ):
            self.at_s[job.metadata.name] = time.monotonic()

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Deletions are the clean-up's."""


def job(name: str) -> dict[str, object]:
    """Return a job of four pods with a GPU each."""
    container = {
        "name": "pytorch",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "1", "memory": "1Gi"}},
    }
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    roles = {
        role: {"replicas": count, "template": {"spec": spec}}
        for role, count in (("Master", 1), ("Worker", PODS - 1))
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "All"}},
    }


async def at_once(count: int, work: object) -> None:
    """Run `work` for each number below `count`, with many workers."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)  # type: ignore[operator]

    await asyncio.gather(*(worker() for _ in range(WORKERS)))


async def fill(client: KubeClient) -> None:
    """Create finished jobs."""
    done = {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded", "message": ""}
    status = {"conditions": [done], "completionTime": "2026-01-01T00:00:00Z"}

    async def create(number: int) -> None:
        name = f"old-{number}"
        body = job(name)
        body["spec"] |= {"runPolicy": {"suspend": True}}  # type: ignore[operator]
        await client.create(_PATH, body)
        await client.patch(f"{_PATH}/{name}/status", {"status": status})

    await at_once(FINISHED, create)


async def measure(plane: Plane, stem: str) -> dict[str, float]:
    """Create the jobs, wait until all run, and return the figures."""
    async with KubeClient(plane.kubeconfig) as client:
        running = Running()
        watch = Watch(client, _PATH, running)
        watching = asyncio.create_task(watch.run())
        await watch.synced.wait()
        before, wrote = cpu(plane), writes(plane)
        started_s = time.monotonic()
        await at_once(JOBS, lambda number: client.create(_PATH, job(f"{stem}-{number}")))
        created_s = time.monotonic()
        mine = running.at_s
        while len(mine) < JOBS and time.monotonic() - started_s < TIMEOUT_S:
            await asyncio.sleep(0.1)
        if len(mine) < JOBS:
            raise SystemExit(f"{len(mine)} of {JOBS} jobs run within {TIMEOUT_S:g} s")
        await asyncio.sleep(5.0)  # the last Events and statuses
        after, made = cpu(plane), writes(plane) - wrote
        watching.cancel()
        last_s = max(mine.values())
        pods, total = JOBS * PODS, JOBS
        of_pods = sum(
            n
            for (verb, resource, part), n in made.items()
            if resource == "pods" and (part == "binding" or (not part and verb != "POST"))
        )
        listed = json.loads(await client.get("/api/v1/events"))["items"]
        events = sum(
            event["source"].get("component") == "gangsched"
            and event["involvedObject"]["name"].startswith(stem)
            for event in listed
        )
        of_jobs = events + sum(
            n
            for (verb, resource, part), n in made.items()
            if resource in ("pytorchjobs", "podgroups", "services")
            and not (verb == "POST" and resource in ("pytorchjobs", "podgroups", "services"))
        )
        print("  " + ", ".join(f"{' '.join(k)} {n}" for k, n in made.most_common(14)), flush=True)
        await delete(client, f"{stem}-")
        return {
            "jobs_per_s": total / (last_s - started_s),
            "creation_s": created_s - started_s,
            "writes_per_pod": of_pods / pods,
            "writes_per_job": of_jobs / total,
            "cpu_s_per_job": (after["gangsched"][0] - before["gangsched"][0]) / total,
            "rss_mib": after["gangsched"][1],
        }


class _Phase(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Phase


_decode_pod = msgspec.json.Decoder(_Pod).decode


@dataclass
class PodsRunning:
    """Receives the watch: records which pods ran, and when the last one started."""

    names: set[str] = field(default_factory=set)
    last_s: float = 0.0

    def on_update(self, raw: bytes) -> None:
        """Record a running pod."""
        pod = _decode_pod(raw)
        if pod.status.phase == "Running" and pod.metadata.name not in self.names:
            self.names.add(pod.metadata.name)
            self.last_s = time.monotonic()

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Deletions are the clean-up's."""


async def ceiling(plane: Plane) -> float:
    """Return the jobs/s of a bare client with fixed nodes that writes the controllers' objects."""
    core, groups = f"/api/v1/namespaces/{NAMESPACE}", "/apis/gangsched.io/v1beta1/namespaces"
    async with KubeClient(plane.kubeconfig) as client:
        running = PodsRunning()
        watch = Watch(client, f"{core}/pods", running)
        watching = asyncio.create_task(watch.run())
        await watch.synced.wait()

        async def create(number: int) -> None:
            name = f"raw-{number}"
            body = job(name)
            template = body["spec"]["pytorchReplicaSpecs"]["Master"]["template"]  # type: ignore[index]
            body["spec"] |= {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}  # type: ignore[operator]
            await client.create(_PATH, body)
            await client.patch(f"{_PATH}/{name}/status", {"status": {"startTime": None}})
            group = {
                "apiVersion": "gangsched.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name},
                "spec": {"minMember": PODS},
            }
            await client.create(f"{groups}/{NAMESPACE}/podgroups", group)
            path = f"{groups}/{NAMESPACE}/podgroups/{name}/status"
            await client.patch(path, {"status": {"phase": "Reserved"}})
            for index in range(PODS):
                metadata = {"name": f"{name}-{index}", "labels": {"job": name, "index": str(index)}}
                service = {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": metadata,
                    "spec": {"clusterIP": "None", "selector": metadata["labels"]},
                }
                await client.create(f"{core}/services", service)
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
                spec = template["spec"] | {"schedulerName": "nobody"}
                await client.create(f"{core}/pods", pod | {"spec": spec})
            node = f"n-{number % 500:03d}"
            for index in range(PODS):
                binding = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": f"{name}-{index}"},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                }
                await client.create(f"{core}/pods/{name}-{index}/binding", binding)
            await client.patch(path, {"status": {"phase": "Placed"}})
            await client.patch(f"{_PATH}/{name}/status", {"status": {"startTime": None}})

        started_s = time.monotonic()
        await at_once(JOBS, create)
        while len(running.names) < JOBS * PODS:
            await asyncio.sleep(0.1)
        watching.cancel()
        rate = JOBS / (running.last_s - started_s)
        await client.request("DELETE", f"{core}/services", params={"labelSelector": "job"})
        await client.request("DELETE", f"{groups}/{NAMESPACE}/podgroups", timeout_s=300)
        await delete(client, "raw-")
        return rate


async def delete(client: KubeClient, stem: str) -> None:
    """Delete the jobs of a run and wait until their pods are gone."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await at_once(JOBS, lambda number: client.delete(f"{_PATH}/{stem}{number}"))
    while json.loads(await client.get(pods, limit="1"))["items"]:
        await client.request("DELETE", pods, params={"gracePeriodSeconds": "0"}, timeout_s=300)
        await asyncio.sleep(2.0)
    await client.delete(f"/api/v1/namespaces/{NAMESPACE}/events")


def run() -> dict[str, float]:
    """Run with an empty store, then with finished jobs in it; return flat figures."""
    plane = Plane("bench-jobs")
    plane.down()
    nodes = NodeFile(nodes=(NodeGroup(name="n", count=500, gpus=8, pods=256, taints=()),))
    plane.up(nodes, PlaneOptions(binding="direct"), lambda line: print(f"  {line}", flush=True))
    try:
        plane.programs.stop("gangsched", hard=True)
        raw = asyncio.run(ceiling(plane))
        print(f"  raw {raw:.1f} jobs/s", flush=True)
        plane.programs.restart("gangsched")
        figures = asyncio.run(measure(plane, "first"))
        print(f"  {figures['jobs_per_s']:.1f} jobs/s", flush=True)
        asyncio.run(_fill(plane))
        later = asyncio.run(measure(plane, "later"))
        plane.programs.stop("gangsched", hard=True)
        raw_later = asyncio.run(ceiling(plane))
    finally:
        plane.down()
    figures |= {f"{key}_with_finished": value for key, value in later.items()}
    figures["raw_jobs_per_s"] = raw
    figures["jobs_vs_raw"] = figures["jobs_per_s"] / raw
    figures["finished_jobs_ratio"] = later["jobs_per_s"] / figures["jobs_per_s"]
    # The cost of finished jobs for the API server and etcd alone, with any scheduler.
    figures["finished_jobs_raw_ratio"] = raw_later / raw
    return figures


async def _fill(plane: Plane) -> None:
    async with KubeClient(plane.kubeconfig) as client:
        await fill(client)
