"""Isolation of pods without a container engine: namespaces by unshare, nsenter and ip.

- `root`: every pod has its own network, mount, pid and host-name namespace. Its root is an
  overlay of the machine's own, so that any mountPath can exist and nothing leaks back.
- `user`: the same inside a user namespace, without any privilege.
- `none`: plain processes that share the machine's loopback and files. Names of other pods become
  127.0.0.1 in the environment, and mount paths are rewritten to where the files lie.
"""

import asyncio
import contextlib
import ipaddress
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import psutil

from gangsched.local.agent.images import Image
from gangsched.local.agent.isolation.root import Mount, root_script
from gangsched.local.network import free_ports

Mode = Literal["root", "user", "none"]

_TOOLS = ("unshare", "nsenter", "ip", "mount", "chroot")
_NETWORK = "10.88"
_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR")
_PORTS = ("MASTER_PORT", "PET_MASTER_PORT")
_MADE_WITHIN_S = 120.0
"""How long creating namespaces may take: errors come at once, only busy cores need the time."""

_LOOK_S = 0.02
"""How often a closed pod is looked at until its last process has ended."""


class SandboxError(Exception):
    """A namespace or mount could not be created; the message ends with the tool's output."""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """The settings of a pod's sandbox: host name, files, address, job, image, hidden devices."""

    name: str
    folder: Path
    ip: str
    hosts: Path
    job: str
    image: Image | None = None
    hidden: tuple[Path, ...] = ()


class PodSandbox(Protocol):
    """The sandbox in which one pod's containers run; `owner` is the owner of its logs."""

    ip: str
    owner: tuple[int, int] | None

    def command(
        self, command: list[str], folder: str | None, environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str], Path | None]:
        """Return command line, environment and working folder for a process in the pod."""

    def close(self) -> None:
        """End everything that still runs in the pod."""

    async def ended(self) -> None:
        """Wait until every process of a closed pod has ended."""


class Sandboxes(Protocol):
    """A kind of isolation."""

    mode: Mode

    async def make(self, pod: PodPlace, mounts: list[Mount]) -> PodSandbox:
        """Create the sandbox of one pod."""

    def address(self) -> str:
        """Return an address for a new pod."""

    def host_address(self) -> str:
        """Return the address of pods with hostNetwork."""

    def close(self) -> None:
        """End everything."""


def choose(wanted: str, folder: Path) -> Sandboxes:
    """Return the requested isolation, by default the strongest that works.

    Raises:
        SandboxError: the requested isolation does not work here.

    """
    problems = []
    modes: tuple[Mode, ...] = ("root", "user") if os.geteuid() == 0 else ("user",)
    for mode in modes if wanted == "auto" else (wanted,):
        if mode == "none":
            return Shared(folder)
        try:
            return NamespaceSandboxes("root" if mode == "root" else "user", folder)
        except SandboxError as error:
            problems.append(f"{mode}: {error}")
    if wanted == "auto":
        return Shared(folder)
    raise SandboxError("; ".join(problems))


# -- namespaces -----------------------------------------------------------------------------------


