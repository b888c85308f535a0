"""The rules of an append, the same for every store: places, envelopes, chain, admission, fold.

A store looks up the rows that `needed_rows`, `needs_cause`, `needs_past` and `needs_ancestors`
name, calls `prepare` and writes the result, all in one transaction. Nothing here does I/O.
"""

import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeGuard

from msgspec import UNSET, Struct
from msgspec.structs import replace

from batten.contract.envelope import (
    MAX_ENVELOPE_BYTES,
    Envelope,
    encode,
    milliseconds_since,
    payload,
    timestamp,
)
from batten.contract.errors import CallerError, Conflict
from batten.contract.facts import (
    ApprovalResolved,
    ApprovalTimedOut,
    ArtifactCreated,
    Fact,
    RequestClosed,
    RunCancelled,
    RunQueued,
)
from batten.contract.facts.approval import APPROVAL_TIMED_OUT
from batten.contract.facts.tool import (
    ToolEditApplied,
    ToolFileWriteApplied,
    ToolInvoked,
    ToolMultiEditApplied,
)
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import NewRun, RunRow, Stored
from batten.journal.rows import STEPS, Changes, FactContext, Known, RunFold, fold
from batten.journal.rules import admit
from batten.journal.workers import boot_ms

_ANSWERS = (ApprovalResolved, ApprovalTimedOut, RequestClosed)
_APPLIED = (ToolEditApplied, ToolFileWriteApplied, ToolMultiEditApplied)


class RunState(Struct, frozen=True, kw_only=True):
    """A run as a writer knows it: its place in the chain, its lease, its folded row."""

    key: int
    """The store's own number for the run."""
    run_id: str
    task_id: str | None
    session_id: str | None
    next_sequence: int
    head: bytes
    base_sequence: int
    fence: int
    worker_id: str
    """Empty while no worker holds the lease: the run is queued, parked or has ended."""
    lease_until: str
    lease_boot_ms: int
    fold: RunFold
    cause: str = ""
    """Id of the last event that is not about an artifact: the origin of an artifact created next.
    Empty if it has to be looked up.
    """


class Prepared(Struct, frozen=True):
    """Facts with their places, ready to be written."""

    after: RunState
    stored: list[Stored]
    chains: list[bytes]
    """The chain's hash after each fact."""
    changes: Changes


class Clock:
    """The time of facts; it never goes backwards."""

    def __init__(self) -> None:
        self._millis = 0
        self._now = ""

    def now(self) -> str:
        millis = time.time_ns() // 1_000_000
        if millis > self._millis:
            self._millis = millis
            self._now = timestamp(millis * 1_000_000)
        return self._now


def first_hash(run_id: str) -> bytes:
    """The hash that the chain of a run starts from."""
    return sha256(run_id.encode()).digest()


def new_state(new: NewRun, key: int, now: str) -> RunState:
    """A run before its first fact: held by its worker, or without a lease if it is only queued."""
    is_stream = new.session_id is not None and new.run_id == session_stream(
        SessionId(new.session_id)
    )
    if (new.kind == "session") != is_stream:
        raise CallerError(
            f"run {new.run_id} of kind {new.kind} and session {new.session_id}: a session's "
            "stream has kind `session` and the id that `session_stream` gives"
        )
    return RunState(
        key=key,
        run_id=new.run_id,
        task_id=new.task_id,
        session_id=new.session_id,
        next_sequence=0,
        head=first_hash(new.run_id),
        base_sequence=0,
        fence=1 if new.worker_id else 0,
        worker_id=new.worker_id,
        lease_until=lease_end(new.lease_s) if new.worker_id else now,
        lease_boot_ms=boot_ms() + int(new.lease_s * 1000) if new.worker_id else 0,
        fold=RunFold(kind=new.kind, created_at=now),
    )


def lease_end(lease_s: float) -> str:
    return timestamp(time.time_ns() + int(lease_s * 1e9))


def needs_cause(run: RunState, facts: Sequence[Fact]) -> bool:
    """Whether the run's last event that is not about an artifact has to be looked up first."""
    unknown = not run.cause and run.next_sequence > 0
    return unknown and bool(facts) and facts[0].type.startswith("artifact.")


def needs_ancestors(run: RunState, facts: Sequence[Fact]) -> bool:
    """Whether a cancel of an ancestor matters: an effect is about to begin."""
    return run.fold.parent_run_id is not None and any(type(fact) is ToolInvoked for fact in facts)


class Past(Struct, frozen=True):
    """How a run began."""

    queued: RunQueued | None = None
    """None if that fact is gone, or never was."""
    started_at: str = ""


_NO_PAST = Past()


def needs_past(run: RunState, facts: Sequence[Fact]) -> bool:
    """Whether the run's beginning matters: an answer queues a parked run again, or ends it."""
    return not run.worker_id and any(isinstance(fact, _ANSWERS) for fact in facts)


def cancelled_above(run: RunState, find: Callable[[str], RunState | None]) -> str | None:
    """The nearest ancestor with a cancel request."""
    above = run.fold.parent_run_id
    while above is not None and (parent := find(above)) is not None:
        if parent.fold.cancel_requested:
            return above
        above = parent.fold.parent_run_id
    return None


