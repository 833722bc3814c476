"""The data cache: shares, hostile calls, and workers that end while their rows are read."""

import json
import threading
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import flight, parquet
from waiting import patience_s, until

from gangsched.core.bounds import (
    CACHE_ANSWER_BYTES,
    CACHE_FILES,
    CACHE_GROUPS,
    CACHE_READERS,
    CACHE_STREAMS,
    UpperBound,
)
from gangsched.datacache import __main__ as program
from gangsched.datacache import protocol
from gangsched.datacache import table as tables
from gangsched.datacache.head import Head
from gangsched.datacache.protocol import CacheError, Join, Location, Rows, options
from gangsched.datacache.reader import CacheReader
from gangsched.datacache.shares import pieces, share_of_rows
from gangsched.datacache.table import CachedTable
from gangsched.datacache.worker import Heartbeat, Worker

KEY, OTHER_KEY = "k" * 32, "x" * 32
MEMORY = 2**24
ROWS = 1_000


def write(folder: Path, name: str, first: int, end: int, group: int = 100, **columns) -> None:
    """Write rows with their numbers to a Parquet file."""
    table = pa.table({"id": list(range(first, end)), **columns})
    parquet.write_table(table, folder / name, row_group_size=group)


@pytest.fixture
def folder(tmp_path):
    """A thousand rows in two files of five groups each."""
    write(tmp_path, "a.parquet", 0, 500)
    write(tmp_path, "b.parquet", 500, ROWS)
    return tmp_path


