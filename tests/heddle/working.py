"""A worker that speaks Heddle: a real process over pipes, and a client of one line at a time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from batten.protocols.heddle.messages import Response
from tests.agent.stage import Stage
from tests.models.server import Reply, answer
from tests.models.wire import sse
from tests.session.processes import BATTEN, environment

Json = dict[str, Any]
PATIENCE_S = 60.0

_QUIET = {"HEDDLE_HEARTBEAT_INTERVAL": "600000"}
"""However slow the machine is, there is no heartbeat that a test did not ask for."""
_RESPONSES = msgspec.json.Decoder(Response)


class Worker:
    """One `batten headless --protocol heddle`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def say(self, *requests: Json) -> None:
        """Write requests, all of them at once."""
        await self.write(b"".join(msgspec.json.encode(one) + b"\n" for one in requests))

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        async with asyncio.timeout(PATIENCE_S):
            await self._stdin.drain()

    async def line(self) -> str:
        """The next line, without its end."""
        async with asyncio.timeout(PATIENCE_S):
            line = await self._stdout.readline()
        assert line.endswith(b"\n"), "the worker has said all it had to say"
        checked(line)
        return line.decode().removesuffix("\n")

    async def hear(self) -> Json:
        """The next frame, which is one of the protocol's."""
        return checked((await self.line()).encode())

    async def until(self, kind: str, request_id: str | None = None) -> list[Json]:
        """Frames up to the first of this type; of an event, that is the name inside."""
        heard: list[Json] = []
        while True:
            frame = await self.hear()
            heard.append(frame)
            named = frame["event"]["event"] if frame["type"] == "event" else frame["type"]
            if named == kind and request_id in (None, frame.get("id")):
                return heard

    async def ask(self, request: Json, kind: str) -> Json:
        """Say one thing and hear the answer."""
        await self.say(request)
        return (await self.until(kind, request["id"]))[-1]

    async def send(self, send_id: str, message: str = "go") -> list[Json]:
        """A send with all that is heard of it."""
        await self.say({"type": "send", "id": send_id, "message": message})
        return await self.until("result", send_id)

    async def rest(self) -> list[Json]:
        """All that is still said after our side has ended."""
        self._stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            return [checked(line) for line in (await self._stdout.read()).splitlines(True)]

    async def code(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    async def errors(self) -> str:
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stderr.read()).decode()


def checked(line: bytes) -> Json:
    """A frame that holds to the protocol's types."""
    _RESPONSES.decode(line)
    frame: Json = msgspec.json.decode(line)
    return frame


@asynccontextmanager
async def working(
    stage: Stage, *flags: str, environ: dict[str, str] | None = None, limit: int = 1 << 22
) -> AsyncGenerator[Worker, None]:
    """A worker in a stage's workspace; ended with the block. What is not heard of it is taken
    from its pipe only up to twice the limit.
    """
    process = await asyncio.create_subprocess_exec(
        BATTEN,
        *("headless", "--protocol", "heddle", "--sandbox", "none", *flags),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**environment(stage), **_QUIET, **(environ or {})},
        cwd=stage.workspace,
        limit=limit,
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()  # its pipes are read to their ends, or nobody would close them


def init(version: str | None = "0.2.0", request_id: str = "i", **config: Any) -> Json:
    given = {"model": "vendor/model-x", "system_prompt": "Be brief.", "tools": ["bash", "glob"]}
    named = {} if version is None else {"protocol_version": version}
    return {"type": "init", "id": request_id, **named, "config": {**given, **config}}


def events(frames: Sequence[Json], kind: str = "") -> list[Json]:
    """What the events among these frames say."""
    said = [frame["event"] for frame in frames if frame["type"] == "event"]
    return [event for event in said if kind in ("", event["event"])]


def names(frames: Sequence[Json]) -> list[str]:
    return [event["event"] for event in events(frames)]


def _chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "gen-7", "choices": [choice], **more}


def calling(
    tool: str, arguments: Json, call_id: str = "c1", tokens: tuple[int, int] | None = None
) -> Reply:
    """A provider's answer that asks for a tool; of tokens it may say nothing."""
    return calling_all((tool, arguments, call_id), tokens=tokens)


def calling_all(
    *calls: tuple[str, Json, str], tokens: tuple[int, int] | None = None, pieces: int = 1
) -> Reply:
    """A provider's answer that asks for several tools, whose arguments come in mixed pieces."""
    begun = [_called(index, "", call_id, tool) for index, (tool, _, call_id) in enumerate(calls)]
    texts = [msgspec.json.encode(arguments).decode() for _, arguments, _ in calls]
    size = [-(-len(text) // pieces) for text in texts]
    cut = [
        [text[start : start + step] for start in range(0, len(text), step)]
        for text, step in zip(texts, size, strict=True)
    ]
    rest = [
        _called(index, parts[number])
        for number in range(pieces)
        for index, parts in enumerate(cut)
        if number < len(parts)
    ]
    usage = {} if tokens is None else {"usage": _usage(tokens)}
    chunks = [_chunk({"tool_calls": [one]}) for one in (*begun, *rest)]
    return answer(sse(*chunks, _chunk({}, "tool_calls", **usage), "[DONE]"))


def _called(index: int, arguments: str, call_id: str = "", tool: str = "") -> Json:
    named: Json = {"id": call_id, "type": "function"} if call_id else {}
    function: Json = {"name": tool} if tool else {}
    return {"index": index, **named, "function": {**function, "arguments": arguments}}


def _usage(tokens: tuple[int, int]) -> Json:
    return {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}


def saying(
    *pieces: str, tokens: tuple[int, int] = (42, 15), model: str = "", upstream: str = ""
) -> Reply:
    """A provider's answer in words."""
    said = {"model": model, "provider": upstream}
    named = {name: value for name, value in said.items() if value}
    usage = _usage(tokens)
    chunks = [_chunk({"content": piece}, **named) for piece in pieces]
    return answer(sse(*chunks, _chunk({}, "stop", usage=usage), "[DONE]"))
