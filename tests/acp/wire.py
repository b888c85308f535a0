"""A client without the SDK: it writes what it likes, and reads what comes."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.acp.editor import BATTEN, PATIENCE_S
from tests.acp.official import Official
from tests.agent.stage import Stage, end, say

Json = dict[str, Any]
HELLO: Json = {"protocolVersion": 1, "clientCapabilities": {}}


class Wire:
    """A client that writes what it likes."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        reading: asyncio.ReadTransport,
    ) -> None:
        self.process = process
        self.reader = reader
        self.reading = reading
        self.heard: list[Json] = []
        self.official = Official()
        self._asked = 0

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)

    def say(self, line: bytes) -> None:
        """A message that the official types are to know of."""
        self.official.client_said(msgspec.json.decode(line))
        self.write(line)

    async def line(self) -> str:
        line = await self.reader.readline()
        assert line.endswith(b"\n"), "the agent has left"
        message: Json = msgspec.json.decode(line)
        self.official.agent_said(message)
        self.heard.append(message)
        return line.decode().removesuffix("\n")

    async def next(self) -> Json:
        await self.line()
        return self.heard[-1]

    async def answer(self, request_id: object) -> Json:
        while (message := await self.next()).get("id", "none") != request_id or "method" in message:
            pass
        return message

    def send(self, method: str, params: object = None, **more: object) -> int:
        self._asked += 1
        message: Json = {"jsonrpc": "2.0", "id": self._asked, "method": method}
        message["params"] = params or {}
        self.say(msgspec.json.encode({**message, **more}) + b"\n")
        return self._asked

    def notify(self, method: str, params: object) -> None:
        said = {"jsonrpc": "2.0", "method": method, "params": params}
        self.write(msgspec.json.encode(said) + b"\n")

    async def ask(self, method: str, params: object = None, **more: object) -> Json:
        return await self.answer(self.send(method, params, **more))

    async def code(self, method: str, params: object = None, **more: object) -> int:
        answered = await self.ask(method, params, **more)
        code: int = answered["error"]["code"]
        assert answered["error"]["data"]["details"]
        return code


@asynccontextmanager
async def wire(
    stage: Stage,
    *flags: str,
    model: str = "",
    program: Sequence[str] = (str(BATTEN),),
    **environ: str,
) -> AsyncGenerator[Wire, None]:
    model = model or stage.scenario([say("Hello."), end()])
    words = ["headless", "--protocol", "acp", "--model", model, "--sandbox", "none", *flags]
    ours, theirs = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *program,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=theirs,
        env={**stage.environ, "BATTEN_HOME": str(stage.home), **environ},
        cwd=str(stage.directory),
    )
    os.close(theirs)
    reader = asyncio.StreamReader(limit=1 << 26)
    reading, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
    )
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            at = Wire(process, reader, reading)
            yield at
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
            assert not at.official.faults, at.official.faults[0]
    finally:
        reading.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def greeted(at: Wire, hello: Json = HELLO) -> None:
    assert (await at.ask("initialize", hello))["result"]["protocolVersion"] == 1


async def fresh(at: Wire, stage: Stage) -> str:
    """A new session, by its id."""
    made = await at.ask("session/new", {"cwd": str(stage.workspace), "mcpServers": []})
    session_id: str = made["result"]["sessionId"]
    return session_id


async def opened(at: Wire, stage: Stage) -> str:
    await greeted(at)
    return await fresh(at, stage)


def text(said: str) -> Json:
    return {"type": "text", "text": said}
