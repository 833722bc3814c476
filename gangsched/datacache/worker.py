"""A worker of a cache: keeps its groups of rows in memory, and serves rows of every group."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from gangsched.core.bounds import CACHE_STREAMS, CACHE_WORKER_SILENT_S
from gangsched.datacache.protocol import (
    CacheError,
    Join,
    KeyCheck,
    flight_error,
    options,
    parse_rows,
)
from gangsched.datacache.table import CachedTable

_BATCH_ROWS = 8_192
_JOIN_S, _RETRY_S = CACHE_WORKER_SILENT_S.most / 6, 0.5
_SHOWN = 200

log = logging.getLogger("datacache")


class Worker(flight.FlightServerBase):  # type: ignore[misc]
    """The Flight server of a worker."""

    def __init__(self, address: str, key: str, table: CachedTable) -> None:
        self._table = table
        self._streams = threading.BoundedSemaphore(CACHE_STREAMS.most)
        super().__init__(address, middleware={"key": KeyCheck(key)})

    def do_get(self, _context: object, ticket: Any) -> Any:
        """Return the first rows of a ticket: as many as one answer may have."""
        table = self._table
        try:
            rows = parse_rows(ticket.ticket, table.version, table.rows)
            if not self._streams.acquire(blocking=False):
                raise flight.FlightUnavailableError(
                    f"the worker serves {CACHE_STREAMS.most} readers, which is the most"
                )
            try:
                piece = table.answer(rows.first, rows.end)
            except BaseException:
                self._streams.release()
                raise
        except CacheError as error:
            raise flight_error(error) from error
        return flight.GeneratorStream(table.schema, _Stream(piece, self._streams))


class _Stream:
    """The batches of one answer; its place among the streams is free once it is over."""

    def __init__(self, piece: Any, streams: threading.BoundedSemaphore) -> None:
        self._batches = iter(piece.to_batches(max_chunksize=_BATCH_ROWS))
        self._streams: threading.BoundedSemaphore | None = streams

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._batches)
        except StopIteration:
            self._release()
            raise

    def __del__(self) -> None:
        # A reader that cancels its call never asks for the end.
        self._release()

    def _release(self) -> None:
        if self._streams is not None:
            self._streams.release()
            self._streams = None


class Heartbeat(threading.Thread):
    """Reports to the head that the worker is alive, until it is stopped."""

    def __init__(self, head: str, key: str, join: Join) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._head, self._key, self._join = head, key, join
        self._stopped = threading.Event()

    def run(self) -> None:
        """Join again and again: the head may have restarted."""
        pause_s, last = 0.0, "it was not asked yet"
        while not self._stopped.wait(pause_s):
            error = self._try()
            if error != last:
                log.info("%s", f"the head does not answer: {error}" if error else "joined")
            pause_s, last = _RETRY_S if error else _JOIN_S, error

    def _try(self) -> str:
        try:
            with flight.FlightClient(self._head) as client:
                list(client.do_action(self._join.action(), options(self._key)))
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            return str(error)[:_SHOWN]
        return ""

    def stop(self) -> None:
        """Stop joining."""
        self._stopped.set()
