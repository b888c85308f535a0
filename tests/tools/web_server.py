"""A tiny HTTP server on loopback: fixed answers by path, and what was asked of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class WebServer:
    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.hang = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str, body: bytes, kind: str = "text/html", status: str = "200 OK") -> str:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.answers[path] = head.encode() + body
        return self.url + path

    def redirect(self, path: str, target: str, status: str = "302 Found") -> str:
        head = f"HTTP/1.1 {status}\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
        self.answers[path] = head.encode()
        return self.url + path

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            self.requests.append(head + await reader.readexactly(length))
            self.asked.set()
            path = head.split(b" ", 2)[1].decode().partition("?")[0]
            if path == "/hang":
                await self.hang.wait()
            writer.write(
                self.answers.get(path, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def web_server() -> AsyncGenerator[WebServer, None]:
    server = WebServer()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        server.hang.set()
        listener.close()
        await listener.wait_closed()
