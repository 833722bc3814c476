"""One run of one container: a process, its log file, how it ended."""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from gangsched.local.agent.isolation.sandbox import PodSandbox

_KILLED_BY = 128


@dataclass(slots=True)
class Ended:
    """How a run ended."""

    code: int
    reason: str
    message: str
    started: str
    finished: str


class ContainerProcess:
    """A process inside a pod."""

    def __init__(self, process: asyncio.subprocess.Process, started: str) -> None:
        self._process = process
        self.started = started

    @classmethod
    async def start(
        cls,
        pod: PodSandbox,
        command: list[str],
        folder: str | None,
        environment: Mapping[str, str],
        log: Path,
    ) -> "ContainerProcess":
        """Start the process with its output going to the log.

        Raises:
            OSError: the program does not exist.

        """
        line, variables, work = pod.command(command, folder, environment)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            if pod.owner is not None:  # who opens /dev/stdout once more
                os.fchown(output.fileno(), *pod.owner)
            process = await asyncio.create_subprocess_exec(
                *line,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=variables,
                cwd=work,
                start_new_session=True,
            )
        return cls(process, timestamp())

    async def wait(self) -> Ended:
        """Wait for the end."""
        code = await self._process.wait()
        if code < 0:
            code = _KILLED_BY - code
        reason = "Completed" if code == 0 else "Error"
        return Ended(code, reason, "", self.started, timestamp())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the pod's own process, not to the tools that started it."""
        try:
            wrapper = psutil.Process(self._process.pid)
            inner = wrapper.children()
            # nsenter waits outside the pid namespace for the process inside it.
            target = inner if wrapper.name() == "nsenter" and inner else [wrapper]
            for process in target:
                process.send_signal(number)
        except psutil.NoSuchProcess:
            return

    def kill(self) -> None:
        """Kill the process and everything in its session."""
        self.signal(signal.SIGKILL)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def timestamp() -> str:
    """Return the current time as an API timestamp."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
