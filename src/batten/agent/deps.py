"""Everything a run works with, wired once by whoever opens the session."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct, field

from batten.agent.hooks.hooks import Hooks
from batten.agent.settings import RunSettings
from batten.contract.facts.approval import RequestClass
from batten.contract.notes import Note
from batten.journal.contract import Journal
from batten.journal.recorder import Recorder
from batten.journal.workers import LEASE_S
from batten.models.contract import Model
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.tools.lent import Lent
from batten.tools.registry import Toolbox


class Question(Struct, frozen=True, kw_only=True):
    """Something a run asks somebody outside and waits for."""

    request_class: RequestClass
    tool_call_id: str
    tool_name: str
    summary: str
    reason: str
    detail: dict[str, Any]
    changed: bool = False
    """Of an approval: its arguments are not those the model proposed."""


class Answer(Struct, frozen=True):
    """`granted`: approved, or answered. `text` is the answer, or why not."""

    granted: bool
    by: str
    text: str = ""
    updated_input: dict[str, Any] | None = None
    """Arguments to run with instead of those asked about; they are decided on anew."""
    halt: bool = False
    """Whether a refusal ends the run."""


class Requests(Protocol):
    """Asks whoever is declared to answer; one durable mechanism for every class of question."""

    async def ask(self, recorder: Recorder, question: Question) -> Answer: ...


class Observer(Protocol):
    """Sees what each model call gave; the scenario recorder is one."""

    def observe(self, message: Any, stop_reason: str, error: str | None = None) -> None: ...


ToolboxMaker = Callable[["RunDeps", RunSettings, int], Toolbox]


class RunDeps(Struct, frozen=True, kw_only=True):
    journal: Journal
    redactor: Redactor
    seal_key: Callable[[], SealKey]
    open_model: Callable[[str], Model]
    toolbox: "ToolboxMaker"
    """The tools of a run at this depth of children."""
    requests: Requests
    worker_id: str
    lease_s: float = LEASE_S
    """How long a lease lasts; it is renewed three times in that time."""
    workspace_path: str
    home: str
    lent: Lent = Lent()
    """What a client lends in place of the disk and the keeper."""
    hooks: Hooks = field(default_factory=Hooks)
    """Who is told what happens; nobody, unless somebody was named."""
    observer: Observer | None = None
    note: Callable[[str, Note], None] | None = None
    """Shows what is said once and not kept, by the id of its run; nobody asked for it if None."""
    asks_retry: Callable[[], bool] = lambda: False
    """Whether somebody wants to be asked what to do with a call that failed."""
    before_effects: Callable[[], Awaitable[None]] | None = None
    """Started beside the first model call: the keeper, so that the first command finds it ready."""
