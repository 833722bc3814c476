"""The commands of a script: `srun` and `scontrol show hostnames`."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from .hosts import compressed, expanded
from .link import CONNECT_S, ask, job_settings
from .script import STEPS, filled

_VALUES = (
    "-c --cpus-per-task", "--cpu-bind", "--gpu-bind", "--gpus-per-task", "--gpus",
    "--gpus-per-node", "--gres", "--mem", "--mem-per-cpu", "-t --time", "-W --wait",
    "--distribution", "--hint", "--ntasks-per-gpu",
)  # fmt: skip
"""Options with values that the job has decided already."""

_FLAGS = ("--exclusive", "--overlap", "--exact", "-q --quiet", "-v --verbose", "-u --unbuffered")
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def srun(words: list[str]) -> int:
    """Run a command as tasks on the nodes of the job; return the highest exit code."""
    given = _parser().parse_args(words)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise SystemExit("srun: fatal: No command given to execute.")
    if given.mpi not in ("none", "list"):
        raise SystemExit(
            f"srun: error: --mpi={given.mpi} is not supported: start ranks by torchrun or mpirun"
        )
    job = job_settings()
    step = STEPS / str(os.getpid())
    step.touch()
    try:
        return _Step(job, given, command).run()
    finally:
        step.unlink()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="srun", allow_abbrev=False)
    parser.add_argument("-N", "--nodes", type=int)
    parser.add_argument("-n", "--ntasks", type=int)
    parser.add_argument("--ntasks-per-node", type=int)
    parser.add_argument("-l", "--label", action="store_true")
    parser.add_argument("-K", "--kill-on-bad-exit", nargs="?", const="1")
    parser.add_argument("-D", "--chdir", default="")
    parser.add_argument("--export", default="ALL")
    parser.add_argument("-J", "--job-name", default="")
    parser.add_argument("-o", "--output", default="")
    parser.add_argument("-w", "--nodelist", default="")
    parser.add_argument("--mpi", default="none")
    for names in _VALUES:
        parser.add_argument(*names.split())
    for names in _FLAGS:
        parser.add_argument(*names.split(), action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


class _Step:
    """The tasks of one srun."""

    def __init__(self, job: dict[str, Any], given: argparse.Namespace, command: list[str]) -> None:
        self._job, self._given, self._command = job, given, command
        self._hosts, self._tasks = placed(given, job)
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._links: list[tuple[socket.socket, BinaryIO]] = []

    def run(self) -> int:
        deadline_s = time.monotonic() + CONNECT_S
        environment = self._environment()
        for node, host in enumerate(self._hosts):
            request = {
                "kind": "start",
                "command": self._command,
                "directory": self._given.chdir or str(Path.cwd()),
                "environment": environment,
                "tasks": [task for task in self._tasks if task["node"] == node],
            }
            self._links.append(ask(host, int(self._job["port"]), request, deadline_s))
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        sink = self._sink()
        readers = [
            threading.Thread(target=self._read, args=(node, file, sink), daemon=True)
            for node, (_, file) in enumerate(self._links)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            while reader.is_alive():
                reader.join(1.0)  # a signal is handled between
        for connection, _ in self._links:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        lost = [task["rank"] for task in self._tasks if task["rank"] not in self._codes]
        if lost:
            _complain(f"srun: error: lost the connection to task {lost[0]}")
        return max([*self._codes.values(), *([1] if lost else [])], default=0)

    def _sink(self) -> BinaryIO | None:
        if not self._given.output:
            return None
        return Path(filled(self._given.output, self._job["patterns"])).open("wb")

    def _forward(self, number: int, _: object) -> None:
        for _, file in self._links:
            with contextlib.suppress(OSError, ValueError):
                file.write(json.dumps({"signal": int(number)}).encode() + b"\n")
                file.flush()

    def _read(self, node: int, file: BinaryIO, sink: BinaryIO | None) -> None:
        """Print the lines of a host's tasks until all of them have ended."""
        width = len(str(max(len(self._tasks) - 1, 0)))
        running = {task["rank"] for task in self._tasks if task["node"] == node}
        while running:
            line = file.readline()
            if not line:
                return
            answer = json.loads(line.decode())
            rank = int(answer["task"])
            if "exit" in answer:
                self._ended(rank, int(answer["exit"]))
                running.discard(rank)
                continue
            text = base64.b64decode(answer["line"])
            label = f"{rank:>{width}}: ".encode() if self._given.label else b""
            target = sys.stdout.buffer if answer["stream"] == 1 else sys.stderr.buffer
            with self._lock:
                (sink or target).write(label + text)
                (sink or target).flush()

    def _ended(self, rank: int, code: int) -> None:
        self._codes[rank] = code
        if code:
            host = self._hosts[self._tasks[rank]["node"]]
            _complain(f"srun: error: {host}: task {rank}: Exited with exit code {code}")
            if self._given.kill_on_bad_exit not in (None, "0"):
                self._forward(signal.SIGTERM, None)

    def _environment(self) -> dict[str, str]:
        """Return the variables of a step: those of the script, and its own."""
        own = {name: value for name, value in os.environ.items() if name not in _OF_ONE_POD}
        names = self._given.export.split(",")
        if "NONE" in names or "NIL" in names:
            own = {name: value for name, value in own.items() if name.startswith("SLURM_")}
        for part in names:
            name, equals, value = part.partition("=")
            if equals:
                own[name] = value
        count = str(len(self._tasks))
        own.update(
            {
                "SLURM_STEP_ID": "0",
                "SLURM_STEPID": "0",
                "SLURM_NTASKS": count,
                "SLURM_NPROCS": count,
                "SLURM_STEP_NUM_TASKS": count,
                "SLURM_STEP_NUM_NODES": str(len(self._hosts)),
                "SLURM_STEP_NODELIST": compressed(self._hosts),
            }
        )
        return own


