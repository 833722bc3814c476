"""Runs gangsched under a wall clock that may be wrong: `python -m simulator.chaos.skewed FILE ...`.

FILE holds one double, by how many seconds the clock is off; it may change at any time. What counts
seconds (the monotonic clock) is not touched, as on a machine whose administrator sets the time.
"""

import mmap
import struct
import sys
import time
from pathlib import Path

_OFF = struct.Struct("d")


def set_off(file: Path, off_s: float) -> None:
    """Have the clock that reads this file be off by so many seconds."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(_OFF.pack(off_s))


def skew(file: Path) -> None:
    """Have `time.time()` of this process be off by what the file says."""
    with file.open("rb") as opened:
        view = mmap.mmap(opened.fileno(), _OFF.size, access=mmap.ACCESS_READ)
    true = time.time
    time.time = lambda: true() + _OFF.unpack_from(view)[0]


if __name__ == "__main__":
    skew(Path(sys.argv.pop(1)))
    from gangsched.cli.main import app

    app()
