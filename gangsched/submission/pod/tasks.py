"""The server of a pod, which starts the tasks of `srun`."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import os
import secrets
import signal
import socketserver
import subprocess
import threading
from typing import Any, BinaryIO, cast

from .link import GREETING, LINE_MAX, REQUEST_MAX, proof


class PodTasks:
    """The processes of the tasks in this pod, and the pod's own exit code."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.code = 0
        self.over = threading.Event()

    def end(self, code: int = 0) -> None:
        """End the pod with an exit code."""
        self.code = code
        self.over.set()

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Remember a task."""
        with self._lock:
            self._running.add(process)

    def remove(self, process: subprocess.Popen[bytes]) -> None:
        """Forget a task."""
        with self._lock:
            self._running.discard(process)

    def send(self, number: int) -> None:
        """Send a signal to all tasks."""
        with self._lock:
            for process in self._running:
                send_signal(process, number)


def send_signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and its children, if it runs."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)


class TaskServer(socketserver.ThreadingTCPServer):
    """Listens for requests of the pods of this job."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, tasks: PodTasks) -> None:
        self.tasks = tasks
        super().__init__(("", port), TaskHandler)


class TaskHandler(socketserver.StreamRequestHandler):
    """One request: to start tasks, or that the job is over."""

    timeout = 30

    def handle(self) -> None:
        """Check the request, and do what it asks."""
        nonce = secrets.token_hex(16).encode()
        self.wfile.write(GREETING + b" " + nonce + b"\n")
        given = self.rfile.readline(200).strip()
        body = self.rfile.readline(REQUEST_MAX)
        if not body.endswith(b"\n") or not hmac.compare_digest(given, proof(nonce, body[:-1])):
            return
        request: dict[str, Any] = json.loads(body.decode())
        self.connection.settimeout(None)
        self._lock = threading.Lock()
        self._tasks = cast("TaskServer", self.server).tasks
        if request["kind"] == "end":
            self._tasks.end()
            self._say()
        else:
            self._start(request)

    def _start(self, request: dict[str, Any]) -> None:
        threads: list[threading.Thread] = []
        processes: list[subprocess.Popen[bytes]] = []
        for task in request["tasks"]:
            rank = int(task["rank"])
            environment = {**os.environ, **request["environment"], **task["environment"]}
            try:
                process = subprocess.Popen(
                    request["command"],
                    env=environment,
                    cwd=request["directory"] or None,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                text = f"srun: error: {request['command'][0]}: {error.strerror}\n"
                self._say(task=rank, stream=2, line=_encoded(text.encode()))
                self._say(task=rank, exit=2)
                continue
            self._tasks.add(process)
            processes.append(process)
            assert process.stdout is not None  # noqa: S101 -- a pipe
            assert process.stderr is not None  # noqa: S101
            copiers = [
                _thread(self._copy, rank, 1, process.stdout),
                _thread(self._copy, rank, 2, process.stderr),
            ]
            threads += [*copiers, _thread(self._wait, rank, process, copiers)]
        threads.append(_thread(self._watch, processes))  # it ends when srun closes
        for thread in threads:
            thread.join()

    def _watch(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Pass signals on; if srun is gone, its tasks end."""
        while True:
            try:
                line = self.rfile.readline(100)
            except (OSError, ValueError):
                line = b""
            number = int(json.loads(line.decode())["signal"]) if line else signal.SIGKILL
            for process in processes:
                send_signal(process, number)
            if not line:
                return

    def _copy(self, rank: int, stream: int, file: BinaryIO) -> None:
        while True:
            line = file.readline(LINE_MAX)
            if not line:
                return
            self._say(task=rank, stream=stream, line=_encoded(line))

    def _wait(
        self, rank: int, process: subprocess.Popen[bytes], copiers: list[threading.Thread]
    ) -> None:
        code = process.wait()
        self._tasks.remove(process)
        for copier in copiers:
            copier.join(5.0)
        self._say(task=rank, exit=code if code >= 0 else 128 - code)

    def _say(self, **values: object) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            # Without srun there is no reader, and `_watch` ends the tasks.
            self.wfile.write(json.dumps(values).encode() + b"\n")


def _encoded(line: bytes) -> str:
    return base64.b64encode(line).decode()


def _thread(work: Any, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread
