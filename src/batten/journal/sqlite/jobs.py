"""What the writer can be asked to do inside a transaction: one function each."""

import time
from collections.abc import Sequence
from hashlib import sha256

from msgspec import UNSET
from msgspec.structs import replace

from batten.contract.envelope import MAX_ENVELOPE_BYTES, Envelope, encode, payload, timestamp
from batten.contract.errors import CallerError, Conflict, FenceLost
from batten.contract.facts import TERMINAL, ArtifactCreated, Fact
from batten.contract.facts.tool import ToolInvoked
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Body, Lease, NewRun, Spend, Stored
from batten.journal.rows import STEPS, Changes, FactContext, RunFold, fold
from batten.journal.rules import admit, queued_again
from batten.journal.sqlite.batch import Batch, EventRow, RunState
from batten.journal.sqlite.reader import RESERVED, SPENT, spend_of
from batten.journal.workers import is_gone


def first_hash(run_id: str) -> bytes:
    """What the chain of a run starts from."""
    return sha256(run_id.encode()).digest()


def create(
    batch: Batch,
    new: NewRun,
    facts: Sequence[Fact],
    bodies: Sequence[Body],
    under: Lease | None = None,
) -> tuple[Lease, list[Stored]]:
    if under is not None:
        _held(batch, under)
    if batch.find_run(new.run_id) is not None:
        raise Conflict(f"run {new.run_id} exists already", code="run_exists")
    is_stream = new.session_id is not None and new.run_id == session_stream(
        SessionId(new.session_id)
    )
    if (new.kind == "session") != is_stream:
        raise CallerError(
            f"run {new.run_id} of kind {new.kind} and session {new.session_id}: a session's "
            "stream has kind `session` and the id that `session_stream` gives"
        )
    run = RunState(
        key=batch.next_key,
        run_id=new.run_id,
        task_id=new.task_id,
        session_id=new.session_id,
        next_sequence=0,
        head=first_hash(new.run_id),
        base_sequence=0,
        fence=1,
        worker_id=new.worker_id,
        lease_until=_until(new.lease_s) if new.worker_id else batch.now(),
        fold=RunFold(kind=new.kind, created_at=batch.now()),
    )
    # The facts are checked before the run is staged: a refused one leaves no empty run.
    prepared = _prepare(batch, run, facts, guest=False)
    batch.stage_run(run)
    return _lease(run), _stage(batch, run, prepared, bodies)


def append(
    batch: Batch, run_id: str, facts: Sequence[Fact], fence: int | None, bodies: Sequence[Body]
) -> list[Stored]:
    run = batch.run(run_id)
    if fence is not None and fence != run.fence:
        raise _fence_lost(run, fence)
    prepared = _prepare(batch, run, facts, guest=fence is None)
    if fence is None and not run.worker_id:
        again = queued_again(run.fold, prepared[0].fold)
        if again is not None:
            prepared = _prepare(batch, run, facts, guest=True, added=(again,))
    return _stage(batch, run, prepared, bodies)


Prepared = tuple[RunState, list[EventRow], Changes, list[Stored]]


def _prepare(
    batch: Batch,
    run: RunState,
    facts: Sequence[Fact],
    *,
    guest: bool,
    added: tuple[Fact, ...] = (),
) -> Prepared:
    """Give facts their place, check and encode them, and fold them: nothing is staged yet.

    `added` are the journal's own, which follow from the others.
    """
    changes = Changes(batch)
    folded, head = run.fold, run.head
    sequence, position = run.next_sequence, batch.next_position
    at, mint = batch.now(), batch.minter.mint
    task_id = run.task_id or UNSET
    session_id = run.session_id or UNSET
    events: list[EventRow] = []
    stored: list[Stored] = []
    cause = run.cause
    for fact in (*facts, *added):
        type_ = fact.type
        admit(folded, fact, type_, guest=guest and fact not in added)
        if type_ == ToolInvoked.TYPE and folded.parent_run_id is not None:
            _admit_below(batch, folded.parent_run_id)
        event_id = "evt_" + mint()
        if not type_.startswith("artifact."):
            cause = event_id
        elif isinstance(fact, ArtifactCreated) and fact.created_by_event_id is UNSET:
            cause = cause or batch.cause_of(run)
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
        terminal = 1 if type_ in TERMINAL else None
        events.append((position, run.key, sequence, type_, terminal, body, head))
        stored.append(Stored(position, run.run_id, sequence, type_, body))
        sequence += 1
        position += 1
    after = replace(run, next_sequence=sequence, head=head, fold=folded, cause=cause)
    return after, events, changes, stored


