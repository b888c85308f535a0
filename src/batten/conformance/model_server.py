"""A model on loopback for the program under test: it plays the script of one check.

It speaks Chat Completions and Anthropic's Messages. The frame to play is the number of assistant
messages in the request, so that the server keeps no state.
"""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from batten.conformance import dialects
from batten.conformance.check import NotOffered
from batten.conformance.script import Call, Fail, Frame, Json, Say, Script, Wait, chosen

_KEY = "suite-key-4b7e19d0"
_LARGEST_REQUEST = 32 * 1024 * 1024
_BASES = ("OPENAI", "OPENROUTER", "COMPAT")
_OVER: Script = ((Say("Nothing more."),),)


class Request(Struct, frozen=True):
    body: bytes
    offered: dict[str, Any]
    """The tools by name, each with the properties of its arguments."""

    def says(self, text: str) -> bool:
        """Whether this text is somewhere in it."""
        return msgspec.json.encode(text)[1:-1] in self.body


class ModelServer:
    """`missing` lists abilities that the program's tools lack."""

    def __init__(self, script: Script, workspace: str, group: asyncio.TaskGroup) -> None:
        self._script = script
        self._workspace = workspace
        self._group = group
        self._server: asyncio.Server | None = None
        self._answers: list[asyncio.Task[None]] = []
        self.requests: list[Request] = []
        self.missing = ""

    @property
    def url(self) -> str:
        """The base address of Chat Completions."""
        return f"{self._root()}/v1"

    def environ(self) -> dict[str, str]:
        """The usual variables, so that most programs find this model without configuration."""
        variables = {f"{name}_BASE_URL": self.url for name in _BASES}
        variables |= {f"{name}_API_KEY": _KEY for name in (*_BASES, "ANTHROPIC")}
        root = self._root()
        variables |= {"ANTHROPIC_BASE_URL": root, "HEDDLE_BASE_URL": self.url}
        return variables | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def last_request(self) -> Request:
        """The last request. `NotOffered` without one: the program plays a scenario."""
        if not self.requests:
            raise NotOffered("the suite's model was not asked")
        return self.requests[-1]

    async def open(self) -> None:
        def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._answers.append(self._group.create_task(self._serve(reader, writer)))

        self._server = await asyncio.start_server(answer, "127.0.0.1", 0)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for answer in self._answers:
                answer.cancel()

    def _root(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, ValueError, asyncio.IncompleteReadError):
                path, body = await _request(reader)
                await self._answer(path, body, writer)
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        dialect = dialects.of(path)
        if dialect is None:
            writer.write(_whole(404, {"error": {"message": f"no such path: {path}"}}))
            return
        request: Json = msgspec.json.decode(body)
        offered = dialect.offered(request)
        self.requests.append(Request(msgspec.json.encode(request), offered))
        turns = sum(1 for one in request.get("messages", ()) if one.get("role") == "assistant")
        frame = self._script[turns] if turns < len(self._script) else _OVER[0]
        if isinstance(frame[0], Fail):
            error = {"error": {"message": frame[0].message, "type": "error"}}
            writer.write(_whole(frame[0].status, error))
            return
        if not request.get("stream"):
            await asyncio.sleep(sum(one.seconds for one in frame if isinstance(one, Wait)))
            writer.write(_whole(200, dialect.message(self._played(frame, turns, offered))))
            return
        writer.write(_head(200, "text/event-stream"))
        await self._stream(dialect, frame, turns, offered, writer)

    async def _stream(
        self,
        stream: dialects.Dialect,
        frame: Frame,
        turn: int,
        offered: dict[str, Any],
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(stream.begin())
        called = False
        for number, statement in enumerate(frame):
            match statement:
                case Wait(seconds):
                    await writer.drain()
                    await asyncio.sleep(seconds)
                case Say(text):
                    writer.write(stream.text(text))
                case _:
                    (played,) = self._played((statement,), turn, offered, number)
                    if isinstance(played, str):
                        writer.write(stream.text(played))
                    else:
                        called = True
                        writer.write(stream.call(played))
        writer.write(stream.end(called))
        await writer.drain()

    def _played(
        self, frame: Frame, turn: int, offered: dict[str, Any], first: int = 0
    ) -> list[str | dialects.ToolCall]:
        """The texts and calls of a frame, with the names of the offered tools."""
        played: list[str | dialects.ToolCall] = []
        for number, statement in enumerate(frame, first):
            if isinstance(statement, Say):
                played.append(statement.text)
            elif isinstance(statement, Call):
                found = chosen(statement, offered, self._workspace)
                if found is None:
                    self.missing = statement.ability
                    played.append("I lack a tool.")
                else:
                    played.append(dialects.ToolCall(f"call_{turn}_{number}", *found))
        return played


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Path and body of one request; other headers are ignored."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    path = head[0].split(" ")[1].partition("?")[0]
    headers = {
        name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head[1:])
    }
    if "chunked" in headers.get("transfer-encoding", ""):
        return path, await _chunks(reader)
    length = int(headers.get("content-length", 0))
    return path, await reader.readexactly(min(length, _LARGEST_REQUEST))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while (size := int((await reader.readline()).split(b";")[0], 16)) and len(
        body
    ) < _LARGEST_REQUEST:
        body += await reader.readexactly(size)
        await reader.readline()
    return body


def _head(status: int, kind: str) -> bytes:
    return f"HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode()


def _whole(status: int, body: Json) -> bytes:
    return _head(status, "application/json") + msgspec.json.encode(body)
