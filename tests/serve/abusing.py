"""One client for every protocol on standard input and output, that writes and reads as it likes."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from batten.contract.errors import NotFound
from tests.agent.stage import Stage
from tests.session.processes import BATTEN, environment

from .conversing import eventually

Json = dict[str, Any]
PATIENCE_S = 60.0

HURRIED = """
import sys
import batten.serve.showing as showing
import batten.serve.stdio as stdio
showing.STALLED_S = stdio.STALLED_S = 0.5
from batten.cli import run
sys.exit(run(sys.argv[1:]))
"""
"""`batten` that gives a reader up sooner: nobody wants to wait for that in a test."""


class Client:
    """Holds both ends of a process, and reads only when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process, stdout: int, workspace: Path) -> None:
        self.process = process
        self.workspace = workspace
        self._stdout: int | None = stdout
        self._held = bytearray()
        self.heard: list[Json] = []
        self.session_id = ""

    async def write(self, *pieces: bytes) -> None:
        assert self.process.stdin is not None
        async with asyncio.timeout(PATIENCE_S):
            for piece in pieces:
                self.process.stdin.write(piece)
                await self.process.stdin.drain()

    async def say(self, *messages: Json) -> None:
        await self.write(*(msgspec.json.encode(one) + b"\n" for one in messages))

    async def hear(self) -> Json | None:
        """The next frame; None at the end."""
        while b"\n" not in self._held:
            assert self._stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                piece = await asyncio.to_thread(os.read, self._stdout, 1 << 16)
            if not piece:
                assert not self._held, "half a frame"
                return None
            self._held += piece
        line, _, self._held = self._held.partition(b"\n")
        frame: Json = msgspec.json.decode(line)
        self.heard.append(frame)
        return frame

    async def rest(self) -> list[Json]:
        """All that is still said after our side has ended."""
        self.hang_up()
        before = len(self.heard)
        while await self.hear() is not None:
            pass
        return self.heard[before:]

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop_listening(self) -> None:
        """Close our end of its output."""
        assert self._stdout is not None
        os.close(self._stdout)
        self._stdout = None

    async def code(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    def peak_kib(self) -> int:
        """The most memory it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    def close(self) -> None:
        if self._stdout is not None:
            os.close(self._stdout)


class Dialect(Protocol):
    """What a client has to know of a protocol to misuse it."""

    @property
    def name(self) -> str: ...

    @property
    def first(self) -> Json:
        """What a client says first."""
        ...

    @property
    def finishes(self) -> bool:
        """Whether the end of input has what was asked finished, and not cancelled."""
        ...

    async def greet(self, client: Client) -> None:
        """What comes first, up to a session."""
        ...

    def prompt(self, client: Client) -> Json: ...

    def is_over(self, frame: Json) -> bool:
        """Whether this is the end of a prompt that went well."""
        ...

    def is_refusal(self, frame: Json) -> bool:
        """Whether this is the typed error of a line that is no message."""
        ...

    def text_of(self, frame: Json) -> str:
        """The model's words in this frame."""
        ...


class Heddle:
    name = "heddle"
    finishes = True

    @property
    def first(self) -> Json:
        config = {"model": "vendor/x", "system_prompt": "Be brief.", "tools": ["bash"]}
        return {"type": "init", "id": "i", "config": config}

    async def greet(self, client: Client) -> None:
        await client.say(self.first)
        await until(client, lambda frame: frame["type"] == "init_ok")

    def prompt(self, client: Client) -> Json:
        return {"type": "send", "id": "s", "message": "go"}

    def is_over(self, frame: Json) -> bool:
        return (frame["type"], frame.get("status")) == ("result", "ok")

    def is_refusal(self, frame: Json) -> bool:
        if (frame["type"], frame.get("id")) != ("result", "unknown"):
            return False
        return bool(frame["error"]["code"] == "protocol_error")

    def text_of(self, frame: Json) -> str:
        return str(frame["event"].get("text", "")) if frame["type"] == "event" else ""


class Maestro:
    name = "maestro"
    finishes = True

    @property
    def first(self) -> Json:
        return {"type": "hello", "protocol_version": "2026-04-02", "capabilities": {}}

    async def greet(self, client: Client) -> None:
        await client.say(self.first, {"type": "init", "approval_mode": "auto"})
        await until(client, lambda frame: frame["type"] == "session_info")

    def prompt(self, client: Client) -> Json:
        return {"type": "prompt", "content": "go"}

    def is_over(self, frame: Json) -> bool:
        return bool(frame["type"] == "response_end")

    def is_refusal(self, frame: Json) -> bool:
        wrong = frame["type"] == "error" and frame["error_type"] == "protocol"
        return wrong and frame["fatal"] is False

    def text_of(self, frame: Json) -> str:
        return str(frame["content"]) if frame["type"] == "response_chunk" else ""


class Acp:
    name = "acp"
    finishes = False

    @property
    def first(self) -> Json:
        return _request(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})

    async def greet(self, client: Client) -> None:
        new: Json = {"cwd": str(client.workspace), "mcpServers": []}
        await client.say(self.first, _request(2, "session/new", new))
        opened = await until(client, lambda frame: frame.get("id") == 2)
        client.session_id = opened["result"]["sessionId"]

    def prompt(self, client: Client) -> Json:
        said = [{"type": "text", "text": "go"}]
        return _request(3, "session/prompt", {"sessionId": client.session_id, "prompt": said})

    def is_over(self, frame: Json) -> bool:
        return frame.get("id") == 3 and frame["result"]["stopReason"] == "end_turn"

    def is_refusal(self, frame: Json) -> bool:
        unasked = "id" in frame and frame["id"] is None
        return unasked and frame["error"]["code"] in (-32700, -32600)

    def text_of(self, frame: Json) -> str:
        update = frame.get("params", {}).get("update", {})
        if update.get("sessionUpdate") != "agent_message_chunk":
            return ""
        return str(update["content"]["text"])


DIALECTS: dict[str, Dialect] = {one.name: one for one in (Heddle(), Maestro(), Acp())}


async def until(client: Client, wanted: Callable[[Json], object]) -> Json:
    """Hear until such a frame comes."""
    while (frame := await client.hear()) is not None:
        if wanted(frame):
            return frame
    raise AssertionError(f"it has left; heard last: {client.heard[-3:]}")


async def appears(path: Path) -> str:
    """What a command writes to a file, once it has written a line."""
    await asyncio.to_thread(eventually, lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text()


async def ended(stage: Stage) -> None:
    """Wait until the only run there is has ended."""

    def outcome() -> str | None:
        try:
            journal = stage.journal()
        except NotFound:
            return None  # not made yet
        try:
            return next((run.outcome for run in asyncio.run(journal.runs())), None)
        finally:
            journal.close()

    await asyncio.to_thread(eventually, outcome)


@asynccontextmanager
async def abused(
    stage: Stage, dialect: Dialect, model: str, *, program: Sequence[str] = (BATTEN,)
) -> AsyncGenerator[Client, None]:
    """A process that speaks this protocol; ended with the block."""
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *program,
        *("headless", "--protocol", dialect.name, "--model", model),
        *("--sandbox", "none", "--permission-mode", "dontAsk"),
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(stage),
        cwd=stage.workspace,
    )
    os.close(writing)
    client = Client(process, reading, stage.workspace)
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        client.close()


def hurried() -> Sequence[str]:
    return (sys.executable, "-c", HURRIED)


def _request(number: int, method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
