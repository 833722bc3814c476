"""One local control plane: starts it, describes it, stops it and removes its files."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import platformdirs
import yaml

from gangsched.local import commands, components, pki
from gangsched.local.network import answers, free_ports
from gangsched.local.nodes import NodeFile
from gangsched.local.processes import UNBUFFERED, Program, Programs
from gangsched.local.tracking.mlflow_server import (
    mlflow_programs,
    server_command,
    tracking_settings,
)
from gangsched.shipped import shipped

Binding = Literal["extender", "direct", "off"]

SCHEDULER_NAME = "gangsched"
_NAME = re.compile(r"[a-z0-9-]{1,40}")
"""The name is that of a folder that `down` removes, so it must not be a path."""

_NAMED = 8
_READY_S = 180.0
"""How long a program may take to be ready: on busy cores each takes many times longer."""

_Begun = tuple[Program, Callable[[], bool], str]
"""A started program, its readiness check, and the condition to wait for."""


class PlaneError(Exception):
    """An operation on a control plane failed; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class PlaneOptions:
    """How to start: who binds, which isolation pods get, and extra flags by component.

    `monitoring` adds a Prometheus that scrapes gangsched and holds the shipped rules, and
    `tracking` an MLflow server on which jobs get runs. With
    `standby`, which needs direct binding, a second gangsched stands by. With `topology` there is
    a Topology of what the nodes' labels spell. A `bare` one has neither kinds of ours nor nodes.
    `api_server` is the program of another version, which is started in place of our own.
    """

    binding: Binding = "extender"
    isolation: str = "auto"
    flags: tuple[tuple[str, str], ...] = ()
    operators: bool = True
    monitoring: bool = False
    tracking: bool = False
    standby: bool = False
    topology: bool = False
    bare: bool = False
    api_server: Path | None = None


