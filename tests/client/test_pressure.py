"""Readers slower than their worker: bounded, nothing lost, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from batten.client import FellBehind, Launch, Start, TextDelta, Transport, Worker
from batten.client.mailbox import MOST_KEPT, MOST_UNREAD
from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.outgoing import Message, encode
from tests.agent.stage import Stage, end, say
from tests.client.working import PATIENCE_S, until, working

PIECE = encode(heard.ResponseChunk(response_id="resp_1", content="x" * 60_000, is_thinking=False))
GREETING: list[Message] = [
    heard.HelloOk(protocol_version=PROTOCOL_VERSION),
    heard.Ready(protocol_version=PROTOCOL_VERSION, model="m", provider="p", session_id="s"),
    heard.SessionInfo(session_id="s", cwd="/", git_branch=None),
    heard.Status(message="Initialized"),
]


class Endless:
    """A worker that answers a prompt with words for ever, and reads a file now and then."""

    complaints = ""

    def __init__(self) -> None:
        self.written = 0
        self.answers_after: int | None = None
        self._left = asyncio.Event()
        self._ready = [b"".join(map(encode, GREETING))]
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._asked = b""

    async def read(self) -> bytes:
        await self._speaks.wait()
        if self._ready:
            self._speaks.clear()
            return self._ready.pop()
        self.written += len(PIECE)
        if self._asked and self.answers_after is not None and self.written > self.answers_after:
            said, self._asked = self._asked, b""
            return said
        return b"" if self._left.is_set() else PIECE

    async def write(self, data: bytes) -> None:
        said = msgspec.json.decode(data)
        if said["type"] == "prompt":
            self._speaks.set()
        if said["type"] == "utility_file_read":
            read = heard.FileReadResult(
                read_id=said["read_id"],
                path="/f",
                relative_path="f",
                cwd="/",
                content="text",
                start_line=1,
                end_line=1,
                total_lines=1,
                truncated=False,
            )
            self._asked = encode(read)
        if said["type"] in ("interrupt", "shutdown"):
            self._left.set()
            self._speaks.set()

    def hang_up(self) -> None:
        self._left.set()
        self._speaks.set()

    async def ended(self) -> int:
        return 0

    @asynccontextmanager
    async def launch(self, start: Start) -> AsyncGenerator[Transport, None]:
        yield self


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_reader_that_stops_stops_the_reading() -> None:
    worker_side = Endless()
    async with Worker.start(launch=worker_side.launch) as worker, worker.prompt("go") as run:
        await until(run, TextDelta)
        await rounds(500)
        assert worker_side.written < MOST_UNREAD + 10 * len(PIECE)
        before = worker_side.written
        for _ in range(30):
            await until(run, TextDelta)
        await rounds(500)
        assert before < worker_side.written < before + MOST_UNREAD + 40 * len(PIECE)


async def test_who_waits_for_an_answer_does_not_wait_for_its_own_reading() -> None:
    worker_side = Endless()
    worker_side.answers_after = 4 * MOST_UNREAD
    async with Worker.start(launch=worker_side.launch) as worker, worker.prompt("go") as run:
        await until(run, TextDelta)
        page = await worker.read_file("f", within_s=PATIENCE_S)
        assert page.text == "text"
        for _ in range(4 * MOST_UNREAD // len(PIECE)):  # nothing was lost meanwhile
            await until(run, TextDelta)


async def test_who_never_reads_while_others_wait_falls_behind_and_memory_stays_bounded() -> None:
    worker_side = Endless()
    worker_side.answers_after = MOST_KEPT + (1 << 20)
    async with Worker.start(launch=worker_side.launch) as worker, worker.prompt("go") as run:
        await until(run, TextDelta)
        await worker.read_file("f", within_s=PATIENCE_S)
        with pytest.raises(FellBehind, match="the journal has all of it"):
            await until(run, TextDelta)


async def test_a_slow_reader_is_given_everything(stage: Stage, launch: Launch) -> None:
    """Several times of what is kept unread, or fits into a pipe; each piece bears its number."""
    pieces = [f"<{number}>".ljust(20_000, ".") for number in range(4 * MOST_UNREAD // 20_000)]
    async with (
        working(stage, [*map(say, pieces), end()], launch=launch) as worker,
        worker.prompt("go") as run,
    ):
        first = await until(run, TextDelta)
        await worker.search_files("x")  # it may write what it has while nobody reads
        shown = [first.text]
        async for event in run:
            await rounds(3)
            if isinstance(event, TextDelta):
                shown.append(event.text)
    assert run.result.completed
    assert "".join(shown) == "".join(pieces) == run.result.text
