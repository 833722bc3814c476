"""The file of records: what is written, bounded and read."""

import contextlib
import sqlite3
import threading

import msgspec
import pytest

from gangsched.config import ConfigError
from gangsched.recording import history_file
from gangsched.recording.gang_record import GangOutcome, GangRecord
from gangsched.recording.history_file import (
    HistoryLimits,
    HistoryQuery,
    HistoryWriter,
    read_history,
    rotate,
)

LIMITS = HistoryLimits(2**30, 1e12)


def record(name="job", ended_s=100.0, **more):
    more = {"namespace": "ns", "queue": "q", "user": "u", "outcome": GangOutcome.COMPLETED, **more}
    more.setdefault("runs", 1)
    return GangRecord(
        name=name, created_s=more.pop("created_s", 1.0), submitted_s=1.0, ended_s=ended_s, **more
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "history.db"


def write(path, *records, limits=LIMITS):
    writer = HistoryWriter(path, limits)
    for one in records:
        writer.write(one)
    writer.close()
    return writer


def names(path, **query):
    return [one.name for one in read_history(path, HistoryQuery(**query))]


def test_what_is_written_is_read(path):
    one = record(gpu_s={"H100": 5.0}, reasons={"NotEnoughFree": 2.0}, nodes=("a",), started_s=3.0)
    write(path, one)
    assert list(read_history(path, HistoryQuery())) == [one]


def test_records_are_asked_for(path):
    write(
        path,
        record("a", 10.0),
        record("b", 20.0, queue="other"),
        record("c", 30.0, user="bob", outcome=GangOutcome.FAILED),
        record("d", 40.0, namespace="theirs"),
    )
    assert names(path) == ["d", "c", "b", "a"]
    assert names(path, since_s=20.0, until_s=40.0) == ["c", "b"]
    assert names(path, queue="other") == ["b"]
    assert names(path, user="bob") == ["c"]
    assert names(path, outcomes=("Failed",)) == ["c"]
    assert names(path, namespaces=("theirs",)) == ["d"]
    assert names(path, namespaces=()) == []
    assert names(path, names=("a", "b")) == ["b", "a"]
    assert names(path, limit=1) == ["d"]
    assert names(path, user="x' OR 1=1 --") == []


def test_a_later_run_replaces_the_record_and_a_later_deletion_does_not(path):
    write(path, record(ran_s=1.0), record(ran_s=2.0, runs=2), record(ran_s=0.0, runs=0))
    (found,) = read_history(path, HistoryQuery())
    assert found.ran_s == 2.0


def test_gangs_that_have_not_ended_are_there_for_the_next_process(path):
    writer = HistoryWriter(path, LIMITS)
    writer.write_unended(record("a"))
    writer.write_unended(record("b"))
    writer.write(record("b"))
    writer.close()
    assert [one.name for one in HistoryWriter(path, LIMITS).unended.values()] == ["a"]
    assert names(path) == ["b"]


def test_the_oldest_records_are_dropped_from_a_large_file(path):
    many = [record(f"job-{number}", float(number), nodes=("n" * 200,)) for number in range(3000)]
    write(path, *many)
    with contextlib.closing(sqlite3.connect(path)) as file:
        rotate(file, HistoryLimits(200_000, 1e12), 3000.0)
    assert path.stat().st_size <= 250_000
    kept = names(path, limit=5000)
    assert 100 < len(kept) < 3000
    assert kept[0] == "job-2999"
    assert kept == [f"job-{number}" for number in range(2999, 2999 - len(kept), -1)]


def test_old_records_are_dropped(path):
    write(path, record("old", 10.0), record("new", 100.0))
    with contextlib.closing(sqlite3.connect(path)) as file:
        rotate(file, HistoryLimits(2**30, 50.0), 110.0)
    assert names(path) == ["new"]


def test_the_writer_rotates_by_itself(path, monkeypatch):
    monkeypatch.setattr(history_file, "_BATCH", 100)
    many = [record(f"job-{number}", float(number), nodes=("n" * 500,)) for number in range(2000)]
    write(path, *many, limits=HistoryLimits(300_000, 1e12))
    assert 0 < len(names(path, limit=5000)) < 2000


def test_a_record_that_cannot_wait_is_counted(path, monkeypatch):
    monkeypatch.setattr(history_file, "_WAITING_MAX", 1)
    lost = []
    writer = HistoryWriter(path, LIMITS, lambda: lost.append(1))
    blocked, release = threading.Event(), threading.Event()

    def block(*_, **__):
        blocked.set()
        release.wait(60)

    monkeypatch.setattr(history_file, "_store", block)
    writer.write(record("a"))
    assert blocked.wait(60)
    writer.write(record("b"))
    writer.write(record("c"))
    release.set()
    writer.close()
    assert lost == [1]


def test_records_that_cannot_be_written_are_counted(path, caplog):
    lost = []
    writer = HistoryWriter(path, LIMITS, lambda: lost.append(1))
    path.write_bytes(b"another program's file" * 100)
    for more in path.parent.glob("history.db-*"):
        more.unlink()
    writer.write(record())
    writer.close()
    assert lost == [1]
    assert "records are lost" in caplog.text


@pytest.mark.parametrize("content", [b"not a database" * 100, "other tables"])
def test_a_file_of_another_program_is_refused_and_kept(path, content):
    path.parent.mkdir()
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with contextlib.closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE x (y)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"history: .*history\.db"):
        HistoryWriter(path, LIMITS)
    assert path.read_bytes() == before
    with pytest.raises(ConfigError):
        list(read_history(path, HistoryQuery()))


def test_a_missing_file_is_named(path):
    with pytest.raises(ConfigError, match="there is no such history"):
        list(read_history(path, HistoryQuery()))


def test_a_malformed_record_is_named(path):
    write(path, record())
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE gangs SET data = '{\"name\": 1}'")
    with pytest.raises(ConfigError, match=r"history\.db"):
        list(read_history(path, HistoryQuery()))


def test_a_record_of_a_later_version_is_read(path):
    data = msgspec.json.decode(msgspec.json.encode(record()))
    assert msgspec.convert({**data, "price": 3}, GangRecord) == record()
