"""The head of a cache: answers readers their shares, and which workers serve them."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import flight

from gangsched.core.bounds import CACHE_WORKER_SILENT_S
from gangsched.datacache.protocol import (
    JOIN,
    LOCATE,
    CacheError,
    KeyCheck,
    Rows,
    flight_error,
    parse_join,
    parse_location,
    parse_share,
)
from gangsched.datacache.shares import group_with_row, home, pieces, share_of_rows
from gangsched.datacache.table import CachedTable


class Head(flight.FlightServerBase):  # type: ignore[misc]
    """The Flight server of the head. It keeps nothing that a restart would lose."""

    def __init__(self, address: str, key: str, table: CachedTable, workers: Sequence[str]) -> None:
        self._table, self._workers = table, tuple(workers)
        self._seen_s: dict[int, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, middleware={"key": KeyCheck(key)})

    def get_flight_info(self, _context: object, descriptor: Any) -> Any:
        """Return the rows of a share, each with the worker that has them."""
        try:
            index, total = parse_share(list(descriptor.path or []))
        except CacheError as error:
            raise flight_error(error) from error
        table, endpoints = self._table, []
        first, end = share_of_rows(table.rows, index, total)
        for begin, stop, worker in pieces(table.starts, first, end, len(self._workers)):
            address = self._address(worker, frozenset())
            ticket = Rows(table.version, begin, stop).ticket()
            endpoints.append(flight.FlightEndpoint(ticket, [address]))
        return flight.FlightInfo(table.schema, descriptor, endpoints, end - first, -1)

    def do_action(self, _context: object, action: Any) -> Iterator[Any]:
        """Answer a worker that joins, or a reader that gets no answer from a worker."""
        body = action.body.to_pybytes() if action.body is not None else b""
        table = self._table
        try:
            if action.type == JOIN:
                joined = parse_join(body, table.version, len(self._workers))
                with self._lock:
                    self._seen_s[joined.worker] = time.monotonic()
                return iter(())
            if action.type == LOCATE:
                asked = parse_location(body, table.version, table.rows)
                group = group_with_row(table.starts, asked.first)
                worker = home(group, table.groups, len(self._workers))
                address = self._address(worker, frozenset(asked.failed))
                return iter([flight.Result(json.dumps({"address": address}).encode())])
        except CacheError as error:
            raise flight_error(error) from error
        raise pa.ArrowInvalid(
            f"the action is {str(action.type)[:40]!r}; {JOIN} and {LOCATE} are allowed"
        )

    def _address(self, worker: int, failed: frozenset[str]) -> str:
        """Return the address of a worker, or of the next one that is alive and has not failed."""
        now_s, count = time.monotonic(), len(self._workers)
        with self._lock:
            alive = {
                index
                for index, seen_s in self._seen_s.items()
                if now_s - seen_s < CACHE_WORKER_SILENT_S.most
            }
        for index in range(worker, worker + count):
            address = self._workers[index % count]
            if index % count in alive and address not in failed:
                return address
        raise flight.FlightUnavailableError(
            f"{len(alive)} of {count} workers of the cache are alive, and {len(failed)} do not "
            "answer the reader"
        )
