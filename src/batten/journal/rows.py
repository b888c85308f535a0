"""The fold of facts into core rows: pure, and the same for every store.

A store writes the rows and the facts in one transaction; folding all facts again gives the same
rows. State that is no fact (lease, fence, chain) is not here.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract import facts
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.contract.facts.approval import RequestClass
from batten.contract.facts.assistant import Usage
from batten.contract.facts.run import RunKind, WorkspaceMode
from batten.contract.ids import SessionId, session_stream
from batten.contract.outcomes import Outcome, RunStatus, ending_of
from batten.journal.contract import ArtifactRow, LedgerRow, RequestRow, SessionRow
from batten.journal.remains import Remains

PROMPT_CHARACTERS = 200
_LARGEST_NUMBER = 2**63 - 1
_ANSWER_FIELDS = ("scope", "grant", "updated_input", "sealed_artifact_id", "halt", "halt_reason")

_STATUSES: dict[str, RunStatus] = {
    facts.RunFinished.TYPE: "completed",
    facts.RunFailed.TYPE: "failed",
    facts.RunCancelled.TYPE: "cancelled",
}


class RunFold(Struct, frozen=True, kw_only=True):
    """The part of a run's row that its facts decide."""

    kind: RunKind
    status: RunStatus = "queued"
    outcome: Outcome | None = None
    prior_run_id: str | None = None
    parent_run_id: str | None = None
    model: str | None = None
    provider: str | None = None
    workspace_path: str = ""
    workspace_mode: WorkspaceMode = "in_place"
    priority: int = 0
    prompt: str = ""
    turns: int = 0
    cost_micros_usd: int = 0
    cost_unknown: bool = False
    cancel_requested: bool = False
    pending: int = 0
    """Unanswered requests; the run waits while there are any."""
    created_at: str = ""
    ended_at: str | None = None


class FactContext(Struct, frozen=True):
    """The place and time of a fact, from its envelope."""

    run_id: str
    task_id: str | None
    session_id: str | None
    sequence: int
    at: str


class Known(Struct):
    """Rows as they were before the facts being folded."""

    requests: dict[str, RequestRow] = {}
    artifacts: dict[str, ArtifactRow] = {}
    sessions: dict[str, SessionRow] = {}


class Changes:
    """Rows that facts created or changed, over those known before; the newest of each wins."""

    def __init__(self, known: Known | None = None) -> None:
        self._known = known or _NOTHING
        self.requests: dict[str, RequestRow] = {}
        self.artifacts: dict[str, ArtifactRow] = {}
        self.sessions: dict[str, SessionRow] = {}
        self.ledger: list[LedgerRow] = []

    def request_row(self, request_id: str) -> RequestRow | None:
        return self.requests.get(request_id) or self._known.requests.get(request_id)

    def artifact_row(self, artifact_id: str) -> ArtifactRow | None:
        return self.artifacts.get(artifact_id) or self._known.artifacts.get(artifact_id)

    def session_row(self, session_id: str) -> SessionRow | None:
        return self.sessions.get(session_id) or self._known.sessions.get(session_id)


_NOTHING = Known()


def fold(run: RunFold, changes: Changes, place: FactContext, fact: facts.Fact) -> RunFold:
    """The run after one more fact; its other rows go to `changes`.

    Raises `Conflict` or `NotFound` for a fact that contradicts the rows: a second answer, an update
    of an unknown artifact.
    """
    if place.sequence == 0:
        run = replace(run, created_at=place.at)
    step = STEPS.get(type(fact))
    return run if step is None else step(run, changes, place, fact)


def _queued(run: RunFold, changes: Changes, place: FactContext, fact: facts.RunQueued) -> RunFold:
    parent = _or_none(fact.parent_run_id)
    # A child run is not the session's last run, and a run queued again is not a newer one.
    if place.session_id is not None and parent is None and place.sequence <= 1:
        session = changes.session_row(place.session_id)
        if session is not None:
            changes.sessions[place.session_id] = replace(
                session, last_run_id=place.run_id, updated_at=place.at
            )
    return replace(
        run,
        kind=fact.kind,
        status="queued",
        model=fact.model,
        provider=fact.provider,
        workspace_path=fact.workspace_path,
        workspace_mode=fact.workspace_mode,
        priority=0 if fact.priority is UNSET else fact.priority,
        prior_run_id=fact.prior_run_id,
        parent_run_id=parent,
    )


