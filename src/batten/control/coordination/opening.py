"""Stores the start of a session: in a run of its own, or in the one that waits for it."""

from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from batten.contract.errors import BattenError, Conflict, JournalError
from batten.contract.tracing import current_traceparent
from batten.control.coordination.commits import Append, Commits
from batten.control.coordination.records import Keeping, write_events
from batten.control.coordination.run_facts import LEASE_S, new_stream, opening_facts, queued
from batten.coordination.engine import Accepted
from batten.coordination.session import Session
from batten.journal.contract import Lease, NewRun, Stored
from batten.journal.receipt import Receipt


async def create_run(
    keeping: Keeping,
    worker_id: str,
    run_id: str,
    session: Session,
    accepted: Accepted,
    commits: Commits,
) -> Lease | None:
    """Open a session that no client described. Raises `Conflict` if it has a run."""
    stream, opened = new_stream(session.session_id, keeping.identity)
    written = write_events([accepted], session, run_id, keeping)
    run = NewRun(
        run_id=run_id,
        kind="coordination",
        worker_id=worker_id,
        lease_s=LEASE_S,
        task_id=stream.task_id,
        session_id=stream.session_id,
        first=True,
    )
    begins = queued(traceparent=current_traceparent.get(), identity=keeping.identity)
    first = [begins, *opening_facts(session, worker_id, keeping)]
    created: list[Awaitable[tuple[Lease | None, list[Stored]]]] = []

    def submit() -> Receipt[Any]:
        stored = keeping.journal.create(stream, opened)
        facts = [*first, *written.facts]
        created.append(keeping.journal.create(run, facts, bodies=written.bodies))
        assert isinstance(stored, Receipt)
        return stored

    with suppress(Conflict):  # left by a start whose run was refused
        await commits.add(Append(submit), run_id)
    lease, _ = await created[0]
    return lease


async def claim_run(
    keeping: Keeping, worker_id: str, run_id: str, session: Session, accepted: Accepted
) -> Lease:
    """Open a session in the run that waits for it. Raises `Conflict` if it waits no more."""
    journal = keeping.journal
    lease = await journal.claim(run_id, worker_id, LEASE_S)
    try:
        row = await journal.run(run_id)
        if row is None or row.status != "queued":
            raise Conflict(f"run {run_id} has a session", code="run_active")
        written = write_events([accepted], session, run_id, keeping)
        opening = opening_facts(session, worker_id, keeping)
        await journal.append(
            run_id, [*opening, *written.facts], fence=lease.fence, bodies=written.bodies
        )
    except BattenError:
        with suppress(JournalError):
            await journal.release(lease)
        raise
    return lease
