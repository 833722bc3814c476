"""The /etc/hosts of a pod: a mounted file that is rewritten while pods read it."""

import os
from pathlib import Path


def write_in_place(path: Path, text: str) -> None:
    """Update a file, so that a concurrent reader never finds it empty.

    It is mounted, so it cannot be replaced by another file. Were it cut to nothing first, a name
    that a pod looks up in that moment would not be known, not even the pod's own.
    """
    data = text.encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if os.pread(descriptor, size + 1, 0) == data:
            return
        os.pwrite(descriptor, data.ljust(size, b"\n"), 0)  # no rest of an old line is left behind
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
