"""Runs one pod on a process node, like the kubelet.

    volumes -> init containers, one after another -> containers together -> phase
                         ^ restart by restartPolicy, with a growing pause ^
A pod being deleted gets SIGTERM, its grace period, then SIGKILL, and is deleted for good.
"""

import asyncio
import contextlib
import logging
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangsched.kube.client.errors import KubeError
from gangsched.kube.decoding.quantities import quantity
from gangsched.local.agent import spec as pods
from gangsched.local.agent.container import ContainerProcess, timestamp
from gangsched.local.agent.devices import DevicePool, PodDevices
from gangsched.local.agent.images import Image, image_of_pod
from gangsched.local.agent.isolation.root import Mount
from gangsched.local.agent.isolation.sandbox import PodPlace, PodSandbox, SandboxError, Sandboxes
from gangsched.local.agent.reporter import Reporter
from gangsched.local.agent.runs import ContainerRuns
from gangsched.local.agent.spec import Json, Objects, PodError

log = logging.getLogger(__name__)

_RESTART_S = 1.0
_RESTART_MAX_S = 30.0
_RETRY_S = 2.0
_GRACE_S = 30.0
_LAST_WORDS_S = 1.0
"""How long an ending pod may take to report its end by itself."""


@dataclass(slots=True)
class PodWorker:
    """Runs one pod until it ends or is deleted."""

    pod: Json
    folder: Path
    ip: str
    sandboxes: Sandboxes
    reporter: Reporter
    path: str
    hosts: Path
    extra_env: Callable[[Json], dict[str, str]]
    images: Path
    devices: DevicePool = field(default_factory=DevicePool)
    _devices: PodDevices = field(default_factory=PodDevices)
    _image: Image | None = None
    _sandbox: PodSandbox | None = None
    _containers: list[ContainerRuns] = field(default_factory=list)
    _objects: Objects = field(default_factory=lambda: Objects({}))
    _mounts: dict[str, Path] = field(default_factory=dict)
    _conditions: dict[str, Json] = field(default_factory=dict)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _started: str = ""
    _stopping: bool = False
    _deleting: bool = False
    _ended: str = ""
    _started_s: float = 0.0
    _most_s: float | None = None
    _expiry: "asyncio.Task[None] | None" = None
    _deadline: asyncio.TimerHandle | None = None
    _task: "asyncio.Task[None] | None" = None
    _giving_back: "asyncio.Future[None] | None" = None

    def start(self) -> None:
        """Start the pod."""
        spec = self.pod["spec"]
        self._containers = [ContainerRuns(c, init=True) for c in spec.get("initContainers", [])]
        self._containers += [ContainerRuns(c) for c in spec["containers"]]
        self._started, self._started_s = timestamp(), time.monotonic()
        self._task = asyncio.create_task(self._live())
        self.bound(spec.get("activeDeadlineSeconds"))

    def bound(self, most_s: float | None) -> None:
        """Apply the pod's activeDeadlineSeconds, which may be set or lowered while it runs."""
        if most_s is None or (self._most_s is not None and most_s >= self._most_s):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._most_s = most_s
        left_s = self._started_s + most_s - time.monotonic()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(max(left_s, 0.0), self._exceed)

    def _exceed(self) -> None:
        if not self._ended and not self._stopping:
            self._expiry = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        """End the pod as failed after its deadline; the object and the logs stay."""
        grace_s = float(self.pod["spec"].get("terminationGracePeriodSeconds", _GRACE_S))
        await self._end(grace_s)
        self._ended = "Failed"
        message = "Pod was active on the node longer than the specified deadline"
        status = self._status("Failed") | {"reason": "DeadlineExceeded", "message": message}
        await self._give_back()
        await self._write_status(status)

    def log_path(self, container: str, *, previous: bool) -> Path | None:
        """Return the log of a container's current or previous run, or None."""
        for run in self._containers:
            if run.spec["name"] == container:
                number = run.restarts - (1 if previous else 0)
                path = self._log(run, number)
                return path if number >= 0 and path.exists() else None
        return None

    def ended(self) -> bool:
        """Return whether every container has ended and will not restart."""
        return bool(self._ended)

    def running(self, container: str) -> bool:
        """Return whether a container runs now."""
        return any(c.spec["name"] == container and c.run is not None for c in self._containers)

    def entering(
        self, container: str | None, command: list[str]
    ) -> tuple[list[str], dict[str, str], Path | None]:
        """Return line, variables and folder of a command in a container (default: the first)."""
        assert self._sandbox is not None, "asked of running pods"  # noqa: S101
        container_run = next(c for c in self._containers if container in (None, c.spec["name"]))
        folder = container_run.spec.get("workingDir")
        return self._sandbox.command(command, folder, self._variables(container_run))

    async def stop(self, grace_s: float) -> None:
        """End the pod: SIGTERM, grace period, SIGKILL; then delete its object."""
        if self._deleting:
            return
        self._deleting = True
        if self._expiry is not None:
            await self._expiry
        await self._end(grace_s)
        well = all(c.well for c in self._containers if not c.init)
        phase = self._ended or ("Succeeded" if well else "Failed")
        await self._report(phase)
        self.close()
        if self._giving_back is not None:
            await self._giving_back  # the next pod of its node may come with the deletion
        await self.reporter.deleted(self.pod)

    async def _end(self, grace_s: float) -> None:
        """End every container: SIGTERM, grace period, SIGKILL."""
        self._stopping = True
        if self._deadline is not None:
            self._deadline.cancel()
        runs = [c.run for c in self._containers if c.run is not None]
        for run in runs:
            run.signal(signal.SIGTERM)
        if runs:
            ends = [asyncio.create_task(run.wait()) for run in runs]
            await asyncio.wait(ends, timeout=grace_s)
        for run in runs:
            run.kill()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_LAST_WORDS_S)
            self._task.cancel()

    def close(self) -> None:
        """End every process and remove the pod's files."""
        self._stopping = True
        for ahead in (self._task, self._deadline):
            if ahead is not None:
                ahead.cancel()
        runs = [container.run for container in self._containers if container.run is not None]
        for run in runs:
            run.kill()
        if self._sandbox is not None:
            self._sandbox.close()
        self._giving_back = asyncio.ensure_future(self._give_back(runs))
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _give_back(self, runs: Sequence[ContainerProcess] = ()) -> None:
        """End what still runs in the pod; its devices are free once the last process has ended."""
        if self._sandbox is not None:
            self._sandbox.close()
            await self._sandbox.ended()
        for run in runs:
            await run.wait()
        self.devices.release(self.pod["metadata"]["uid"])

    # -- life ---------------------------------------------------------------------------------

    async def _live(self) -> None:
        await self._report("Pending")
        if not await self._retry(self._set_up):
            return
        failed = False
        for container in [c for c in self._containers if c.init]:
            if container.sidecar:
                await self._begin(container)
                _ = asyncio.create_task(self._keep(container, "Always"))  # noqa: RUF006
            elif not await self._keep(container, self._init_policy()):
                failed = True
                break
        if not failed:
            policy = self.pod["spec"].get("restartPolicy", "Always")
            main = [c for c in self._containers if not c.init]
            results = await asyncio.gather(*(self._keep(c, policy) for c in main))
            failed = not all(results)
        if not self._stopping:
            await self._end_sidecars()
            self._ended = "Failed" if failed else "Succeeded"
            await self._give_back()  # the next pod of its node may come with the report
            await self._report(self._ended)

    async def _end_sidecars(self) -> None:
        """End the sidecars in the reverse order: SIGTERM, grace period, SIGKILL."""
        grace_s = float(self.pod["spec"].get("terminationGracePeriodSeconds", _GRACE_S))
        for container in reversed(self._containers):
            if not container.sidecar:
                continue
            container.ending = True
            run = container.run
            if run is not None:
                run.signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace_s):
                        await run.wait()
                run.kill()

    def _init_policy(self) -> str:
        never = self.pod["spec"].get("restartPolicy") == "Never"
        return "Never" if never else "OnFailure"

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Repeat a step until it succeeds, with an Event for each error; False if the pod ends."""
        last_error = ""
        while not self._stopping:
            try:
                await step()
            except (PodError, SandboxError, KubeError, OSError) as error:
                reason = error.reason if isinstance(error, PodError) else "FailedCreatePodSandBox"
                for container in self._containers:
                    container.waiting = (reason, str(error))
                if str(error) != last_error:
                    last_error = str(error)
                    with contextlib.suppress(KubeError):  # the pod's status says it too
                        await self.reporter.event(self.pod, reason, last_error)
                    await self._report("Pending")
                await asyncio.sleep(_RETRY_S)
            else:
                return True
        return False

    async def _set_up(self) -> None:
        missing = pods.unsupported_volumes(self.pod)
        if missing:
            raise PodError("FailedMount", f"a process node has no volume of kind {missing[0]}")
        self._devices = self.devices.take(self.pod)
        self._objects = await self.reporter.objects(self.pod)
        for volume in self.pod["spec"].get("volumes", []):
            self._mounts[volume["name"]] = await self._volume(volume)
        if self.sandboxes.mode != "none":
            self._image = image_of_pod(self.images, self.pod["spec"])
        mounts = self._all_mounts()
        metadata = self.pod["metadata"]
        name = self.pod["spec"].get("hostname") or metadata["name"]
        job = (metadata.get("labels") or {}).get("training.kubeflow.org/job-name") or name
        job = f"{metadata['namespace']}/{job}"
        place = PodPlace(
            name, self.folder, self.ip, self.hosts, job, self._image, self._devices.hidden
        )
        self._sandbox = await self.sandboxes.make(place, mounts)

    async def _volume(self, volume: Json) -> Path:
        if "hostPath" in volume:
            path: Path = Path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                raise PodError("FailedMount", f"hostPath {path} does not exist")
            return path
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            return await self.reporter.claim(self.pod, claim)
        place = self.folder / "volumes" / str(volume["name"])
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)  # pods of images run as other users
        for name, (content, mode) in pods.files(volume, self.pod, self._objects, self.ip).items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode)
        for source in (volume.get("projected") or {}).get("sources", []):
            if "serviceAccountToken" in source:
                wanted = source["serviceAccountToken"]
                token = await self.reporter.token(self.pod, wanted)
                (place / wanted["path"]).write_bytes(token)
        return place

    def annotate(self, annotations: dict[str, str]) -> None:
        """Take over changed annotations, and write files of the downward API again."""
        self.pod["metadata"]["annotations"] = annotations
        for volume in self.pod["spec"].get("volumes", []):
            place = self._mounts.get(volume["name"])
            if place is None:
                continue  # the files are written when the pod is set up
            for name, content in pods.downward_files(volume, self.pod, self.ip).items():
                draft = place / f".{name.replace('/', '.')}.new"
                draft.write_bytes(content)
                draft.chmod(0o644)
                draft.rename(place / name)  # a reader sees the old file or the new one

    def _all_mounts(self) -> list[Mount]:
        """Return every mount of the pod; as containers share one root, equal paths must agree."""
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes", [])}
        by_path: dict[str, Mount] = {}
        fixed = {"configMap", "secret", "projected", "downwardAPI"}
        for container in self._containers:
            for mount in container.spec.get("volumeMounts", []):
                if mount["name"] not in self._mounts:
                    raise PodError("FailedMount", f"no volume named {mount['name']!r}")
                source, volume = self._mounts[mount["name"]], volumes[mount["name"]]
                if mount.get("subPath"):
                    source /= mount["subPath"]
                    if not fixed & set(volume):
                        source.mkdir(parents=True, exist_ok=True)
                claim = volume.get("persistentVolumeClaim") or {}
                read_only = mount.get("readOnly") or claim.get("readOnly") or fixed & set(volume)
                by_path[mount["mountPath"]] = Mount(
                    source, mount["mountPath"], bool(read_only), *self._memory(volume)
                )
        return list(by_path.values())

    def _memory(self, volume: Json) -> tuple[Path | None, int]:
        """Return the folder of a volume in memory, and its size in bytes."""
        empty = volume.get("emptyDir") or {}
        if empty.get("medium") != "Memory":
            return None, 0
        limit = empty.get("sizeLimit")
        return self._mounts[volume["name"]], quantity("memory", limit) if limit else 0

    # -- containers ---------------------------------------------------------------------------

    async def _keep(self, container: ContainerRuns, policy: str) -> bool:
        """Run a container by its restart policy; return whether its last run succeeded."""
        pause_s = _RESTART_S
        while not self._stopping and not container.ending:
            if container.run is None and not await self._retry(lambda: self._begin(container)):
                break
            run = container.run
            assert run is not None, "just begun"  # noqa: S101
            ended = await run.wait()
            container.run = None
            container.before_last, container.last = container.last, ended
            again = policy == "Always" or (policy == "OnFailure" and ended.code != 0)
            if not again or self._stopping or container.ending:
                container.done = True
                await self._report(self._phase())
                return ended.code == 0
            container.waiting = (
                "CrashLoopBackOff",
                f"back-off {pause_s:g}s restarting failed container",
            )
            await self._report(self._phase())
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _RESTART_MAX_S)
            container.restarts += 1
        return False

    async def _begin(self, container: ContainerRuns) -> None:
        if container.run is not None:
            return
        assert self._sandbox is not None, "set up before"  # noqa: S101
        variables = self._variables(container)
        command = pods.command_line(container.spec, variables, self._image)
        output = self._log(container, container.restarts)
        container.run = await ContainerProcess.start(
            self._sandbox, command, container.spec.get("workingDir"), variables, output
        )
        await self._report(self._phase())

    def _variables(self, container: ContainerRuns) -> dict[str, str]:
        own = {
            "PATH": self.path,
            "HOME": "/root" if self.sandboxes.mode == "root" else str(self.folder),
            "HOSTNAME": self.pod["metadata"]["name"],
        } | self.extra_env(self.pod)
        own |= self._image.variables if self._image else {}
        written = pods.container_environment(self.pod, container.spec, self._objects, self.ip)
        visible = self._devices.variables(
            container.spec["name"], written.get("CUDA_VISIBLE_DEVICES")
        )
        return own | written | visible

    def _log(self, container: ContainerRuns, number: int) -> Path:
        return self.folder / "logs" / str(container.spec["name"]) / f"{number}.log"

    # -- status -------------------------------------------------------------------------------

    def _phase(self) -> str:
        main = [c for c in self._containers if not c.init]
        begun = any(c.run is not None or c.last is not None for c in main)
        return "Running" if begun else "Pending"

    async def _report(self, phase: str) -> None:
        await self._write_status(self._status(phase))

    async def _write_status(self, status: Json) -> None:
        """Write a status of the pod, after all earlier ones.

        A cancelled call may take effect later, so a newer status is not written before its answer.
        """
        await asyncio.shield(asyncio.ensure_future(self._write_in_turn(status)))

    async def _write_in_turn(self, status: Json) -> None:
        async with self._writing:
            await self.reporter.status(self.pod, status)

    def _condition(self, kind: str, status: str) -> Json:
        before = self._conditions.get(kind)
        if before is None or before["status"] != status:
            turned = {"type": kind, "status": status, "lastTransitionTime": timestamp()}
            self._conditions[kind] = turned
        return self._conditions[kind]

    def _status(self, phase: str) -> Json:
        main = [c for c in self._containers if not c.init]
        initialized = all(c.done or c.run is not None for c in self._containers if c.init)
        ready = bool(main) and all(c.run is not None for c in main) and phase == "Running"
        truth = {
            "PodScheduled": True,
            "Initialized": initialized,
            "ContainersReady": ready,
            "Ready": ready,
        }
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": [self._condition(kind, str(holds)) for kind, holds in truth.items()],
            "hostIP": "127.0.0.1",
            "startTime": self._started,
            "containerStatuses": [c.status() for c in main],
        }
        if self.sandboxes.mode != "none":  # loopback is no address the API would take
            status |= {"podIP": self.ip, "podIPs": [{"ip": self.ip}]}
        if any(c.init for c in self._containers):
            status["initContainerStatuses"] = [c.status() for c in self._containers if c.init]
        return status
