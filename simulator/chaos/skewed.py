"""Runs gangsched with a skewed wall clock: `python -m simulator.chaos.skewed FILE ...`.

FILE holds one double, the skew in seconds, and may change at any time. The monotonic clock stays
right, as on a machine where an administrator sets the time.
"""

import mmap
import struct
import sys
import time
from pathlib import Path

_OFF = struct.Struct("d")


def set_off(file: Path, off_s: float) -> None:
    """Set the skew of the clock that reads this file."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(_OFF.pack(off_s))


def skew(file: Path) -> None:
    """Skew `time.time()` of this process by the value in the file."""
    with file.open("rb") as opened:
        view = mmap.mmap(opened.fileno(), _OFF.size, access=mmap.ACCESS_READ)
    true = time.time
    time.time = lambda: true() + _OFF.unpack_from(view)[0]


if __name__ == "__main__":
    skew(Path(sys.argv.pop(1)))
    from gangsched.cli.main import app

    app()
