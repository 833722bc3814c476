"""Reads a share of a cache: every row once, in order, whichever worker answers."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from gangsched.core.bounds import CACHE_PATIENCE_S
from gangsched.datacache.protocol import CacheError, Location, Rows, options, parse_rows

_RETRIED = (
    flight.FlightUnavailableError,
    flight.FlightTimedOutError,
    flight.FlightInternalError,
    flight.FlightCancelledError,
    flight.FlightServerError,
    OSError,
)
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_SHOWN = 300
_MOST_ROWS = 2**62


class CacheReader:
    """Reads from a cache by the address of its head.

    An answer is used only when it has arrived as a whole. If a worker ends before, the same rows
    are asked of another one, so that no row is lost or repeated. `patience_s` is how long a reader
    tries without getting a row.
    """

    def __init__(
        self, address: str, key: str, patience_s: float = float(CACHE_PATIENCE_S.most)
    ) -> None:
        self._address = address
        self._options = options(key)
        self._patience_s = patience_s
        self._clients: dict[str, Any] = {}
        self._failure: BaseException | None = None

    def batches(self, index: int, total: int) -> Iterator[Any]:
        """Yield the batches of rows of one of `total` shares.

        Raises:
            CacheError: rows cannot be read.

        """
        descriptor = flight.FlightDescriptor.for_path(str(index), str(total))
        what = f"share {index} of {total}"
        try:
            info = self._persist(lambda: self._info(descriptor), what)
            for rows, address in info[1]:
                yield from self._piece(rows, address, info[0])
        finally:
            self.close()

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _info(self, descriptor: Any) -> tuple[Any, list[tuple[Rows, str]]]:
        info = self._client(self._address).get_flight_info(descriptor, self._options)
        pieces = []
        for endpoint in info.endpoints:
            data = endpoint.ticket.ticket
            version = json.loads(data)["version"]
            address = endpoint.locations[0].uri.decode()
            pieces.append((parse_rows(data, version, _MOST_ROWS), address))
        return info.schema, pieces

    def _piece(self, rows: Rows, address: str, schema: Any) -> Iterator[Any]:
        first, failed = rows.first, set[str]()

        def ask() -> Any:
            nonlocal address
            if address in failed:
                address = self._another(rows.version, first, failed)
            wanted = Rows(rows.version, first, rows.end)
            try:
                return self._client(address).do_get(wanted.ticket(), self._options).read_all()
            except _RETRIED as error:
                self._failure = error
                failed.add(address)
                client = self._clients.pop(address, None)
                if client is not None:
                    client.close()
                raise

        while first < rows.end:
            answer = self._persist(ask, f"row {first}")
            failed.clear()
            self._failure = None
            if not 0 < answer.num_rows <= rows.end - first or not answer.schema.equals(schema):
                raise CacheError(
                    f"worker {address} of the cache {self._address} answers with "
                    f"{answer.num_rows} rows or other columns, where rows {first} to "
                    f"{rows.end - 1} were asked"
                )
            first += answer.num_rows
            yield from answer.to_batches()

    def _another(self, version: str, first: int, failed: set[str]) -> str:
        """Ask the head for another worker; once none is left, all may be tried again."""
        request = Location(version, first, tuple(sorted(failed)))
        try:
            (result,) = self._client(self._address).do_action(request.action(), self._options)
        except flight.FlightUnavailableError:
            failed.clear()
            raise
        return str(json.loads(result.body.to_pybytes())["address"])

    def _client(self, address: str) -> Any:
        if address not in self._clients:
            self._clients[address] = flight.FlightClient(
                address if "://" in address else f"grpc://{address}"
            )
        return self._clients[address]

    def _persist(self, ask: Any, what: str) -> Any:
        """Ask until there is an answer, or patience ends."""
        began_s, pause_s = time.monotonic(), _PAUSE_S
        while True:
            try:
                return ask()
            except flight.FlightUnauthenticatedError as error:
                raise CacheError(
                    f"the cache {self._address} refuses the key in CACHE_KEY: only pods of its "
                    "job may connect"
                ) from error
            except pa.ArrowInvalid as error:
                raise CacheError(_sentence(error)) from error
            except _RETRIED as error:
                left_s = began_s + self._patience_s - time.monotonic()
                if left_s <= 0:
                    last = _sentence(self._failure or error)
                    raise CacheError(
                        f"{what} cannot be read from the cache {self._address} within "
                        f"{self._patience_s:.0f} s; the last answer was: {last}"
                    ) from error
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _sentence(error: BaseException) -> str:
    """Return the message of an error without what gRPC appends."""
    return str(error).partition(". gRPC client debug context")[0].partition(". Detail:")[0][:_SHOWN]
