"""A client of `batten headless --protocol maestro`: a real process, spoken to over its pipes."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from batten.protocols.maestro.incoming import read
from batten.protocols.maestro.state import Conversation
from batten.session.history import envelopes_of
from tests.agent.stage import Stage, Statement
from tests.contract.order import check_order
from tests.maestro.schemas import PRESENT, Json, Published, checked
from tests.maestro.shapes import problem

BATTEN = Path(sys.executable).with_name("batten")
PATIENCE_S = 60
EVERYTHING = ["command_exec", "file_search", "file_watch", "file_read"]
_LONGEST_LINE = 1 << 20
"""Twice as much is taken from the process before somebody hears it."""
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")


class Speaker:
    """Says lines and hears messages; each message that is heard is checked."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        lines: asyncio.StreamReader,
        listening: asyncio.ReadTransport,
    ) -> None:
        self._process = process
        self._lines = lines
        self._listening = listening
        self._published = Published() if PRESENT else None
        self.conversation = Conversation()
        self.heard: list[Json] = []
        self.errors = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, kind: str, **fields: Any) -> None:
        message = {"type": kind, **fields}
        self.conversation.say(read(message))
        self.write(msgspec.json.encode(message) + b"\n")

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    async def hear(self) -> Json:
        """The next message."""
        async with asyncio.timeout(PATIENCE_S):
            line = await self._lines.readline()
        if not line:
            raise EOFError(f"nothing more is said; heard: {self.kinds()[-5:]}")
        message: Json = msgspec.json.decode(line)
        wrong = problem(message)
        assert wrong is None, wrong
        self.conversation.hear(checked(message))
        if self._published is not None:
            self._published.check(message)
            state = msgspec.json.encode(self.conversation.state)
            named = "HeadlessRuntimeStateSchema"
            self._published.check_named(named, msgspec.json.decode(state))
        self.heard.append(message)
        return message

    async def until(self, kind: str, **fields: Any) -> Json:
        """Hear until a message of this type with these fields comes."""
        while True:
            message = await self.hear()
            if message["type"] == kind and fields.items() <= message.items():
                return message

    async def hello(self, *requests: str, **more: Any) -> Json:
        """Greet, offering to serve these classes of requests, and wait until that is settled."""
        capabilities = {
            "server_requests": list(requests),
            "utility_operations": EVERYTHING,
            **more.pop("capabilities", {}),
        }
        self.say("hello", protocol_version="2026-04-02", capabilities=capabilities, **more)
        greeted = await self.until("hello_ok")
        await self.until("session_info")
        return greeted

    async def hello_again(self, **capabilities: Any) -> Json:
        """Greet once more with these capabilities and no others."""
        self.say("hello", protocol_version="2026-04-02", capabilities=capabilities)
        return await self.until("hello_ok")

    async def prompt(self, text: str = "go", **more: Any) -> list[Json]:
        """Everything up to the end of the response."""
        self.say("prompt", content=text, **more)
        before = len(self.heard)
        await self.until("response_end")
        return self.heard[before:]

    def of(self, kind: str, **fields: Any) -> list[Json]:
        return [
            message
            for message in self.heard
            if message["type"] == kind and fields.items() <= message.items()
        ]

    def kinds(self) -> list[str]:
        return [message["type"] for message in self.heard]

    def hang_up(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def drained(self) -> None:
        """Wait until what was said is on its way."""
        assert self._process.stdin is not None
        async with asyncio.timeout(PATIENCE_S):
            await self._process.stdin.drain()

    def hear_nothing(self) -> None:
        """Leave what is said where it is, until `listen_again`."""
        self._listening.pause_reading()

    def listen_again(self) -> None:
        self._listening.resume_reading()

    def stop_listening(self) -> None:
        """Close our end of its output."""
        self._listening.close()

    async def gone(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def rest(self) -> int:
        """Hear what is left, until the process has ended; its exit code."""
        while True:
            try:
                await self.hear()
            except EOFError:
                break
        assert self._process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            self.errors = await self._process.stderr.read()
            return await self._process.wait()

    async def _skip(self) -> None:
        while await self._lines.read(1 << 16):
            pass

    async def end(self) -> None:
        if self._process.returncode is None:
            self.hang_up()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.gather(self._process.communicate(), self._skip())
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
                raise


def environment(stage: Stage) -> dict[str, str]:
    """Of a process that works on the stage."""
    kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
    return {**kept, "BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)}


@asynccontextmanager
async def speaking(
    stage: Stage,
    *frames: Sequence[Statement],
    flags: Sequence[str] = ("--sandbox", "none"),
    model: str | None = None,
    environ: dict[str, str] | None = None,
    children: Mapping[str, str] | None = None,
    store: bool = True,
) -> AsyncGenerator[Speaker, None]:
    """A process in the stage's workspace that plays these frames. What it stored is in order.

    Of a process that was killed, a run may have no ending; what it stored is whole all the same.
    Without a `store` nothing could be stored.
    """
    model = model or stage.scenario(*frames, children=children)
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        BATTEN,
        "headless",
        "--protocol",
        "maestro",
        "--workspace",
        str(stage.workspace),
        "--model",
        model,
        *flags,
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
        env={**environment(stage), **(environ or {})},
    )
    os.close(writing)
    lines = asyncio.StreamReader(_LONGEST_LINE)
    listening, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(reading, "rb", 0)
    )
    speaker = Speaker(process, lines, listening)
    try:
        yield speaker
    finally:
        await speaker.end()
        listening.close()
    if not store or not stage.home.exists():
        return
    journal = stage.journal()
    killed = process.returncode == -signal.SIGKILL
    for run in await journal.runs():
        if run.outcome is not None or not killed:
            check_order([one async for one in envelopes_of(journal, run.run_id)])
        assert await journal.verify(run.run_id) == []
    journal.close()