def _started(run: RunFold, changes: Changes, place: FactContext, fact: facts.RunStarted) -> RunFold:
    return replace(run, status="awaiting_approval" if run.pending else "running")


def _ended(
    run: RunFold,
    changes: Changes,
    place: FactContext,
    fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled,
) -> RunFold:
    return replace(
        run,
        status=_STATUSES[fact.TYPE],
        outcome=ending_of(fact).outcome,
        turns=run.turns if fact.turns is UNSET else fact.turns,
        ended_at=place.at,
    )


def _cancel_requested(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.RunCancelRequested
) -> RunFold:
    return replace(run, cancel_requested=True)


def _turn(run: RunFold, changes: Changes, place: FactContext, fact: facts.TurnCompleted) -> RunFold:
    return replace(run, turns=max(run.turns, fact.turn_index))


def _message(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.UserMessage
) -> RunFold:
    return run if run.prompt else replace(run, prompt=fact.text[:PROMPT_CHARACTERS])


def _approval(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.ApprovalRequested
) -> RunFold:
    return _open(run, changes, place, fact, fact.approval_id, "approval")


def _opened(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.RequestOpened
) -> RunFold:
    return _open(run, changes, place, fact, fact.request_id, fact.request_class)


def _open(
    run: RunFold,
    changes: Changes,
    place: FactContext,
    fact: facts.ApprovalRequested | facts.RequestOpened,
    request_id: str,
    request_class: RequestClass,
) -> RunFold:
    if changes.request_row(request_id) is not None:
        raise Conflict(f"request {request_id} exists already", code="request_exists")
    changes.requests[request_id] = RequestRow(
        request_id=request_id,
        run_id=place.run_id,
        request_class=request_class,
        tool_call_id=fact.tool_call_id,
        summary=fact.summary,
        digest="" if fact.digest is UNSET else fact.digest,
        deadline_at=_or_none(fact.deadline_at),
        resolvers=() if fact.resolvers is UNSET else tuple(fact.resolvers),
        status="pending",
        decision=None,
        by=None,
        answer={},
    )
    return replace(run, pending=run.pending + 1, status="awaiting_approval")


def _resolved(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.ApprovalResolved
) -> RunFold:
    answer: dict[str, Any] = {"comment": fact.comment}
    for name in _ANSWER_FIELDS:
        if (value := getattr(fact, name)) is not UNSET:
            answer[name] = value
    status = "cancelled" if fact.decision == "cancelled" else "answered"
    said = {"status": status, "decision": fact.decision, "by": fact.by, "answer": answer}
    return _close(run, changes, place, fact.approval_id, said)


def _timed_out(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.ApprovalTimedOut
) -> RunFold:
    answer = {} if fact.halt is UNSET else {"halt": fact.halt}
    said = {"status": "timed_out", "answer": answer}
    return _close(run, changes, place, fact.approval_id, said)


def _closed(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.RequestClosed
) -> RunFold:
    how = fact.resolution
    said = {"status": how, "decision": how, "by": fact.by, "answer": fact.answer}
    return _close(run, changes, place, fact.request_id, said)


def _close(
    run: RunFold, changes: Changes, place: FactContext, request_id: str, said: dict[str, Any]
) -> RunFold:
    """Change the row of a request that still waits for its first answer."""
    row = changes.request_row(request_id)
    if row is None or row.run_id != place.run_id:
        raise NotFound(f"run {place.run_id} has no request {request_id}")
    if row.status != "pending":
        by = f" by {row.by}" if row.by else ""
        raise Conflict(
            f"request {request_id} is already {row.decision or row.status}{by}",
            code="already_resolved",
        )
    changes.requests[request_id] = replace(row, **said)
    pending = run.pending - 1
    waits = run.status == "awaiting_approval"
    return replace(run, pending=pending, status="running" if waits and not pending else run.status)


