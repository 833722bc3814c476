"""Connections of the API server to pods: those that nobody waits for any more are not made."""

import asyncio
import contextlib
import ipaddress
import threading

from waiting import until_async

from gangsched.local.agent.isolation import egress
from gangsched.local.agent.isolation.sandbox import NamespaceSandboxes, SandboxError
from gangsched.local.network import free_ports


class Sandboxes(NamespaceSandboxes):
    """Pods' addresses, without namespaces."""

    network = ipaddress.IPv4Network("10.88.0.0/16")

    def __init__(self) -> None:
        """Make nothing."""


async def ask(port: int, name: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a connection to a pod, as the API server does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"CONNECT 10.88.0.{name}:80 HTTP/1.1\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def test_what_nobody_waits_for_is_not_connected(monkeypatch):
    """Dead addresses take ten seconds each: those that come later would wait for all of them."""
    tried, go_on = [], threading.Event()

    def connected(_sandboxes, _script, address, _port):
        tried.append(address)
        go_on.wait()
        raise SandboxError("nobody answers")

    monkeypatch.setattr(egress, "open_socket", connected)
    (port,) = free_ports(1)
    proxy = egress.Egress(Sandboxes())
    await proxy.open(port)
    try:
        asked = [await ask(port, number) for number in range(20)]
        await until_async(lambda: len(tried) == egress._AT_ONCE, "the first to be tried")
        for _, writer in asked:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        reader, writer = await ask(port, 99)
        go_on.set()
        assert b"nobody answers" in await reader.read()
        writer.close()
    finally:
        go_on.set()
        proxy.close()
    assert len(tried) == egress._AT_ONCE + 1
    assert tried[-1] == "10.88.0.99"
