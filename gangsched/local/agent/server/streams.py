"""`kubectl exec` and `kubectl port-forward`: processes of a pod behind SPDY streams.

The API server speaks SPDY to kubelets whatever its client speaks. Source: the kubelet's streaming
server (k8s.io/cri-streaming), and KEP-4006.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import struct
import termios
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gangsched.local.agent.server.spdy import PROTOCOL, Connection, Stream
from gangsched.local.agent.worker import PodWorker

_VERSION = "X-Stream-Protocol-Version"
_EXEC_VERSIONS = ("v4.channel.k8s.io",)
_FORWARD_VERSIONS = ("portforward.k8s.io",)
_PATIENCE_S = 30.0
_CHUNK = 1 << 16

# Runs in the pod, where its ports are: the agent is in another network namespace.
_BRIDGE = """
import os, socket, sys, threading
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def send():
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := there.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


async def execute(request: web.Request, worker: PodWorker | None) -> web.StreamResponse:
    """Run a command in a container, connected to the streams of the request."""
    container = request.match_info["container"]
    if worker is None or not worker.running(container):
        return web.Response(status=404, text=f"container {container!r} does not run")
    command = request.query.getall("command", [])
    if not command:
        return web.Response(status=400, text="no command is given")
    flags = {name for name in ("input", "output", "error", "tty") if request.query.get(name) == "1"}
    terminal = "tty" in flags
    wanted = {"error"} | ({"stdin"} if "input" in flags else set())
    wanted |= {"stdout"} if "output" in flags else set()
    wanted |= {"resize"} if terminal else {"stderr"} if "error" in flags else set()
    streams: dict[str, Stream] = {}
    there = asyncio.Event()

    def opened(stream: Stream) -> None:
        streams[stream.headers.get("streamtype", "")] = stream
        if wanted <= set(streams):
            there.set()

    async def serve(connection: Connection) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await there.wait()
        run = _on_terminal if terminal else _piped
        code = await run(worker.entering(container, command), streams, connection)
        streams["error"].write(_verdict(code))
        for stream in streams.values():
            stream.close()

    return await _upgraded(request, _EXEC_VERSIONS, opened, serve)


async def forward(request: web.Request, worker: PodWorker | None) -> web.StreamResponse:
    """Connect ports of a pod with streams, until the client leaves."""
    if worker is None or worker.ended():
        return web.Response(status=404, text="the pod does not run")
    errors: dict[str, Stream] = {}
    tasks: set[asyncio.Task[None]] = set()

    async def join(stream: Stream) -> None:
        error = errors[stream.headers.get("requestid", "")]
        port = stream.headers.get("port", "")
        line = worker.entering(None, ["python3", "-c", _BRIDGE, port])
        process = await _start(line, stdin=asyncio.subprocess.PIPE)
        sending = asyncio.create_task(_feed(stream, process))
        stderr = asyncio.create_task(process.stderr.read() if process.stderr else _nothing())
        await _pump(process.stdout, stream)
        sending.cancel()
        _kill(process)
        if await process.wait() > 0:
            last = (await stderr).decode(errors="replace").strip().rsplit("\n", 1)[-1]
            error.write(f"port {port} of the pod: {last}".encode())
        error.close()
        stream.close()

    def opened(stream: Stream) -> None:
        if stream.headers.get("streamtype") == "error":
            errors[stream.headers.get("requestid", "")] = stream
        else:
            task = asyncio.create_task(join(stream))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def serve(connection: Connection) -> None:
        await connection.lost.wait()
        for task in tasks:
            task.cancel()

    return await _upgraded(request, _FORWARD_VERSIONS, opened, serve)


