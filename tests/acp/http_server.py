"""An MCP server over HTTP, or HTTP with SSE, with one tool, which tells a header that it was called
with."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

Json = dict[str, Any]


@asynccontextmanager
async def http_server() -> AsyncGenerator[str, None]:
    """Its address, while it listens."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


@asynccontextmanager
async def sse_server() -> AsyncGenerator[str, None]:
    """The same with the older transport: one stream of events has every answer."""
    streams: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, headers = _read(head)
                if first.startswith("GET "):
                    streams.append(writer)
                    writer.write(b"HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\n\r\n")
                    writer.write(b"event: endpoint\ndata: /messages?session_id=1\n\n")
                    continue
                body = await reader.readexactly(int(headers["content-length"]))
                _, answer = _answer(first, headers, body)
                writer.write(b"HTTP/1.1 202 x\r\ncontent-length: 0\r\n\r\n")
                if answer is not None:
                    streams[-1].write(b"event: message\ndata: %b\n\n" % json.dumps(answer).encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sse"


def _read(head: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = head.decode().splitlines()
    pairs = (line.partition(": ") for line in lines if line)
    return first, {name.lower(): value for name, _, value in pairs}


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, headers = _read(head)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, answer = _answer(first, headers, body)
            data = b"" if answer is None else json.dumps(answer).encode()
            writer.write(
                b"HTTP/1.1 %d x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (status, len(data), data)
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _answer(first: str, headers: dict[str, str], body: bytes) -> tuple[int, Json | None]:
    if not first.startswith("POST "):
        return 405, None
    message: Json = json.loads(body)
    if "id" not in message:
        return 202, None
    answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            answer["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "away", "version": "1"},
            }
        case "tools/list":
            answer["result"] = {"tools": [{"name": "team", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            told = {"type": "text", "text": headers.get("x-team", "nobody's")}
            answer["result"] = {"content": [told]}
        case _:
            answer["error"] = {"code": -32601, "message": "no such method"}
    return 200, answer
