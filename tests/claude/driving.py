"""A driver process of one SDK, and what a task of it reported."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.agent.stage import Stage
from tests.models.server import ModelServer, Reply, answer
from tests.models.wire import (
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

Json = dict[str, Any]
Call = tuple[str, str, Json]
DRIVER = Path(__file__).with_name("driver.py")
BATTEN = Path(sys.executable).with_name("batten")
OLDEST = Path(sys.executable).parents[1] / "sdk-0.1.6" / "bin" / "python"
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")


class Report(Struct, frozen=True):
    """What one task came to."""

    messages: list[Json]
    callbacks: list[Json]
    answers: list[Any]
    error: Json | None
    stderr: list[str]

    def of(self, kind: str) -> list[Json]:
        return [message for message in self.messages if message["kind"] == kind]

    def blocks(self, kind: str) -> list[Json]:
        """The blocks of this kind of all messages, in order."""
        content: list[Any] = [message.get("content") for message in self.messages]
        found: list[Json] = []
        for blocks in content:
            found += blocks if isinstance(blocks, list) else []
        return [block for block in found if block["kind"] == kind]

    @property
    def kinds(self) -> list[str]:
        return [message["kind"] for message in self.messages]

    @property
    def result(self) -> Json:
        return self.of("ResultMessage")[-1]

    @property
    def results(self) -> list[str]:
        """What the model was told of its calls."""
        return [block["content"] for block in self.blocks("ToolResultBlock")]

    @property
    def session_id(self) -> str:
        return str(self.result["session_id"])


class Sdk:
    """One version of the SDK, driven in a process of its own."""

    def __init__(self, name: str, python: Path) -> None:
        self.name = name
        self.is_oldest = name == "0.1.6"
        environ = {key: os.environ[key] for key in _KEPT if key in os.environ}
        self._process = subprocess.Popen(
            [python, DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    async def run(self, stage: Stage, environ: Json, **told: Any) -> Report:
        """Have a task done in a stage's workspace."""
        given: Json = told.pop("options", {})
        options: Json = {
            "cli_path": str(BATTEN),
            "cwd": str(stage.workspace),
            "model": "claude-sonnet-4-5",
            **given,
            "env": {"BATTEN_HOME": str(stage.home), "HOME": str(stage.directory), **environ},
            "extra_args": {"sandbox": "none", **given.get("extra_args", {})},
        }
        task = msgspec.json.encode({**told, "options": options})
        return msgspec.convert(await asyncio.to_thread(self._ask, task), Report)

    def _ask(self, task: bytes) -> Json:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(task + b"\n")
        self._process.stdin.flush()
        answer: Json = msgspec.json.decode(self._process.stdout.readline())
        return answer


class Client:
    """A user of an SDK in a workspace, with a model that answers as it was told."""

    def __init__(self, sdk: Sdk, stage: Stage) -> None:
        self.sdk = sdk
        self.stage = stage
        self.environ: Json = {}

    @asynccontextmanager
    async def model(self, *replies: Reply) -> AsyncGenerator[ModelServer, None]:
        async with ModelServer(replies) as server:
            self.environ = server.environ()
            yield server

    async def run(self, **told: Any) -> Report:
        return await self.sdk.run(self.stage, self.environ, **told)

    async def ask(self, *replies: Reply, **told: Any) -> Report:
        """One task with a model of its own."""
        async with self.model(*replies):
            return await self.run(**told)


def says(text: str = "", *calls: Call, **usage: int) -> Reply:
    """One answer of the model."""
    return answer(anthropic_turn(text, calls, **usage))


def says_at_length(text: str) -> Reply:
    """A long answer, in few pieces."""
    blocks = anthropic_text_block(0, text, size=30_000)
    return answer(sse(anthropic_start(), *blocks, *anthropic_end(), named=True))


def bash(command: str, call_id: str = "toolu_1") -> Call:
    return (call_id, "bash", {"command": command})
