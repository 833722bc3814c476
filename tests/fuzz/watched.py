"""Runs a decoder with limits of time and memory, and reports the input that exceeds them."""

import faulthandler
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from waiting import patience_s

QUICK_S = 10.0
"""How long one input may compute on a quick machine; far more than any does."""

_STANDS_S = 300.0
"""How long one may take that computes nothing: it waits for something, not for a processor."""

MIB = 2**20
MEMORY_MIB = 256
BYTES_KEPT = 100
"""An input may take so much memory, and so many bytes for each of its own."""

_ADDRESSES = 6 * 2**30
_LARGE = 20_000


def bound_memory() -> None:
    """Have this process fail, not the machine, where something asks for all memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _ADDRESSES if hard == resource.RLIM_INFINITY else min(_ADDRESSES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def arm() -> None:
    """Have the process end with the stack of every thread, unless it is told again in time."""
    faulthandler.register(signal.SIGPROF, chain=True)  # whose own action is to end the process
    signal.setitimer(signal.ITIMER_PROF, patience_s(QUICK_S))
    faulthandler.dump_traceback_later(patience_s(_STANDS_S), exit=True)


def disarm() -> None:
    """Let everything take as long as it likes."""
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    faulthandler.cancel_dump_traceback_later()


def tried(target: Callable[[bytes], None], raw: bytes, note: Path) -> None:
    """Have a target read an input; a large one is in `note` meanwhile, and has time of its own.

    Raises:
        AssertionError: it took too much memory.

    """
    large = len(raw) > _LARGE
    if large:
        note.write_bytes(raw)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        arm()
    before_mib = _resident_mib("VmRSS") if large else 0.0
    target(raw)
    if large:
        arm()
        took_mib = _resident_mib("VmHWM") - before_mib
        allowed_mib = MEMORY_MIB + BYTES_KEPT * len(raw) / MIB
        assert took_mib <= allowed_mib, f"{took_mib:.0f} MiB for {len(raw)} bytes"


def _resident_mib(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"/proc/self/status lacks {field}")
