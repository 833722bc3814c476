"""Ports of this machine for programs that start a little later, and whether a URL answers."""

import fcntl
import json
import os
import random
import socket
import ssl
import stat
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import platformdirs

_LOWEST = 15_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_LOWEST = 32_768  # the default of Linux, if the setting cannot be read
_KEPT_S = 900.0  # longer than any program needs until it listens


def free_ports(count: int) -> list[int]:
    """Return distinct free ports that no other call returns before their programs listen.

    The kernel gives its ephemeral ports to every connection and to every listener on port 0, so
    one of them may be taken between the question and the program's start. These ports lie below
    that range, and a file of this user keeps which were given within the last 15 minutes, for
    all state folders together.

    Raises:
        OSError: the machine has fewer free ports than asked for.

    """
    with _record().open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        now_s = time.time()
        given = {p: at_s for p, at_s in _read(file.read()).items() if 0 <= now_s - at_s < _KEPT_S}
        candidates = list(range(_LOWEST, _first_ephemeral()))
        random.shuffle(candidates)
        free: list[int] = []
        for port in candidates:
            if len(free) == count:
                break
            if str(port) not in given and _is_free(port):
                free.append(port)
        if len(free) < count:
            raise OSError(
                f"found {len(free)} free ports of 127.0.0.1 from {_LOWEST} on, needed {count}"
            )
        file.seek(0)
        file.truncate()
        json.dump(given | dict.fromkeys(map(str, free), now_s), file)
    return free


def _record() -> Path:
    """Return the file of given ports: one for this user, whatever the state folder.

    The folder of temporary files is open to all users. If another user made what has our name
    there, the state folder takes its place.
    """
    folder = Path(tempfile.gettempdir()) / f"gangsched-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    except OSError:
        ours = False
    if not ours:
        folder = Path(platformdirs.user_state_dir("gangsched", ensure_exists=True))
    return folder / "ports.json"


def _read(text: str) -> dict[str, float]:
    """Return when each port was reserved; a file that a kill cut short counts as empty."""
    try:
        return {str(port): float(at_s) for port, at_s in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _first_ephemeral() -> int:
    try:
        lowest = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = _EPHEMERAL_LOWEST
    # Where an administrator has given the kernel nearly every port, no port is safe from it.
    return lowest if lowest >= _LOWEST + 1_000 else _EPHEMERAL_LOWEST


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no listener
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(url: str, ca: Path | None = None) -> bool:
    """Return whether a URL answers 200, over TLS with a certificate of the authority `ca`."""
    context = None if ca is None else ssl.create_default_context(cafile=str(ca))
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
