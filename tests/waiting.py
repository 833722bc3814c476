"""Waiting in tests: for a condition, with a deadline that scales with the machine.

A deadline here says only when a test gives up: nothing that holds waits for it. So it is generous,
and it grows with how slow the machine is, and how many processes share its cores: as they were when
the tests began, and as they are when a deadline has come.
"""

import asyncio
import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Found = TypeVar("Found")

_WORK = b"x" * 2_000_000
_ROUNDS = 20
_QUICK_S = 0.03
"""What `_ROUNDS` of hashing `_WORK` take on a machine that needs no patience."""

_FROM, _TO = 2.0, 20.0
"""The bounds of the factor: no machine is so quick that nothing else ever runs on it."""


def _measured() -> float:
    """Return how much longer than on a quick and idle machine a test may have to wait."""
    began_s = time.perf_counter()
    for _ in range(_ROUNDS):
        hashlib.sha256(_WORK).digest()
    slow = (time.perf_counter() - began_s) / _QUICK_S
    crowded = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(max(_FROM, slow * 2, crowded * 2), _TO)


FACTOR = _measured()
"""By how much every deadline of this run is stretched; measured once, when the tests begin."""


def patience_s(quick_s: float) -> float:
    """Return how long to wait here for what takes at most `quick_s` on a quick, idle machine."""
    return quick_s * FACTOR


class Deadline:
    """When to give up what takes at most `quick_s` on a quick, idle machine."""

    def __init__(self, quick_s: float) -> None:
        self._quick_s = quick_s
        self._began_s = time.monotonic()
        self._end_s = self._began_s + patience_s(quick_s)

    def over(self) -> bool:
        """Tell whether it has passed; a machine that became busier since the tests began has more.

        What it takes to tell is measured only once the deadline as it was has come.
        """
        if time.monotonic() <= self._end_s:
            return False
        self._end_s = max(self._end_s, self._began_s + self._quick_s * _measured())
        return time.monotonic() > self._end_s

    def left_s(self) -> float:
        """Return how long it takes until one has to ask again."""
        return max(self._end_s - time.monotonic(), 0.0)

    def waited_s(self) -> float:
        """Return how long it has been since it was set."""
        return time.monotonic() - self._began_s


def until(
    holds: Callable[[], Found],
    what: str,
    quick_s: float = 30.0,
    *,
    every_s: float | None = None,
    shown: Callable[[], str] = str,
) -> Found:
    """Wait until `holds` returns something true, and return that.

    It asks every `every_s`. Without that it asks ten times a second at first, and once a second
    after ten seconds: each look takes CPU that the awaited work needs.

    Raises:
        AssertionError: it did not in time; the message ends with what `shown` returns.

    """
    deadline = Deadline(quick_s)
    while True:
        overdue = deadline.over()  # a last look comes after the deadline
        if found := holds():
            return found
        if overdue:
            raise AssertionError(_in_vain(what, deadline, shown))
        time.sleep(every_s or min(max(0.1, deadline.waited_s() / 10), 1.0))


def stays(holds: Callable[[], object], seconds: float) -> bool:
    """Tell whether something held each time it was looked at, for a while.

    It cannot fail by chance: a slow machine only looks less often.
    """
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if not holds():
            return False
        time.sleep(0.2)
    return True


async def until_async(
    holds: Callable[[], Found],
    what: str,
    quick_s: float = 10.0,
    *,
    every_s: float = 0.005,
    shown: Callable[[], str] = str,
) -> Found:
    """Wait as `until` does, and let the event loop run meanwhile."""
    deadline = Deadline(quick_s)
    while True:
        overdue = deadline.over()
        if found := holds():
            return found
        if overdue:
            raise AssertionError(_in_vain(what, deadline, shown))
        await asyncio.sleep(every_s)


def ended(
    command: Sequence[str], quick_s: float, *, stdin: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` does, with a deadline as `until` has.

    Raises:
        AssertionError: it did not end in time, and was killed.

    """
    deadline = Deadline(quick_s)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        out, err = output(process, " ".join(command), deadline, given=stdin)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def output(
    process: subprocess.Popen[str], what: str, deadline: Deadline, *, given: str | None = None
) -> tuple[str, str]:
    """Wait for the end of a process; return what it wrote to its two pipes.

    Raises:
        AssertionError: it did not end in time, and was killed.

    """
    while True:
        overdue = deadline.over()
        try:
            return process.communicate(given, timeout=deadline.left_s())
        except subprocess.TimeoutExpired:
            given = None  # it is being written already
            if overdue:
                process.kill()
                raise AssertionError(_in_vain(what, deadline, str)) from None


def _in_vain(what: str, deadline: Deadline, shown: Callable[[], str]) -> str:
    return f"waited {deadline.waited_s():.0f} s in vain for {what}\n{shown()}".rstrip()
