"""Copies a folder of a mounted volume: pvc:// and file://."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gangsched.initializers.source import StorageError
from gangsched.initializers.target import Target

_CHUNK = 2**20
_SHOWN = 100


def copy_volume(mounted: Path, path: str, target: Target) -> None:
    """Copy a folder or a file of a volume.

    Links are followed within the volume alone: caches of models consist of such links.

    Raises:
        StorageError: it does not exist, or leads out of the volume.

    """
    volume = mounted.resolve()
    start = _within(volume, mounted / path)
    if start.is_file():
        _copy_file(volume, start, start.name, target)
        return
    for folder, below, files in os.walk(start, onerror=_refuse):
        below.sort()
        for name in sorted(files + [name for name in below if Path(folder, name).is_symlink()]):
            file = Path(folder, name)
            relative = file.relative_to(start).as_posix()
            if not target.leaves_out(relative):
                _copy_file(volume, file, relative, target)


def _copy_file(volume: Path, file: Path, name: str, target: Target) -> None:
    real = _within(volume, file)
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(f"{name!r} of the volume is no regular file; leave it out")
        target.write(name, _chunks(descriptor), status.st_size)
    finally:
        os.close(descriptor)


def _chunks(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, _CHUNK):
        yield chunk


def _refuse(error: OSError) -> None:
    raise StorageError(f"a folder of the volume cannot be read: {error}")


def _within(volume: Path, path: Path) -> Path:
    """Return where a path leads, within the volume."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise StorageError(f"the volume has no {path.name[:_SHOWN]!r}") from error
    if not real.is_relative_to(volume):
        raise StorageError(f"{path.name[:_SHOWN]!r} leads out of the volume")
    return real