def _created(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.ArtifactCreated
) -> RunFold:
    if changes.artifact_row(fact.artifact_id) is not None:
        raise Conflict(f"artifact {fact.artifact_id} exists already", code="artifact_exists")
    status = "created" if fact.status is UNSET else fact.status
    changes.artifacts[fact.artifact_id] = ArtifactRow(
        artifact_id=fact.artifact_id,
        run_id=place.run_id,
        kind=fact.kind,
        status=status,
        size_bytes=fact.size_bytes,
        sha256="" if fact.sha256 is UNSET else fact.sha256,
        mime_type="application/octet-stream" if fact.mime_type is UNSET else fact.mime_type,
        summary=fact.summary,
        tool_call_id=_or_none(fact.tool_call_id),
        metadata={} if fact.metadata is UNSET else fact.metadata,
        created_at=place.at,
        applied_at=place.at if status == "applied" else None,
        reverted_at=None,
    )
    return run


def _updated(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.ArtifactUpdated
) -> RunFold:
    row = changes.artifact_row(fact.artifact_id)
    if row is None or row.run_id != place.run_id:
        raise NotFound(f"run {place.run_id} has no artifact {fact.artifact_id}")
    if getattr(row, fact.field) != fact.old_value:
        raise Conflict(
            f"`{fact.field}` of artifact {fact.artifact_id} is {getattr(row, fact.field)!r} by now,"
            f" not {fact.old_value!r}",
            code="artifact_changed",
        )
    if fact.field == "deleted_at" and row.pinned:
        raise Conflict(
            f"artifact {fact.artifact_id} is pinned: unpin it first", code="artifact_pinned"
        )
    changed: dict[str, Any] = {fact.field: fact.new_value}
    if changed.get("status") == "applied":
        changed["applied_at"] = place.at
    changes.artifacts[fact.artifact_id] = replace(row, **changed)
    return run


def _called(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.AssistantMessageComplete
) -> RunFold:
    row = _ledger_row(place, fact, fact.turn_index, fact.provider, fact.model, fact.usage)
    return _charge(run, changes, row)


def _compacted(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.ContextCompacted
) -> RunFold:
    if fact.model is UNSET:
        return run  # compacted without a model call
    provider = "" if fact.provider is UNSET else fact.provider
    usage = Usage() if fact.usage is UNSET else fact.usage
    return _charge(run, changes, _ledger_row(place, fact, 0, provider, fact.model, usage))


def _unfinished(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.CostCallUnfinished
) -> RunFold:
    row = _ledger_row(place, fact, fact.turn_index, fact.provider, fact.model, fact.usage)
    run = _charge(run, changes, row)
    return replace(run, cost_unknown=True) if fact.cost_unknown is True else run


def _ledger_row(
    place: FactContext,
    fact: facts.AssistantMessageComplete | facts.ContextCompacted | facts.CostCallUnfinished,
    turn_index: int,
    provider: str,
    model: str,
    usage: Usage,
) -> LedgerRow:
    return LedgerRow(
        run_id=place.run_id,
        sequence=place.sequence,
        task_id=place.task_id,
        turn_index=turn_index,
        provider=provider,
        model=model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_micros_usd=fact.cost_micros_usd,
        price_as_of=fact.price_as_of,
    )


def _charge(run: RunFold, changes: Changes, row: LedgerRow) -> RunFold:
    largest = max(row.input_tokens, row.output_tokens, row.cost_micros_usd or 0)
    if largest + run.cost_micros_usd > _LARGEST_NUMBER:
        raise CallerError(f"{largest} is too large to be added up", code="number_too_large")
    changes.ledger.append(row)
    if row.cost_micros_usd is None:
        return replace(run, cost_unknown=True)
    return replace(run, cost_micros_usd=run.cost_micros_usd + row.cost_micros_usd)


