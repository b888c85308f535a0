"""Sessions for surfaces that open them themselves: what one asks for, and what it is given.

The command line implements `Host`; a surface knows nothing of how a session is put together.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from batten.agent.deps import RunDeps
    from batten.agent.rules.rule import Rule
    from batten.agent.rules.verdict import Mode
    from batten.agent.settings import RunSettings
    from batten.contract.notes import Note
    from batten.journal.contract import Journal
    from batten.serve.renderer import Describe
    from batten.session.session import Session
    from batten.workspace.keeper import Keeper


class Wanted(Struct, frozen=True, kw_only=True):
    """A session as a client asks for it. What it leaves out, the command line and settings say."""

    surface: str
    session_id: str | None = None
    """The id of the new session; one is made if there is none."""
    resume: str | None = None
    """The session to go on with, by its id or that of one of its runs."""
    workspace: str | None = None
    models: tuple[str, ...] = ()
    """Used unless the command line names a model."""
    mode: "Mode | None" = None
    """The permission mode, unless the command line names one."""
    usual_mode: "Mode | None" = None
    """The permission mode, unless the command line or settings name one."""
    rules: "tuple[Rule, ...]" = ()
    """Beside those of the command line and of settings, and after the former."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """By the names of `RunSettings`, in place of what the command line says."""
    bare: bool = False
    """Nothing but what the command line and the client say: no files are read for more."""
    environ: dict[str, str] = field(default_factory=dict[str, str])
    """Variables beside those of the process, and before them."""
    mcp_servers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Servers that the client brings, as `mcpServers` spells them."""
    elicits: bool = False
    """Whether what tool servers want to know may be asked of the client."""
    equip: "Callable[[RunDeps, RunSettings], RunDeps] | None" = None
    """The deps as the surface needs it: with its own requests, tools, files."""


class Hosted(Protocol):
    """A session that was opened, and what it works with."""

    @property
    def session(self) -> "Session": ...

    @property
    def describe(self) -> "Describe":
        """What is in force: model, tools, servers, mode, directory."""
        ...

    @property
    def keeper(self) -> "Keeper":
        """Who starts commands in the session's workspace."""
        ...

    def show_notes(self, show: "Callable[[str, Note], None]") -> None:
        """Who shows what is said once."""
        ...

    async def close(self) -> None:
        """End what the session started. The session itself is closed before that."""
        ...


class Host(Protocol):
    """Opens sessions, any number of them at once, on one journal."""

    @property
    def journal(self) -> "Journal": ...

    @property
    def model(self) -> str:
        """The model that the command line names; empty if it names none."""
        ...

    @property
    def workspace(self) -> str:
        """The directory that the command line names; empty if it names none."""
        ...

    @property
    def resume(self) -> str:
        """The session that the command line goes on with; empty for a new one."""
        ...

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The only tools that the command line lets be offered; None if it does not say."""
        ...

    @property
    def max_turns(self) -> int | None:
        """The most turns of a run that the command line allows; None if it does not say."""
        ...

    async def open(self, wanted: Wanted) -> Hosted:
        """Open or resume a session; a `BattenError` says what keeps it from that."""
        ...
