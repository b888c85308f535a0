"""The writer's jobs inside a transaction, one function each."""

from collections.abc import Sequence

from msgspec.structs import replace

from batten.contract.errors import Conflict
from batten.contract.facts import Fact
from batten.journal import leasing
from batten.journal.appending import (
    Prepared,
    RunState,
    cancelled_above,
    needs_ancestors,
    needs_cause,
    new_state,
    prepare,
)
from batten.journal.contract import Body, Lease, NewRun, Spend, Stored
from batten.journal.rules import reservable
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.reader import RESERVED, SPENT, spend_of
from batten.journal.workers import is_gone


def create(
    batch: Batch, new: NewRun, facts: Sequence[Fact], bodies: Sequence[Body], under: Lease | None
) -> tuple[Lease | None, list[Stored]]:
    if batch.find_run(new.run_id) is not None:
        raise Conflict(f"run {new.run_id} exists already", code="run_exists")
    if under is not None:
        leasing.check_holder(batch.run(under.run_id), under)
    if new.alone:
        _check_alone(batch, new)
    run = new_state(new, batch.next_key, batch.now())
    # The facts are checked before the run is staged: a refused one leaves no empty run.
    prepared = _prepare(batch, run, facts, guest=False)
    batch.stage_run(run)
    batch.stage(run, prepared, bodies)
    return leasing.lease_of(run), prepared.stored


def _check_alone(batch: Batch, new: NewRun) -> None:
    batch.flush()
    unfinished = batch.db.execute(
        "SELECT run_id FROM runs WHERE session_id = ? AND ended_at IS NULL AND kind != 'session'"
        " AND parent_run_id IS NULL LIMIT 1",
        (new.session_id,),
    ).get
    if unfinished is not None:
        raise leasing.not_alone(unfinished)


def append(
    batch: Batch, run_id: str, facts: Sequence[Fact], fence: int | None, bodies: Sequence[Body]
) -> list[Stored]:
    run = batch.run(run_id)
    if fence is not None:
        leasing.check_fence(run, fence)
    prepared = _prepare(batch, run, facts, guest=fence is None)
    batch.stage(run, prepared, bodies)
    return prepared.stored


def _prepare(batch: Batch, run: RunState, facts: Sequence[Fact], *, guest: bool) -> Prepared:
    """Look up the rows that the rules need, and apply the rules. Stages nothing yet."""
    if needs_cause(run, facts):
        run = replace(run, cause=batch.cause_of(run))
    cancelled = cancelled_above(run, batch.find_run) if needs_ancestors(run, facts) else None
    return prepare(
        run,
        facts,
        guest=guest,
        known=batch.known(facts, run.session_id),
        cancelled=cancelled,
        position=batch.next_position,
        at=batch.now(),
        mint=batch.minter.mint,
    )


def claim(batch: Batch, run_id: str, worker_id: str, lease_s: float) -> Lease:
    run, lease = leasing.claimed(batch.run(run_id), worker_id, lease_s)
    batch.lease(run)
    return lease


def renew(batch: Batch, lease: Lease, lease_s: float) -> Lease:
    run, renewed = leasing.renewed(batch.run(lease.run_id), lease, lease_s)
    batch.lease(run)
    return renewed


def release(batch: Batch, lease: Lease) -> None:
    run = leasing.released(batch.run(lease.run_id), lease, batch.now())
    if run is not None:
        batch.lease(run)


def park(batch: Batch, lease: Lease) -> bool:
    run = leasing.parked(batch.run(lease.run_id), lease, batch.now())
    if run is not None:
        batch.lease(run)
    return run is not None


def reserve(
    batch: Batch, task_id: str, run_id: str, micros_usd: int, limit_micros_usd: int
) -> Spend | None:
    batch.flush()
    _drop_dead_reservations(batch, task_id, run_id)
    spent = batch.db.execute(SPENT, (task_id,)).fetchall()[0]
    reserved = batch.db.execute(RESERVED, (task_id, run_id)).get
    spend = spend_of(spent, reserved)
    held = reservable(spend, micros_usd, limit_micros_usd)
    if held is None:
        return None
    batch.db.execute(
        "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?)", (run_id, task_id, held)
    )
    return spend


def _drop_dead_reservations(batch: Batch, task_id: str, but_run: str) -> None:
    """Free the reservations of runs without a living worker: their calls are over."""
    held = batch.db.execute(
        "SELECT run_id FROM reservations WHERE task_id = ? AND run_id != ?", (task_id, but_run)
    ).fetchall()
    for (run_id,) in held:
        run = batch.find_run(run_id)
        if run is not None and is_gone(run):
            unreserve(batch, run_id)


def unreserve(batch: Batch, run_id: str) -> None:
    batch.flush()
    batch.db.execute("DELETE FROM reservations WHERE run_id = ?", (run_id,))


def add_marker(batch: Batch, run_id: str, marker: Fact) -> Stored:
    """Append one guest fact of the store's own."""
    [stored] = append(batch, run_id, (marker,), None, ())
    return stored
