"""Hooks for tests: small commands that keep what they were told, and say what they are to say."""

import asyncio
import os
import select
import shlex
from pathlib import Path
from typing import Any

import msgspec

from batten.agent.hooks.hooks import Hooks
from batten.contract.facts import HookCompleted
from batten.settings.contract import HandlerConfig, HookConfig, HookEvent, Scope

from .stage import Stage

Payload = dict[str, Any]


def hook(
    event: HookEvent,
    command: str,
    *,
    matcher: str = "*",
    condition: str = "",
    scope: Scope = "user",
    **more: Any,
) -> HookConfig:
    """One command for one event."""
    handler = HandlerConfig(type="command", command=command, **more)
    return HookConfig(
        event=event, matcher=matcher, condition=condition, handlers=(handler,), scope=scope
    )


def saying(answer: Payload, *, exit_code: int = 0) -> str:
    """A command that answers with this object."""
    return f"echo {shlex.quote(msgspec.json.encode(answer).decode())}; exit {exit_code}"


def deciding(decision: str, reason: str = "", **more: Any) -> Payload:
    specific = {"permissionDecision": decision, "permissionDecisionReason": reason, **more}
    return {"hookSpecificOutput": specific}


class Log:
    """A file that hooks add what they were told to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def command(self) -> str:
        """Written at once, so that two at the same time do not mix."""
        return f'told="$(cat)"; printf "%s\\n" "$told" >> {shlex.quote(str(self._path))}'

    @property
    def payloads(self) -> list[Payload]:
        if not self._path.exists():
            return []
        return [msgspec.json.decode(line) for line in self._path.read_bytes().splitlines()]

    @property
    def events(self) -> list[str]:
        return [payload["hook_event_name"] for payload in self.payloads]


class Fifo:
    """A pipe with a name, on which a command tells how far it has come."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = shlex.quote(str(path))
        # Open for writing too: one that is only read ends whenever a writer leaves.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def line(self) -> str:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            async with asyncio.timeout(20):
                await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
        return self._read()

    def line_now(self) -> str:
        """The same without an event loop."""
        assert select.select([self._descriptor], [], [], 20)[0]
        return self._read()

    def _read(self) -> str:
        try:
            return os.read(self._descriptor, 1000).decode().strip()
        finally:
            os.close(self._descriptor)


def log_of(stage: Stage) -> Log:
    return Log(stage.directory / "told.jsonl")


def hooks_of(stage: Stage, *configs: HookConfig) -> Hooks:
    return Hooks(configs, workspace=str(stage.workspace), environ=os.environ)


def brief(fact: HookCompleted) -> tuple[str, str, str]:
    """What the hook said, what the rules say alone, and what came of it."""
    return fact.router_decision, str(fact.permission_action), fact.decision
