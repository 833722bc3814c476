"""A proxy from the API server to pods and nodes, so that pods can serve webhooks.

Pods in namespaces of their own have a network that the API server is not in. It asks a proxy of
ours for every connection into its cluster (its egress selector): CONNECT of HTTP/1.1, on loopback.
A socket that was connected from within the pods' network leads on from there.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl

from gangsched.local.agent.isolation.gateway import joined, open_socket
from gangsched.local.agent.isolation.sandbox import NamespaceSandboxes, SandboxError, Sandboxes

_CONNECT = """
import socket, sys
there = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
with socket.socket(fileno=int(sys.argv[3])) as here:
    socket.send_fds(here, [b"x"], [there.fileno()])
"""

_AT_ONCE = 4
"""Connections made at once: each starts a process, and a dead address takes ten seconds."""


class Egress:
    """A proxy to the addresses of pods, and to ports of this machine's loopback."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._server: asyncio.Server | None = None
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def open(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen on loopback, with TLS for the API server.

        Raises:
            OSError: nothing can listen there.

        """
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            there = await self._reached(reader, *_target(head))
        except (OSError, ValueError, SandboxError, EOFError, asyncio.LimitOverrunError) as error:
            with contextlib.suppress(OSError):
                reason = " ".join(str(error).split())
                writer.write(f"HTTP/1.1 502 Bad Gateway\r\nReason: {reason}\r\n\r\n".encode())
                await writer.drain()
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await joined((reader, writer), there)

    async def _reached(
        self, client: asyncio.StreamReader, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = ipaddress.ip_address(host)
        if address.is_loopback:
            return await asyncio.open_connection(host, port)
        if isinstance(self._sandboxes, NamespaceSandboxes) and address in self._sandboxes.network:
            async with self._turn:
                if client.at_eof():
                    raise OSError("the client has closed its connection")
                descriptor = await asyncio.to_thread(
                    open_socket, self._sandboxes, _CONNECT, str(address), str(port)
                )
            connected = socket.socket(fileno=descriptor)
            return await asyncio.open_connection(sock=connected)
        raise ValueError(f"{host} is no address of a pod here")


def _target(head: bytes) -> tuple[str, int]:
    """Return the host and port that a request names.

    Raises:
        ValueError: it is no CONNECT.

    """
    method, _, rest = head.decode("ascii", "replace").partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT" or not port.isdecimal():
        raise ValueError("CONNECT HOST:PORT is what is served here")
    return host.strip("[]"), int(port)
