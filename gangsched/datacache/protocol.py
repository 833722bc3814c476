"""What head, workers and readers say to each other: small JSON texts, and a key in each call."""

import hmac
import json
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from gangsched.core.bounds import CACHE_CALL_S, CACHE_READERS

PORT = 50051
JOIN = "join"
LOCATE = "locate"

_HEADER = "authorization"
_MESSAGE_BYTES = 16_384
_KEY_LETTERS = 32
_FAILED = 64


class CacheError(Exception):
    """The cache cannot serve; the message is one sentence that says why."""


class FileError(CacheError):
    """A file cannot be read now; another worker may be able to read it."""


def flight_error(error: CacheError) -> Exception:
    """Return what a server raises: a reader asks again after a FlightServerError alone."""
    if isinstance(error, FileError):
        return flight.FlightServerError(str(error))  # type: ignore[no-any-return]
    return pa.ArrowInvalid(str(error))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `first` to `end` (not included) of the data set with the digest `version`."""

    version: str
    first: int
    end: int

    def ticket(self) -> flight.Ticket:
        """Return the ticket that asks a worker for these rows."""
        return flight.Ticket(json.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class Location:
    """A request to the head for a worker with these rows; the `failed` ones do not answer."""

    version: str
    first: int
    failed: tuple[str, ...]

    def action(self) -> flight.Action:
        """Return the Flight action."""
        return flight.Action(LOCATE, json.dumps(asdict(self)).encode())


@dataclass(frozen=True, slots=True)
class Join:
    """A worker that says it is alive."""

    version: str
    worker: int

    def action(self) -> flight.Action:
        """Return the Flight action."""
        return flight.Action(JOIN, json.dumps(asdict(self)).encode())


def parse_rows(data: bytes, version: str, most: int) -> Rows:
    """Return the rows that a ticket names.

    Raises:
        CacheError: it names none, or rows that the data set does not have.

    """
    fields = _fields(data, "a ticket", ("version", "first", "end"))
    check_version(fields["version"], version)
    first, end = _number(fields, "first", most - 1), _number(fields, "end", most)
    if end <= first:
        raise CacheError(f"a ticket has end {end}; more than its first row {first} is allowed")
    return Rows(version, first, end)


def parse_location(data: bytes, version: str, most: int) -> Location:
    """Return what a reader asks the head.

    Raises:
        CacheError: it asks nothing that the head can answer.

    """
    fields = _fields(data, "a locate", ("version", "first", "failed"))
    check_version(fields["version"], version)
    failed = fields["failed"]
    if (
        not isinstance(failed, list)
        or len(failed) > _FAILED
        or not all(isinstance(address, str) for address in failed)
    ):
        raise CacheError(f"a locate has no list of at most {_FAILED} addresses in `failed`")
    return Location(version, _number(fields, "first", most - 1), tuple(failed))


def parse_join(data: bytes, version: str, workers: int) -> Join:
    """Return which worker joins.

    Raises:
        CacheError: the head does not know it, or it has other files.

    """
    fields = _fields(data, "a join", ("version", "worker"))
    worker = _number(fields, "worker", workers - 1)
    check_version(fields["version"], version)
    return Join(version, worker)


def parse_share(path: list[bytes]) -> tuple[int, int]:
    """Return index and number of a reader's share.

    Raises:
        CacheError: it is no share.

    """
    texts = [part.decode(errors="replace") for part in path[:3]]
    if len(texts) != 2 or not all(
        text.isascii() and text.isdecimal() and len(text) < 10 for text in texts
    ):
        raise CacheError("a share has two numbers: its index and the number of shares")
    index, total = int(texts[0]), int(texts[1])
    if not 0 <= index < total <= CACHE_READERS.most:
        raise CacheError(
            f"share {index} of {total} does not exist; 0 to the number of shares - 1, of at most "
            f"{CACHE_READERS.most} shares, are allowed"
        )
    return index, total


def check_version(named: object, version: str) -> None:
    """Compare the digest of a data set with the digest of the own one.

    Raises:
        CacheError: they differ.

    """
    if named != version:
        raise CacheError(
            "the files of the data set have changed since the cache started; start the job again"
        )


def checked_key(key: str | None) -> str:
    """Return the key of the cache.

    Raises:
        CacheError: there is none, or it is short.

    """
    if not key or len(key) < _KEY_LETTERS or not key.isascii() or not key.isalnum():
        raise CacheError(
            f"CACHE_KEY is no key; at least {_KEY_LETTERS} letters and digits are allowed"
        )
    return key


def options(key: str) -> flight.FlightCallOptions:
    """Return the options of each call: its deadline, and the key."""
    header = (_HEADER.encode(), f"Bearer {key}".encode())
    return flight.FlightCallOptions(timeout=float(CACHE_CALL_S.most), headers=[header])


class KeyCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses each call without the key, before anything of the call is read."""

    def __init__(self, key: str) -> None:
        self._expected = f"Bearer {key}".encode()

    def start_call(self, _info: object, headers: dict[str, list[Any]]) -> None:
        """Compare the header of a call with the key.

        Raises:
            FlightUnauthenticatedError: it has another one, or none.

        """
        values = headers.get(_HEADER) or [""]
        sent = values[0].encode() if isinstance(values[0], str) else bytes(values[0])
        if len(values) != 1 or not hmac.compare_digest(sent, self._expected):
            raise flight.FlightUnauthenticatedError(
                "the key of the cache is missing or wrong: only pods of its job may connect"
            )


def _fields(data: bytes, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    if len(data) > _MESSAGE_BYTES:
        raise CacheError(f"{what} has {len(data)} bytes; at most {_MESSAGE_BYTES} are allowed")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or set(fields) != set(names):
        raise CacheError(f"{what} is no JSON object with the fields {', '.join(names)}")
    return fields


def _number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= most:
        raise CacheError(f"{name} is {str(value)[:40]!r}; 0 to {most} is allowed")
    return value
