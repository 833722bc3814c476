"""How tests wait: for a condition, with a deadline that scales with the machine.

A deadline here says only when a test gives up: nothing that holds waits for it. So it is generous,
and it grows with how slow the machine is, and how many processes share its cores.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from typing import TypeVar

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


def until(
    holds: Callable[[], Found],
    what: str,
    quick_s: float = 30.0,
    *,
    every_s: float = 0.1,
    shown: Callable[[], str] = str,
) -> Found:
    """Wait until `holds` returns something true, and return that.

    Raises:
        AssertionError: it did not in time; the message ends with what `shown` returns.

    """
    deadline_s = time.monotonic() + patience_s(quick_s)
    while True:
        overdue = time.monotonic() > deadline_s  # a last look comes after the deadline
        if found := holds():
            return found
        if overdue:
            raise AssertionError(_in_vain(what, quick_s, shown))
        time.sleep(every_s)


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
    deadline_s = time.monotonic() + patience_s(quick_s)
    while True:
        overdue = time.monotonic() > deadline_s
        if found := holds():
            return found
        if overdue:
            raise AssertionError(_in_vain(what, quick_s, shown))
        await asyncio.sleep(every_s)


def _in_vain(what: str, quick_s: float, shown: Callable[[], str]) -> str:
    return f"waited {patience_s(quick_s):.0f} s in vain for {what}\n{shown()}".rstrip()
