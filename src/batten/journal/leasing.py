"""The rules of leases, the same for every store: each takes a run's state and returns the next."""

from msgspec.structs import replace

from batten.contract.errors import Conflict, FenceLost, NotFound
from batten.contract.facts.approval import panel_of
from batten.journal.appending import Prepared, RunState, lease_end
from batten.journal.contract import Lease
from batten.journal.rows import Known
from batten.journal.workers import boot_ms, is_gone


def check_alone(session: RunState | None, unfinished: str | None) -> None:
    """Raises `NotFound` without the session's stream, `Conflict` while a run has not ended."""
    if session is None:
        raise _no_session()
    if unfinished is not None:
        raise Conflict(f"{unfinished} has not ended: wait for it, or cancel it", code="run_active")


def check_first(known: Known | None, session_id: str | None) -> None:
    """Raises `NotFound` without the session, `Conflict` if it has a run."""
    session = None if known is None else known.sessions.get(session_id or "")
    if session is None:
        raise _no_session()
    if session.last_run_id is not None:
        raise Conflict(f"the session has the run {session.last_run_id}", code="session_used")


def _no_session() -> NotFound:
    return NotFound("the session of the new run is not there: it was deleted")


def waits_for_worker(run: RunState) -> bool:
    """Whether a worker may claim the run from the queue."""
    is_for_workers = run.fold.kind not in ("session", "coordination")
    return run.fold.status == "queued" and not run.worker_id and is_for_workers


def gives_work(before: RunState, prepared: Prepared) -> bool:
    """Whether these facts are a reason to look at the queue: the run is queued, or asks a panel."""
    after = prepared.after
    if after.fold is before.fold:
        return False
    return waits_for_worker(after) or any(
        row.status == "pending" and panel_of(row.resolvers)
        for row in prepared.changes.requests.values()
    )


def lease_of(run: RunState) -> Lease | None:
    """The current lease; None while no worker holds the run."""
    if not run.worker_id:
        return None
    return Lease(run.run_id, run.fence, run.worker_id, run.lease_until)


def claimed(run: RunState, worker_id: str, lease_s: float) -> tuple[RunState, Lease]:
    """The run under a new lease. Raises `Conflict` if it has ended or its worker lives."""
    if run.fold.ended_at is not None:
        raise Conflict(f"run {run.run_id} has ended: start a new one from it", code="run_ended")
    if run.worker_id and not is_gone(run):
        raise Conflict(
            f"run {run.run_id} is executed by {run.worker_id} until {run.lease_until}",
            code="run_claimed",
        )
    return _held(run, run.fence + 1, worker_id, lease_s)


def renewed(run: RunState, lease: Lease, lease_s: float) -> tuple[RunState, Lease]:
    """The run with its lease extended, even an expired one. Raises `FenceLost` if claimed."""
    check_fence(run, lease.fence)
    return _held(run, run.fence, lease.worker_id, lease_s)


def released(run: RunState, lease: Lease, now: str) -> RunState | None:
    """The run without its lease; None if another worker has claimed the run."""
    if run.fence != lease.fence:
        return None
    return replace(run, worker_id="", lease_until=now)


def parked(run: RunState, lease: Lease, now: str) -> RunState | None:
    """The run without a lease while it waits for an answer; None if no request is pending.

    None too if a cancel was requested: the worker is there to end the run. The fence grows: the
    worker that parked the run can append nothing more.
    """
    check_fence(run, lease.fence)
    if not run.fold.pending or run.fold.cancel_requested:
        return None
    return replace(run, fence=run.fence + 1, worker_id="", lease_until=now)


def check_fence(run: RunState, fence: int) -> None:
    """Raise `FenceLost` unless this is the current fence."""
    if run.fence != fence:
        holder = f"{run.worker_id} holds" if run.worker_id else "the current one is"
        raise FenceLost(f"fence {fence} of run {run.run_id} is not valid: {holder} {run.fence}")


def check_holder(run: RunState, lease: Lease) -> None:
    """Raise `FenceLost` unless this lease is current: neither claimed by another nor given up."""
    check_fence(run, lease.fence)
    if run.worker_id != lease.worker_id:
        raise FenceLost(f"the lease of {lease.run_id} with fence {lease.fence} was given up")


def _held(run: RunState, fence: int, worker_id: str, lease_s: float) -> tuple[RunState, Lease]:
    after = replace(
        run,
        fence=fence,
        worker_id=worker_id,
        lease_until=lease_end(lease_s),
        lease_boot_ms=boot_ms() + int(lease_s * 1000),
    )
    return after, Lease(after.run_id, after.fence, after.worker_id, after.lease_until)
