"""Registers process nodes, renews their heartbeats, and runs a worker for every bound pod."""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangsched.kube.client.client import STRATEGIC, KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from gangsched.kube.client.paths import is_dns_name, object_path
from gangsched.kube.client.watch import Watch
from gangsched.kube.status.events import ObjectRef, post_event
from gangsched.local.agent import spec as pods
from gangsched.local.agent.container import timestamp
from gangsched.local.agent.devices import DevicePool
from gangsched.local.agent.hosts import ServiceName, lines_of, service_names, write_in_place
from gangsched.local.agent.isolation.gateway import Gateway
from gangsched.local.agent.isolation.sandbox import Sandboxes
from gangsched.local.agent.reporter import Reporter
from gangsched.local.agent.spec import Json, Objects
from gangsched.local.agent.storage import Storage
from gangsched.local.agent.worker import PodWorker
from gangsched.local.components import program
from gangsched.local.nodes import NodeFile

log = logging.getLogger(__name__)

_HEARTBEAT_S = 10.0
_GRACE_S = 30.0
_LOOPBACK_VARIABLES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


@dataclass(slots=True)
class Agent(Reporter):
    """All process nodes of one control plane."""

    client: KubeClient
    nodes: NodeFile
    sandboxes: Sandboxes
    folder: Path
    port: int
    gateway: Gateway
    storage: Storage
    devices: DevicePool
    _names: dict[str, None] = field(default_factory=dict)
    _workers: dict[str, PodWorker] = field(default_factory=dict)
    _services: dict[str, Json] = field(default_factory=dict)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    async def run(self, ready: Path) -> None:
        """Serve until cancelled."""
        manifests = [m for group in self.nodes.of_kind("process") for m in group.manifests()]
        for manifest in manifests:
            self._names[manifest["metadata"]["name"]] = None
            await self._register(manifest)
        await self.storage.declare()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeats())
            services = Watch(self.client, "/api/v1/services", _Services(self))
            group.create_task(services.run())
            group.create_task(Watch(self.client, "/api/v1/pods", _Pods(self)).run())
            for watch in self.storage.watches(self._spawn):
                group.create_task(watch.run())
            await services.synced.wait()
            draft = ready.with_suffix(".new")
            draft.write_text(self.sandboxes.host_address())
            draft.replace(ready)

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """Return the worker of a pod."""
        for worker in self._workers.values():
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return worker
        return None

    def close(self) -> None:
        """End every pod."""
        for worker in self._workers.values():
            worker.close()
        self.gateway.close()
        self.sandboxes.close()

    # -- nodes --------------------------------------------------------------------------------

    async def _register(self, manifest: Json) -> None:
        name = manifest["metadata"]["name"]
        manifest["status"] |= {
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "nodeInfo": _node_info(self.sandboxes.mode),
            "conditions": _conditions(),
        }
        with contextlib.suppress(Conflict):
            await self.client.create("/api/v1/nodes", manifest)
        await self.client.patch(f"/api/v1/nodes/{name}/status", {"status": manifest["status"]})

    async def _heartbeats(self) -> None:
        while True:
            for name in self._names:
                try:
                    await self._renew(name)
                except KubeError as error:
                    log.warning("lease of %s: %s", name, error)
            await asyncio.sleep(_HEARTBEAT_S)

    async def _renew(self, name: str) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            await self.client.patch(f"{leases}/{name}", {"spec": spec})
        except NotFound:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": spec,
            }
            try:
                await self.client.create(leases, body)
            except Conflict:
                return

    # -- pods ---------------------------------------------------------------------------------

    def pod_seen(self, pod: Json) -> None:
        """Start or stop the pod if it is bound to a process node."""
        if pod["spec"].get("nodeName") not in self._names:
            return
        metadata = pod["metadata"]
        uid = metadata["uid"]
        worker = self._workers.get(uid)
        if metadata.get("deletionTimestamp"):
            grace_s = float(metadata.get("deletionGracePeriodSeconds", _GRACE_S))
            self._spawn(worker.stop(grace_s) if worker else self.deleted(pod))
            return
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if worker is None and not over:
            self._begin(pod)
        elif worker is not None:
            worker.bound(pod["spec"].get("activeDeadlineSeconds"))
            if worker.pod["metadata"].get("annotations") != metadata.get("annotations"):
                worker.annotate(metadata.get("annotations") or {})
            if worker.pod["metadata"].get("labels") != metadata.get("labels"):
                worker.pod["metadata"]["labels"] = metadata.get("labels") or {}
                self._write_hosts()  # Services select by them

    def pod_gone(self, uid: str) -> None:
        """End the rest of a pod that was deleted without a grace period."""
        worker = self._workers.pop(uid, None)
        if worker is not None:
            worker.close()
            self._write_hosts()

    def service_seen(self, service: Json) -> None:
        """Record a Service, for the names that pods look up."""
        self._services[service["metadata"]["uid"]] = service
        self._write_hosts()

    def service_gone(self, uid: str) -> None:
        """Forget a Service."""
        if self._services.pop(uid, None) is not None:
            self._write_hosts()

    def _begin(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        folder = self.folder / "pods" / uid
        folder.mkdir(parents=True, exist_ok=True)
        own = not pod["spec"].get("hostNetwork")
        worker = PodWorker(
            pod=pod,
            folder=folder,
            ip=self.sandboxes.address() if own else self.sandboxes.host_address(),
            sandboxes=self.sandboxes,
            reporter=self,
            path=_path(),
            hosts=folder / "hosts",
            extra_env=self._extra_env,
            images=self.folder / "images",
            devices=self.devices,
        )
        self._workers[uid] = worker
        self._write_hosts()
        worker.start()

    def _extra_env(self, pod: Json) -> dict[str, str]:
        """Return the API server's address as variables; on a shared loopback, more of them."""
        del pod
        if self.sandboxes.mode != "none":
            return self.gateway.variables
        return self.gateway.variables | dict.fromkeys(_LOOPBACK_VARIABLES, "lo")

    def _write_hosts(self) -> None:
        """Update every pod's /etc/hosts in place: the file is mounted into the pod."""
        running = ((w.pod, w.ip) for w in self._workers.values() if not w.ended())
        names = service_names(self._services.values(), running)
        for worker in self._workers.values():
            if worker.folder.exists():
                write_in_place(worker.hosts, self._hosts(worker, names))

    def _hosts(self, worker: PodWorker, names: Sequence[ServiceName]) -> str:
        metadata = worker.pod["metadata"]
        namespace = metadata["namespace"]
        host = worker.pod["spec"].get("hostname") or metadata["name"]
        lines = [f"{worker.ip} {host}", "127.0.0.1 localhost", self.gateway.hosts_line]
        lines += [
            f"{alias['ip']} {' '.join(alias.get('hostnames') or [])}"
            for alias in worker.pod["spec"].get("hostAliases") or []
        ]
        return "\n".join(lines + lines_of(names, namespace)) + "\n"

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a pod's worker failed", exc_info=task.exception())

    # -- Reporter -----------------------------------------------------------------------------

    async def status(self, pod: Json, status: Json) -> None:
        """Write the pod's status, if the pod is still the same object.

        Conditions of others, such as why it is stopped, stay: the list is merged by their types.
        """
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await self.client.patch(f"{_pod_path(pod)}/status", body, STRATEGIC)
        except (NotFound, Conflict):
            return

    async def event(self, pod: Json, reason: str, message: str, kind: str = "Warning") -> None:
        """Write an Event about the pod."""
        metadata = pod["metadata"]
        subject = ObjectRef("v1", "Pod", metadata["namespace"], metadata["name"], metadata["uid"])
        await post_event(self.client, subject, kind, reason, message)

    async def objects(self, pod: Json) -> Objects:
        """Read the ConfigMaps and Secrets of the pod."""
        namespace = pod["metadata"]["namespace"]
        objects: dict[tuple[str, str], Json | None] = {}
        for kind, name in sorted(pods.referenced(pod)):
            objects[kind, name] = None
            if is_dns_name(name):  # no other is the name of an object
                path = object_path(f"/api/v1/namespaces/{namespace}/{kind.lower()}s", name)
                with contextlib.suppress(NotFound):
                    objects[kind, name] = json.loads(await self.client.get(path))
        return Objects(objects)

    async def claim(self, pod: Json, name: str) -> Path:
        """Return the folder of a volume claim of the pod's namespace."""
        return await self.storage.place(pod["metadata"]["namespace"], name)

    async def token(self, pod: Json, source: Json) -> bytes:
        """Request a token that is bound to the pod."""
        namespace = pod["metadata"]["namespace"]
        account = pod["spec"].get("serviceAccountName", "default")
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": source.get("expirationSeconds", 3600),
                "boundObjectRef": reference,
                "audiences": [source["audience"]] if source.get("audience") else [],
            },
        }
        path = object_path(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        answer = json.loads(await self.client.create(f"{path}/token", body))
        return str(answer["status"]["token"]).encode()

    async def deleted(self, pod: Json) -> None:
        """Delete the pod's object without a grace period."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod["metadata"]["uid"]},
        }
        try:
            await self.client.delete(_pod_path(pod), body)
        except (NotFound, Conflict):
            return


class _Pods:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def on_update(self, raw: bytes) -> None:
        self._agent.pod_seen(json.loads(raw))

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        del raw
        self._agent.pod_gone(uid)


class _Services:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def on_update(self, raw: bytes) -> None:
        self._agent.service_seen(json.loads(raw))

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        del raw
        self._agent.service_gone(uid)


def _pod_path(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _path() -> str:
    """Return PATH for pods: our interpreter comes first, because it has torch, if any has.

    Kubernetes' own programs are in it too, for pods with images that would have them.
    """
    system = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return f"{Path(sys.executable).parent}:{system}:{program('kubectl').parent}"


def _node_info(isolation: str) -> Json:
    machine = os.uname()
    return {
        "kernelVersion": machine.release,
        "osImage": "this machine",
        "containerRuntimeVersion": f"process://{isolation}",
        "kubeletVersion": "gangsched-agent",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64" if machine.machine == "x86_64" else machine.machine,
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }


def _conditions() -> list[Json]:
    now = timestamp()
    return [
        {
            "type": kind,
            "status": status,
            "reason": "Agent",
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status in (
            ("Ready", "True"),
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
        )
    ]
