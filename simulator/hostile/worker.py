"""A process that lives through histories: a line of JSON in, a line of JSON out.

`Worker` is the other end. A history may take so long and so much memory, and no more: whatever
hangs ends the process with the stack of every thread, and the next history has a new one.
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
"""What a history may take beside what is told of: planned pods, and a planning cycle's arrays."""

EVALUATION_S = 3.0
"""What an expression, a log or a search may take here; others are not tried longer."""

BYTES_KEPT = 60
"""And so many bytes for each byte of the objects."""


class Worker:
    """Asks a process to live through histories, one at a time."""

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
        """Have a history lived through; one that ends the process is a violation."""
        process = self._process or self._start()
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        hung = threading.Event()

        def too_late() -> None:
            hung.set()
            process.send_signal(signal.SIGABRT)  # faulthandler writes where it stands

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
            found: dict[str, Any] = json.loads(line)
            return found
        code = process.wait()
        self._process = None
        said = Path(self._errors.name).read_text()
        said = said.partition("most recent call first")[2][:2000] or said[-2000:]
        why = (
            f"it takes more than {self._deadline_s:.0f} s" if hung.is_set() else f"it ends ({code})"
        )
        return {"violations": [f"the process: {why}\n{said}"], "died": True}

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

    import_module("ortools.sat.python.cp_model")  # what is imported later is no history's memory
    async with Evaluators(EVALUATION_S, processes=1) as evaluators:
        await run({"steps": [{"do": "serve"}]}, evaluators)
        for line in sys.stdin:
            found = await _measured(run(json.loads(line), evaluators))
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


async def _measured(running: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Return what became of a history, with the memory it took."""
    _forget_peak()
    before_mib = _resident_mib("VmRSS")
    found = await running
    took_mib = _resident_mib("VmHWM") - before_mib
    allowed_mib = MEMORY_MIB + BYTES_KEPT * found["bytes"] / MIB
    if took_mib > allowed_mib:
        told = f"{found['bytes']} bytes of objects take {took_mib:.0f} MiB of memory"
        found["violations"].append(f"{told}; {allowed_mib:.0f} are allowed")
    return found | {"memory_mib": took_mib}


def main() -> None:
    """Serve until the input ends."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES_MAX, ADDRESSES_MAX))
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("gangsched").propagate = False
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
