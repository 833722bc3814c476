"""Free ports of this machine, and whether a URL answers."""

import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """Return distinct free ports; all are held until the last is found."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def answers(url: str, ca: Path | None = None, pair: Path | None = None) -> bool:
    """Tell whether a URL answers 200, asked with a client certificate where there is a `pair`."""
    context = None
    if ca is not None and pair is not None:
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(f"{pair}.crt", f"{pair}.key")
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
