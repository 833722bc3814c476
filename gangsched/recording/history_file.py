"""The file of gang records: SQLite, bounded by size and age, written by a thread of its own."""

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gangsched.config import ConfigError
from gangsched.recording.gang_record import GangRecord

log = logging.getLogger(__name__)

_WAITING_MAX = 20_000
_BATCH = 500
_ROTATE_S = 3600.0
_BUSY_S = 10.0
_DAY_S = 86_400.0
_PART = 0.1
"""The part of the records that is dropped when the file is too large: the oldest."""
_FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS gangs (
  namespace TEXT NOT NULL, name TEXT NOT NULL, created_s REAL NOT NULL,
  queue TEXT NOT NULL, user TEXT NOT NULL, outcome TEXT NOT NULL,
  ended_s REAL NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (namespace, name, created_s)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS gangs_by_end ON gangs (ended_s);
CREATE TABLE IF NOT EXISTS unended (
  namespace TEXT NOT NULL, name TEXT NOT NULL, created_s REAL NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (namespace, name, created_s)) WITHOUT ROWID;
"""
_KEY = "namespace, name, created_s"


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How large the file may become, and how old its records."""

    bytes_max: int
    age_s: float


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which records are asked for; those that ended in [since_s, until_s), the last first."""

    since_s: float = 0.0
    until_s: float = float("inf")
    namespaces: tuple[str, ...] | None = None
    queue: str = ""
    user: str = ""
    outcomes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    limit: int = 1000


class HistoryWriter:
    """Writes records; `write` returns at once. Closing it writes what waits."""

    def __init__(
        self, path: Path, limits: HistoryLimits, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        """Open or create the file.

        `on_lost` is called in any thread for a record that cannot be written.

        Raises:
            ConfigError: the file cannot be written, or is of another program.

        """
        self._path, self._limits, self._on_lost = path, limits, on_lost
        self._queue: queue.Queue[tuple[GangRecord, bool] | None] = queue.Queue(_WAITING_MAX)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(_connect(path)) as file:
                _prepare(file)
                self.unended = _unended(file)
        except (OSError, sqlite3.Error, msgspec.MsgspecError) as error:
            raise ConfigError(f"history: {path}: {error}") from error
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    unended: Mapping[tuple[str, str, float], GangRecord]
    """The records of gangs that had not ended when the file was opened."""

    def write(self, record: GangRecord) -> None:
        """Write the record of a gang that ended, soon."""
        self._put(record, is_ended=True)

    def write_unended(self, record: GangRecord) -> None:
        """Write what a later process has to know of a gang, soon."""
        self._put(record, is_ended=False)

    def _put(self, record: GangRecord, *, is_ended: bool) -> None:
        try:
            self._queue.put_nowait((record, is_ended))
        except queue.Full:
            self._on_lost()

    def close(self) -> None:
        """Write what waits, and close the file."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=_BUSY_S)
        self._thread.join(_BUSY_S)

    def _run(self) -> None:
        rotated_s = 0.0
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while len(batch) < _BATCH:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            ended = None in batch
            items = [item for item in batch if item is not None]
            try:
                with contextlib.closing(_connect(self._path)) as file:
                    _prepare(file)
                    with file:
                        for record, is_ended in items:
                            _store(file, record, is_ended=is_ended)
                    if time.monotonic() - rotated_s > _ROTATE_S or _bytes(file) > (
                        self._limits.bytes_max
                    ):
                        rotated_s = time.monotonic()
                        rotate(file, self._limits, time.time())
            except (OSError, sqlite3.Error):
                log.exception("history: %s: %d records are lost", self._path, len(items))
                for _ in items:
                    self._on_lost()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY_S)


def _prepare(file: sqlite3.Connection) -> None:
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if version == _FORMAT:
        return
    (tables,) = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version or tables:
        raise sqlite3.DatabaseError("it is no history of gangsched, or of a later version")
    file.execute("PRAGMA journal_mode = WAL")
    file.executescript(_TABLES)
    file.execute(f"PRAGMA user_version = {_FORMAT}")
    file.commit()


def _store(file: sqlite3.Connection, record: GangRecord, *, is_ended: bool) -> None:
    data = msgspec.json.encode(record)
    if not is_ended:
        file.execute("INSERT OR REPLACE INTO unended VALUES (?, ?, ?, ?)", (*record.key, data))
        return
    file.execute(
        "DELETE FROM unended WHERE namespace = ? AND name = ? AND created_s = ?", record.key
    )
    # A gang that ended and is deleted while its job waits for another run has its record already.
    verb = "REPLACE" if record.runs else "IGNORE"
    file.execute(
        f"INSERT OR {verb} INTO gangs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 -- two words
        (*record.key, record.queue, record.user, record.outcome, record.ended_s, data),
    )


def _bytes(file: sqlite3.Connection) -> int:
    pages, unused, size = (
        file.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - unused) * size)


def rotate(file: sqlite3.Connection, limits: HistoryLimits, now_s: float) -> None:
    """Drop records that are too old, and the oldest of a file that is too large."""
    with file:
        file.execute("DELETE FROM gangs WHERE ended_s < ?", (now_s - limits.age_s,))
        file.execute("DELETE FROM unended WHERE created_s < ?", (now_s - limits.age_s,))
    while _bytes(file) > limits.bytes_max:
        with file:
            (count,) = file.execute("SELECT count(*) FROM gangs").fetchone()
            if not count:
                file.execute("DELETE FROM unended")
                break
            file.execute(
                f"DELETE FROM gangs WHERE ({_KEY}) IN "  # noqa: S608 -- names of columns
                f"(SELECT {_KEY} FROM gangs ORDER BY ended_s LIMIT ?)",
                (max(int(count * _PART), 1),),
            )
    pages, unused = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")
    )
    if unused > pages * _PART / 2:
        file.execute("VACUUM")
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _unended(file: sqlite3.Connection) -> dict[tuple[str, str, float], GangRecord]:
    rows = file.execute("SELECT data FROM unended")
    records = (msgspec.json.decode(data, type=GangRecord) for (data,) in rows)
    return {record.key: record for record in records}


# -- reading --------------------------------------------------------------------------------------


def read_history(path: Path, query: HistoryQuery) -> Iterator[GangRecord]:
    """Yield the records of a file that are asked for, the last first.

    Raises:
        ConfigError: there is no such file, or it is no history.

    """
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such history")
    where, values = _conditions(query)
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
        ) as file:
            (version,) = file.execute("PRAGMA user_version").fetchone()
            if version != _FORMAT:
                raise ConfigError(f"{path}: it is no history of gangsched, or of a later version")
            rows = file.execute(
                f"SELECT data FROM gangs WHERE {where} ORDER BY ended_s DESC LIMIT ?",  # noqa: S608
                (*values, query.limit),
            )
            for (data,) in rows:
                yield msgspec.json.decode(data, type=GangRecord)
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _conditions(query: HistoryQuery) -> tuple[str, list[str | float]]:
    parts, values = ["ended_s >= ?"], [query.since_s]  # type: tuple[list[str], list[str | float]]
    if query.until_s != float("inf"):
        parts.append("ended_s < ?")
        values.append(query.until_s)
    for column, wanted in (("queue", query.queue), ("user", query.user)):
        if wanted:
            parts.append(f"{column} = ?")
            values.append(wanted)
    for column, several in (
        ("namespace", query.namespaces),
        ("outcome", query.outcomes or None),
        ("name", query.names or None),
    ):
        if several is not None:
            parts.append(f"{column} IN ({', '.join('?' * len(several))})")
            values += several
    return " AND ".join(parts), values
