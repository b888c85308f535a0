"""The settings as one frozen value, independent of the files they came from."""

from typing import Any, Literal, get_args

from msgspec import Struct

Scope = Literal["managed", "user", "project", "local", "flag", "plugin"]
"""Where a setting comes from. On conflict the later in this list wins, plugins aside."""

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
    """A user's program or URL that receives an event."""

    type: Literal["command", "http"]
    command: str = ""
    """A shell command line; with `args`, a program that receives them unchanged."""
    args: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    timeout_s: float = 30.0
    is_async: bool = False
    """The run does not wait for it, and its decision does not count."""
    on_failure: OnFailure = "deny"
    """The decision if it times out, fails to start or returns an invalid answer."""


class HookConfig(Struct, frozen=True, kw_only=True):
    event: HookEvent
    matcher: str = "*"
    """Tool names, as a glob or as `A|B`."""
    condition: str = ""
    """A permission pattern that must match the call as well."""
    handlers: tuple[HandlerConfig, ...] = ()
    scope: Scope = "user"


class HookLimits(Struct, frozen=True, kw_only=True):
    """Restrictions on hooks."""

    http_urls: tuple[str, ...] = ()
    """Globs of the URLs that hooks may post to; empty allows none."""
    http_env_vars: tuple[str, ...] = ()
    """Variables that headers may use."""


class RuleConfig(Struct, frozen=True, kw_only=True):
    action: Literal["allow", "ask", "deny"]
    pattern: str
    scope: Scope
    panel: str = ""
    """The panel that answers in place of a person, if the rule asks."""


class PanelMember(Struct, frozen=True, kw_only=True):
    name: str
    model: str = ""
    """Empty for the model of the session."""
    instructions: str = ""


class PanelConfig(Struct, frozen=True, kw_only=True):
    """Agents that answer approvals under a coordination policy."""

    name: str
    policy: str
    """The path of the policy's file."""
    agents: tuple[PanelMember, ...]
    connected: bool = False
    """The members are programs that connect to the runtime; Batten runs no agent for them."""
    timeout_s: float = 120.0
    rounds: int = 4


class Skill(Struct, frozen=True, kw_only=True):
    """A folder with instructions for one kind of work, which the model reads when it needs them."""

    name: str
    description: str
    path: str
    """The path of its SKILL.md."""
    scope: Scope
    within: str | None = None
    """The workspace that a link to its text must not leave."""
    digest: str = ""
    """The digest of its folder when it was trusted; changed content is not trusted."""


class Plugin(Struct, frozen=True, kw_only=True):
    name: str
    version: str
    path: str


class SandboxConfig(Struct, frozen=True, kw_only=True):
    """Limits of each command, and what its sandbox need not hide. Unset values are None."""

    grace_s: float | None = None
    """Seconds between SIGTERM and SIGKILL for a command that is cancelled or out of time."""
    processes: int | None = None
    memory_mib: int | None = None
    open_files: int | None = None
    file_mib: int | None = None
    sockets: tuple[str, ...] | None = None
    """Paths of sockets, or of folders with sockets, that commands may reach in bubblewrap."""


class EntryPoints(Struct, frozen=True, kw_only=True):
    """Names of entry points of installed packages, which are loaded."""

    models: tuple[str, ...] = ()
    """Of the group `batten.models`: each is a provider."""
    tools: tuple[str, ...] = ()
    """Of the group `batten.tools`."""


class Settings(Struct, frozen=True, kw_only=True):
    """All files, flags and plugins, merged."""

    sources: tuple[str, ...] = ()
    """The scopes that were read, from the weakest to the strongest."""
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    max_retries: int | None = None
    parallel_reads: int | None = None
    require_price: bool = False
    """With a budget, refuse models without a known price."""
    permission_mode: str | None = None
    may_bypass: bool = True
    """False where the machine's owner forbids bypassPermissions."""
    rules: tuple[RuleConfig, ...] = ()
    """In the order they are matched."""
    panels: tuple[PanelConfig, ...] = ()
    hooks: tuple[HookConfig, ...] = ()
    hook_limits: HookLimits = HookLimits()
    mcp_servers: dict[str, dict[str, Any]] = {}
    """By name, each as an entry of an MCP configuration."""
    env: dict[str, str] = {}
    skills: tuple[Skill, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    entry_points: EntryPoints = EntryPoints()
    sandbox: SandboxConfig = SandboxConfig()
    sinks: dict[str, Any] = {}
    """Receivers of what happens, as the room of sinks reads them."""
    directories: tuple[str, ...] = ()
    """Absolute paths to read and write beside the workspace."""
    problems: tuple[str, ...] = ()
    """Omissions and their reasons, one line each: untrusted content, an unreadable plugin."""