_OF_ONE_POD = ("JOB_COMPLETION_INDEX", "HOSTNAME", "PWD", "OLDPWD")


def placed(
    given: argparse.Namespace, job: dict[str, Any]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the hosts of a step, and its tasks in blocks: node after node.

    Raises:
        SystemExit: the tasks do not fit on the nodes.

    """
    known: list[str] = job["hosts"]
    count = given.nodes or len(known)
    if not 1 <= count <= len(known):
        raise SystemExit(f"srun: error: the job has {len(known)} nodes")
    hosts = known[:count]
    if given.nodelist:
        wanted = expanded(given.nodelist)
        hosts = [host for host in known if host in wanted] or hosts
    per_node = given.ntasks_per_node
    total = given.ntasks
    if total is None and per_node:
        total = len(hosts) * per_node
    elif total is None:
        total = len(hosts) if given.nodes else int(job["tasks"])
    if total < 1:
        raise SystemExit("srun: error: --ntasks has to be 1 or more")
    hosts = hosts[:total]
    if per_node and total > per_node * len(hosts):
        raise SystemExit(f"srun: error: {total} tasks do not fit on {len(hosts)} nodes")
    tasks: list[dict[str, Any]] = []
    each, more = divmod(total, len(hosts))
    for node, host in enumerate(hosts):
        own = each + (node < more)
        for local in range(own):
            rank = len(tasks)
            environment = {
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(local),
                "SLURM_NODEID": str(node),
                "SLURMD_NODENAME": host,
                "SLURM_STEP_TASKS_PER_NODE": str(own),
            }
            tasks.append({"rank": rank, "node": node, "environment": environment})
    return hosts, tasks


def scontrol(words: list[str]) -> int:
    """Answer `scontrol show hostnames` and `scontrol show hostlist`; return the exit code."""
    if words[:1] == ["show"] and words[1:2] in (["hostnames"], ["hostname"]):
        text = words[2] if len(words) > 2 else os.environ.get("SLURM_JOB_NODELIST", "")
        sys.stdout.write("".join(f"{host}\n" for host in expanded(text)))
        return 0
    if words[:2] == ["show", "hostlist"] and words[2:]:
        sys.stdout.write(f"{compressed(words[2].split(','))}\n")
        return 0
    _complain("scontrol: only `show hostnames` and `show hostlist` are here")
    return 1


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
