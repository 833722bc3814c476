"""A process that runs histories: a line of JSON in, a line of JSON out.

`HistoryWorker` is its client. Time and memory of a history are limited. If one hangs, the process
ends with the stack of every thread, and the next history gets a new process.
"""

import asyncio
import faulthandler
import json
import logging
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gangsched.operators.evaluation.pool import Evaluators

MIB = 2**20
ADDRESSES_MAX = 4 * 2**30
MEMORY_MIB = 160
"""Memory of a history beside its objects: planned pods, and the arrays of a planning cycle."""

EVALUATION_S = 3.0
"""Time limit of an expression, a log or a search."""

BYTES_KEPT = 60
"""Further memory for each byte of the objects."""


class HistoryWorker:
    """Runs histories in a process, one at a time."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.NamedTemporaryFile("a+", suffix=".log")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        self._errors.close()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def run(self, history: dict[str, Any]) -> dict[str, Any]:
        """Run a history; it is a violation if it ends the process."""
        process = self._process or self._start()
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        hung = threading.Event()

        def too_late() -> None:
            hung.set()
            process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks

        timer = threading.Timer(self._deadline_s, too_late)
        timer.start()
        try:
            process.stdin.write(json.dumps(history) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            result: dict[str, Any] = json.loads(line)
            return result
        code = process.wait()
        self._process = None
        stacks = Path(self._errors.name).read_text()
        stacks = stacks.partition("most recent call first")[2][:2000] or stacks[-2000:]
        reason = (
            f"it takes more than {self._deadline_s:.0f} s" if hung.is_set() else f"it ends ({code})"
        )
        return {"violations": [f"the process: {reason}\n{stacks}"], "died": True}

    def _start(self) -> subprocess.Popen[str]:
        self._errors.truncate(0)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "simulator.hostile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        return self._process


def _resident_mib(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def _serve() -> None:
    from simulator.hostile.history import run  # noqa: PLC0415 -- after the limits are set

    import_module("ortools.sat.python.cp_model")  # before memory is measured
    async with Evaluators(EVALUATION_S, processes=1) as evaluators:
        await run({"steps": [{"do": "serve"}]}, evaluators)
        for line in sys.stdin:
            result = await _measured(run(json.loads(line), evaluators))
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()


async def _measured(running: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a history with the memory that it took."""
    _forget_peak()
    before_mib = _resident_mib("VmRSS")
    result = await running
    took_mib = _resident_mib("VmHWM") - before_mib
    allowed_mib = MEMORY_MIB + BYTES_KEPT * result["bytes"] / MIB
    if took_mib > allowed_mib:
        result["violations"].append(
            f"{result['bytes']} bytes of objects take {took_mib:.0f} MiB of memory; "
            f"{allowed_mib:.0f} are allowed"
        )
    return result | {"memory_mib": took_mib}


def main() -> None:
    """Serve until the input ends."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES_MAX, ADDRESSES_MAX))
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("gangsched").propagate = False
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
