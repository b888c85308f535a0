"""A runner with a workspace of its own, and a runtime that has heard a conversation."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro import incoming as said
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.state import Conversation
from batten.runner.drain import Drained, Record
from batten.runner.flush import SessionFile
from batten.runner.identity import Identity
from batten.runner.request import DrainRequest
from batten.runner.runner import Runner

Json = dict[str, Any]
AT = 1776902400.0
"""2026-04-23T00:00:00.000Z"""
SESSION = "session_123"
KEPT = SessionFile(path="/workspace/.maestro/agent/sessions/s.batten", sha256="0" * 64)
INIT = said.Init(system_prompt="be brief")

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")


def identity(workspace: Path, **more: Any) -> Identity:
    given: Json = {
        "runner_session_id": "mrs_123",
        "owner_instance_id": "pod_123",
        "workspace_root": str(workspace),
        "workspace_id": "workspace_123",
        "agent_run_id": "run_123",
    }
    return Identity(**{**given, **more})


class Playing:
    """A runtime as a drain sees it, after the messages it was given."""

    def __init__(
        self,
        *messages: heard.Message,
        snapshot_fails: Exception | None = None,
        stop_fails: BaseException | None = None,
    ) -> None:
        self.conversation = Conversation()
        ready = heard.Ready(
            protocol_version=PROTOCOL_VERSION,
            model="scenario",
            provider="scripted",
            executor_type="replay",
            session_id=SESSION,
        )
        self.cursor = 0
        for message in (ready, *messages):
            self.say(message)
        self.stopped = 0
        self.snapshots = 0
        self._snapshot_fails, self._stop_fails = snapshot_fails, stop_fails

    def say(self, message: heard.Message) -> None:
        self.conversation.hear(message)
        self.cursor += 1

    def snapshot(self) -> RuntimeSnapshot:
        self.snapshots += self.stopped == 0
        if self._snapshot_fails is not None:
            raise self._snapshot_fails
        return RuntimeSnapshot(
            protocol_version=PROTOCOL_VERSION,
            session_id=SESSION,
            cursor=self.cursor,
            last_init=INIT,
            state=self.conversation.state,
        )

    async def stop(self) -> None:
        self.stopped += 1
        self.say(heard.Status(message="stopped"))
        if self._stop_fails is not None:
            raise self._stop_fails

    async def keep(self) -> SessionFile | None:
        assert self.stopped, "a session that still works is not kept"
        return KEPT


async def drain(
    request: DrainRequest,
    runner: Identity,
    runtime: Playing | None,
    record: Record | None = None,
    environ: Mapping[str, str] | None = None,
) -> Drained:
    """The first drain of a runner."""
    hosted = Runner(runner, now=lambda: AT, record=record, environ=environ)
    return await hosted.drain(request, runtime)


def asked(call: str, tool: str = "bash", args: Any = None, kind: Any = "approval") -> Any:
    return heard.ServerRequest(
        request_id=f"req_{call}",
        request_type=kind,
        call_id=call,
        tool=tool,
        args={"a": 1} if args is None else args,
        reason="why",
    )


def called(call: str, tool: str, args: Any = None) -> heard.ToolCalled:
    return heard.ToolCalled(call_id=call, tool=tool, args=args or {}, requires_approval=False)


def started(call: str) -> heard.ToolStart:
    return heard.ToolStart(call_id=call)


def ended(call: str, success: bool = True) -> heard.ToolEnd:
    return heard.ToolEnd(call_id=call, success=success)


def wire(value: object) -> Any:
    """A value as it is sent."""
    return msgspec.json.decode(msgspec.json.encode(value))


def manifest_file(drained: Drained) -> Json:
    """The manifest as it stands in its file."""
    read: Json = msgspec.json.decode(Path(drained.manifest_path).read_bytes())
    return read


def fields(value: object, at: str = "") -> dict[str, str]:
    """The kind of every value at any depth, by where it is; those of a list are at one place."""
    if isinstance(value, dict):
        held = cast(Json, value)
        return {
            path: kind
            for key, inner in held.items()
            for path, kind in fields(inner, f"{at}.{key}").items()
        }
    found = {at: type(value).__name__}
    if isinstance(value, list):
        for inner in cast(list[object], value):
            found |= fields(inner, at + "[]")
    return found


def keys(value: object) -> set[str]:
    """Every key at any depth."""
    return {key for path in fields(value) for key in path.replace("[]", "").split(".")}


def git(directory: Path, *arguments: str) -> str:
    """What git prints, with an author and without anybody's own settings."""
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments],
        cwd=directory,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
