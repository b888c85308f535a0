"""Servers that are no service of ours."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

ANSWERS = {
    "page": b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n"
    b"<html></html>",
    "other_json": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n"
    b'{"a": 1}',
    "no_http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "failing": b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nno!",
    "hanging": b"",
}


@asynccontextmanager
async def strange_server(kind: str) -> AsyncGenerator[str, None]:
    """A server that gives the same answer to everything; its address."""
    leaving = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(ANSWERS[kind])
        if kind == "hanging":
            await leaving.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        leaving.set()
        server.close()