class NamespaceSandboxes:
    """Pods in namespaces, joined by a bridge in a separate network namespace."""

    def __init__(self, mode: Mode, folder: Path) -> None:
        missing = [tool for tool in _TOOLS if not shutil.which(tool)]
        if missing:
            raise SandboxError(f"{', '.join(missing)} not found")
        self.mode = mode
        self._folder = folder
        self._next = 1
        # Connections to other pods block the default threads: a new pod must not wait for them.
        self._makers = ThreadPoolExecutor(thread_name_prefix="pod")
        own = ["--user", "--map-root-user"] if mode == "user" else []
        self._holder = subprocess.Popen(
            ["unshare", *own, "--net", "--mount", "--fork", "--kill-child", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            self._pid = _child(self._holder)
            self._probe()
        except SandboxError:
            self.close()
            raise

    def _probe(self) -> None:
        """Create the bridge, and try to build the root that every pod needs."""
        self._inside(
            self._pid,
            _ip(
                "link set lo up",
                "link add br0 type bridge",
                f"address add {_NETWORK}.0.1/16 dev br0",
                "link set br0 up",
            ),
        )
        scratch = self._folder / "probe"
        scratch.mkdir(parents=True, exist_ok=True)
        process = self._pause(host_network=True)
        try:
            self._inside(_child(process), root_script(scratch, "probe", []))
        finally:
            process.kill()
            process.wait()

    @property
    def network(self) -> ipaddress.IPv4Network:
        """Return the addresses that pods have."""
        return ipaddress.IPv4Network(f"{_NETWORK}.0.0/16")

    def host_address(self) -> str:
        """Return the address of pods with hostNetwork: the bridge's own."""
        return f"{_NETWORK}.0.1"

    def address(self) -> str:
        """Return the next address of the bridge's network."""
        self._next += 1
        return f"{_NETWORK}.{self._next // 256}.{self._next % 256}"

    async def make(self, pod: PodPlace, mounts: list[Mount]) -> "NamespacedPod":
        """Create namespaces, network and root for one pod."""
        loop = asyncio.get_running_loop()
        making = loop.run_in_executor(self._makers, self._made, pod, mounts)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_unmake)  # a thread goes on to its end
            raise

    def _made(self, pod: PodPlace, mounts: list[Mount]) -> "NamespacedPod":
        host_network = pod.ip == self.host_address()
        root = pod.folder / "root"
        root.mkdir(parents=True, exist_ok=True)
        process = self._pause(host_network=host_network)
        try:
            pid = _child(process)
            own = [Mount(pod.hosts, "/etc/hosts"), Mount(self._name_switch(), "/etc/nsswitch.conf")]
            script = root_script(root, pod.name, [*mounts, *own], pod.image, pod.hidden)
            if not host_network:
                self._link(pid)
                script = f"{_addressed(pod.ip)}\n{script}"
            self._inside(pid, script)
        except BaseException:
            process.kill()
            process.wait()
            raise
        image, owner = pod.image, None
        # exec in a shell: chroot has no option for the working folder.
        inner = ["chroot", str(root / "r"), "sh", "-c", 'cd "$0" && exec "$@"']
        if image is not None:
            inner = image.changed_root(root / "r", privileged=self.mode == "root")
            owner = (image.user, image.group) if self.mode == "root" else None
        folder = image.folder if image else "/"
        first = psutil.Process(pid)
        return NamespacedPod(process, first, [*self._enter(pid), *inner], folder, pod.ip, owner)

    def _name_switch(self) -> Path:
        """Return the file by which names come from /etc/hosts alone.

        The machine's name server is out of a pod's reach: a look-up would wait for seconds.
        """
        path = self._folder / "nsswitch.conf"
        if not path.exists():
            system = Path("/etc/nsswitch.conf")
            lines = system.read_text().splitlines() if system.exists() else []
            kept = [line for line in lines if not line.startswith("hosts:")]
            path.write_text("\n".join([*kept, "hosts: files", ""]))
        return path

    def _pause(self, *, host_network: bool) -> "subprocess.Popen[bytes]":
        network = [] if host_network else ["--net"]
        return subprocess.Popen(
            [
                *self._enter(self._pid, pid_namespace=False),
                "unshare",
                *network,
                "--mount",
                "--pid",
                "--uts",
                "--ipc",
                "--fork",
                "--kill-child",
                "sleep",
                "infinity",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def _link(self, pid: int) -> None:
        """Connect the network of a pod to the bridge."""
        link = f"p{pid}"
        add = f"link add {link} type veth peer name eth0 netns {pid}"
        self._inside(self._pid, _ip(add, f"link set {link} master br0 up"))

    def _enter(self, pid: int, *, pid_namespace: bool = True) -> list[str]:
        own = ["--user", "--preserve-credentials"] if self.mode == "user" else []
        inner = ["--pid", "--uts", "--ipc"] if pid_namespace else []
        return ["nsenter", "--target", str(pid), *own, "--net", "--mount", *inner]

    def enter_network(self) -> list[str]:
        """Return the command prefix of the network of pods with hostNetwork."""
        return self._enter(self._pid, pid_namespace=False)

    def _inside(self, pid: int, script: str) -> None:
        enter = self._enter(pid, pid_namespace=pid != self._pid)
        done = subprocess.run(
            [*enter, "sh", "-ec", script], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SandboxError(done.stderr.strip() or f"exit code {done.returncode}")

    def close(self) -> None:
        """End the holder; the bridge goes with its namespace."""
        self._makers.shutdown(wait=False)
        self._holder.kill()
        self._holder.wait()


@dataclass(slots=True)
class NamespacedPod:
    """One pod's namespaces, kept by a sleeping process that is their pid 1 (`_first`)."""

    _process: "subprocess.Popen[bytes]"
    _first: psutil.Process
    _enter: list[str]
    _folder: str
    ip: str
    owner: tuple[int, int] | None

    def command(
        self, command: list[str], folder: str | None, environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str], Path | None]:
        """Enter the namespaces, change the root, then run."""
        return [*self._enter, folder or self._folder, *command], dict(environment), None

    def close(self) -> None:
        """Kill pid 1; the kernel kills everything else in its namespace."""
        self._process.kill()
        self._process.wait()

    async def ended(self) -> None:
        """Wait for the end of pid 1, which the kernel delays to the end of all others."""
        with contextlib.suppress(psutil.NoSuchProcess):
            # Another process may have its number by now: is_running compares the start.
            while self._first.is_running():  # only a parent is notified of the end
                if self._first.status() == psutil.STATUS_ZOMBIE:
                    return
                await asyncio.sleep(_LOOK_S)


def _addressed(ip: str) -> str:
    """Return the lines of a shell script by which a pod gets its address."""
    return _ip(
        "link set lo up",
        f"address add {ip}/16 dev eth0",
        "link set eth0 up",
        f"route add default via {_NETWORK}.0.1",
    )


def _ip(*commands: str) -> str:
    """Return the lines of a shell script by which one `ip` carries out several commands.

    Starting a program takes longer than what it does here.
    """
    return "\n".join(("ip -batch - <<'END'", *commands, "END"))


def _unmake(making: "asyncio.Future[NamespacedPod]") -> None:
    """Close the sandbox of a pod that was deleted meanwhile."""
    if not making.cancelled() and making.exception() is None:
        making.result().close()


def _child(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the process inside the new namespaces and return its pid."""
    deadline_s = time.monotonic() + _MADE_WITHIN_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            errors = process.stderr.read().decode().strip() if process.stderr else ""
            raise SandboxError(errors or f"exit code {process.returncode}")
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended in this very moment
            for child in psutil.Process(process.pid).children(recursive=True):
                if child.name() == "sleep":
                    return child.pid
        time.sleep(0.01)
    raise SandboxError(f"no namespaces within {_MADE_WITHIN_S:g} s")


# -- nothing ------------------------------------------------------------------------------------


class Shared:
    """Pods as plain processes. They share loopback, so every job gets a port of its own."""

    mode: Mode = "none"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[str, int] = {}

    def host_address(self) -> str:
        """Return loopback."""
        return "127.0.0.1"

    def address(self) -> str:
        """Return loopback for every pod."""
        return "127.0.0.1"

    async def make(self, pod: PodPlace, mounts: list[Mount]) -> "SharedPod":
        """Create a sandbox; only the job's port is reserved."""
        if pod.job not in self._ports:
            (self._ports[pod.job],) = free_ports(1)
        return SharedPod(pod.folder, pod.hosts, mounts, self._ports[pod.job])

    def close(self) -> None:
        """Do nothing: there are no namespaces."""


@dataclass(slots=True)
class SharedPod:
    """A pod without isolation: paths, names and the rendezvous port are rewritten instead."""

    _folder: Path
    _hosts: Path
    _mounts: list[Mount]
    _port: int
    ip: str = "127.0.0.1"
    owner: tuple[int, int] | None = None

    def command(
        self, command: list[str], folder: str | None, environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str], Path | None]:
        """Rewrite mount paths in the command, and names of pods in the environment."""
        names = {name for line in self._hosts.read_text().splitlines() for name in line.split()[1:]}
        # The name of a pod that has not come yet is no less a name of this machine.
        names |= {environment[key] for key in _ADDRESSES if key in environment}
        rewritten = {key: self._place(value) for key, value in environment.items()}
        own = ("HOSTNAME",)  # who a pod is stays true; where others are does not
        rewritten |= {
            key: "127.0.0.1"
            for key, value in environment.items()
            if value in names and key not in own
        }
        rewritten |= {key: str(self._port) for key in _PORTS if key in environment}
        work = Path(self._place(folder)) if folder else self._folder
        # By way of a shell: a program that does not exist then ends with 127, as in a container.
        parts = ["sh", "-c", 'exec "$0" "$@"', *(self._place(part) for part in command)]
        return parts, rewritten, work

    def _place(self, text: str) -> str:
        for mount in self._mounts:
            if text == mount.target or text.startswith(f"{mount.target}/"):
                return str(mount.source) + text[len(mount.target) :]
        return text

    def close(self) -> None:
        """Do nothing: the worker ends each process."""

    async def ended(self) -> None:
        """Do nothing: the worker waits for each process."""
