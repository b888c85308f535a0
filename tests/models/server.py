"""A model provider on loopback: plays prepared bytes, well or badly, and keeps what it was asked.

    async with ModelServer([answer(anthropic_text("Hello"))]) as server:
        ... ANTHROPIC_BASE_URL=server.url ...
    server.requests[0].json()

A reply is a sequence of steps: bytes to send and things that go wrong. Each request
takes the next reply; the last one is repeated.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from enum import Enum
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct


class Fault(Enum):
    STALL = "send nothing more, until the client goes away"
    RESET = "break the connection"
    CLOSE = "end the connection"


Step = bytes | Fault
Reply = Sequence[Step]


class Request(Struct, frozen=True):
    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Which connection it came on, counted from 0."""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


class ModelServer:
    def __init__(self, replies: Iterable[Reply], *, context: ssl.SSLContext | None = None) -> None:
        self._replies = list(replies)
        self._context = context
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = 0
        self.requests: list[Request] = []
        self.connections = 0
        self.asked = asyncio.Event()
        """The first request has come."""
        self.client_gone = asyncio.Event()
        """A client ended a connection while a reply stalled."""

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    def environ(self, **more: str) -> dict[str, str]:
        """The variables that send every provider's calls here, and retry them at most twice."""
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "test-key",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": "test-key",
            "OLLAMA_BASE_URL": self.url,
            "COMPAT_BASE_URL": f"{self.url}/v1",
            "BATTEN_MAX_RETRIES": "2",
            **more,
        }

    async def __aenter__(self) -> "ModelServer":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = self.connections
        self.connections += 1
        try:
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                self.asked.set()
                reply = self._replies[min(self._next, len(self._replies) - 1)]
                self._next += 1
                if not await self._play(reply, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _play(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection goes on."""
        for step in reply:
            match step:
                case Fault.STALL:
                    await reader.read()
                    self.client_gone.set()
                    return False
                case Fault.RESET:
                    _reset(writer)
                    return False
                case Fault.CLOSE:
                    writer.close()
                    await writer.wait_closed()
                    return False
                case bytes():
                    writer.write(step)
                    await writer.drain()
                    # Let a reader on this loop take the piece on its own.
                    await asyncio.sleep(0)
        return True


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers: dict[str, str] = {}
    for raw in lines:
        name, _, value = raw.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(line, headers, body, connection)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def head(status: int = 200, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Some Reason"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(
    body: bytes, *, piece: int = 0, status: int = 200, kind: str = "text/event-stream"
) -> Reply:
    """A whole chunked answer; `piece` is how many bytes of the body each HTTP chunk has."""
    size = piece or max(len(body), 1)
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    return [
        head(status, content_type=kind, transfer_encoding="chunked"),
        *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks),
        b"0\r\n\r\n",
    ]


def refusal(status: int, error: object, **headers: str) -> Reply:
    """An error answer with a JSON body."""
    body = msgspec.json.encode(error)
    length = {"content_length": str(len(body)), "content_type": "application/json"}
    return [head(status, **length, **headers) + body]


def cut(body: bytes, fault: Fault, *, kind: str = "text/event-stream") -> Reply:
    """An answer that begins well and then goes wrong."""
    start = head(200, content_type=kind, transfer_encoding="chunked")
    return [start, b"%x\r\n%s\r\n" % (len(body), body), fault]
