"""How the pods of a job ask each other: a request has the HMAC of a nonce by the job's key."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time
from pathlib import Path
from typing import Any, BinaryIO

FOLDER = Path(os.environ.get("GANGSCHED_BATCH", "/etc/gangsched-batch"))
GREETING = b"gangsched-batch-1"
REQUEST_MAX = 1 << 20
LINE_MAX = 1 << 16
CONNECT_S = 300.0
"""How long the peers of a pod may take to begin: their images may be pulled first."""


def job_settings() -> dict[str, Any]:
    """Return what the job says of itself: hosts, tasks and names."""
    job: dict[str, Any] = json.loads(os.environ["GANGSCHED_BATCH_SETTINGS"])
    return job


def proof(nonce: bytes, body: bytes) -> bytes:
    """Return what shows that a request is from a pod of the job."""
    key = (FOLDER / "key").read_bytes().strip()
    return hmac.new(key, nonce + b"\n" + body, hashlib.sha256).hexdigest().encode()


def ask(
    host: str, port: int, request: dict[str, Any], deadline_s: float
) -> tuple[socket.socket, BinaryIO]:
    """Send a request to a pod; return the connection, and the file in which the answers are.

    Raises:
        SystemExit: the pod does not answer in time, or the request is too large.

    """
    body = json.dumps(request).encode()
    if len(body) >= REQUEST_MAX:
        raise SystemExit("srun: error: the command and its environment are larger than 1 MiB")
    connection, file, nonce = _connect(host, port, deadline_s)
    file.write(proof(nonce, body) + b"\n" + body + b"\n")
    file.flush()
    return connection, file


def _connect(host: str, port: int, deadline_s: float) -> tuple[socket.socket, BinaryIO, bytes]:
    while True:
        problem = "it is no pod of a batch job"
        try:
            connection = socket.create_connection((host, port), timeout=10)
            file: Any = connection.makefile("rwb")
            greeting, _, nonce = file.readline(200).strip().partition(b" ")
            if greeting == GREETING and nonce:
                connection.settimeout(None)
                return connection, file, nonce
            connection.close()
        except OSError as error:
            problem = str(error)
        if time.monotonic() > deadline_s:
            raise SystemExit(f"srun: error: {host}: {problem}")
        time.sleep(0.2)
