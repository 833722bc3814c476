"""A torch data set that reads from the cache of its job: each rank its share, each row once."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

from gangsched.datacache.protocol import CacheError, checked_key
from gangsched.datacache.reader import CacheReader


class CacheDataset(IterableDataset):  # type: ignore[misc]
    """Yields batches of `batch_size` rows; the last one of a share may have fewer.

    A DataLoader around it has `batch_size=None`. Its worker processes get shares of their own.
    `set_epoch` gives each rank other rows. Shares differ by one row, so that ranks may have
    different numbers of batches: `DistributedDataParallel.join` waits for the others.
    """

    def __init__(self, batch_size: int = 32, columns: list[str] | None = None) -> None:
        if "CACHE_ADDRESS" not in os.environ:
            raise CacheError(
                "CACHE_ADDRESS is not set: the job's runtime has no cache; use torch-with-cache"
            )
        self._address = os.environ["CACHE_ADDRESS"]
        self._key = checked_key(os.environ.get("CACHE_KEY"))
        self._batch_size, self._columns, self._epoch = batch_size, columns, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""
        self._epoch = epoch

    def convert(self, rows: Any) -> Any:
        """Return what a batch of rows is to the training loop; a subclass may do more."""
        return {name: column_tensor(rows.column(name)) for name in rows.column_names}

    def __iter__(self) -> Iterator[Any]:
        index, total = self._share()
        left: Any = None
        # The client is made here: gRPC does not survive the fork of a DataLoader's worker.
        for batch in CacheReader(self._address, self._key).batches(index, total):
            rows = pa.Table.from_batches([batch])
            if self._columns is not None:
                rows = rows.select(self._columns)
            if left is not None:
                rows = pa.concat_tables([left, rows])
            first = 0
            while rows.num_rows - first >= self._batch_size:
                yield self.convert(rows.slice(first, self._batch_size))
                first += self._batch_size
            left = rows.slice(first)
        if left is not None and left.num_rows:
            yield self.convert(left)

    def _share(self) -> tuple[int, int]:
        rank, ranks = 0, 1
        if dist.is_available() and dist.is_initialized():
            rank, ranks = dist.get_rank(), dist.get_world_size()
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        return ((rank + self._epoch) % ranks) * workers + number, ranks * workers


def column_tensor(column: Any) -> Any:
    """Return a column of numbers, or of lists of equal length, as a tensor; else as a list."""
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    width = None
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        flat = values.flatten()
        if values.null_count or not len(values) or len(flat) % len(values):
            return values.to_pylist()
        width = len(flat) // len(values)
        if any(len(item) != width for item in values):
            return values.to_pylist()
        values = flat
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if values.null_count or not (is_number or pa.types.is_boolean(values.type)):
        return column.to_pylist()
    result = torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    return result if width is None else result.reshape(-1, width)
