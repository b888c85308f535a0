"""A client on a plain socket, so that a test sees and sends each byte."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from batten.serve.http.app import App
from batten.serve.http.limits import Limits
from batten.serve.http.server import ServeOptions, Server, open_server
from tests.serve.http.toy import Boxes, surfaces

PATIENCE_S = 20


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error


class Connection:
    """One connection, kept open between requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """The status and headers of the next answer."""
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name: value for name, _, value in pairs}

    async def answer(self, method: str = "GET") -> Answer:
        status, headers = await self.head()
        body = b""
        async with asyncio.timeout(PATIENCE_S):
            if method == "HEAD" or status in (204, 304):
                pass
            elif headers.get("transfer-encoding") == "chunked":
                body = b"".join([chunk async for chunk in self.chunks()])
            else:
                body = await self.reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body)

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end of the answer."""
        async with asyncio.timeout(PATIENCE_S):
            size = int(await self.reader.readline(), 16)
            data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        await self.send(request(method, path, body, headers))
        return await self.answer(method)

    def close(self) -> None:
        self.writer.close()


def request(
    method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> bytes:
    """A request; a body that is not bytes goes as JSON."""
    fields = {"Host": "127.0.0.1", **(headers or {})}
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        fields = {"Content-Length": str(len(data)), "Content-Type": "application/json", **fields}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


class Clients:
    """Opens connections, and closes them all at the end."""

    def __init__(self) -> None:
        self._open: list[Connection] = []

    async def connect(self, host: str, port: int, **more: Any) -> Connection:
        self._open.append(Connection(*await asyncio.open_connection(host, port, **more)))
        return self._open[-1]

    async def connect_to(self, url: str, **more: Any) -> Connection:
        address = urlsplit(url)
        return await self.connect(address.hostname or "", address.port or 0, **more)

    async def connect_unix(self, path: Path) -> Connection:
        self._open.append(Connection(*await asyncio.open_unix_connection(path)))
        return self._open[-1]

    async def close(self) -> None:
        for connection in self._open:
            connection.close()
            with suppress(OSError):
                await connection.writer.wait_closed()


@asynccontextmanager
async def clients() -> AsyncGenerator[Clients]:
    opened = Clients()
    try:
        yield opened
    finally:
        await opened.close()


class Toy:
    """The toy behind real sockets."""

    def __init__(self, app: App, boxes: Boxes, server: Server, home: Path, opened: Clients) -> None:
        self.opened = opened
        self.app = app
        self.boxes = boxes
        self.server = server
        self.home = home

    async def connect(self) -> Connection:
        return await self.opened.connect_to(self.server.url)

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = await self.connect()
        try:
            return await connection.ask(method, path, body, headers)
        finally:
            connection.close()


@asynccontextmanager
async def toy(home: Path, limits: Limits | None = None, **options: Any) -> AsyncGenerator[Toy]:
    """A server with the toy surface on a free port of loopback."""
    boxes = Boxes()
    app = App(surfaces(boxes), limits=limits or Limits(grace_s=5))
    options = {"home": str(home), "port": 0, **options}
    async with open_server(app, ServeOptions(**options)) as server, clients() as opened:
        yield Toy(app, boxes, server, home, opened)
