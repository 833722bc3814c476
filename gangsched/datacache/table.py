"""The data set in a folder: the groups of rows of its Parquet files, read one at a time."""

import hashlib
import threading
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from gangsched.core.bounds import (
    CACHE_ANSWER_BYTES,
    CACHE_FILES,
    CACHE_GROUP_BYTES,
    CACHE_GROUPS,
    CACHE_ROW_BYTES,
)
from gangsched.datacache.protocol import CacheError, FileError
from gangsched.datacache.shares import group_with_row

_SHOWN = 200


class CachedTable:
    """The rows of all Parquet files of a folder, in the order of their names.

    `memory` bytes of groups are kept; the group that was used longest ago is dropped first.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        self._groups: list[tuple[Path, int]] = []
        self._files: dict[Path, tuple[int, int]] = {}
        self._memory = memory
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._kept_bytes = 0
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self.schema: Any = None
        digest, counts = hashlib.sha256(), [0]
        for path in _files(folder):
            footer = _footer(path, path.relative_to(folder).as_posix())
            self._add(path, footer, counts)
            self._files[path] = _state(path)
            digest.update(f"{path.relative_to(folder)}\0{self._files[path][0]}\0".encode())
            digest.update(f"{footer.num_rows}\0{footer.num_row_groups}\0".encode())
        self.starts = list(accumulate(counts))
        self.version = digest.hexdigest()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.starts[-1]

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return len(self._groups)

    def _add(self, path: Path, footer: Any, counts: list[int]) -> None:
        schema = footer.schema.to_arrow_schema().remove_metadata()
        if self.schema is None:
            self.schema = schema
        elif not self.schema.equals(schema):
            raise CacheError(
                f"{path.name!r} has other columns than the files before it; all files of a data "
                "set have the same columns"
            )
        if len(self._groups) + footer.num_row_groups > CACHE_GROUPS.most:
            raise CacheError(
                f"the data set has more than {CACHE_GROUPS.most} row groups; write larger ones"
            )
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if group.total_byte_size > CACHE_GROUP_BYTES.most:
                raise CacheError(
                    f"row group {number} of {path.name!r} has {group.total_byte_size} bytes; at "
                    f"most {CACHE_GROUP_BYTES.most} are allowed: write smaller ones"
                )
            if group.num_rows:
                self._groups.append((path, number))
                counts.append(group.num_rows)

    def fill(self, worker: int, workers: int) -> int:
        """Read the groups of a worker until its memory is full; return how many."""
        first = -(-worker * self.groups // workers)
        end = -(-(worker + 1) * self.groups // workers)
        for count, group in enumerate(range(first, end)):
            size = self._group(group).nbytes
            if self._kept_bytes + size > self._memory:
                return count + 1
        return end - first

    def answer(self, first: int, end: int) -> Any:
        """Return rows from `first` on: at least one, as many as one answer may have.

        Raises:
            CacheError: a file cannot be read, or the row is too large.

        """
        number = group_with_row(self.starts, first)
        table = self._group(number)
        offset = first - self.starts[number]
        count = min(end, self.starts[number + 1]) - first
        piece = table.slice(offset, count)
        while piece.nbytes > CACHE_ANSWER_BYTES.most and count > 1:
            count = max(1, min(count // 2, count * CACHE_ANSWER_BYTES.most // piece.nbytes))
            piece = table.slice(offset, count)
        if piece.nbytes > CACHE_ROW_BYTES.most:
            raise CacheError(
                f"row {first} has {piece.nbytes} bytes; at most {CACHE_ROW_BYTES.most} are allowed"
            )
        return piece

    def _group(self, number: int) -> Any:
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
        with self._reading:
            with self._lock:
                if number in self._kept:
                    return self._kept[number]
            table = self._read(number)
            with self._lock:
                self._keep(number, table)
        return table

    def _keep(self, number: int, table: Any) -> None:
        size = table.nbytes
        while self._kept and self._kept_bytes + size > self._memory:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= dropped.nbytes
        if size <= self._memory:
            self._kept[number] = table
            self._kept_bytes += size

    def _read(self, number: int) -> Any:
        path, group = self._groups[number]
        try:
            if _state(path) != self._files[path]:
                raise CacheError(
                    f"{path.name!r} has changed since the cache started; start the job again"
                )
            with parquet.ParquetFile(path) as file:
                table = file.read_row_group(group, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise FileError(
                f"row group {group} of {path.name!r} cannot be read: {str(error)[:_SHOWN]}"
            ) from error
        table = table.replace_schema_metadata(None)
        expected = self.starts[number + 1] - self.starts[number]
        if table.num_rows != expected or not table.schema.equals(self.schema):
            raise CacheError(
                f"row group {group} of {path.name!r} is not what the end of the file says; write "
                "the file again"
            )
        return table.combine_chunks()


def _files(folder: Path) -> list[Path]:
    """Return the Parquet files below a folder in the order of their names."""
    paths = []
    for path in folder.rglob("*.parquet"):
        if path.is_symlink() or not path.is_file():
            continue
        paths.append(path)
        if len(paths) > CACHE_FILES.most:
            raise CacheError(
                f"the data set has more than {CACHE_FILES.most} Parquet files; write larger ones"
            )
    if not paths:
        raise CacheError(f"{folder} has no files named *.parquet; the cache serves Parquet files")
    return sorted(paths)


def _state(path: Path) -> tuple[int, int]:
    """Return what changes with a file: its size and its time."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _footer(path: Path, name: str) -> Any:
    try:
        return parquet.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise CacheError(f"{name!r} is no Parquet file: {str(error)[:_SHOWN]}") from error
