"""The dependencies of a run, wired once when the session opens."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct, field

from batten.agent.hooks.hooks import Hooks
from batten.agent.settings import RunSettings
from batten.contract.conversation import ToolCall
from batten.contract.facts import Fact
from batten.contract.facts.approval import RequestClass
from batten.contract.facts.error import ErrorToolUnavailable
from batten.contract.facts.run import WorkspaceMode
from batten.contract.notes import Note
from batten.journal.contract import Journal
from batten.journal.recorder import Recorder
from batten.journal.workers import LEASE_S
from batten.models.contract import Model
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.tools.contract import GRACE_S
from batten.tools.lent import Lent
from batten.tools.registry import Toolbox


class Question(Struct, frozen=True, kw_only=True):
    """A question that a run asks someone outside and waits for."""

    request_class: RequestClass
    tool_call_id: str
    tool_name: str
    summary: str
    reason: str
    detail: dict[str, Any]
    changed: bool = False
    """Of an approval: its arguments are not those the model proposed."""
    panel: str = ""
    """Of an approval: the panel to ask in place of the resolvers."""


class Answer(Struct, frozen=True):
    """`granted`: approved, or answered. `text` is the answer or the reason for a refusal."""

    granted: bool
    by: str
    text: str = ""
    updated_input: dict[str, Any] | None = None
    """Arguments to run with instead of the proposed ones; the rules judge them again."""
    halt: bool = False
    """Whether a refusal ends the run."""
    halt_reason: str = ""
    """The reason of that ending; the text if empty."""
    grant: str = ""
    """The pattern of a rule that allows such calls from now on."""


class Requests(Protocol):
    """Asks the declared resolvers; one durable mechanism for every class of question."""

    async def ask(self, recorder: Recorder, question: Question) -> Answer: ...


class Panels(Requests, Protocol):
    """Asks panels of agents."""

    def parking(self) -> "Panels":
        """The same panels for runs that are parked while they wait: workers hold them."""
        ...


class Observer(Protocol):
    """Sees the result of each model call, and each fact; the scenario recorder is one."""

    def observe(self, message: Any, stop_reason: str, error: str | None = None) -> None: ...

    def take(self, fact: Fact) -> None: ...


ToolboxMaker = Callable[["RunDeps", RunSettings, int], Toolbox]


class RunDeps(Struct, frozen=True, kw_only=True):
    journal: Journal
    redactor: Redactor
    seal_key: Callable[[], SealKey]
    open_model: Callable[[str], Model]
    toolbox: "ToolboxMaker"
    """Makes the tools of a run at this depth of children."""
    requests: Requests
    panels: Panels | None = None
    """Asks the panel that a question names; without it such a question is denied."""
    worker_id: str
    for_others: bool = False
    """Clients elsewhere read what becomes of the runs: their endings name no place of the store."""
    lease_s: float = LEASE_S
    """How long a lease lasts; it is renewed three times in that period."""
    workspace_path: str
    directories: tuple[str, ...] = ()
    """Real paths of the directories to read and write beside the workspace."""
    workspace_mode: WorkspaceMode = "in_place"
    stops_at_budget: bool = False
    """Whether no call begins once the budget is spent exactly; otherwise one more may."""
    identity: dict[str, str] = {}
    """Ids of those its runs work for."""
    is_traced: bool = False
    """Whether commands, hooks, tool servers and models are told the span they work for."""
    only_call: ToolCall | None = None
    """The one call that a run makes in place of asking a model."""
    home: str
    grace_s: float = GRACE_S
    """Between SIGTERM and SIGKILL for a command."""
    lent: Lent = Lent()
    """Capabilities that a client lends in place of the disk and the keeper."""
    hooks: Hooks = field(default_factory=Hooks)
    observer: Observer | None = None
    note: Callable[[str, Note], None] | None = None
    """Shows a note of the run with this id; None if no client wants notes."""
    alert: Callable[[Fact], object] | None = None
    """Shows people what they must not miss, child runs included, once it is durable: a refused call
    (`policy.tool_blocked`), an image that the model cannot see, an empty answer."""
    asks_retry: Callable[[], bool] = lambda: False
    """Whether a client decides about retries of failed calls."""
    unavailable: Callable[[], list[ErrorToolUnavailable]] = list
    """Tools that were configured and cannot be offered; each run records them."""
    before_end: Callable[[Recorder], Awaitable[None]] | None = None
    """Records what is known only when all work is done, before the ending of a run that was not
    cancelled."""
    before_effects: Callable[[], Awaitable[None]] | None = None
    """Started beside the first model call: the keeper, so that the first command finds it ready."""
