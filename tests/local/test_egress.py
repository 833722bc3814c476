"""The proxy through which the API server reaches pods and nodes."""

import asyncio
import contextlib
import ipaddress
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from waiting import until_async

from gangsched.local import commands, pki
from gangsched.local.agent.isolation import egress as proxy
from gangsched.local.agent.isolation.egress import Egress
from gangsched.local.agent.isolation.sandbox import NamespaceSandboxes, SandboxError, Shared
from gangsched.local.network import free_ports


async def ask(port: int, request: bytes, more: bytes = b"") -> bytes:
    """Send a request, and then `more`; return all that is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if more:
        writer.write(more)
        writer.write_eof()
    rest = await reader.read()
    writer.close()
    return head + rest


@pytest.fixture
async def port(tmp_path):
    """Return the port of a proxy for pods without a network of their own."""
    (found,) = free_ports(1)
    egress = Egress(Shared(tmp_path))
    await egress.open(found)
    yield found
    egress.close()


async def test_it_leads_to_nodes(port):
    async def echo(reader, writer) -> None:
        writer.write((await reader.read()).upper())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        at = server.sockets[0].getsockname()[1]
        said = await ask(port, f"CONNECT 127.0.0.1:{at} HTTP/1.1\r\n\r\n".encode(), b"hello")
    assert said == b"HTTP/1.1 200 Connection established\r\n\r\nHELLO"


@pytest.mark.parametrize(
    ("request_line", "why"),
    [
        ("CONNECT 10.88.0.9:443 HTTP/1.1", "10.88.0.9 is no address of a pod here"),
        ("CONNECT 93.184.216.34:80 HTTP/1.1", "93.184.216.34 is no address of a pod here"),
        ("CONNECT example.org:80 HTTP/1.1", "'example.org' does not appear to be"),
        ("CONNECT 127.0.0.1:many HTTP/1.1", "CONNECT HOST:PORT is what is served here"),
        ("GET / HTTP/1.1", "CONNECT HOST:PORT is what is served here"),
        ("CONNECT", "CONNECT HOST:PORT is what is served here"),
    ],
)
async def test_it_leads_nowhere_else(port, request_line, why):
    said = (await ask(port, f"{request_line}\r\n\r\n".encode())).decode()
    assert said.startswith("HTTP/1.1 502 Bad Gateway\r\n")
    assert why in said


def test_aggregated_apis_trust_only_the_api_server(tmp_path):
    authority = pki.Authority(tmp_path / "pki")
    line = commands.apiserver(tmp_path, authority, 1, 2, "", tmp_path / "egress.yaml")
    said = dict(flag.split("=", 1) for flag in line if "=" in flag)
    assert said["--requestheader-allowed-names"] == "front-proxy-client"
    believed = Path(said["--requestheader-client-ca-file"])
    assert believed.read_bytes() != authority.ca.read_bytes()
    whole = x509.load_pem_x509_certificates(Path(said["--proxy-client-cert-file"]).read_bytes())
    (name,) = whole[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "front-proxy-client"
    whole[0].verify_directly_issued_by(x509.load_pem_x509_certificate(believed.read_bytes()))


class Addresses(NamespaceSandboxes):
    """Addresses of pods, without namespaces."""

    network = ipaddress.IPv4Network("10.88.0.0/16")

    def __init__(self) -> None:
        """Create nothing."""


async def test_a_connection_is_not_made_once_its_client_has_left(monkeypatch):
    """A dead address takes ten seconds: later requests would wait for all earlier ones."""
    tried, released = [], threading.Event()

    def connect(_sandboxes, _script, address, _port):
        tried.append(address)
        released.wait()
        raise SandboxError("no answer")

    async def request(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT {address}:80 HTTP/1.1\r\n\r\n".encode())
        await writer.drain()
        return reader, writer

    monkeypatch.setattr(proxy, "open_socket", connect)
    (port,) = free_ports(1)
    egress = Egress(Addresses())
    await egress.open(port)
    try:
        clients = [await request(f"10.88.0.{number}") for number in range(20)]
        await until_async(lambda: len(tried) == proxy._AT_ONCE, "the first connections")
        for _, writer in clients:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        reader, writer = await request("10.88.0.99")
        released.set()
        assert b"no answer" in await reader.read()
        writer.close()
    finally:
        released.set()
        egress.close()
    assert tried[proxy._AT_ONCE :] == ["10.88.0.99"]
