"""Hooks for tests: small commands that keep what they were told, and say what they are to say."""

import shlex
from pathlib import Path
from typing import Any

import msgspec

from batten.agent.hooks import Hooks
from batten.contract.facts import HookCompleted
from batten.settings.contract import HandlerConfig, HookConfig, HookEvent

from .stage import Stage

Payload = dict[str, Any]


def hook(
    event: HookEvent, command: str, *, matcher: str = "*", condition: str = "", **more: Any
) -> HookConfig:
    """One command for one event."""
    handler = HandlerConfig(type="command", command=command, **more)
    return HookConfig(event=event, matcher=matcher, condition=condition, handlers=(handler,))


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


def log_of(stage: Stage) -> Log:
    return Log(stage.directory / "told.jsonl")


def hooks_of(stage: Stage, *configs: HookConfig) -> Hooks:
    return Hooks(configs, workspace=str(stage.workspace))


def brief(fact: HookCompleted) -> tuple[str, str, str]:
    """What the hook said, what the rules say alone, and what came of it."""
    return fact.router_decision, str(fact.permission_action), fact.decision