def _session_opened(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.SessionOpened
) -> RunFold:
    session_id = _session_of(place)
    if place.run_id != session_stream(SessionId(session_id)):
        raise Conflict(f"run {place.run_id} is not the stream of session {session_id}")
    before = changes.session_row(session_id)
    changes.sessions[session_id] = SessionRow(
        session_id=session_id,
        task_id=fact.task_id,
        workspace_path=fact.workspace_path,
        surface=fact.surface,
        settings=before.settings if before else {},
        last_run_id=before.last_run_id if before else None,
        created_at=before.created_at if before else place.at,
        updated_at=place.at,
        closed=False,
        forked_from=_or_none(fact.forked_from),
        forked_at_run_id=_or_none(fact.forked_at_run_id),
    )
    return replace(run, kind="session", workspace_path=fact.workspace_path)


def _configured(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.SessionConfigured
) -> RunFold:
    session = _session(changes, place)
    changes.sessions[session.session_id] = replace(
        session, settings={**session.settings, **fact.settings}, updated_at=place.at
    )
    return run


def _session_closed(
    run: RunFold, changes: Changes, place: FactContext, fact: facts.SessionClosed
) -> RunFold:
    session = _session(changes, place)
    changes.sessions[session.session_id] = replace(session, closed=True, updated_at=place.at)
    return run


def _session_of(place: FactContext) -> str:
    if place.session_id is None:
        raise Conflict(f"run {place.run_id} belongs to no session: it takes no session facts")
    return place.session_id


def _session(changes: Changes, place: FactContext) -> SessionRow:
    session = changes.session_row(_session_of(place))
    if session is None:
        raise NotFound(f"session {place.session_id} was never opened")
    return session


def _or_none(value: str | UnsetType) -> str | None:
    return None if value is UNSET else value


STEPS: dict[type[facts.Fact], Callable[[RunFold, Changes, FactContext, Any], RunFold]] = {
    facts.RunQueued: _queued,
    facts.RunStarted: _started,
    facts.RunFinished: _ended,
    facts.RunFailed: _ended,
    facts.RunCancelled: _ended,
    facts.RunCancelRequested: _cancel_requested,
    facts.TurnCompleted: _turn,
    facts.UserMessage: _message,
    facts.ApprovalRequested: _approval,
    facts.ApprovalResolved: _resolved,
    facts.ApprovalTimedOut: _timed_out,
    facts.RequestOpened: _opened,
    facts.RequestClosed: _closed,
    facts.ArtifactCreated: _created,
    facts.ArtifactUpdated: _updated,
    facts.AssistantMessageComplete: _called,
    facts.ContextCompacted: _compacted,
    facts.CostCallUnfinished: _unfinished,
    facts.SessionOpened: _session_opened,
    facts.SessionConfigured: _configured,
    facts.SessionClosed: _session_closed,
}
"""The facts that change a row. Every other fact leaves the rows as they are."""


class Base(Struct, frozen=True, kw_only=True):
    """The rows of pruned facts, to continue folding from."""

    fold: RunFold
    requests: list[RequestRow]
    artifacts: list[ArtifactRow]
    ledger: list[LedgerRow]
    sessions: list[SessionRow]
    kept: list[str] = []
    """Of these artifacts, those whose bodies a pin keeps."""
    remains: Remains = msgspec.field(default_factory=Remains)
    """The rest that readers are told."""

    def changes(self) -> Changes:
        """The rows as they were at the base."""
        changes = Changes()
        changes.requests.update({row.request_id: row for row in self.requests})
        changes.artifacts.update({row.artifact_id: row for row in self.artifacts})
        changes.sessions.update({row.session_id: row for row in self.sessions})
        changes.ledger.extend(self.ledger)
        return changes


def base_of(fold: RunFold, changes: Changes, remains: Remains) -> Base:
    return Base(
        fold=fold,
        requests=list(changes.requests.values()),
        artifacts=list(changes.artifacts.values()),
        ledger=changes.ledger,
        sessions=list(changes.sessions.values()),
        remains=remains,
    )
