"""Panels of scripted agents."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from batten.control.coordination.approvals import panels_of
from batten.control.coordination.panel import PanelAgent
from batten.control.coordination.records import Keeping
from batten.control.coordination.registries import Registries
from batten.control.coordination.runtime import Runtime
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import PolicyRegistry
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec
from tests.control.given import Place

MAJORITY = PolicyDescriptor(
    policy_id="policy.majority",
    mode="macp.mode.decision.v1",
    rules='{"voting":{"algorithm":"majority","threshold":0.6,"quorum":{"type":"count","value":3}},'
    '"commitment":{"require_vote_quorum":true}}',
)


def act(tool: str, result: str = "success", **arguments: Any) -> dict[str, Any]:
    return {"kind": "tool_call", "tool": tool, "input": arguments, "expectedResult": result}


def scripted(folder: Path, name: str, *turns: list[dict[str, Any]]) -> str:
    """A model that acts as told in each turn, with a sentence after it.

    A delay comes before the act that follows it.
    """
    frames: list[list[dict[str, Any]]] = []
    for turn in turns:
        waiting: list[dict[str, Any]] = []
        for number, one in enumerate(turn):
            waiting.append({**one, "id": f"{name}-{len(frames)}-{number}"})
            if one["kind"] != "delay" or one is turn[-1]:
                frames.append(waiting)
                waiting = []
        frames.append([{"kind": "text", "text": f"{name} is done."}])
    scenario: dict[str, Any] = {
        "schemaVersion": "evalops.maestro.scripted-scenario.v1",
        "id": name,
        "description": "for a test",
        "metadata": {"recordedAt": "2026-11-15T00:00:00Z", "toolsExpected": []},
        "frames": [
            {"index": index, "statements": statements} for index, statements in enumerate(frames)
        ],
    }
    path = folder / f"{name}.json"
    path.write_bytes(msgspec.json.encode(scenario))
    return f"scripted/{path}"


def member(folder: Path, name: str, *turns: list[dict[str, Any]]) -> PanelAgent:
    return PanelAgent(name=name, model=scripted(folder, name, *turns))


def reviewed(folder: Path, **panel: Any) -> Place:
    """A service in which a panel, a quorum, answers whether a file may be touched."""
    policy: dict[str, Any] = {"policy_id": "policy.two", "mode": "macp.mode.quorum.v1", "rules": {}}
    (folder / "policy.json").write_bytes(msgspec.json.encode(policy))
    settings = {
        "permissions": {
            "ask": [{"pattern": "Bash(touch *)", "panel": "review"}],
            "allow": ["Bash"],
        },
        "panels": {"review": {"policy": "policy.json", **panel}},
    }
    (folder / "settings.json").write_bytes(msgspec.json.encode(settings))
    return Place(
        folder,
        auto_allow=False,
        bare=False,
        setting_sources=(),
        settings=str(folder / "settings.json"),
        convene=panels_of,
    )


class Table:
    """A home with a runtime, in which panels are held."""

    def __init__(self, folder: Path, opener: SessionOpener, runtime: Runtime) -> None:
        self.folder = folder
        self.opener = opener
        self.runtime = runtime

    @property
    def base(self) -> SessionSpec:
        return self.opener.base


@asynccontextmanager
async def table(folder: Path, *policies: PolicyDescriptor) -> AsyncGenerator[Table]:
    (folder / "work").mkdir(exist_ok=True)
    environ = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "BATTEN_HOME": str(folder / "home"),
    }
    opener = SessionOpener(
        SessionSpec(environ=environ, cwd=str(folder / "work"), bare=True, sandbox="none")
    )
    registry = PolicyRegistry()
    for policy in policies:
        registry = registry.register(policy)
    try:
        keeping = Keeping(opener.journal, Redactor([]), partial(SealKey.load, opener.home))
        yield Table(folder, opener, Runtime(keeping, Registries(policies=registry)))
    finally:
        opener.close()