class Plane:
    """A control plane by name. Several may run side by side; each has one folder and free ports.

    Raises:
        PlaneError: the name is not a plain name.

    """

    def __init__(self, name: str = "default") -> None:
        if not _NAME.fullmatch(name):
            raise PlaneError(
                f"--name: {name!r} is not allowed for a local control plane; "
                f"use 1 to 40 lower-case letters, digits and hyphens"
            )
        self.name = name
        state = Path(platformdirs.user_state_dir("gangsched"))
        self.folder = state / "local" / name
        self.programs = Programs(self.folder)
        self.kubeconfig = self.folder / "admin.kubeconfig"

    # -- life ---------------------------------------------------------------------------------

    def up(self, nodes: NodeFile, options: PlaneOptions, progress: Callable[[str], None]) -> None:
        """Build what is missing, start everything, create the nodes.

        A leftover of an earlier `up` that was killed is cleaned up first.

        Raises:
            PlaneError: the instance runs already, or a component did not become ready.

        """
        if self.running():
            raise PlaneError(f"local control plane {self.name!r} already runs{self._remedy()}")
        self.down()
        binaries = components.ensure(progress)
        if options.tracking:
            mlflow_programs(progress)
        self.folder.mkdir(parents=True)
        self.programs.begin()
        try:
            self._start(binaries, nodes, options, progress)
        except BaseException as error:
            kept = self.folder.with_suffix(".failed-logs")
            shutil.rmtree(kept, ignore_errors=True)
            if self.programs.logs.exists():
                shutil.copytree(self.programs.logs, kept)
            self.down()
            if isinstance(error, TimeoutError):
                raise PlaneError(f"{error}\nThe logs are kept in {kept}") from error
            raise

    def down(self) -> int:
        """Stop every process and remove the folder; return how many processes there were.

        Raises:
            PlaneError: a folder of that name exists that no local control plane made.

        """
        if os.path.lexists(self.folder) and not self.programs.ours():
            raise PlaneError(
                f"{self.folder} is not the folder of a local control plane and is not removed; "
                f"use another --name, or remove it yourself"
            )
        stopped = self.programs.stop_all()
        for _ in range(50):  # a dying process may write one last file
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.1)
        return stopped

    def running(self) -> bool:
        """Return whether the control plane was started completely and a program still runs."""
        started = (self.folder / "instance.json").exists()
        return started and any(program.alive() for program in self.programs.all())

    def _remedy(self) -> str:
        ended = ", ".join(self.programs.ended())
        if ended:
            return (
                f", but {ended} ended; "
                f"start ended programs again with: gangsched local restart --name {self.name}"
            )
        return f"; stop it with: gangsched local down --name {self.name}"

    def info(self) -> dict[str, Any]:
        """Return the addresses and versions of the control plane.

        Raises:
            PlaneError: there is no such instance.

        """
        path = self.folder / "instance.json"
        if not path.exists():
            raise PlaneError(
                f"no local control plane {self.name!r}{there_are()}; "
                f"start it with: gangsched local up --name {self.name}"
            )
        info: dict[str, Any] = json.loads(path.read_text())
        return info

    # -- start --------------------------------------------------------------------------------

    def _start(
        self,
        binaries: Path,
        nodes: NodeFile,
        options: PlaneOptions,
        progress: Callable[[str], None],
    ) -> None:
        authority = pki.Authority(self.folder / "pki")
        flags = dict(options.flags)
        etcd, peer, secure, manager, scheduler, own, extender, metrics, *more = free_ports(12)
        kubelet, monitor, egress, runs = more
        server = f"https://127.0.0.1:{secure}"
        self._kubeconfigs(authority, server)
        progress("starting etcd and kube-apiserver")
        through = self._egress(authority, egress) if nodes.of_kind("process") else None
        extra = flags.get("kube-apiserver", "")
        programs = binaries / "etcd", options.api_server or binaries / "kube-apiserver"
        self._api_server(programs, authority, (etcd, peer, secure), extra, through)
        progress("starting controllers and schedulers")
        extra = flags.get("kube-controller-manager", "")
        command = commands.manager(binaries, authority, self.folder, manager, extra)
        self._spawn("kube-controller-manager", command)
        self.scheduler(binaries, "kube-scheduler", scheduler, flags.get("kube-scheduler", ""))
        if nodes.of_kind("kwok"):
            self._spawn("kwok", commands.kwok(binaries, components.STAGES, self.folder))
        info = {
            "server": server,
            "extender": f"http://127.0.0.1:{extender}",
            "metrics": f"http://127.0.0.1:{metrics}/metrics",
            "kubectl": str(binaries / "kubectl"),
            "kubernetes": components.KUBERNETES,
            "kwok": components.KWOK,
            "binding": options.binding,
        }
        if not options.bare:
            progress("applying CRDs, RBAC and nodes")
            self._apply(nodes, options)
        begun: list[_Begun] = []  # they start side by side
        if options.tracking:
            info["mlflow"] = f"http://127.0.0.1:{runs}"
            begun.append(self._mlflow(runs, progress))
        if nodes.of_kind("process"):
            begun.append(self._agent(authority, nodes, kubelet, egress, options, runs))
        if options.tracking:
            for awaited in begun:
                self.wait(*awaited)
            options = self._with_runs(options, runs)
        if options.binding != "off":
            progress(f"starting gangsched ({options.binding} binding)")
            begun.append(self._gangsched("gangsched", options, extender, metrics))
            if options.standby:
                begun.append(self._gangsched("gangsched-standby", options, *free_ports(2)))
        if options.binding == "extender":
            config = self.scheduler_config(extender)
            flag = f"--config={config}"
            self.scheduler(binaries, "kube-scheduler-gangsched", own, flag, config=config)
        if options.monitoring:
            info["prometheus"] = f"http://127.0.0.1:{monitor}"
            begun.append(self._prometheus(metrics, monitor, progress))
        for awaited in begun:
            self.wait(*awaited)
        if not options.bare:
            self._wait_for_policies()
        (self.folder / "instance.json").write_text(json.dumps(info, indent=1))

    def _api_server(
        self,
        programs: tuple[Path, Path],
        authority: pki.Authority,
        ports: tuple[int, int, int],
        flags: str,
        egress: Path | None,
    ) -> None:
        """Start etcd, then kube-apiserver; the `ports` are etcd's two and its own."""
        (storage, server), (etcd, peer, secure) = programs, ports
        program = self._spawn("etcd", commands.etcd(storage, self.folder, etcd, peer))
        self.wait(program, lambda: answers(f"http://127.0.0.1:{etcd}/health"), "etcd's health")
        command = commands.apiserver(server, authority, etcd, secure, flags, egress)
        program = self._spawn("kube-apiserver", command)
        address = f"https://127.0.0.1:{secure}/readyz"
        self.wait(program, lambda: answers(address, authority.ca), "kube-apiserver to be ready")

    def _egress(self, authority: pki.Authority, port: int) -> Path:
        path = self.folder / "egress.yaml"
        path.write_text(yaml.safe_dump(commands.egress_config(authority, port)))
        return path

    def _kubeconfigs(self, authority: pki.Authority, server: str) -> None:
        users = {
            "admin": ("kubernetes-admin", "system:masters"),
            "manager": ("system:kube-controller-manager", "system:masters"),
            "scheduler": ("system:kube-scheduler", ""),
            "kwok": ("kwok", "system:masters"),
            "agent": ("gangsched-agent", "system:masters"),
            "gangsched": ("system:serviceaccount:gangsched-system:gangsched", ""),
            "own-scheduler": ("system:serviceaccount:gangsched-system:kube-scheduler", ""),
        }
        for name, (user, group) in users.items():
            authority.kubeconfig(self.folder / f"{name}.kubeconfig", server, user, group or "none")

    def scheduler(
        self, binaries: Path, name: str, port: int, flags: str, config: Path | None = None
    ) -> None:
        """Start a kube-scheduler, with its own `config` or as Kubernetes' default one."""
        own = config is not None
        self._spawn(name, commands.scheduler(binaries, self.folder, port, flags, own=own))

    def scheduler_config(self, extender_port: int, kubeconfig: Path | None = None) -> Path:
        """Write the configuration of the kube-scheduler that calls gangsched's extender."""
        (document,) = shipped("manifests/extender", "kube-scheduler-config.yaml")
        document["leaderElection"] = {"leaderElect": False}
        document["clientConnection"]["kubeconfig"] = str(
            kubeconfig or self.folder / "own-scheduler.kubeconfig"
        )
        (extender,) = document["extenders"]
        extender["urlPrefix"] = f"http://127.0.0.1:{extender_port}"
        for key in ("enableHTTPS", "tlsConfig"):
            del extender[key]
        document["profiles"] += [
            document["profiles"][0] | {"schedulerName": alias} for alias in commands.ALIASES
        ]
        path = self.folder / "kube-scheduler.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    def _gangsched(self, name: str, options: PlaneOptions, extender: int, metrics: int) -> _Begun:
        flags = ["--leader-elect"] * options.standby + ["--no-operators"] * (not options.operators)
        flags += dict(options.flags).get("gangsched", "").split()
        if name == "gangsched" and "--history" not in flags:
            flags += ["--history", str(self.folder / "history.db")]
        command = commands.gangsched(self.folder, options.binding, extender, metrics, *flags)
        program = self._spawn(name, command)
        address = f"http://127.0.0.1:{metrics}"
        return program, lambda: answers(f"{address}/healthz"), "gangsched to be ready"

    def _agent(
        self,
        authority: pki.Authority,
        nodes: NodeFile,
        port: int,
        egress: int,
        options: PlaneOptions,
        runs: int,
    ) -> _Begun:
        groups = [
            group.model_dump(exclude_none=True, mode="json") for group in nodes.of_kind("process")
        ]
        path = self.folder / "process-nodes.yaml"
        path.write_text(yaml.safe_dump({"nodes": groups}))
        forwards = [runs] if options.tracking else []
        command = commands.agent(authority, self.folder, port, egress, options.isolation, forwards)
        program = self._spawn("agent", command)
        ready = self.folder / "agent.ready"
        return program, ready.exists, "the process nodes to register"

    def _mlflow(self, port: int, progress: Callable[[str], None]) -> _Begun:
        """Start an MLflow server."""
        progress("starting MLflow")
        programs = mlflow_programs(progress)
        program = self._spawn("mlflow", server_command(programs, self.folder, port))
        return program, lambda: answers(f"http://127.0.0.1:{port}/health"), "MLflow to be ready"

    def _with_runs(self, options: PlaneOptions, port: int) -> PlaneOptions:
        """Return options with which gangsched gives jobs runs; the agent knows the pods' way."""
        ready = self.folder / "agent.ready"
        host = ready.read_text() if ready.exists() else "127.0.0.1"
        path = self.folder / "gangsched.yaml"
        path.write_text(yaml.safe_dump(tracking_settings(port, host)))
        flags = dict(options.flags)
        flags["gangsched"] = f"--config={path} {flags.get('gangsched', '')}"
        return replace(options, flags=tuple(flags.items()))

    def _prometheus(self, metrics: int, port: int, progress: Callable[[str], None]) -> _Begun:
        """Start a Prometheus that scrapes gangsched each second and evaluates the rules."""
        progress("starting Prometheus")
        binaries = components.ensure(progress, components.MONITORING)
        rules = [d for d in shipped("manifests/monitoring") if d["kind"] == "PrometheusRule"]
        (self.folder / "rules.yaml").write_text(yaml.safe_dump(rules[0]["spec"]))
        config = commands.prometheus_config(metrics)
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        (self.folder / "targets").mkdir(exist_ok=True)  # Prometheus watches it
        program = self._spawn("prometheus", commands.prometheus(binaries, self.folder, port))
        ready = f"http://127.0.0.1:{port}/-/ready"
        return program, lambda: answers(ready), "Prometheus to be ready"

    def _apply(self, nodes: NodeFile, options: PlaneOptions) -> None:
        from gangsched.local.bootstrap import bootstrap  # noqa: PLC0415 -- needs a running server

        gate = options.binding == "extender"
        more = {"topology": options.topology, "tracking": options.tracking}
        bootstrap(self.kubeconfig, nodes, gate=gate, **more)

    def _wait_for_policies(self) -> None:
        """Wait last: an API server takes up to 5 s, in which other programs start."""
        from gangsched.local.bootstrap import wait_for_policies  # noqa: PLC0415 -- as above

        wait_for_policies(self.kubeconfig)

    def _spawn(self, name: str, command: list[str]) -> Program:
        return self.programs.start(name, command, UNBUFFERED)

    def wait(self, program: Program, ready: Callable[[], bool], what: str) -> None:
        """Wait until a program that was started is ready.

        Raises:
            TimeoutError: it ended, or is not ready in time.

        """
        deadline_s = time.monotonic() + _READY_S
        while not ready():
            if not program.alive():
                tail = self.programs.tail(program.name)
                raise TimeoutError(f"{program.name} ended while waiting for {what}:\n{tail}")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"waited {_READY_S:g} s in vain for {what}")
            time.sleep(0.05)


def instances() -> list[Plane]:
    """Return every local control plane with a folder."""
    root = Path(platformdirs.user_state_dir("gangsched")) / "local"
    if not root.exists():
        return []
    return [
        Plane(path.name)
        for path in sorted(root.iterdir())
        if _NAME.fullmatch(path.name) and (path / "logs").exists()
    ]


def there_are() -> str:
    """Return the existing local control planes as the end of a sentence."""
    names = [plane.name for plane in instances()]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(names[:_NAMED]) + more
    return f" (there are: {listed}; choose one with --name)" if names else ""


def chosen(name: str | None) -> Plane:
    """Return the control plane of a name; without a name, the default or the only control plane.

    Raises:
        PlaneError: there is no such instance.

    """
    if name is None:
        names = [plane.name for plane in instances()]
        name = names[0] if len(names) == 1 else "default"
    plane = Plane(name)
    plane.info()
    return plane


def serving(server: str) -> Plane | None:
    """Return the user's local control plane with this API server address, if there is one."""
    for plane in instances():
        if plane.running() and plane.info()["server"] == server:
            return plane
    return None


def client_environment(plane: Plane) -> dict[str, str]:
    """Return the environment in which kubectl and clients talk to the instance."""
    return os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