async def _upgraded(
    request: web.Request,
    versions: tuple[str, ...],
    opened: Callable[[Stream], None],
    serve: Callable[[Connection], Awaitable[None]],
) -> web.StreamResponse:
    """Upgrade the request's connection to SPDY, and serve it."""
    offered = [v.strip() for v in ",".join(request.headers.getall(_VERSION, [])).split(",")]
    version = next((version for version in versions if version in offered), None)
    if request.headers.get("Upgrade") != PROTOCOL or version is None:
        allowed = f"{PROTOCOL} with {_VERSION} {' or '.join(versions)}"
        return web.Response(status=400, text=f"streams need an upgrade to {allowed}")
    head = {"Connection": "Upgrade", "Upgrade": PROTOCOL, _VERSION: version}
    response = web.StreamResponse(status=101, headers=head)
    transport = request.transport
    await response.prepare(request)
    if transport is None:
        return response
    connection = Connection(transport.write, opened)
    request.protocol.set_parser(connection)  # type: ignore[arg-type] # made for WebSockets
    request.protocol.keep_alive(val=False)
    with contextlib.suppress(TimeoutError, ConnectionError):
        await serve(connection)
    return response


Line = tuple[list[str], Mapping[str, str], object]


async def _start(line: Line, *, stdin: int) -> asyncio.subprocess.Process:
    command, variables, folder = line
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(variables),
        cwd=folder,  # type: ignore[arg-type]
        start_new_session=True,
    )


async def _piped(line: Line, streams: Mapping[str, Stream], connection: Connection) -> int:
    """Run a command with pipes; return its exit code."""
    source = streams.get("stdin")
    pipe = asyncio.subprocess.PIPE if source else asyncio.subprocess.DEVNULL
    process = await _start(line, stdin=pipe)
    feeding = asyncio.create_task(_feed(source, process)) if source else None
    leaving = asyncio.create_task(_kill_when_lost(process, connection))
    await asyncio.gather(
        _pump(process.stdout, streams.get("stdout")), _pump(process.stderr, streams.get("stderr"))
    )
    code = await process.wait()
    for task in (feeding, leaving):
        if task is not None:
            task.cancel()
    return code


async def _on_terminal(line: Line, streams: Mapping[str, Stream], connection: Connection) -> int:
    """Run a command on a terminal of its own; return its exit code."""
    own, child = os.openpty()
    command, variables, folder = line
    process = await asyncio.create_subprocess_exec(
        "setsid",
        "--ctty",
        "--wait",
        *command,
        stdin=child,
        stdout=child,
        stderr=child,
        env={"TERM": "xterm", **variables},
        cwd=folder,  # type: ignore[arg-type]
        start_new_session=True,
    )
    os.close(child)
    tasks = [asyncio.create_task(_kill_when_lost(process, connection))]
    if "stdin" in streams:
        tasks.append(asyncio.create_task(_type(streams["stdin"], own)))
    if "resize" in streams:
        tasks.append(asyncio.create_task(_resize(streams["resize"], own)))
    with contextlib.suppress(OSError):  # the terminal is gone with its last process
        while data := await asyncio.to_thread(os.read, own, _CHUNK):
            streams["stdout"].write(data)
    code = await process.wait()
    for task in tasks:
        task.cancel()
    os.close(own)
    return code


async def _feed(source: Stream, process: asyncio.subprocess.Process) -> None:
    pipe = process.stdin
    if pipe is None:
        return
    with contextlib.suppress(ConnectionError):
        while (data := await source.incoming.get()) is not None:
            pipe.write(data)
            await pipe.drain()
        pipe.close()


async def _pump(source: asyncio.StreamReader | None, sink: Stream | None) -> None:
    while source is not None and (data := await source.read(_CHUNK)):
        if sink is not None:
            sink.write(data)


async def _type(source: Stream, terminal: int) -> None:
    while (data := await source.incoming.get()) is not None:
        await asyncio.to_thread(os.write, terminal, data)


async def _resize(source: Stream, terminal: int) -> None:
    while (data := await source.incoming.get()) is not None:
        with contextlib.suppress(ValueError, KeyError, OSError):
            size = json.loads(data)
            window = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, window)


async def _nothing() -> bytes:
    return b""


async def _kill_when_lost(process: asyncio.subprocess.Process, connection: Connection) -> None:
    """End the command after the client has left, like the kubelet."""
    await connection.lost.wait()
    _kill(process)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _verdict(code: int) -> bytes:
    """Return the end of a command in the form of version 4 of the protocol."""
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    if code < 0:
        code = 128 - code
    return json.dumps(
        {
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    ).encode()
