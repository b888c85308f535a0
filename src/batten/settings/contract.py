"""What settings say, whichever files said it: one frozen value that everyone else is given."""

from typing import Any, Literal, get_args

from msgspec import Struct

Scope = Literal["managed", "user", "project", "local", "flag", "plugin"]
"""Where something was said. Of two that disagree, the later in this list wins, plugins aside."""

HookEvent = Literal[
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "PermissionDenied",
    "PreCompact",
    "PostCompact",
    "ConfigChange",
    "CwdChanged",
    "FileChanged",
    "SubagentStart",
    "SubagentStop",
    "TaskCreated",
    "TaskCompleted",
    "Notification",
    "Stop",
    "StopFailure",
]
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
RESERVED_EVENTS = frozenset(
    {
        "Setup",
        "UserPromptExpansion",
        "PostToolBatch",
        "InstructionsLoaded",
        "WorktreeCreate",
        "WorktreeRemove",
        "Elicitation",
        "ElicitationResult",
        "TeammateIdle",
    }
)
"""Accepted in settings; nothing fires them yet."""

OnFailure = Literal["deny", "allow"]


class HandlerConfig(Struct, frozen=True, kw_only=True):
    """A program of the user's that is told of an event."""

    type: Literal["command", "http"]
    command: str = ""
    """A line for the shell; with `args`, a program that gets them as they are."""
    args: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    timeout_s: float = 30.0
    is_async: bool = False
    """Nobody waits for it, and what it decides does not count."""
    on_failure: OnFailure = "deny"
    """What its silence means: it timed out, did not start, or answered with no sense."""


class HookConfig(Struct, frozen=True, kw_only=True):
    event: HookEvent
    matcher: str = "*"
    """Names of tools, as a glob or as `A|B`."""
    condition: str = ""
    """A permission pattern that must match the call too."""
    handlers: tuple[HandlerConfig, ...] = ()
    scope: Scope = "user"


class HookLimits(Struct, frozen=True, kw_only=True):
    """What hooks may do at all."""

    http_urls: tuple[str, ...] = ()
    """Globs of the addresses they may be sent to; none means none."""
    http_env_vars: tuple[str, ...] = ()
    """Variables that may be used in headers."""


class RuleConfig(Struct, frozen=True, kw_only=True):
    action: Literal["allow", "ask", "deny"]
    pattern: str
    scope: Scope


class Skill(Struct, frozen=True, kw_only=True):
    """A folder with instructions for one kind of work, read by the model when it needs them."""

    name: str
    description: str
    path: str
    """Of its SKILL.md."""
    scope: Scope
    within: str | None = None
    """The workspace that its text must not lead out of."""
    digest: str = ""
    """Of its folder, where that had to be trusted: other content is not what was trusted."""


class Plugin(Struct, frozen=True, kw_only=True):
    name: str
    version: str
    path: str


class Settings(Struct, frozen=True, kw_only=True):
    """Everything the files, the flags and the plugins said, merged."""

    sources: tuple[str, ...] = ()
    """The scopes that were read, from the weakest to the strongest."""
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    permission_mode: str | None = None
    may_bypass: bool = True
    """False where the machine's owner forbids bypassPermissions."""
    rules: tuple[RuleConfig, ...] = ()
    """In the order they are held against a call."""
    hooks: tuple[HookConfig, ...] = ()
    hook_limits: HookLimits = HookLimits()
    mcp_servers: dict[str, dict[str, Any]] = {}
    """By name, each as an entry of an MCP configuration."""
    env: dict[str, str] = {}
    skills: tuple[Skill, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    problems: tuple[str, ...] = ()
    """What was left out and why, one line each: untrusted content, a plugin that cannot be read."""
