"""`batten` in this process: its own descriptors, its own environment, and what it wrote."""

import asyncio
import os
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from batten.cli import run
from batten.tools.contract import Tool
from tests.agent.stage import Stage
from tests.models.server import ModelServer, Reply

Json = dict[str, Any]

KEYS = ("ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE", "OLLAMA", "BATTEN", "COMPAT", "XDG")


class Said(Struct, frozen=True):
    """How an invocation ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    def frames(self) -> list[Json]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]

    @property
    def result(self) -> Json:
        """The last frame, which must be the result."""
        last = self.frames()[-1]
        assert last["type"] == "result"
        return last


class Shell:
    """Invokes `batten` in a stage's workspace."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self._monkeypatch = monkeypatch
        self._times = 0
        for name in list(os.environ):
            if name.startswith(KEYS):
                monkeypatch.delenv(name)
        self.set(BATTEN_HOME=str(stage.home), HOME=str(stage.directory))
        monkeypatch.chdir(stage.workspace)

    def set(self, **environ: str) -> None:
        for name, value in environ.items():
            self._monkeypatch.setenv(name, value)

    def __call__(self, *argv: str, stdin: bytes = b"", tools: Sequence[Tool] = ()) -> Said:
        self._times += 1
        files = [self.stage.directory / f"{self._times}.{name}" for name in ("in", "out", "err")]
        files[0].write_bytes(stdin)
        with _descriptors(*files):
            code = run(list(argv), tools=tools)
        said = Said(code, files[1].read_bytes(), files[2].read_text())
        assert "Traceback" not in said.err, said.err
        return said

    def play(self, *frames: Sequence[Json], flags: Sequence[str] = (), prompt: str = "go") -> Said:
        """`batten -p` with a scenario of these frames."""
        return self.print(self.stage.scenario(*frames), *flags, prompt=prompt)

    def print(self, model: str, *flags: str, prompt: str = "go") -> Said:
        return self("-p", prompt, "--model", model, "--sandbox", "none", *flags)

    def run_ids(self) -> list[str]:
        """The ids of all runs, oldest first."""
        listed = self("runs", "--json").frames()
        return [row["run_id"] for row in reversed(listed)]


@contextmanager
def _descriptors(stdin: Path, out: Path, err: Path) -> Generator[None, None, None]:
    """Files in the place of standard input, output and error, below Python and above it."""
    streams = sys.stdout, sys.stderr
    for stream in streams:
        stream.flush()
    kept = [os.dup(number) for number in range(3)]
    for number, path in enumerate((stdin, out, err)):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(path, flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    try:
        with open(1, "w", closefd=False) as sys.stdout, open(2, "w", closefd=False) as sys.stderr:
            yield
    finally:
        sys.stdout, sys.stderr = streams
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def serving(shell: Shell, replies: Sequence[Reply]) -> Generator[ModelServer, None, None]:
    """A model server in a thread of its own, where the environment sends every provider's calls."""
    server = ModelServer(replies)
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(10)
    shell.set(**server.environ())
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
