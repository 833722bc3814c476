"""Pods as processes under faults: slow cores, a failing API server, deleted pods."""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from waiting import until_async

from gangsched.kube.client.errors import Forbidden
from gangsched.local.agent import worker
from gangsched.local.agent.hosts import write_in_place
from gangsched.local.agent.isolation import root, sandbox
from gangsched.local.agent.isolation.sandbox import (
    NamespaceSandboxes,
    PodPlace,
    SandboxError,
    Shared,
)
from gangsched.local.agent.reporter import Reporter
from gangsched.local.agent.spec import Objects
from gangsched.local.agent.worker import PodWorker


class Api(Reporter):
    """An API server that refuses the first `refusals` calls for what a pod refers to."""

    def __init__(self, refusals: int = 0) -> None:
        self.phases: list[str] = []
        self._refusals = refusals

    async def status(self, pod, status) -> None:
        del pod
        self.phases.append(status["phase"])

    async def event(self, pod, reason, message, kind="Warning") -> None:
        raise Forbidden(403, "not yet ready to handle request")

    async def objects(self, pod) -> Objects:
        del pod
        if self._refusals:
            self._refusals -= 1
            raise Forbidden(403, "not yet ready to handle request")
        return Objects({})


def begun(folder, api, script, **spec) -> PodWorker:
    """Return the worker of a pod that runs a shell script, once it was begun."""
    hosts = folder / "hosts"
    write_in_place(hosts, "127.0.0.1 localhost\n")
    container = {"name": "main", "command": ["sh", "-c", script]}
    found = PodWorker(
        pod={
            "metadata": {"name": "p", "namespace": "ns", "uid": "1"},
            "spec": {"containers": [container], **spec},
        },
        folder=folder,
        ip="127.0.0.1",
        sandboxes=Shared(folder),
        reporter=api,
        path=os.environ["PATH"],
        hosts=hosts,
        extra_env=lambda _: {},
        images=folder / "images",
    )
    found.start()
    return found


async def test_a_pod_deleted_by_force_is_not_started_again(tmp_path):
    folder, runs = tmp_path / "pod", tmp_path / "runs"
    folder.mkdir()
    pod = begun(folder, Api(), f"echo x >> {runs}; exit 1", restartPolicy="Always")
    await until_async(runs.exists, "its first run")
    pod.close()
    await until_async(lambda: len(asyncio.all_tasks()) == 1, "its life to be over")
    assert not folder.exists()


