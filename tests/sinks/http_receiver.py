"""An HTTP server that receives webhooks and traces, and misbehaves on request."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from msgspec import Struct

Behaviour = int | Literal["hang", "cut"] | tuple[int, str]
"""A status, a connection that hangs or is cut, or a redirect with its target."""


class Received(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: bytes


class HttpReceiver:
    def __init__(self) -> None:
        self.all: list[Received] = []
        self.taken: list[Received] = []
        """Those that were answered with 200."""
        self.behave: Callable[[Received], Behaviour] = lambda one: 200
        self.headers: dict[str, str] = {}
        """Further headers of its answers."""
        self.said = b""
        """The body of its answers."""
        self.port = 0
        self._arrived = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def wait_for(self, count: int) -> list[Received]:
        """The messages taken, once there are so many."""
        async with asyncio.timeout(40):
            while len(self.taken) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.taken

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in head[1:])
            if colon
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        one = Received(head[0].split(" ")[1], headers, body)
        self.all.append(one)
        behaviour = self.behave(one)
        if behaviour == "hang":
            await reader.read()
            return
        if behaviour == "cut":
            return
        status, where = behaviour if isinstance(behaviour, tuple) else (behaviour, "")
        assert isinstance(status, int)
        if status == 200:
            self.taken.append(one)
            self._arrived.set()
        headers = {**self.headers, **({"Location": where} if where else {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"HTTP/1.1 {status} Said\r\n{lines}Content-Length: {len(self.said)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + self.said
        )
        await writer.drain()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def http_receiver() -> AsyncGenerator[HttpReceiver]:
    receiver = HttpReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.close()
        server.close()
        await server.wait_closed()
