"""kopf's session with the API server: our client's credentials, and only readable JSON.

kopf ends on an object that is nested too deep for Python's JSON, and with it every job controller.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import kopf

from gangsched.kube.client.access import Access
from gangsched.kube.client.client import authorization_of, credentials, tls_of
from gangsched.kube.client.json_depth import decode_bounded, readable


class _Lines:
    """The stream of a watch, made readable a line at a time."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines, as many as there are."""
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield b"".join(readable(line) + b"\n" for line in lines)
        if rest:
            yield rest


class _Response(aiohttp.ClientResponse):
    """A response that kopf can always read."""

    async def json(self, **_: Any) -> Any:
        """Return the whole body, decoded; what is no JSON raises as kopf expects it."""
        body = await self.read()
        return decode_bounded(json.loads, body) if body else None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read the headers; make the body readable if it is a watch."""
        await super().start(connection)
        if "watch" in self.url.query:
            self.content = _Lines(self.content)  # type: ignore[assignment]
        return self


def session(access: Access | Path | None) -> kopf.AiohttpSession:
    """Return a session for kopf, with a kubeconfig's credentials or the pod's own."""
    settings = credentials(access)
    authorization = authorization_of(settings)
    connector = aiohttp.TCPConnector(limit=0, ssl=tls_of(settings))
    http = aiohttp.ClientSession(
        connector=connector,
        headers={"Authorization": authorization} if authorization else {},
        response_class=_Response,
    )
    return kopf.AiohttpSession(server=settings.host, aiohttp_session=http)
