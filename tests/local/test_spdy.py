"""SPDY frames, from the other side of the connection."""

import struct
import zlib

from gangsched.local.agent.server.spdy import DICTIONARY, Connection


class Client:
    """What a client sends, and what it got."""

    def __init__(self) -> None:
        self.streams, self.got = [], b""
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self.connection = Connection(self._take, self.streams.append)

    def _take(self, data: bytes) -> None:
        self.got += data

    def open(self, number: int, flags: int = 0, **headers: str) -> bytes:
        """Return the frame that opens a stream."""
        block = struct.pack(">I", len(headers))
        for pair in headers.items():
            block += b"".join(struct.pack(">I", len(t)) + t.encode() for t in pair)
        packed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        body = struct.pack(">IIBB", number, 0, 0, 0) + packed
        return struct.pack(">II", 0x80030001, flags << 24 | len(body)) + body

    def feed(self, data: bytes, size: int = 1 << 20) -> bool:
        """Hand bytes over in pieces; return whether the connection was given up."""
        over = False
        for start in range(0, len(data), size):
            over, _ = self.connection.feed_data(data[start : start + size])
        return over


def frame(kind: int, body: bytes) -> bytes:
    """Return a control frame."""
    return struct.pack(">II", 0x80030000 | kind, len(body)) + body


def data(number: int, body: bytes, *, last: bool = False) -> bytes:
    """Return a frame of data."""
    return struct.pack(">II", number, int(last) << 24 | len(body)) + body


def drained(stream) -> list[bytes | None]:
    """Return what came on a stream."""
    return [stream.incoming.get_nowait() for _ in range(stream.incoming.qsize())]


def test_streams_with_their_headers_and_data_in_any_pieces():
    for size in (1, 3, 1000):
        client = Client()
        text = client.open(1, streamType="error") + client.open(3, streamType="stdin")
        text += data(3, b"hello ") + data(3, b"there", last=True) + data(99, b"nobody's")
        assert not client.feed(text, size)
        assert [s.headers for s in client.streams] == [
            {"streamtype": "error"},
            {"streamtype": "stdin"},
        ]
        assert drained(client.streams[1]) == [b"hello ", b"there", None]
        assert drained(client.streams[0]) == []


def test_a_stream_is_accepted_answered_and_closed_once():
    client = Client()
    client.feed(client.open(5, streamType="stdout"))
    kind, _ = struct.unpack_from(">II", client.got)
    assert kind == 0x80030002
    assert struct.unpack_from(">I", client.got, 8) == (5,)
    client.got = b""
    client.streams[0].write(b"x" * 70_000)
    first = struct.unpack_from(">II", client.got)
    assert first == (5, 1 << 16)
    client.got = b""
    client.streams[0].close()
    client.streams[0].close()
    assert client.got == struct.pack(">II", 5, 1 << 24)


def test_pings_are_answered_and_leaving_ends_streams():
    client = Client()
    client.feed(frame(6, b"\0\0\0\7"))
    assert client.got == frame(6, b"\0\0\0\7")
    client.feed(client.open(1, streamType="stdin") + frame(3, struct.pack(">II", 1, 5)))
    assert drained(client.streams[0]) == [None]
    client.feed(client.open(3, streamType="stdin") + frame(7, struct.pack(">II", 3, 0)))
    assert drained(client.streams[1]) == [None]
    assert client.connection.lost.is_set()


def test_garbage_ends_the_connection_and_nothing_else():
    for garbage in (
        frame(1, b"\0\0\0\1" + b"\0" * 6 + b"not zlib"),
        frame(1, b"\0"),
        frame(3, b""),
    ):
        client = Client()
        assert client.feed(garbage)
        assert client.connection.lost.is_set()


def test_a_header_longer_than_its_block_ends_the_connection():
    client = Client()
    deflate = zlib.compressobj(zdict=DICTIONARY)
    block = struct.pack(">II", 1, 1 << 30) + b"abc"
    packed = deflate.compress(block) + deflate.flush(zlib.Z_SYNC_FLUSH)
    assert client.feed(frame(1, struct.pack(">IIBB", 1, 0, 0, 0) + packed))
