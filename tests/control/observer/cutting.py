"""A TCP proxy with a fixed address: a test cuts its connections and moves its target."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

_PIECE = 1 << 14


class Proxy:
    def __init__(self) -> None:
        self.address = ""
        self.target = ""
        """`HOST:PORT`; empty to refuse."""
        self.delay_s = 0.0
        """How long a new connection waits before anything passes."""
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Drop all connections, in the middle of whatever they carry."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        await asyncio.sleep(self.delay_s)
        try:
            from_target, to_target = await asyncio.open_connection(host, int(port or 0))
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, to_target}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, to_target))
                group.create_task(_pass_on(from_target, writer))
        finally:
            self._writers -= ends
            for one in ends:
                one.transport.abort()


async def _pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_PIECE):
            to.write(piece)
            await to.drain()
    to.transport.abort()


@asynccontextmanager
async def cutting() -> AsyncGenerator[Proxy]:
    proxy = Proxy()
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await asyncio.sleep(0)