class Slow(Api):
    """An API server that carries out late what a pod's end says first, be the call broken off."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def status(self, pod, status) -> None:
        await asyncio.shield(asyncio.ensure_future(self._carry_out(pod, status)))

    async def _carry_out(self, pod, status) -> None:
        ended = "terminated" in status["containerStatuses"][0]["state"]
        if ended and status["phase"] == "Running":
            self.asked.set()
            await self.go_on.wait()
        await super().status(pod, status)

    async def deleted(self, pod) -> None: ...


async def test_a_late_status_is_never_written_after_a_newer_one(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_LAST_WORDS_S", 0.0)
    api, ready = Slow(), tmp_path / "ready"
    folder = tmp_path / "pod"
    folder.mkdir()
    script = f"trap 'exit 0' TERM; touch {ready}; while :; do sleep 0.1; done"
    pod = begun(folder, api, script, restartPolicy="Never")
    await until_async(ready.exists, "its trap to be set")
    stopping = asyncio.create_task(pod.stop(600.0))
    await api.asked.wait()
    for _ in range(100):
        await asyncio.sleep(0)  # time enough for the last word to overtake
    api.go_on.set()
    await stopping
    await until_async(lambda: len(asyncio.all_tasks()) == 1, "all calls to be answered")
    assert api.phases[-1] == "Succeeded"


async def test_a_pod_outlives_an_api_server_that_is_not_ready(tmp_path, monkeypatch):
    """One that has just started refuses tokens and Events until it knows all namespaces."""
    monkeypatch.setattr(worker, "_RETRY_S", 0.0)
    api = Api(refusals=2)
    begun(tmp_path, api, "exit 0", restartPolicy="Never")
    await until_async(lambda: "Succeeded" in api.phases, "its end", shown=lambda: str(api.phases))


def test_busy_cores_make_namespaces_late_and_not_impossible(monkeypatch):
    looks = itertools.count()

    class Process:
        pid = 1
        stderr = None

        def __init__(self, _=None) -> None: ...

        def poll(self):
            return None

        def children(self, *, recursive):
            assert recursive
            if next(looks) == 3:  # it ends while it is looked at
                raise sandbox.psutil.NoSuchProcess(self.pid)
            return [self] if next(looks) > 2_000 else []

        def name(self):
            return "sleep"

    monkeypatch.setattr(sandbox.psutil, "Process", Process)
    monkeypatch.setattr(sandbox.time, "sleep", lambda _: None)
    assert sandbox._child(Process()) == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_the_sandbox_of_a_deleted_pod_is_closed(tmp_path, fails):
    making, go_on = threading.Event(), threading.Event()
    closed = []

    class Made:
        def close(self):
            closed.append(self)

    def made(*_):
        making.set()
        go_on.wait()
        if fails:
            raise sandbox.SandboxError("no more room")
        return Made()

    sandboxes = NamespaceSandboxes.__new__(NamespaceSandboxes)
    sandboxes._made = made
    sandboxes._makers = ThreadPoolExecutor(1)
    place = PodPlace("p", tmp_path, "10.88.0.2", tmp_path / "hosts", "ns/p")
    task = asyncio.create_task(sandboxes.make(place, []))
    await until_async(making.is_set, "it to be making")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    if not fails:
        await until_async(lambda: closed, "it to be closed")


def test_hosts_are_never_found_empty_while_they_are_written(tmp_path):
    """A pod looks up its own name, which is in the first line, whenever it likes."""
    path = tmp_path / "hosts"
    own, other = "10.88.0.2 me\n", "10.88.0.3 another\n"
    texts = [own + other * count for count in (0, 40, 3)]
    write_in_place(path, texts[0])
    found, over = set(), threading.Event()

    def look() -> None:
        while not over.is_set():
            found.add(path.read_text()[: len(own)])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for text in texts * 500:
            write_in_place(path, text)
            assert path.read_text() == text
    finally:
        over.set()
        looking.join()
    assert found == {own}


@pytest.mark.parametrize("mode", ["root", "user"])
async def test_programs_of_a_pod_cannot_open_hidden_devices(tmp_path, mode):
    try:
        sandboxes = NamespaceSandboxes(mode, tmp_path)
    except SandboxError as error:
        pytest.skip(f"no namespaces here: {error}")
    write_in_place(tmp_path / "hosts", "127.0.0.1 localhost\n")
    hidden = (Path("/dev/full"), Path("/dev/absent"))
    place = PodPlace("p", tmp_path, "10.88.0.2", tmp_path / "hosts", "ns/p", hidden=hidden)
    pod = await sandboxes.make(place, [])
    try:
        line, variables, _ = pod.command(
            ["sh", "-c", "head -c 1 /dev/zero > /dev/null && cat /dev/full"],
            None,
            {"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )
        process = await asyncio.create_subprocess_exec(
            *line, env=variables, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        assert b"/dev/full: Permission denied" in said
    finally:
        pod.close()
        await pod.ended()
        sandboxes.close()


async def test_a_pod_has_ended_once_its_last_process_has(tmp_path):
    """What a program leaves behind would hold the pod's GPU."""
    try:
        sandboxes = NamespaceSandboxes("root" if os.geteuid() == 0 else "user", tmp_path)
    except SandboxError as error:
        pytest.skip(f"no namespaces here: {error}")
    write_in_place(tmp_path / "hosts", "127.0.0.1 localhost\n")
    place = PodPlace("p", tmp_path, "10.88.0.2", tmp_path / "hosts", "ns/p")
    pod = await sandboxes.make(place, [])
    mark = f"left-{tmp_path.name}"

    def left() -> list[psutil.Process]:
        return [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ())]

    try:
        script = ["sh", "-c", f"setsid sh -c 'sleep 600; exit' {mark} &"]
        line, variables, _ = pod.command(script, None, {"PATH": os.environ["PATH"]})
        process = await asyncio.create_subprocess_exec(*line, env=variables)
        await process.wait()
        await until_async(left, "the process that stays")
        pod.close()
        await pod.ended()
        assert not left()
    finally:
        pod.close()
        sandboxes.close()


def test_files_and_folders_that_are_mounts_are_shown_to_pods(tmp_path):
    """A container with GPUs has the libraries of the driver as single files that are mounts."""
    library, folder = tmp_path / "libcuda.so", tmp_path / "driver"
    library.touch()
    folder.mkdir()
    mounts = " && ".join(f"mount --bind {path} {path}" for path in (library, folder))
    program = "from gangsched.local.agent.isolation import root; print(*root._host_mounts())"
    script = f"{mounts} && exec {sys.executable} -c '{program}'"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr}")
    kind = next(p.fstype for p in psutil.disk_partitions(all=True) if p.mountpoint == "/")
    if kind in root._OF_FILES:
        assert {str(library), str(folder)} <= set(done.stdout.split()), done.stderr