class Cache:
    """A head and workers of this process, on ports of their own."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        here = "grpc://127.0.0.1:0"
        self.tables = [CachedTable(folder, MEMORY) for _ in range(workers)]
        self.workers = [Worker(here, KEY, table) for table in self.tables]
        self.addresses = [f"grpc://127.0.0.1:{worker.port}" for worker in self.workers]
        self.head = Head(here, KEY, CachedTable(folder, MEMORY), self.addresses)
        self.address = f"127.0.0.1:{self.head.port}"
        self.version = self.tables[0].version
        for number in range(workers):
            self.join(number)

    def client(self, address: str = "") -> flight.FlightClient:
        return flight.FlightClient(address or f"grpc://{self.address}")

    def join(self, number: int) -> None:
        list(self.client().do_action(Join(self.version, number).action(), options(KEY)))

    def reader(self, key: str = KEY, patience_s: float = 20.0) -> CacheReader:
        return CacheReader(self.address, key, patience_s)

    def ids(self, index: int = 0, total: int = 1, **given) -> list[int]:
        """Return the rows that a share has, in their order."""
        batches = self.reader(**given).batches(index, total)
        return [number for batch in batches for number in batch.column("id").to_pylist()]

    def close(self) -> None:
        for server in (self.head, *self.workers):
            server.shutdown()


@pytest.fixture
def cache(folder):
    cache = Cache(folder)
    yield cache
    cache.close()


@given(st.integers(0, 10**12), st.integers(1, 300))
def test_shares_are_all_rows_and_each_once(rows, total):
    ends = [share_of_rows(rows, index, total) for index in range(total)]
    assert (ends[0][0], ends[-1][1]) == (0, rows)
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    sizes = [end - first for first, end in ends]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 12), st.data())
def test_pieces_are_the_rows_of_a_share_and_each_has_its_home(sizes, workers, data):
    starts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    first = data.draw(st.integers(0, starts[-1]))
    end = data.draw(st.integers(first, starts[-1]))
    found = list(pieces(starts, first, end, workers))
    rows = [row for begin, stop, _ in found for row in range(begin, stop)]
    assert rows == list(range(first, end))
    for begin, stop, worker in found:
        assert 0 <= worker < workers
        for row in range(begin, stop):
            group = max(number for number in range(len(sizes)) if starts[number] <= row)
            assert group * workers // len(sizes) == worker


@pytest.mark.parametrize("total", [1, 2, 7, 1_200])
def test_readers_get_each_row_once(cache, total):
    shares = [cache.ids(index, total) for index in range(min(total, 20))]
    if total <= 20:
        assert [number for ids in shares for number in ids] == list(range(ROWS))
    else:
        assert shares[0] == []
        assert all(len(ids) <= 1 for ids in shares)


def test_workers_keep_their_own_groups_in_memory(folder):
    counts = []
    for number in range(3):
        table = CachedTable(folder, MEMORY)
        counts.append(table.fill(number, 3))
    assert sorted(counts) == [3, 3, 4]


def test_a_worker_with_little_memory_serves_every_row(folder):
    table = CachedTable(folder, memory=1_000)
    table.fill(0, 1)
    rows = []
    while len(rows) < ROWS:
        rows += table.answer(len(rows), ROWS).column("id").to_pylist()
        assert table._kept_bytes <= 1_000
    assert rows == list(range(ROWS))


@pytest.mark.parametrize("dead", [0, 1])
def test_rows_of_a_worker_that_ended_come_from_another_one(cache, dead):
    cache.workers[dead].shutdown()
    assert cache.ids(patience_s=patience_s(20)) == list(range(ROWS))


def test_a_worker_that_ends_between_answers_costs_no_row(cache):
    rows = []
    for batch in cache.reader(patience_s=patience_s(20)).batches(0, 1):
        rows += batch.column("id").to_pylist()
        if len(rows) == 200:
            cache.workers[0].shutdown()
    assert rows == list(range(ROWS))


class Broken(Worker):
    """A worker that ends its answers in the middle, once for each row that it is asked for."""

    def __init__(self, *arguments) -> None:
        self.seen = set()
        super().__init__(*arguments)

    def do_get(self, context, ticket):
        first = json.loads(ticket.ticket)["first"]
        stream = super().do_get(context, ticket)
        if first in self.seen:
            return stream
        self.seen.add(first)
        batch = self._table.answer(first, first + 5).to_batches()[0]

        def half():
            yield batch
            raise OSError("the disk is gone")

        return flight.GeneratorStream(self._table.schema, half())


def test_half_of_an_answer_is_thrown_away(folder):
    cache = Cache(folder)
    cache.workers[0].shutdown()
    cache.workers[0] = Broken(cache.addresses[0], KEY, cache.tables[0])
    try:
        assert cache.ids(patience_s=patience_s(20)) == list(range(ROWS))
        assert len(cache.workers[0].seen) >= 1
    finally:
        cache.close()


def test_without_any_worker_the_reader_says_so_in_one_sentence(cache):
    for worker in cache.workers:
        worker.shutdown()
    with pytest.raises(CacheError) as error:
        cache.ids(patience_s=1.0)
    text = str(error.value)
    assert text.startswith(f"row 0 cannot be read from the cache {cache.address} within 1 s; ")
    assert "\n" not in text


def test_without_a_head_the_reader_says_so(cache):
    cache.head.shutdown()
    with pytest.raises(CacheError, match=r"share 0 of 1 cannot be read from the cache .* 1 s; "):
        cache.ids(patience_s=1.0)


def test_a_reader_waits_for_workers_that_start_later(folder):
    cache = Cache(folder)
    cache.head._seen_s.clear()
    heartbeat = Heartbeat(f"grpc://{cache.address}", KEY, Join(cache.version, 1))
    thread = threading.Timer(0.3, heartbeat.start)
    thread.start()
    try:
        assert cache.ids(patience_s=patience_s(20)) == list(range(ROWS))
    finally:
        thread.join()
        heartbeat.stop()
        heartbeat.join()
        cache.close()


# -- who may connect, and what may be asked -------------------------------------------------------

CALLS = {
    "get_flight_info": lambda client, with_key: client.get_flight_info(
        flight.FlightDescriptor.for_path("0", "1"), with_key
    ),
    "do_get": lambda client, with_key: client.do_get(flight.Ticket(b"{}"), with_key).read_all(),
    "do_action": lambda client, with_key: list(
        client.do_action(flight.Action("join", b"{}"), with_key)
    ),
    "list_flights": lambda client, with_key: list(client.list_flights(b"", with_key)),
    "list_actions": lambda client, with_key: client.list_actions(with_key),
    "do_put": lambda client, with_key: client.do_put(
        flight.FlightDescriptor.for_path("0"), pa.schema([]), with_key
    )[1].read(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("key", ["", OTHER_KEY, KEY[:-1], KEY + "k"])
def test_only_clients_with_the_key_may_call(cache, call, key):
    for address in ("", cache.addresses[0]):
        with pytest.raises(flight.FlightUnauthenticatedError, match="only pods of its job"):
            CALLS[call](cache.client(address), options(key))


def test_a_reader_with_a_wrong_key_fails_at_once(cache):
    with pytest.raises(CacheError, match="refuses the key in CACHE_KEY"):
        cache.ids(key=OTHER_KEY, patience_s=patience_s(600))


SHARES = [
    (),
    ("0",),
    ("0", "1", "2"),
    ("1", "1"),
    ("-1", "1"),
    ("0", "0"),
    ("a", "1"),
    ("٣", "4"),
    ("0", str(CACHE_READERS.most + 1)),
    ("0", "9" * 5_000),
]


@pytest.mark.parametrize("path", SHARES, ids=lambda path: "/".join(path)[:20])
def test_a_share_that_does_not_exist_is_refused(cache, path):
    with pytest.raises(pa.ArrowInvalid, match="share"):
        cache.client().get_flight_info(flight.FlightDescriptor.for_path(*path), options(KEY))


def tickets(version: str) -> dict[str, bytes]:
    """Return tickets that no head gives, by what is said of them."""
    good = {"version": version, "first": 0, "end": 1}
    return {
        "no JSON object": b"\xff\xfe",
        "fields version, first, end": b"[" * 10_000,
        "at most 16384": b" " * 20_000,
        "end is '1001'": json.dumps(good | {"end": ROWS + 1}).encode(),
        "first is '-1'": json.dumps(good | {"first": -1}).encode(),
        "first is '1000'": json.dumps(good | {"first": ROWS, "end": ROWS}).encode(),
        "first is 'True'": json.dumps(good | {"first": True}).encode(),
        "first is '0.5'": json.dumps(good | {"first": 0.5}).encode(),
        "more than its first row 5": json.dumps(good | {"first": 5, "end": 5}).encode(),
        "have changed": json.dumps(good | {"version": "other"}).encode(),
        "with the fields": json.dumps(good | {"path": "/etc/passwd"}).encode(),
    }


@pytest.mark.parametrize("message", tickets(""))
def test_a_ticket_that_no_head_gives_is_refused(cache, message):
    client = cache.client(cache.addresses[0])
    with pytest.raises(pa.ArrowInvalid, match=message):
        client.do_get(flight.Ticket(tickets(cache.version)[message]), options(KEY)).read_all()
    assert cache.ids() == list(range(ROWS)), "the cache serves as before"


ACTIONS = {
    "allowed": ("shutdown", {}),
    "0 to 1 is allowed": ("join", {"worker": 2}),
    "no list of at most 64": ("locate", {"first": 0, "failed": ["a"] * 65}),
    "no list": ("locate", {"first": 0, "failed": [1]}),
    "first is": ("locate", {"first": ROWS, "failed": []}),
}


@pytest.mark.parametrize("message", ACTIONS)
def test_an_unknown_action_is_refused(cache, message):
    kind, fields = ACTIONS[message]
    body = json.dumps(fields | {"version": cache.version}).encode()
    with pytest.raises(pa.ArrowInvalid, match=message):
        list(cache.client().do_action(flight.Action(kind, body), options(KEY)))


def test_a_worker_with_other_files_may_not_join(cache):
    action = Join("other", 0).action()
    with pytest.raises(pa.ArrowInvalid, match="files of the data set have changed"):
        list(cache.client().do_action(action, options(KEY)))


def test_a_worker_that_is_silent_gets_no_reader(cache, monkeypatch):
    monkeypatch.setattr("gangsched.datacache.head.CACHE_WORKER_SILENT_S", UpperBound(0, "", ""))
    with pytest.raises(flight.FlightUnavailableError, match="0 of 2 workers of the cache"):
        list(cache.client().do_action(Location(cache.version, 0, ()).action(), options(KEY)))


def test_streams_that_are_not_read_to_the_end_are_bounded_and_given_back(cache):
    client, ticket = cache.client(cache.addresses[0]), Rows(cache.version, 0, ROWS).ticket()
    streams = cache.workers[0]._streams
    for _ in range(CACHE_STREAMS.most):
        assert streams.acquire(blocking=False)
    with pytest.raises(flight.FlightUnavailableError, match="which is the most"):
        client.do_get(ticket, options(KEY)).read_all()
    for _ in range(CACHE_STREAMS.most):
        streams.release()
    for _ in range(3):
        client.do_get(ticket, options(KEY)).cancel()
    until(lambda: streams._value == CACHE_STREAMS.most, "the streams to be given back", 20)


# -- rows and files -------------------------------------------------------------------------------


def test_a_row_larger_than_grpcs_messages_arrives(tmp_path):
    """The default bound of a message of gRPC is 4 MiB."""
    write(tmp_path, "a.parquet", 0, 3, text=["a" * 2**23, "b", "c" * (CACHE_ANSWER_BYTES.most + 1)])
    cache = Cache(tmp_path, 1)
    try:
        batches = list(cache.reader().batches(0, 1))
        lengths = [len(text) for batch in batches for text in batch.column("text").to_pylist()]
        assert lengths == [2**23, 1, CACHE_ANSWER_BYTES.most + 1]
    finally:
        cache.close()


def test_a_row_that_is_too_large_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CACHE_ROW_BYTES", UpperBound(1_000, "", ""))
    monkeypatch.setattr(tables, "CACHE_ANSWER_BYTES", UpperBound(100, "", ""))
    write(tmp_path, "a.parquet", 0, 3, text=["a", "b" * 2_000, "c"])
    cache = Cache(tmp_path, 1)
    try:
        with pytest.raises(CacheError, match=r"row 1 has 20\d\d bytes; at most 1000 are allowed"):
            cache.ids(patience_s=patience_s(600))
    finally:
        cache.close()


def test_answers_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CACHE_ANSWER_BYTES", UpperBound(1_000, "", ""))
    write(tmp_path, "a.parquet", 0, ROWS, group=ROWS)
    table, rows = CachedTable(tmp_path, MEMORY), []
    while len(rows) < ROWS:
        piece = table.answer(len(rows), ROWS)
        assert piece.nbytes <= 1_000
        rows += piece.column("id").to_pylist()
    assert rows == list(range(ROWS))


def test_files_that_are_no_data_set_are_refused(folder, monkeypatch):
    for name, content, message in (
        ("c.parquet", b"PAR1" + b"\0" * 50 + b"PAR1", "'c.parquet' is no Parquet file"),
        ("c.parquet", b"", "'c.parquet' is no Parquet file"),
    ):
        (folder / name).write_bytes(content)
        with pytest.raises(CacheError, match=message):
            CachedTable(folder, MEMORY)
    (folder / "c.parquet").unlink()
    parquet.write_table(pa.table({"other": [1]}), folder / "c.parquet")
    with pytest.raises(CacheError, match=r"'c.parquet' has other columns"):
        CachedTable(folder, MEMORY)
    (folder / "c.parquet").unlink()
    (folder / "c.parquet").symlink_to("/etc/passwd")
    assert CachedTable(folder, MEMORY).rows == ROWS, "links are left out"
    for bound, message in (
        ("CACHE_FILES", "more than 1 Parquet files"),
        ("CACHE_GROUPS", "more than 1 row groups"),
        ("CACHE_GROUP_BYTES", r"row group 0 of 'a.parquet' has \d+ bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(tables, bound, UpperBound(1, "", ""))
            with pytest.raises(CacheError, match=message):
                CachedTable(folder, MEMORY)
    assert (CACHE_FILES.most, CACHE_GROUPS.most) == (10_000, 100_000)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(CacheError, match=r"has no files named \*\.parquet"):
        CachedTable(tmp_path, MEMORY)


def test_a_file_that_changed_is_not_served(cache, folder):
    write(folder, "a.parquet", 0, 400)
    with pytest.raises(CacheError, match=r"'a.parquet' has changed since the cache started"):
        cache.ids(patience_s=patience_s(600))


def test_a_file_that_is_gone_is_named(cache, folder):
    (folder / "a.parquet").unlink()
    with pytest.raises(CacheError, match=r"was: row group 0 of 'a.parquet' cannot be read: "):
        cache.ids(patience_s=1.0)


def test_files_without_rows_have_no_share(tmp_path):
    write(tmp_path, "a.parquet", 0, 0)
    cache = Cache(tmp_path, 1)
    try:
        assert cache.ids() == []
    finally:
        cache.close()


# -- the programs ---------------------------------------------------------------------------------

VARIABLES = {"CACHE_KEY": KEY, "CACHE_WORKERS": "a:1,b:1", "CACHE_ADDRESS": "h:1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"CACHE_KEY": ""}, "CACHE_KEY is no key"),
        ({"CACHE_KEY": "short"}, "CACHE_KEY is no key"),
        ({"CACHE_WORKERS": ""}, "CACHE_WORKERS has 0 addresses"),
        ({"CACHE_WORKERS": "a," * 65}, "CACHE_WORKERS has 65 addresses"),
        ({"JOB_COMPLETION_INDEX": "2"}, "0 to 1 is allowed"),
        ({"JOB_COMPLETION_INDEX": "x"}, "0 to 1 is allowed"),
    ],
)
def test_a_program_names_the_variable_that_is_wrong(folder, monkeypatch, caplog, changes, message):
    monkeypatch.setattr(program, "FOLDER", folder)
    assert program.main(["worker"], VARIABLES | changes) == 1
    assert message in caplog.text
    assert KEY not in caplog.text


def test_a_program_has_one_of_two_roles(caplog):
    assert program.main(["master"], VARIABLES) == 2
    assert "head or worker" in caplog.text


def test_half_of_the_memory_of_a_pod_is_for_rows():
    assert program.memory({"MEMORY_LIMIT": str(2**32)}) == 2**31
    assert program.memory({"MEMORY_LIMIT": "9" * 40}) == program.memory({}) == 2**30


def test_the_key_is_never_compared_by_its_length_alone():
    check = protocol.KeyCheck(KEY)
    with pytest.raises(flight.FlightUnauthenticatedError):
        check.start_call(None, {"authorization": [f"Bearer {KEY}", f"Bearer {KEY}"]})
    assert check.start_call(None, {"authorization": [f"Bearer {KEY}"]}) is None
