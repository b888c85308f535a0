"""A stage: a home, a workspace, and real sessions on them in this process."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from batten.agent.deps import RunDeps
from batten.agent.execution import Ended, Execution
from batten.agent.hooks.hooks import Hooks
from batten.agent.settings import RunSettings
from batten.cli.arguments import parser
from batten.cli.options import spec_of
from batten.contract.envelope import Envelope
from batten.contract.facts import Fact
from batten.journal.sqlite import SqliteJournal
from batten.models.scenario import SCENARIO_SCHEMA
from batten.session.history import envelopes_of
from batten.session.session import Session
from batten.settings.contract import Settings
from batten.tools.contract import Tool
from batten.wiring.opener import SessionOpener
from batten.wiring.parts import SessionParts
from batten.wiring.settings import run_settings
from batten.wiring.spec import SessionSpec
from tests.contract.order import check_order

Statement = dict[str, Any]
Found = TypeVar("Found", bound=Fact)


def say(text: str, **more: Any) -> Statement:
    return {"kind": "text", "text": text, **more}


def call(tool: str, call_id: str | None = None, /, **arguments: Any) -> Statement:
    named = {} if call_id is None else {"id": call_id}
    return {"kind": "tool_call", "tool": tool, "input": arguments, **named}


def bash(command: str, call_id: str | None = None) -> Statement:
    return call("bash", call_id, command=command)


def end(reason: str = "complete") -> Statement:
    return {"kind": "end", "reason": reason}


def fail(kind: str, message: str, **more: Any) -> Statement:
    return {"kind": "error", "type": kind, "message": message, **more}


class Played(Struct, frozen=True):
    """A run that has ended, and everything stored of it."""

    ended: Ended
    run: list[Envelope]

    @property
    def facts(self) -> list[Fact]:
        return [envelope.data for envelope in self.run]

    @property
    def types(self) -> list[str]:
        return [envelope.type for envelope in self.run]

    def all(self, kind: type[Found]) -> list[Found]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def one(self, kind: type[Found]) -> Found:
        (found,) = self.all(kind)
        return found


class Stage:
    def __init__(self, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.workspace = directory / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "BATTEN_HOME": str(self.home),
            "THROTTLE_LIMIT": "0",  # tests ask more often than clients may
            **(environ or {}),
        }

    def scenario(
        self,
        *frames: Sequence[Statement],
        name: str = "scenario",
        children: Mapping[str, str] | None = None,
        **more: Any,
    ) -> str:
        """Write a scenario file; the name of the model that plays it."""
        path = self.directory / f"{name}.json"
        numbered = [{"index": index, "statements": said} for index, said in enumerate(frames)]
        metadata: dict[str, Any] = {"recordedAt": "2026-01-02T03:04:05.000Z", "toolsExpected": []}
        whole: dict[str, Any] = {
            "schemaVersion": SCENARIO_SCHEMA,
            "id": name,
            "description": "go",
            "metadata": metadata,
            "frames": numbered,
            "children": children or {},
            **more,
        }
        path.write_bytes(msgspec.json.encode(whole))
        return f"scripted/{path}"

    def spec(self, *flags: str) -> SessionSpec:
        """A session in the workspace, as these flags ask for it; nobody reads settings files."""
        options = parser().parse_args(["--sandbox", "none", *flags])
        return msgspec.structs.replace(
            spec_of(options, self.environ),
            surface="test",
            workspace=str(self.workspace),
            setting_sources=(),
        )

    def settings(self, *flags: str, earlier: RunSettings | None = None) -> RunSettings:
        return run_settings(self.spec(*flags), earlier, Settings())

    @asynccontextmanager
    async def parts(self, *flags: str) -> AsyncGenerator[SessionParts, None]:
        """The parts of sessions that a test opens itself."""
        opener = SessionOpener(self.spec(*flags))
        parts = SessionParts(opener.base, opener.journal, str(self.home))
        try:
            yield parts
        finally:
            await parts.close()
            opener.close()

    @asynccontextmanager
    async def session(
        self,
        *flags: str,
        resume: str | None = None,
        goes_on: bool = False,
        tools: Sequence[Tool] = (),
        hooks: Hooks | None = None,
    ) -> AsyncGenerator[Session, None]:
        """A session held while the block lasts: a new one, or an earlier one by any of its ids."""

        def equip(deps: RunDeps, settings: RunSettings) -> RunDeps:
            return deps if hooks is None else msgspec.structs.replace(deps, hooks=hooks)

        opener = SessionOpener(self.spec(*flags), own_process=True)
        spec = msgspec.structs.replace(
            opener.base, resume=resume, goes_on=goes_on, own_tools=tuple(tools), equip=equip
        )
        try:
            opened = await opener.open(spec)
            try:
                yield opened.session
            finally:
                await opened.session.close()
                await opened.close()
        finally:
            opener.close()

    async def run(
        self,
        *flags: str,
        prompt: str = "go",
        resume: str | None = None,
        tools: Sequence[Tool] = (),
        hooks: Hooks | None = None,
    ) -> Played:
        """One prompt in one session, to its end. Its order is checked, and its chain."""
        async with self.session(*flags, resume=resume, tools=tools, hooks=hooks) as session:
            return await finish(session, await session.prompt(prompt))

    async def play(self, *frames: Sequence[Statement], flags: Sequence[str] = ()) -> Played:
        """Run a scenario of these frames with everything allowed."""
        model = self.scenario(*frames)
        return await self.run("--model", model, "--permission-mode", "dontAsk", *flags)

    def journal(self) -> SqliteJournal:
        return SqliteJournal.open(self.home, read_only=True)


async def finish(session: Session, execution: Execution) -> Played:
    ended = await execution.finish()
    run = [one async for one in envelopes_of(session.deps.journal, ended.run_id)]
    check_order(run)
    assert await session.deps.journal.verify(ended.run_id) == []
    return Played(ended, run)
