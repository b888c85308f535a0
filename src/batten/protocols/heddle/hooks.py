"""The client's hooks: translates Heddle's events and matchers to ours, and a hook's input and
output.

A hook receives variables and standard input. An exit code other than 0 blocks events that can be
blocked, and the output goes to the model.
"""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

from batten.contract.errors import CallerError

Event = Literal[
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "StopFailure",
]

_EVENTS: dict[str, tuple[Event, ...]] = {
    "session_start": ("SessionStart",),
    "session_end": ("SessionEnd",),
    "pre_prompt": ("UserPromptSubmit",),
    "pre_tool": ("PreToolUse",),
    "post_tool": ("PostToolUse", "PostToolUseFailure"),
    "post_turn": ("Stop",),
    "error": ("StopFailure",),
}
_BLOCKERS = ("pre_prompt", "pre_tool")
TIMEOUT_MS = 10_000
_LONGEST_MS = 24 * 60 * 60 * 1000


class Matchers(Struct, frozen=True):
    """The events that a hook matches: all given fields must match."""

    tool: str | list[str] | None = None
    match_path: str | None = None
    """A glob."""
    match_args: str | None = None
    """Like `match_input`: words or a glob, anywhere in the text."""
    match_input: str | None = None


class Hook(Struct, frozen=True, rename={"is_async": "async"}):
    """A command that runs at an event; since 0.4."""

    command: str
    timeout: Annotated[int, Meta(ge=1, le=_LONGEST_MS)] | None = None
    mode: Literal["both", "interactive", "headless"] | None = None
    is_async: bool | None = None
    matchers: Matchers | None = None

    @property
    def timeout_s(self) -> float:
        return (self.timeout or TIMEOUT_MS) / 1000

    @property
    def tools(self) -> str:
        """The tools that it matches, in the syntax of our matchers."""
        named = None if self.matchers is None else self.matchers.tool
        if named is None:
            return "*"
        return named if isinstance(named, str) else "|".join(named)

    def fits(self, payload: dict[str, Any]) -> bool:
        """Whether the event matches, apart from its tool."""
        matchers = self.matchers or Matchers()
        args = cast("dict[str, Any]", payload.get("tool_input") or {})
        path = str(args.get("file_path") or args.get("path") or "")
        if matchers.match_path is not None and not fnmatchcase(path, matchers.match_path):
            return False
        whole = msgspec.json.encode(args).decode()
        if matchers.match_args is not None and not _within(whole, matchers.match_args):
            return False
        prompt = str(payload.get("prompt") or "")
        return matchers.match_input is None or _within(prompt, matchers.match_input)


def check(hooks: dict[str, list[Hook]]) -> None:
    """Raises `CallerError` for an unknown event."""
    unknown = sorted(hooks.keys() - _EVENTS.keys())
    if unknown:
        known = ", ".join(_EVENTS)
        raise CallerError(f"config.hooks: {unknown[0]!r} is not an event; events are: {known}")


def ours(event: str) -> tuple[Event, ...]:
    """Our events for one of Heddle's."""
    return _EVENTS[event]


def told(payload: dict[str, Any]) -> bytes:
    """A hook's standard input."""
    named = (
        ("tool_args", "tool_input"),
        ("tool_result", "tool_response"),
        ("user_input", "prompt"),
    )
    return msgspec.json.encode({name: payload[key] for name, key in named if key in payload})


def variables(event: str, payload: dict[str, Any], session_id: str, model: str) -> dict[str, str]:
    """A hook's environment variables."""
    values = {
        "EVENT": event,
        "SESSION_ID": session_id,
        "PROJECT": str(payload.get("cwd", "")),
        "MODEL": model,
        "TOOL_NAME": str(payload.get("tool", {}).get("name", "")),
    }
    return {f"HEDDLE_HOOK_{name}": value for name, value in values.items() if value}


def answer(event: str, exit_code: int | None, stdout: str, stderr: str) -> dict[str, Any]:
    """A hook's exit code and output as an answer of our hooks."""
    if exit_code != 0:
        reason = f"Blocked by hook — {stderr.strip()}"
        return {"decision": "block", "reason": reason} if event in _BLOCKERS else {}
    output = stdout.strip()
    return {"additionalContext": f"[hook feedback] {output}"} if output else {}


def _within(text: str, wanted: str) -> bool:
    return fnmatchcase(text, f"*{wanted}*")
