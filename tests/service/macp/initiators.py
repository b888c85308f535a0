"""An initiator's callback: a real HTTP server that takes requests to cancel."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

Act = Callable[["Asked"], Awaitable[None]]


class Asked(Struct, frozen=True):
    """One request of the control plane."""

    line: str
    headers: dict[str, str]
    body: Any


class Initiator:
    """Answers with a status, after it has acted."""

    def __init__(self, status: str, act: Act | None, headers: str) -> None:
        self.status = status
        self.requests: list[Asked] = []
        self.url = ""
        self._act = act
        self._headers = headers

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(head[0], headers, msgspec.json.decode(body) if body else None)
        self.requests.append(asked)
        try:
            if self._act is not None:
                await self._act(asked)
            told = f"HTTP/1.1 {self.status}\r\n{self._headers}content-length: 0\r\n\r\n"
            writer.write(told.encode())
        finally:
            writer.close()


@asynccontextmanager
async def initiators(
    status: str = "200 OK", act: Act | None = None, headers: str = ""
) -> AsyncGenerator[Initiator]:
    made = Initiator(status, act, headers)
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    async with server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/agent/cancel"
        yield made
