"""The part of the kubelet's HTTPS API that kubectl and SDK clients need."""

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from gangsched.local.agent.server.streams import execute, forward
from gangsched.local.agent.worker import PodWorker

_POLL_S = 0.1
_CHUNK = 64 * 1024

Find = Callable[[str, str], PodWorker | None]


class Kubelet:
    """Serves logs, exec and port-forward; `find` returns the worker of a namespace and pod name."""

    def __init__(self, find: Find) -> None:
        self._find = find

    async def serve(self, port: int, tls: ssl.SSLContext) -> None:
        """Listen on loopback with TLS."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/containerLogs/{namespace}/{pod}/{container}", self._logs),
                *(
                    route("/exec/{namespace}/{pod}/{container}", self._exec)
                    for route in (web.get, web.post)
                ),
                *(
                    route("/portForward/{namespace}/{pod}", self._forward)
                    for route in (web.get, web.post)
                ),
                web.get("/healthz", _healthy),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        return await execute(request, self._find(names["namespace"], names["pod"]))

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        return await forward(request, self._find(names["namespace"], names["pod"]))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        worker = self._find(names["namespace"], names["pod"])
        container = names["container"]
        previous = request.query.get("previous") == "true"
        path = worker.log_path(container, previous=previous) if worker else None
        if worker is None or path is None:
            what = "previous terminated container" if previous else "container"
            return web.Response(status=400, text=f"{what} {container!r} in pod has no log")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        limit = int(request.query.get("limitBytes", "0")) or None
        stamp = request.query.get("timestamps") == "true"
        with path.open("rb") as file:
            file.seek(_tail_offset(path, int(request.query.get("tailLines", "-1"))))
            sent = 0
            while True:
                chunk = file.read(_CHUNK)
                if chunk:
                    data = _stamped(chunk, path) if stamp else chunk
                    data = data if limit is None else data[: limit - sent]
                    await response.write(data)
                    sent += len(data)
                    if limit is not None and sent >= limit:
                        break
                elif (
                    request.query.get("follow") == "true"
                    and not previous
                    and (
                        worker.running(container)
                        and worker.log_path(container, previous=False) == path
                    )
                ):
                    await asyncio.sleep(_POLL_S)
                else:
                    break
        await response.write_eof()
        return response


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _tail_offset(path: Path, lines: int) -> int:
    """Return the offset of the last `lines` lines (of the whole file for a negative number)."""
    if lines < 0:
        return 0
    data = path.read_bytes()
    position = len(data)
    body = data[:-1] if data.endswith(b"\n") else data
    for _ in range(lines):
        position = body.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1 if lines else len(data)


def _stamped(chunk: bytes, path: Path) -> bytes:
    """Put a time before each line.

    Output goes straight to the file, so the time of the last write stands for all lines.
    """
    when = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return b"".join(f"{when} ".encode() + line for line in chunk.splitlines(keepends=True))
