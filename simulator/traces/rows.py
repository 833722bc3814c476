"""Rows of trace files with their file and line, which every error names."""

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NoReturn, TypeVar

T = TypeVar("T")

COUNT_MAX = 10**9
"""Upper bound of GPUs, pods, and MiB of memory."""

BROKEN = (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error)
"""The exceptions from reading a truncated or binary file."""


class TraceError(Exception):
    """A trace cannot be read; the message has file, line, column, value and what is allowed.

    `reason` is the message without file and line.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


@dataclass(slots=True)
class Left:
    """Counts of the rows that were left out, by reason; without `skip` the first is an error."""

    skip: bool = False
    reasons: dict[str, int] = field(default_factory=dict)

    def out(self, reason: str) -> None:
        """Count a row that was left out."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table; its errors name file, line and column."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Return a cell.

        Raises:
            TraceError: the row has no such column.

        """
        if column not in self.cells:
            self.refuse(column, "must be there")
        return self.cells[column]

    def number(self, column: str, least: float = float("-inf"), *, above: bool = False) -> float:
        """Return a number that is at least `least`, or above it.

        Raises:
            TraceError: the cell is no number, or too small.

        """
        try:
            value = float(self.text(column))
        except ValueError:
            self.refuse(column, "must be a number")
        if not (value > least if above else value >= least) or math.isinf(value):
            self.refuse(column, f"must be {'more than' if above else 'at least'} {least:g}")
        return value

    def count(self, column: str, least: int = 0, most: int = COUNT_MAX) -> int:
        """Return a whole number from `least` to `most`.

        Raises:
            TraceError: the cell has no such number.

        """
        value = self.number(column, least)
        if value != int(value):
            self.refuse(column, "must be a whole number")
        if value > most:
            self.refuse(column, f"must be at most {most}")
        return int(value)

    def time_s(self, column: str) -> float:
        """Return a time in ISO 8601; without a time zone it is UTC.

        Raises:
            TraceError: the cell is no time.

        """
        try:
            at = datetime.fromisoformat(self.text(column))
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):  # the year 1 east of Greenwich overflows
            self.refuse(column, "must be a time such as 2017-10-09 07:01:55")

    def refuse(self, column: str, allowed: str) -> NoReturn:
        """Raise an error about a cell.

        Raises:
            TraceError: always.

        """
        value = self.cells.get(column, "")
        where = f"{self.path}: line {self.line}, column {column}"
        raise TraceError(f"{where}: {value!r} {allowed}", f"{column} {allowed}")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, compressed or not, with their numbers.

    Raises:
        TraceError: the file cannot be read.

    """
    number = 0
    with open_text(path) as file:
        try:
            for number, text in enumerate(file, 1):
                yield number, text.rstrip("\n")
        except BROKEN as error:
            raise TraceError(f"{path}: line {number + 1}: {error}") from error


def open_text(path: Path) -> IO[str]:
    """Open a text file, compressed or not.

    Raises:
        TraceError: the file cannot be read.

    """
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8")
        return path.open(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error


def table(
    path: Path,
    columns: Sequence[str],
    *,
    delimiter: str = ",",
    header: Sequence[str] | None = None,
) -> Iterator[Row]:
    """Yield the rows of a table with these columns; `header` has the names if the file has none.

    Raises:
        TraceError: the file is missing or cut short, or it lacks a column.

    """
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        try:
            names = list(header) if header is not None else next(reader, [])
            missing = [name for name in columns if name not in names]
            if missing:
                raise TraceError(
                    f"{path}: there is no column {missing[0]!r}; it has: {', '.join(names) or '-'}"
                )
            for cells in reader:
                if not cells:
                    continue
                line = reader.line_num
                if len(cells) < len(names) and any(c in names[len(cells) :] for c in columns):
                    raise TraceError(
                        f"{path}: line {line}: has {len(cells)} of {len(names)} columns; the file "
                        f"may be cut short"
                    )
                yield Row(path, line, dict(zip(names, cells, strict=False)))
        except (csv.Error, *BROKEN) as error:
            raise TraceError(f"{path}: line {reader.line_num + 1}: {error}") from error


def each(rows: Iterator[Row], read: Callable[[Row], T], left: Left) -> Iterator[T]:
    """Yield what each row contains; with `left.skip`, wrong rows are left out and counted.

    Raises:
        TraceError: a row is wrong, and `left.skip` is not set.

    """
    for row in rows:
        try:
            yield read(row)
        except TraceError as error:
            if not left.skip:
                raise TraceError(f"{error}; bad_rows: skip leaves such rows out") from None
            left.out(error.reason)
