"""The folder that is filled: names, sizes and links of a store cannot lead out of it."""

import fnmatch
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gangsched.initializers.source import StorageError

_DEPTH = 32
_NAME_BYTES = 255
_PART = ".initializer-part"
"""A file has this name while it is written: a restarted pod begins it again."""


@dataclass(slots=True)
class Target:
    """A folder, with bounds of the files and bytes that it may get."""

    root: Path
    most_files: int
    most_bytes: int
    ignored: Sequence[str] = ()
    files: int = 0
    size: int = 0

    def prepare(self) -> None:
        """Create the folder.

        Raises:
            StorageError: a link or a file has its name.

        """
        self.root.parent.mkdir(parents=True, exist_ok=True)
        if self.root.is_symlink() or (self.root.exists() and not self.root.is_dir()):
            raise StorageError(f"{self.root} exists and is no folder; remove it from the volume")
        self.root.mkdir(exist_ok=True)

    def leaves_out(self, name: str) -> bool:
        """Return whether a pattern of the user leaves out a file."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.ignored)

    def check(self, name: str, size: int) -> None:
        """Count a file before it is fetched.

        Raises:
            StorageError: its name leads out of the folder, or there are too many files or bytes.

        """
        parts(name)
        self.files += 1
        if self.files > self.most_files:
            raise StorageError(f"the store has more than {self.most_files} files")
        self._count(max(size, 0))
        free = shutil.disk_usage(self.root).free
        if size > free:
            raise StorageError(f"{name[:_NAME_BYTES]!r} has {size} bytes; {free} are free")

    def write(self, name: str, chunks: Iterable[bytes], size: int) -> None:
        """Write a file of `size` bytes.

        Raises:
            StorageError: it is not allowed, or the store sends another number of bytes.

        """
        self.check(name, size)
        *folders, last = parts(name)
        with self._folder(folders) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            descriptor = os.open(_PART, flags, 0o644, dir_fd=folder)
            received = 0
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    received += len(chunk)
                    if received > size:
                        break
                    file.write(chunk)
            if received != size:
                os.unlink(_PART, dir_fd=folder)
                more = "more" if received > size else f"{received}"
                raise StorageError(f"{name!r} has {size} bytes, and the store sent {more}")
            os.rename(_PART, last, src_dir_fd=folder, dst_dir_fd=folder)

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > self.most_bytes:
            raise StorageError(f"the store has more than {self.most_bytes} bytes")

    @contextmanager
    def _folder(self, names: Sequence[str]) -> Iterator[int]:
        """Open a folder below the root without following a link."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptor = os.open(self.root, flags)
        try:
            for name in names:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=descriptor)
                below = os.open(name, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


def parts(name: str) -> list[str]:
    """Return the parts of a file's name in a store.

    Raises:
        StorageError: it leads out of the folder, or is too long.

    """
    split = name.split("/")
    bad = {"", ".", ".."} & set(split) or "\0" in name or "\\" in name
    if bad or len(split) > _DEPTH or any(len(part.encode()) > _NAME_BYTES for part in split):
        raise StorageError(
            f"the store has a file named {name[:_NAME_BYTES]!r}; a relative path of at most "
            f"{_DEPTH} parts without `..` is allowed"
        )
    return split
