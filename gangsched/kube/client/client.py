"""A thin asynchronous client: JSON in, bytes out, exceptions of `errors.py`."""

import asyncio
import random
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import msgspec

from gangsched.core.model.text import shown
from gangsched.kube.client.access import Access
from gangsched.kube.client.errors import RETRIABLE, Invalid, NotLeader, Unavailable, error_for
from gangsched.kube.client.paths import strays

if TYPE_CHECKING:
    from kubernetes.client import Configuration

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_CONNECTIONS = 128
_TRIES = 6
UNTIL_ANSWERED = sys.maxsize
"""Tries of a caller that can only wait for the API server."""

_encode = msgspec.json.Encoder().encode


class _Status(msgspec.Struct):
    message: str = ""


_WATCH_S = 400.0
"""A watch that is silent for longer is dead: the API server was asked to end it before."""

_PROBED_AFTER_S, _PROBED_EVERY_S, _PROBES = 20, 5, 4
"""A vanished API server is noticed within 40 s, as by the pings of client-go."""


class KubeClient:
    """One API server. Use as an async context manager.

    Args:
        access: the API server and credentials; None takes those that kubectl or a pod would use.
        tries: how often a call is made before its outage is an error.
        token: who calls, in place of the credentials of `access`.

    """

    def __init__(
        self,
        access: Access | Path | None = None,
        tries: int = _TRIES,
        *,
        token: str | None = None,
    ) -> None:
        settings = credentials(access)
        if token is not None:
            settings.cert_file = settings.key_file = None
            settings.refresh_api_key_hook = None
            settings.api_key = {"authorization": f"Bearer {token}"}
        self.server: str = settings.host.rstrip("/")
        self._settings = settings
        self._tries = tries
        self._session: aiohttp.ClientSession | None = None
        self.writes = 0
        self.may_write: Callable[[], bool] = lambda: True
        """Called before each write, because a former leader must write no more."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=_CONNECTIONS, ssl=tls_of(self._settings), socket_factory=_probed_socket
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            headers={"User-Agent": "gangsched", "Accept": "application/json"},
            skip_auto_headers=("User-Agent",),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, **params: str) -> bytes:
        """GET one object or a list."""
        return await self.request("GET", path, params=params)

    async def create(self, path: str, body: Mapping[str, Any]) -> bytes:
        """POST a new object."""
        return await self.request("POST", path, body=body)

    async def patch(self, path: str, body: Any, kind: str = MERGE, **params: str) -> bytes:
        """PATCH an object, by default with a merge patch."""
        return await self.request("PATCH", path, body=body, content_type=kind, params=params)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """DELETE an object."""
        return await self.request("DELETE", path, body=body)

    async def date(self) -> str:
        """Return what the API server says the time is, as HTTP writes it."""
        async with self._open().get(f"{self.server}/version", headers=self._who()) as answer:
            return answer.headers.get("Date", "")

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        tries: int | None = None,
        timeout_s: float = 60.0,
    ) -> bytes:
        """Make one call; throttling and outages are retried with growing pauses.

        A retried write may have succeeded the first time: creations then answer Conflict.

        Raises:
            KubeError: the API refused, or did not answer after every try.

        """
        _refuse_stray(method, path)
        data = None if body is None else _encode(body)
        headers = self._who()
        if data is not None:
            headers["Content-Type"] = content_type
        tries = self._tries if tries is None else tries
        for attempt in range(tries):
            try:
                return await self._once(method, path, data, headers, params, timeout_s)
            except RETRIABLE:
                if attempt + 1 == tries:
                    raise
                pause_s = min(0.1 * 2 ** min(attempt, 10), 5.0)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None,
        timeout_s: float,
    ) -> bytes:
        if method != "GET":
            if not self.may_write():
                raise NotLeader(0, f"{method} {path}: this process does not lead")
            self.writes += 1
        try:
            async with self._open().request(
                method,
                self.server + path,
                data=data,
                headers=headers,
                params=params,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as answer:
                content = await answer.read()
                if answer.status < 400:
                    return content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(0, f"{method} {path}: {error!r}") from error
        raise error_for(answer.status, _message(content))

    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[list[bytes]]:
        """GET a path and yield the complete lines of each chunk as they arrive.

        Raises:
            KubeError: the API refused, or the connection broke.

        """
        _refuse_stray("GET", path)
        try:
            async with self._open().get(
                self.server + path,
                params=params,
                headers=self._who(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_S),
            ) as answer:
                if answer.status >= 400:
                    raise error_for(answer.status, _message(await answer.read()))
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if lines:
                        yield lines
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(0, f"GET {path}: {error!r}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use KubeClient as an async context manager")
        return self._session

    def _who(self) -> dict[str, str]:
        """Return the credentials; the token of a pod changes every hour, so read it each time."""
        authorization = authorization_of(self._settings)
        return {"Authorization": authorization} if authorization else {}


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that checks periodically whether its other end exists."""
    family, kind, protocol, _, _ = address
    probed = socket.socket(family, kind, protocol)
    probed.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBED_AFTER_S),
        ("TCP_KEEPINTVL", _PROBED_EVERY_S),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, name):  # these three are Linux's
            probed.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return probed


def credentials(access: Access | Path | None) -> "Configuration":
    """Return the server and the credentials; of a kubeconfig, those of its current context.

    Raises:
        KubeError: there is no kubeconfig, or it cannot be used.

    """
    return (access if isinstance(access, Access) else Access(access)).credentials()


def authorization_of(settings: "Configuration") -> str | None:
    """Return the value of the header Authorization, or None without a token.

    The library keeps the token by its name in OpenAPI since 37, and by the header's before.
    """
    said = settings.auth_settings().get("BearerToken")
    return (said["value"] or None) if said else None


def tls_of(settings: "Configuration") -> ssl.SSLContext | bool:
    """Return how a server of these settings is trusted, or False where it speaks plain HTTP."""
    if not settings.host.startswith("https"):
        return False
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def _refuse_stray(method: str, path: str) -> None:
    """Reject a path that leads to another object, because of a name in it.

    Raises:
        Invalid: it does.

    """
    if strays(path):
        raise Invalid(400, f"{method} {shown(path)} is no path of an object")


def _message(content: bytes) -> str:
    try:
        return msgspec.json.decode(content, type=_Status).message
    except msgspec.DecodeError:
        return content[:500].decode(errors="replace")
