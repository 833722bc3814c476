"""The program beside a trial's container: it prints metrics as lines NAME=VALUE.

It runs in the image of the trial, so it needs Python 3.7 and no package. Kinds:

    text FILE             prints the lines of a file as they are
    json FILE             prints the numbers of a file of JSON lines
    events FOLDER         prints the scalars of TensorFlow's event files
    prometheus ADDRESS    prints the samples of a page of metrics
    push                  prints what kubeflow-katib's report_metrics sends to this pod

It ends on SIGTERM, after what was written until then.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

PERIOD_S = 1.0
LARGEST = 2**20
PORT = 6789
ended = threading.Event()
Step = Callable[[bool], None]


def emit(line: str) -> None:
    """Print one line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_value(name: str, value: Any) -> None:
    """Print one value of a metric."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return
    emit("%s=%r" % (" ".join(str(name).split()), number))  # noqa: UP031


class Tail:
    """The new bytes of a file that grows; a file that was replaced is read again."""

    def __init__(self, path: str) -> None:
        self.path, self.at, self.rest = path, 0, b""

    def new(self) -> bytes:
        """Return the bytes that came since the last call."""
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123
                size = os.fstat(file.fileno()).st_size
                if size < self.at:
                    self.at, self.rest = 0, b""
                file.seek(self.at)
                data = file.read(LARGEST)
        except OSError:
            return b""
        self.at += len(data)
        return data

    def lines(self, *, last: bool) -> list[str]:
        """Return the new lines; the last one may lack its end if nothing comes any more."""
        found: list[bytes] = []
        while True:
            data = self.new()
            if not data:
                break
            *whole, self.rest = (self.rest + data).split(b"\n")
            found += whole
            self.rest = self.rest[-LARGEST:]
        if last and self.rest:
            found.append(self.rest)
        return [line.decode(errors="replace") for line in found]


def text_step(path: str) -> Step:
    """Return a step that prints the lines of a file."""
    tail = Tail(path)

    def step(last: bool) -> None:
        for line in tail.lines(last=last):
            emit(line)

    return step


def json_step(path: str) -> Step:
    """Return a step that prints the numbers in lines of JSON."""
    tail = Tail(path)

    def step(last: bool) -> None:
        for line in tail.lines(last=last):
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                continue
            for name, value in dict.items(values) if isinstance(values, dict) else ():
                if name != "timestamp" and not isinstance(value, bool):
                    print_value(name, value)

    return step


def message_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: number and value."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                if kind != 2:
                    return
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            break
    return value, at


def scalars(event: bytes) -> Iterator[tuple[str, float]]:
    """Yield tag and value of each scalar of an event (tensorflow.Event)."""
    for number, summary in message_fields(event):
        if number != 5 or not isinstance(summary, bytes):
            continue
        for _, value in message_fields(summary):
            parts = dict(message_fields(value)) if isinstance(value, bytes) else {}
            name = parts.get(1)
            tag = name.decode(errors="replace") if isinstance(name, bytes) else ""
            if isinstance(parts.get(2), bytes) and len(parts[2]) == 4:
                yield tag, struct.unpack("<f", parts[2])[0]
            elif isinstance(parts.get(8), bytes):
                single = tensor(parts[8])
                if single is not None:
                    yield tag, single


def tensor(data: bytes) -> float | None:
    """Return the number in a tensor of one float or double, if it is one."""
    parts = dict(message_fields(data))
    form = {1: "<f", 2: "<d"}.get(parts.get(1, 0))
    content = parts.get(4) or parts.get(5 if form == "<f" else 6)
    if form is None or not isinstance(content, bytes) or len(content) != struct.calcsize(form):
        return None
    (number,) = struct.unpack(form, content)
    return float(number)


def events_step(folder: str) -> Step:
    """Return a step that prints the scalars of all event files below a folder."""
    files: dict[str, Tail] = {}

    def step(last: bool) -> None:
        del last
        for place, _, names in os.walk(folder):
            for name in sorted(names):
                if "tfevents" in name:
                    path = os.path.join(place, name)  # noqa: PTH118
                    prefix = os.path.relpath(place, folder)
                    records(files.setdefault(path, Tail(path)), "" if prefix == "." else prefix)

    return step


def records(tail: Tail, prefix: str) -> None:
    """Print the scalars of the complete records that are new in a file."""
    while True:
        data = tail.new()
        tail.rest += data
        while len(tail.rest) >= 12:
            (size,) = struct.unpack("<Q", tail.rest[:8])
            if size > LARGEST:
                tail.rest, tail.at = b"", 2**62  # no file of events
                return
            if len(tail.rest) < size + 16:
                break
            for tag, value in scalars(tail.rest[12 : 12 + size]):
                print_value(tag, value)
                if prefix:
                    print_value(prefix + "/" + tag, value)
            tail.rest = tail.rest[size + 16 :]
        if not data:
            return


def page_step(address: str) -> Step:
    """Return a step that prints the samples of a page that changed."""
    known: dict[str, str] = {}

    def step(last: bool) -> None:
        if last:
            return  # the container has ended
        try:
            with urllib.request.urlopen(address, timeout=5) as page:  # noqa: S310
                lines = page.read(LARGEST).decode(errors="replace").splitlines()
        except (OSError, ValueError):
            return
        for line in lines:
            name, _, rest = line.partition("{")
            value = rest.rpartition("}")[2] if rest else name.partition(" ")[2]
            name = name.split(" ")[0]
            if name and not name.startswith("#") and known.get(line.split(" ")[0]) != value:
                known[line.split(" ")[0]] = value
                print_value(name, value.split()[0] if value.split() else "")

    return step


class Push(StreamRequestHandler):
    """One connection of Katib's client: HTTP/2 with one request (ReportObservationLog) or more.

    The names of the headers do not count: the client calls nothing else.
    """

    def handle(self) -> None:
        """Answer each request with success, and print its metrics."""
        bodies: dict[int, bytes] = {}
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        if self.rfile.read(len(preface)) != preface:
            return
        self.frame(4, 0, 0, b"")
        while True:
            head = self.rfile.read(9)
            if len(head) < 9:
                return
            size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            stream, body = int.from_bytes(head[5:], "big") & 2**31 - 1, self.rfile.read(size)
            if kind == 4 and not flags & 1:
                self.frame(4, 1, 0, b"")
            elif kind == 6 and not flags & 1:
                self.frame(6, 1, 0, body)
            elif kind == 0:
                data = body[1 : len(body) - body[0]] if flags & 8 and body else body
                bodies[stream] = bodies.get(stream, b"") + data
                if len(bodies[stream]) > LARGEST or len(bodies) > 100:
                    return
                if size:
                    self.frame(8, 0, 0, struct.pack(">I", size))
                if size and not flags & 1:
                    self.frame(8, 0, stream, struct.pack(">I", size))
                if flags & 1:
                    self.report(bodies.pop(stream)[5:])
                    self.answer(stream)

    def report(self, message: bytes) -> None:
        """Print the metrics of a ReportObservationLogRequest."""
        for number, log in message_fields(message):
            for _, entry in message_fields(log) if number == 2 and isinstance(log, bytes) else ():
                inner = dict(message_fields(entry)).get(2) if isinstance(entry, bytes) else None
                metric = dict(message_fields(inner)) if isinstance(inner, bytes) else {}
                if isinstance(metric.get(1), bytes) and isinstance(metric.get(2), bytes):
                    print_value(
                        metric[1].decode(errors="replace"), metric[2].decode(errors="replace")
                    )

    def answer(self, stream: int) -> None:
        """Send an empty message and the status of success."""
        kind, name, done = b"application/grpc", b"content-type", b"grpc-status"
        self.frame(1, 4, stream, b"\x88\x00" + pair(name) + pair(kind))
        self.frame(0, 0, stream, b"\x00" * 5)
        self.frame(1, 5, stream, b"\x00" + pair(done) + pair(b"0"))

    def frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        """Send one frame."""
        head = len(body).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream)
        self.wfile.write(head + body)
        self.wfile.flush()


def pair(text: bytes) -> bytes:
    """Return a text of a header, with its length."""
    return bytes([len(text)]) + text


class Server(ThreadingTCPServer):
    """A server that ends with the program."""

    allow_reuse_address = daemon_threads = True


def push_step() -> Step:
    """Return a step that does nothing: a thread serves the pod's own address."""
    server = Server(("127.0.0.1", PORT), Push)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return lambda _: None


KINDS: dict[str, Callable[..., Step]] = {
    "text": text_step,
    "json": json_step,
    "events": events_step,
    "prometheus": page_step,
    "push": push_step,
}


def main(kind: str, *arguments: str) -> None:
    """Collect until the signal, and once more after it."""
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    step = KINDS[kind](*arguments)
    started = os.environ.get("STARTED")
    if started:
        open(started, "w").close()  # noqa: PTH123
    while not ended.wait(PERIOD_S):
        step(False)  # noqa: FBT003
    step(True)  # noqa: FBT003


if __name__ == "__main__":
    main(*sys.argv[1:])
