"""Stands in for a Service with the leader's label: passes connections to the leader."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import aiohttp

_LOOK_S = 0.3
_PIECE_BYTES = 2**16


class LeaderService:
    """Listens on a port, and passes connections to the port of the leader."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        """`ports` are the candidates' extender ports, by the ports of their /readyz."""
        self._ports = ports
        self._leader: int | None = None
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self._looking = asyncio.create_task(self._look())
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening."""
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            self._server.close()

    async def _look(self) -> None:
        timeout = aiohttp.ClientTimeout(total=1.0)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                for ready, port in self._ports.items():
                    with suppress(aiohttp.ClientError, TimeoutError):
                        url = f"http://127.0.0.1:{ready}/readyz"
                        async with session.get(url) as answer:
                            if await answer.text() == "leading":
                                self._leader = port
                await asyncio.sleep(_LOOK_S)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward: asyncio.StreamWriter | None = None
        try:
            if self._leader is not None:
                back, onward = await asyncio.open_connection("127.0.0.1", self._leader)
                await asyncio.gather(_pipe(reader, onward), _pipe(back, writer))
        except OSError:
            pass  # nothing listens there: the connection ends, as with a Service
        finally:
            for stream in (writer, onward):
                if stream is not None:
                    stream.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    writer.close()
