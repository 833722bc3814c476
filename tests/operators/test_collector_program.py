"""The program that collects metrics beside a trial: what it prints of files, pages, and calls."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest
from waiting import patience_s, until

from gangsched.jobs.katib.collectors import _BEGIN, _STARTED
from gangsched.operators.kinds.trial import collector_program
from gangsched.operators.search import collector_program as program


class Beside:
    """The program in a process, as a pod runs it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        begin = _BEGIN.replace(_STARTED, str(folder / "started"))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["sh", "-c", begin, collector_program(), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": path},
        )
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait(self, *lines: str) -> None:
        until(lambda: set(lines) <= set(self.lines), f"{lines} to be printed")

    def end(self) -> list[str]:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(patience_s(30)) == 0
        self.reader.join()
        self.process.stdout.close()
        return self.lines


@pytest.fixture
def beside(tmp_path_factory):
    started = []

    def start(*arguments: str) -> Beside:
        started.append(Beside(tmp_path_factory.mktemp("run"), *arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()


def test_lines_of_a_file_are_printed_while_it_grows(beside, tmp_path):
    path = tmp_path / "metrics.log"
    run = beside("text", str(path))
    path.write_text("loss: 1\nloss")
    run.wait("loss: 1")
    with path.open("a") as file:
        file.write(": 0.5\nlast")
    run.wait("loss: 0.5")
    assert run.end() == ["loss: 1", "loss: 0.5", "last"]


def test_a_trial_that_ends_at_once_is_read_to_its_end(beside, tmp_path):
    path = tmp_path / "metrics.log"
    path.write_text("loss=1\n")
    run = beside("text", str(path))
    shell = psutil.Process(run.process.pid)
    until(shell.children, "the shell to start a program, and no longer", every_s=0.001)
    assert run.end() == ["loss=1"]


def test_a_program_that_fails_ends_with_its_code(beside):
    run = beside("unknown")
    assert run.process.wait(patience_s(30)) == 1
    run.reader.join()
    run.process.stdout.close()


def test_a_file_that_is_rotated_is_read_again(beside, tmp_path):
    path = tmp_path / "metrics.log"
    path.write_text("a=1 and much more\n")
    run = beside("text", str(path))
    run.wait("a=1 and much more")
    path.write_text("b=2\n")
    run.wait("b=2")
    assert run.end() == ["a=1 and much more", "b=2"]


def test_numbers_of_json_lines(beside, tmp_path):
    path = tmp_path / "metrics.log"
    lines = ['{"epoch": 1, "acc": "0.5", "timestamp": 12}', "[" * 9999, "[1]", '{"a": true}', "x"]
    path.write_text("\n".join(lines))
    run = beside("json", str(path))
    run.wait("epoch=1.0")
    assert sorted(run.end()) == ["acc=0.5", "epoch=1.0"]


def test_a_name_stays_on_one_line(capsys):
    program.print_value("loss=9\nacc", "0.5")
    program.print_value("x", "1\nacc=2")
    assert capsys.readouterr().out == "loss=9 acc=0.5\n"


def field(number: int, value) -> bytes:
    """Return a field of a protobuf message."""
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def event(tag: str, value) -> bytes:
    """Return a record of an event file: length, checksum, event, checksum."""
    given = field(2, value) if isinstance(value, float) else field(8, value)
    data = field(5, field(1, field(1, tag.encode()) + given))
    return struct.pack("<Q", len(data)) + b"crc1" + data + b"crc2"


def test_scalars_of_event_files(beside, tmp_path):
    """Of TensorFlow 1 (simple_value) and 2 (a tensor), in folders for train and validation."""
    folder = tmp_path / "validation"
    folder.mkdir()
    path = folder / "events.out.tfevents.1.host"
    double = field(1, 2) + field(4, struct.pack("<d", 0.25))
    records = event("acc", 0.5) + event("loss", double)
    path.write_bytes(records[:-3])  # the last record is not complete
    (tmp_path / "notes.txt").write_text("no events")
    run = beside("events", str(tmp_path))
    run.wait("acc=0.5", "validation/acc=0.5")
    assert "loss=0.25" not in run.lines
    path.write_bytes(records)
    run.wait("loss=0.25")
    run.end()
    assert run.lines.count("acc=0.5") == 1


@pytest.mark.parametrize(
    "data", [b"\xff" * 999, struct.pack("<Q", 2**63) + b"x" * 99, event("a", b"\x08\x01")[:-1]]
)
def test_files_that_are_no_events_are_harmless(tmp_path, data, capsys):
    (tmp_path / "events.tfevents").write_bytes(data)
    step = program.events_step(str(tmp_path))
    for _ in range(3):
        step(False)  # noqa: FBT003
    assert capsys.readouterr().out == ""


PAGE = b'# HELP acc x\nacc 0.5\nloss{step="1",kind="a b"} 0.25 123\nword abc\n\n'


class Page(BaseHTTPRequestHandler):
    """A page of metrics."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_) -> None:
        """Print nothing."""


def test_a_page_of_metrics_is_read_and_repeats_nothing(beside):
    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    run = beside("prometheus", f"http://127.0.0.1:{server.server_port}/metrics")
    run.wait("acc=0.5", "loss=0.25")
    assert run.end() == ["acc=0.5", "loss=0.25"]
    server.shutdown()
    server.server_close()


def served() -> tuple[str, int]:
    server = program.Server(("127.0.0.1", 0), program.Push)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + body


def test_reported_metrics_are_printed(capsys):
    """A call as gRPC sends it, its data in two frames; the client itself is in make katib."""
    metric = field(1, b"acc") + field(2, b"0.75")
    message = field(1, b"trial") + field(2, field(1, field(1, b"now") + field(2, metric)))
    body = b"\x00" + struct.pack(">I", len(message)) + message
    with socket.create_connection(served()) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        connection.sendall(frame(1, 4, 1, b"\x82") + frame(0, 0, 1, body[:9]))
        connection.sendall(frame(0, 1, 1, body[9:]) + frame(6, 0, 0, b"12345678"))
        answer = b""
        while frame(6, 1, 0, b"12345678") not in answer:
            answer += connection.recv(4096)
    assert b"grpc-status\x010" in answer
    assert capsys.readouterr().out == "acc=0.75\n"


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n" * 9, frame(0, 1, 1, b"\xff" * 99), frame(0, 9, 1, b"\xff")]
)
def test_what_is_no_call_ends_its_connection_alone(sent, capsys):
    address = served()
    preface = b"" if sent.startswith(b"GET") else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with socket.create_connection(address) as connection:
        connection.sendall(preface + sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    assert capsys.readouterr().out == ""
    socket.create_connection(address).close()


def test_the_program_is_small_enough_for_a_pod():
    assert len(collector_program()) < 16_384
    assert json.dumps(collector_program())