def _admit_below(batch: Batch, parent_run_id: str | None) -> None:
    """A cancel of a run is one of every run below it."""
    while parent_run_id is not None and (parent := batch.find_run(parent_run_id)) is not None:
        if parent.fold.cancel_requested:
            raise Conflict(
                f"a cancel was requested of {parent_run_id}, which started this run",
                code="cancel_requested",
            )
        parent_run_id = parent.fold.parent_run_id


def _stage(batch: Batch, run: RunState, prepared: Prepared, bodies: Sequence[Body]) -> list[Stored]:
    after, events, changes, stored = prepared
    batch.stage(run, after, events, changes, bodies, stored)
    return stored


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


def claim(batch: Batch, run_id: str, worker_id: str, lease_s: float) -> Lease:
    run = batch.run(run_id)
    if run.fold.ended_at is not None:
        raise Conflict(f"run {run_id} has ended: start a new one from it", code="run_ended")
    if run.worker_id and not is_gone(run.worker_id, run.lease_until):
        raise Conflict(
            f"run {run_id} is executed by {run.worker_id} until {run.lease_until}",
            code="run_claimed",
        )
    taken = replace(run, fence=run.fence + 1, worker_id=worker_id, lease_until=_until(lease_s))
    batch.lease(taken)
    return _lease(taken)


def renew(batch: Batch, lease: Lease, lease_s: float) -> Lease:
    run = _held(batch, lease)
    renewed = replace(run, worker_id=lease.worker_id, lease_until=_until(lease_s))
    batch.lease(renewed)
    return _lease(renewed)


def release(batch: Batch, lease: Lease) -> None:
    run = batch.run(lease.run_id)
    # Somebody else's by now: there is nothing left to give up.
    if run.fence == lease.fence:
        batch.lease(replace(run, worker_id="", lease_until=batch.now()))


def park(batch: Batch, lease: Lease) -> bool:
    run = _held(batch, lease)
    if not run.fold.pending:
        return False
    release(batch, lease)
    return True


def _held(batch: Batch, lease: Lease) -> RunState:
    """The run of a lease that is current."""
    run = batch.run(lease.run_id)
    if run.fence != lease.fence:
        raise _fence_lost(run, lease.fence)
    return run


def reserve(
    batch: Batch, task_id: str, run_id: str, micros_usd: int, limit_micros_usd: int
) -> Spend | None:
    batch.flush()
    _drop_dead_reservations(batch, task_id, run_id)
    spent = batch.db.execute(SPENT, (task_id,)).fetchall()[0]
    reserved = batch.db.execute(RESERVED, (task_id, run_id)).get
    spend = spend_of(spent, reserved)
    if spend.cost_micros_usd + spend.reserved_micros_usd + micros_usd > limit_micros_usd:
        return None
    batch.db.execute(
        "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?)", (run_id, task_id, micros_usd)
    )
    return spend


def _drop_dead_reservations(batch: Batch, task_id: str, but_run: str) -> None:
    """A run whose worker died makes no call any more: what it held is free."""
    held = batch.db.execute(
        "SELECT run_id FROM reservations WHERE task_id = ? AND run_id != ?", (task_id, but_run)
    ).fetchall()
    for (run_id,) in held:
        run = batch.find_run(run_id)
        if run is not None and run.worker_id and is_gone(run.worker_id, run.lease_until):
            unreserve(batch, run_id)


def unreserve(batch: Batch, run_id: str) -> None:
    batch.flush()
    batch.db.execute("DELETE FROM reservations WHERE run_id = ?", (run_id,))


def _fence_lost(run: RunState, fence: int) -> FenceLost:
    holder = f"{run.worker_id} holds" if run.worker_id else "the current one is"
    return FenceLost(f"fence {fence} of run {run.run_id} is not valid: {holder} {run.fence}")


def _until(lease_s: float) -> str:
    return timestamp(time.time_ns() + int(lease_s * 1e9))


def _lease(run: RunState) -> Lease:
    return Lease(run.run_id, run.fence, run.worker_id, run.lease_until)


def add_marker(batch: Batch, run_id: str, marker: Fact) -> Stored:
    """Append one guest fact of the store's own."""
    [stored] = append(batch, run_id, (marker,), None, ())
    return stored
