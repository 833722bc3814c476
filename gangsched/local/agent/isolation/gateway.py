"""Makes the API server reachable from the pods' network: kubernetes.default.svc.

The API server listens on the machine's loopback, which pods in namespaces of their own do not
have. A socket that was opened in their network, and is served from here, leads there.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

from gangsched.local.agent.isolation.sandbox import NamespaceSandboxes, SandboxError, Sandboxes

NAME = "kubernetes.default.svc"
_PORT = 6443
_CHUNK = 1 << 16

_LISTEN = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
with socket.socket(fileno=int(sys.argv[3])) as there:
    socket.send_fds(there, [b"x"], [listening.fileno()])
"""


class Gateway:
    """The API server for pods: variables for their environment, a line for /etc/hosts."""

    def __init__(self, sandboxes: Sandboxes, server: str, forwards: Sequence[int] = ()) -> None:
        """`forwards` are ports of this machine's loopback that pods reach too."""
        parts = urlsplit(server)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 443
        self._sandboxes, self._forwards = sandboxes, forwards
        self._servers: list[asyncio.Server] = []

    async def open(self) -> None:
        """Listen in the pods' network.

        Raises:
            SandboxError: nothing can listen there.

        """
        if not isinstance(self._sandboxes, NamespaceSandboxes):
            return  # pods share this machine's loopback
        ends = {_PORT: (self._host, self._port)}
        ends |= {port: ("127.0.0.1", port) for port in self._forwards}
        for port, (host, there) in ends.items():
            listening = await asyncio.to_thread(_listening, self._sandboxes, port)
            join = partial(_join, host, there)
            self._servers.append(await asyncio.start_server(join, sock=listening))

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that clients in a cluster read."""
        inside = bool(self._servers)
        port = str(_PORT if inside else self._port)
        return {
            "KUBERNETES_SERVICE_HOST": NAME if inside else self._host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICE_PORT_HTTPS": port,  # Ray's autoscaler reads this one
        }

    @property
    def hosts_line(self) -> str:
        """Return the line of /etc/hosts that names the API server."""
        names = ".".join(NAME.split(".")[:2]), NAME
        return f"{self._sandboxes.host_address()} {' '.join(names)}"


async def _join(
    host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        there = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    await joined((reader, writer), there)


async def joined(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Copy bytes between two connections in both directions until both have ended."""
    await asyncio.gather(_pump(client[0], other[1]), _pump(other[0], client[1]))
    for _, writer in (client, other):
        with contextlib.suppress(OSError):
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()  # the other direction may have more to say
        else:
            writer.close()


def _listening(sandboxes: NamespaceSandboxes, port: int) -> socket.socket:
    """Return a socket that listens in the pods' network."""
    return socket.socket(
        fileno=open_socket(sandboxes, _LISTEN, sandboxes.host_address(), str(port))
    )


def open_socket(sandboxes: NamespaceSandboxes, script: str, *arguments: str) -> int:
    """Return the descriptor of a socket that a script opens in the pods' network.

    It stays there wherever it is used. The script's last argument is the descriptor that it sends
    it through.

    Raises:
        SandboxError: the script failed.

    """
    own, inside = socket.socketpair()
    with own, inside:
        number = inside.fileno()
        done = subprocess.run(
            [*sandboxes.enter_network(), sys.executable, "-c", script, *arguments, str(number)],
            pass_fds=[number],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last_line = done.stderr.strip().rsplit("\n", 1)[-1]
            raise SandboxError(f"no socket in the pods' network: {last_line}")
        _, descriptors, _, _ = socket.recv_fds(own, 1, 1)
    return descriptors[0]
