"""SPDY/3.1 as API servers speak it to kubelets: many streams over one connection.

Only what kubectl's streams need: no priorities, no pushed streams, no flow control (the API
server's library has none either). Source: the SPDY protocol, draft 3.1, sections 2.2 and 2.6.
"""

import asyncio
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

PROTOCOL = "SPDY/3.1"

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
_HEAD = struct.Struct(">II")
_CHUNK = 1 << 16
_LARGEST_BLOCK = 1 << 16

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    "Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _text(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


DICTIONARY = (
    b"".join(_text(word) for word in _WORDS.split())
    + _text("200 OK")
    + b"".join(_text(word) for word in ("version", "HTTP/1.1", "url", "public"))
    + b"".join(_text(word) for word in ("set-cookie", "keep-alive", "origin"))
    + _REST.encode()
)
"""Dictionary for the compression of headers, on both sides (section 2.6.10.1)."""


class SpdyError(Exception):
    """The other side violated the protocol."""


@dataclass(slots=True)
class Stream:
    """One stream of the other side; `None` in `incoming` is its end."""

    id: int
    headers: dict[str, str]
    _send: Callable[[bytes], None]
    incoming: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    _closed: bool = False

    def write(self, data: bytes) -> None:
        """Send data."""
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            self._send(_HEAD.pack(self.id, len(part)) + part)

    def close(self) -> None:
        """Send the end of the stream."""
        if not self._closed:
            self._closed = True
            self._send(_HEAD.pack(self.id, _FIN << 24))


class Connection:
    """The server's side: `feed_data` takes bytes, `opened` is called with every new stream."""

    def __init__(self, send: Callable[[bytes], None], opened: Callable[[Stream], None]) -> None:
        self._send = send
        self._opened = opened
        self._pending = bytearray()
        self._streams: dict[int, Stream] = {}
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self.lost = asyncio.Event()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Read bytes of the connection; the return value is that of an aiohttp parser."""
        self._pending += data
        try:
            while len(self._pending) >= _HEAD.size:
                first, second = _HEAD.unpack_from(self._pending)
                flags, length = second >> 24, second & 0xFFFFFF
                if len(self._pending) < _HEAD.size + length:
                    break
                body = bytes(self._pending[_HEAD.size : _HEAD.size + length])
                del self._pending[: _HEAD.size + length]
                if first >> 31:
                    self._control(first & 0xFFFF, flags, body)
                else:
                    self._data(first, flags, body)
        except (SpdyError, struct.error, zlib.error, UnicodeDecodeError):
            self.feed_eof()
            return True, b""
        return False, b""

    def feed_eof(self) -> None:
        """End every stream, because the connection is lost."""
        self.lost.set()
        for stream in self._streams.values():
            stream.incoming.put_nowait(None)

    def _data(self, number: int, flags: int, body: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return  # reset already
        if body:
            stream.incoming.put_nowait(body)
        if flags & _FIN:
            stream.incoming.put_nowait(None)

    def _control(self, kind: int, flags: int, body: bytes) -> None:
        if kind == _SYN_STREAM:
            (number,) = struct.unpack_from(">I", body)
            stream = Stream(number, self._headers(body[10:]), self._send)
            self._streams[number] = stream
            self._reply(number)
            if flags & _FIN:
                stream.incoming.put_nowait(None)
            self._opened(stream)
        elif kind == _RST_STREAM:
            (number,) = struct.unpack_from(">I", body)
            if number in self._streams:
                self._streams.pop(number).incoming.put_nowait(None)
        elif kind == _PING:
            self._send(_frame(_PING, body))
        elif kind == _GOAWAY:
            self.feed_eof()

    def _reply(self, number: int) -> None:
        """Accept a stream, without headers."""
        none = self._deflate.compress(struct.pack(">I", 0))
        none += self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._send(_frame(_SYN_REPLY, struct.pack(">I", number) + none))

    def _headers(self, block: bytes) -> dict[str, str]:
        text = self._inflate.decompress(block, _LARGEST_BLOCK)
        (count,) = struct.unpack_from(">I", text)
        headers, place = {}, 4
        for _ in range(count):
            pair = []
            for _ in range(2):
                (length,) = struct.unpack_from(">I", text, place)
                if place + 4 + length > len(text):
                    raise SpdyError("a header is longer than its block")
                pair.append(text[place + 4 : place + 4 + length].decode())
                place += 4 + length
            headers[pair[0].lower()] = pair[1]
        return headers


def _frame(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(0x80030000 | kind, len(body)) + body