def prepare(
    run: RunState,
    facts: Sequence[Fact],
    *,
    guest: bool,
    known: Known | None,
    cancelled: str | None,
    past: Past = _NO_PAST,
    last_words: Sequence[Fact] = (),
    position: int,
    at: str,
    mint: Callable[[], str],
) -> Prepared:
    """Give facts their places, check, encode and fold them. Raises before anything is written.

    `known` holds the rows of `needed_rows`, `cancelled` the result of `cancelled_above`,
    `past` the run's beginning if `needs_past`. An answer to a parked run's last request is followed
    by `run.queued`, or by `last_words` and `run.cancelled`.
    """
    changes = Changes(known)
    folded, head, cause = run.fold, run.head, run.cause
    sequence = run.next_sequence
    task_id, session_id = run.task_id or UNSET, run.session_id or UNSET
    stored: list[Stored] = []
    chains: list[bytes] = []
    while facts:
        for fact in facts:
            type_ = fact.type
            admit(folded, fact, type_, guest=guest)
            if cancelled is not None and type_ == ToolInvoked.TYPE:
                raise Conflict(
                    f"a cancel was requested of {cancelled}, which started this run",
                    code="cancel_requested",
                )
            event_id = "evt_" + mint()
            if not type_.startswith("artifact."):
                cause = event_id
                if isinstance(fact, _APPLIED):
                    # The rows of its patches get the same time.
                    fact = replace(fact, applied_at=at)
            elif (
                isinstance(fact, ArtifactCreated)
                and fact.created_by_event_id is UNSET
                and fact.by is UNSET  # no event of the run is the cause of what a client creates
            ):
                fact = replace(fact, created_by_event_id=cause or UNSET)
            body = _encode(
                Envelope(
                    event_id=event_id,
                    run_id=run.run_id,
                    task_id=task_id,
                    session_id=session_id,
                    sequence=sequence,
                    occurred_at=at,
                    type=type_,
                    data=payload(fact),
                )
            )
            head = sha256(head + body).digest()
            if type(fact) in STEPS or not sequence:
                place = FactContext(run.run_id, run.task_id, run.session_id, sequence, at)
                folded = fold(folded, changes, place, fact)
            stored.append(Stored(position, run.run_id, sequence, type_, body))
            chains.append(head)
            sequence += 1
            position += 1
        facts = _after_answer(run, folded, facts, past, last_words) if guest else ()
        guest = False
    after = replace(run, next_sequence=sequence, head=head, fold=folded, cause=cause)
    return Prepared(after, stored, chains, changes)


def _after_answer(
    run: RunState,
    folded: RunFold,
    facts: Sequence[Fact],
    past: Past,
    last_words: Sequence[Fact],
) -> tuple[Fact, ...]:
    """The facts that follow a guest's: the last answer to a parked run queues it again.

    An answer that halts the run ends it instead: no worker has to do that.
    """
    answered = run.fold.pending and not folded.pending
    if not answered or run.worker_id or folded.ended_at is not None:
        return ()
    for fact in facts:
        if _halts(fact):
            return *last_words, _halted(folded, fact, past.started_at)
    return (queued_again(folded, past.queued),)


def _halts(fact: Fact) -> TypeGuard[ApprovalResolved | ApprovalTimedOut]:
    """Whether an answer ends the run that asked."""
    return isinstance(fact, ApprovalResolved | ApprovalTimedOut) and fact.halt is True


def queued_again(run: RunFold | RunRow, first: RunQueued | None) -> RunQueued:
    """The fact that lets another worker go on with a run: it says what the first one said."""
    return first or RunQueued(
        kind=run.kind,
        model=run.model,
        provider=run.provider,
        workspace_path=run.workspace_path,
        workspace_mode=run.workspace_mode,
        prior_run_id=run.prior_run_id,
        parent_run_id=run.parent_run_id or UNSET,
        executor_type="replay" if run.provider == "scripted" else "live",
        priority=run.priority or UNSET,
    )


def _halted(
    folded: RunFold, answer: ApprovalResolved | ApprovalTimedOut, started_at: str
) -> RunCancelled:
    by, reason = "policy", APPROVAL_TIMED_OUT
    if isinstance(answer, ApprovalResolved):
        by, reason = answer.by, answer.halt_reason or answer.comment or f"rejected by {answer.by}"
    return RunCancelled(
        by=by,
        reason=reason,
        outcome="cancelled",
        # An agent asks about a call of a turn that has not ended.
        turns=folded.turns + 1 if folded.kind == "agent_loop" else folded.turns,
        cost_micros_usd=folded.cost_micros_usd,
        cost_unknown=True if folded.cost_unknown else UNSET,
        duration_ms=milliseconds_since(started_at) if started_at else 0,
    )


def _encode(envelope: Envelope) -> bytes:
    try:
        body = encode(envelope)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CallerError(f"{envelope.type} cannot be written as JSON: {error}") from error
    if len(body) > MAX_ENVELOPE_BYTES:
        raise CallerError(
            f"{envelope.type} takes {len(body)} bytes and an envelope at most "
            f"{MAX_ENVELOPE_BYTES}: put the large field into an artifact",
            code="envelope_too_large",
        )
    return body
