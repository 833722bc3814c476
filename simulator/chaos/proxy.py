"""A proxy between one component and the API server: delays, errors, lost answers, cut watches.

The component sends plain HTTP to the proxy. The proxy sends it to the API server with the client
certificate of the component. The proxy never reorders a watch or leaves an event out, because an
API server does not either.
"""

import asyncio
import random
import ssl
from contextlib import suppress
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from simulator.chaos.plan import NO_FAULTS, NetworkFaults

_HOP = {"connection", "transfer-encoding", "host", "content-length", "content-encoding"}
_BODY_MAX = 2**26
_REASONS = {
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Proxy:
    """The connection of one component to the API server; `faults` may change at any time."""

    def __init__(self, kubeconfig: Path, seed: int) -> None:
        self.faults: NetworkFaults = NO_FAULTS
        self._kubeconfig = kubeconfig
        self._rng = random.Random(seed)  # noqa: S311
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._server = ""

    async def open(self, target: Path) -> None:
        """Listen, and write the kubeconfig with which the component uses this proxy."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            headers={"Authorization": f"Bearer {user['token']}"},
            auto_decompress=False,
        )
        app = web.Application(client_max_size=_BODY_MAX)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        cluster.clear()
        cluster["server"] = f"http://127.0.0.1:{port}"
        user.clear()
        target.write_text(yaml.safe_dump(config))

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        await self._wait_out_outage(request)
        faults = self.faults
        await asyncio.sleep(self._rng.uniform(0.0, faults.late_s))
        if self._rng.random() < faults.errors:
            return self._error(request.method)
        assert self._session is not None, "opened before"  # noqa: S101
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        try:
            async with self._session.request(
                request.method,
                self._server + request.raw_path,
                headers=headers,
                data=await request.read() or None,
            ) as answer:
                if "watch" in request.query:
                    return await self._watch(request, answer)
                body = await answer.read()
        except (aiohttp.ClientError, ConnectionError):  # either side went away
            return _hung_up(request)
        await self._wait_out_outage(request)
        if self._rng.random() < faults.lost:
            return _hung_up(request)
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
        if "Content-Encoding" in answer.headers:
            kept["Content-Encoding"] = answer.headers["Content-Encoding"]
        return web.Response(status=answer.status, body=body, headers=kept)

    async def _watch(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        response.content_type = answer.content_type
        await response.prepare(request)
        with suppress(aiohttp.ClientError, ConnectionError):
            async for piece in answer.content.iter_any():
                await self._wait_out_outage(request)
                await asyncio.sleep(self._rng.uniform(0.0, self.faults.lag_s))
                if self._rng.random() < self.faults.cuts:
                    half = piece[: self._rng.randrange(len(piece) + 1)]
                    await response.write(half)
                    return _hung_up(request)
                await response.write(piece)
        return response

    async def _wait_out_outage(self, request: web.Request) -> None:
        while self.faults.outage:
            if self.faults.outage == "refuses":
                _hung_up(request)
                raise web.HTTPServiceUnavailable
            await asyncio.sleep(0.1)

    def _error(self, method: str) -> web.Response:
        """Return an error of an API server; a Conflict only for methods that may conflict."""
        codes = [429, 500, 503, *([409] if method in ("PUT", "PATCH") else [])]
        code = self._rng.choice(codes)
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": _REASONS[code],
            "message": f"chaos: {_REASONS[code]}",
            "code": code,
        }
        return web.json_response(status, status=code)


def _hung_up(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)
