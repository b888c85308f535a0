"""The specification of a session: one frozen value for command lines, clients and embedders.

Importing this loads nothing else: a client is greeted before the agent and the store are loaded.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from batten.agent.deps import Panels, RunDeps
    from batten.agent.rules.rule import Rule
    from batten.agent.rules.verdict import Mode
    from batten.agent.settings import RunSettings
    from batten.contract.facts import Fact
    from batten.contract.facts.task import TaskServer
    from batten.journal.contract import Lease
    from batten.settings.contract import Settings
    from batten.tools.contract import Tool

    Equip = Callable[[RunDeps, RunSettings], RunDeps]
    Convene = Callable[["SessionSpec", RunDeps, RunSettings, Settings], Panels]

Part = Literal["hooks", "skills", "mcp", "plugins"]
ServerKind = Literal["sandboxed", "remote"]
"""Tool servers of tasks: programs in the sandbox, and URLs at public addresses."""


def _silent(text: str) -> None:
    """Drop the warning."""


class TaskGrants(Struct, frozen=True, kw_only=True):
    """What the clients of a service may name in their tasks."""

    servers: tuple[ServerKind, ...] = ()
    """The kinds of tool servers that tasks may bring."""
    variables: tuple[str, ...] = ()
    """Variables of the service that those servers may be given."""
    directories: tuple[str, ...] = ()
    """The only directories that tasks may name, and what is below them; without any, all but those
    whose files other programs of the user execute or believe.
    """


class SessionSpec(Struct, frozen=True, kw_only=True):
    """One session. A field that is None or empty takes its value from a resumed session, then from
    settings files, then the default.
    """

    environ: Mapping[str, str]
    """The session's environment; the process's own is not read."""
    cwd: str = ""
    """Base of relative paths, and workspace of a new session that names none; empty if the
    directory is gone.
    """
    surface: str = ""
    """The protocol that opens the session, as its first fact names it."""
    warn: Callable[[str], object] = _silent
    """Shows a line to people: a model without a price, a tool server that does not answer."""

    alert: "Callable[[Fact], object] | None" = None
    """Shows people what they must not miss: a refused call, an image that the model cannot see."""

    session_id: str | None = None
    """The id of the new session; generated if None."""
    resume: str | None = None
    """The session to resume, by its id or that of one of its runs."""
    lease: "Lease | None" = None
    """The lease of the session to resume, if whoever resumes it has claimed it already."""
    by: str = ""
    """Who asked to resume it, if a service does that for a client."""
    resume_newest: bool = False
    """Resume the newest session of the workspace."""
    fork: bool = False
    """Resume as a new session; the old one stays as it is."""
    branch: str | None = None
    """`RUN[:SEQUENCE]`: a new session that shares the history up to this place."""
    inherit: bool = True
    """Whether a resumed session keeps its settings where this specification is silent. Limits, the
    output schema and whether instructions are read are kept only for a run to continue.
    """
    goes_on: bool = False
    """Continue the unfinished run of the resumed session, with that run's limits."""
    save: bool = True
    """Whether the journal outlives the process."""
    record: str | None = None
    """The scenario file to write; a scripted model can replay it."""

    workspace: str | None = None
    add_dirs: tuple[str, ...] = ()
    """Directories to read and write beside the workspace. Each opening names its own: a resumed
    session keeps none.
    """
    worktree: str | None = None
    """The git worktree to work in, by its name; empty for a new one with a generated name. A
    session that began in one goes on in it.
    """
    worktree_base: str = ""
    """The branch that a new worktree begins at; empty for the current commit."""
    needs_model: bool = True
    """False for runs that make one call and ask no model."""
    models: tuple[str, ...] = ()
    fallback_models: tuple[str, ...] = ()
    provider: str | None = None
    """The provider of models named without one."""
    mode: "Mode | None" = None
    """The permission mode; without it settings files decide, then `usual_mode`."""
    usual_mode: "Mode | None" = None
    may_bypass: bool = False
    """Allow the mode `bypassPermissions`."""
    rules: "tuple[Rule, ...]" = ()
    auto_allow: bool = False
    """Allow calls that no rule decides."""
    resolvers: tuple[str, ...] = ()
    """Roles that answer requests, declared at each opening: only the earlier opening may have had a
    client.
    """
    convene: "Convene | None" = None
    """Holds the panels that rules name as resolvers; without it what they ask is denied."""
    elicits: bool = False
    """Tool servers may ask the resolvers for input."""
    lends_tools: bool = False
    """The client may bring tools later: rules are checked when those are known (`check_rules`)."""

    max_turns: int | None = None
    max_seconds: float | None = None
    max_retries: int | None = None
    """Also set by `BATTEN_MAX_RETRIES` and by settings files; without them, `usual_retries`."""
    usual_retries: int | None = None
    max_output_tokens: int | None = None
    budget_micros_usd: int | None = None
    budget_covers_past: bool = False
    """The budget is for the whole task; otherwise it is for what this opening spends."""
    require_price: bool | None = None
    """With a budget, refuse models without a known price, whose calls would not be counted."""
    request_seconds: float | None = None
    temperature: float | None = None
    thinking_tokens: int | None = None
    record_thinking: bool | None = None
    doom_threshold: int | None = None
    compact_ratio: float | None = None
    compact_model: str | None = None
    protect_tokens: int | None = None
    system: str | None = None
    append_system: str | None = None
    output_schema: dict[str, Any] | None = None
    fail_on: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    """The only tools to offer; all if None."""
    own_tools: "tuple[Tool, ...]" = ()
    """Tools of the embedding program, offered beside the built-in ones."""
    child_runs: bool = True
    auto_apply: bool | None = None
    """False: edits stay proposed patches, for review."""

    sandbox: Literal["auto", "bwrap", "landlock", "none"] = "auto"
    network: bool = False
    """Whether commands may use the network."""
    read_only: bool = False
    """Whether no tool and no command may change the workspace."""
    command_seconds: float | None = None
    """The longest that one command may take; None for the usual bounds."""

    bare: bool = False
    """Read no settings files, instructions, memory, hooks, skills, plugins or tool servers."""
    instructions: bool = True
    settings: str | None = None
    """Settings that override all files: JSON, or the name of a file."""
    setting_sources: tuple[str, ...] | None = None
    """The scopes of settings files to read; all if None."""
    without: frozenset[Part] = frozenset()
    trust_workspace: bool = False
    """Use all that the workspace brings, trusted or not. Nothing of this is recorded."""
    mcp_servers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Tool servers by name, as `mcpServers` spells them."""
    client_servers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Tool servers that the client brings; `mcp_servers` overrides them."""
    confined_servers: "tuple[TaskServer, ...]" = ()
    """Tool servers of a client that may not act as the user: their programs run in the sandbox, and
    their URLs must be public. None may have the name of another server.
    """
    tasks: TaskGrants = TaskGrants()
    """What the tasks of a service may name."""
    plugin_dirs: tuple[str, ...] = ()
    adapt: "Callable[[Settings], Settings] | None" = None
    """Translates foreign names in settings files into ours."""

    notes: bool = True
    """Whether notes are shown: thinking and tool input as they stream."""
    observe_hooks: bool = False
    """Whether events without a hook become facts too."""
    equip: "Equip | None" = None
    """Adds the surface's own requests, tools and files to the dependencies of runs."""

    @property
    def model(self) -> str:
        """The first named model, with its provider; empty if none is named."""
        return self.full_name(self.models[0]) if self.models else ""

    def full_name(self, name: str) -> str:
        """With the provider, unless the name begins with one.

        A provider's own names may have a slash: OpenRouter has `meta-llama/llama-3.1-8b-instruct`.
        """
        if not self.provider:
            return name
        from batten.models.registry import says_provider

        return name if says_provider(name) else f"{self.provider}/{name}"
