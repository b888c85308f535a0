"""Readers of the service's streams."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from tests.serve.http.wire import Connection, clients, request
from tests.service.serving import PATIENCE_S, Service


class Frame(Struct, frozen=True):
    """One server-sent event."""

    id: str = ""
    event: str = ""
    data: str = ""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.data)


class Reading:
    """An open stream."""

    def __init__(self, connection: Connection, status: int, headers: dict[str, str]) -> None:
        self._connection = connection
        self.status = status
        self.headers = headers

    async def frames(self) -> AsyncIterator[Frame]:
        """Until the server ends the stream; comments are left out."""
        waiting = b""
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in self._connection.chunks():
                waiting += chunk
                *whole, waiting = waiting.split(b"\n\n")
                for text in whole:
                    if not text.startswith(b":"):
                        yield _frame(text.decode())


def _frame(text: str) -> Frame:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        fields[name] = fields[name] + "\n" + value if name in fields else value
    return Frame(**fields)


@asynccontextmanager
async def reading(service: Service, path: str, **headers: str) -> AsyncGenerator[Reading]:
    """A stream at a path below `/hecate/v1`."""
    async with reading_at(service, f"/hecate/v1{path}", **headers) as stream:
        yield stream


@asynccontextmanager
async def reading_at(service: Service, path: str, **headers: str) -> AsyncGenerator[Reading]:
    """A stream of any surface."""
    sent = {"Accept": "text/event-stream"}
    sent.update({name.replace("_", "-"): value for name, value in headers.items()})
    async with clients() as opened:
        connection = await opened.connect_to(service.url)
        await connection.send(request("GET", path, None, sent))
        status, answered = await connection.head()
        yield Reading(connection, status, answered)


async def all_frames(service: Service, path: str, **headers: str) -> list[Frame]:
    """Every frame of a stream that ends, below `/hecate/v1`."""
    return await frames_at(service, f"/hecate/v1{path}", **headers)


async def frames_at(service: Service, path: str, **headers: str) -> list[Frame]:
    """Every frame of a stream of any surface that ends."""
    async with reading_at(service, path, **headers) as stream:
        assert stream.status == 200
        return [frame async for frame in stream.frames()]
