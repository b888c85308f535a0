"""The queue, the workers and the runs of a service at one moment."""

from datetime import UTC, datetime

from msgspec import Struct

from batten.contract.envelope import timestamp
from batten.contract.outcomes import RunStatus
from batten.journal.contract import Journal, RunRow
from batten.protocols.hecate.system import Stats

_PAGE = 1000
_UNFINISHED: tuple[RunStatus, ...] = ("queued", "running", "awaiting_approval")


class Load(Struct, frozen=True, kw_only=True):
    """Unfinished runs; child runs belong to their parents."""

    queued: int
    """Runs that wait for a worker."""
    held: dict[RunStatus, int]
    """Those that a worker executes, by status."""
    parked: int
    """Those that wait for an answer, without a worker."""
    statuses: dict[RunStatus, int]
    oldest_queued_s: int
    oldest_running_s: int


async def load_of(journal: Journal) -> Load:
    """Counted from the rows of unfinished runs."""
    rows: dict[RunStatus, list[RunRow]] = {
        status: await _runs(journal, status) for status in _UNFINISHED
    }
    held: dict[RunStatus, int] = {
        status: sum(bool(row.worker_id) for row in found) for status, found in rows.items()
    }
    return Load(
        queued=len(rows["queued"]) - held["queued"],
        held=held,
        parked=len(rows["awaiting_approval"]) - held["awaiting_approval"],
        statuses={status: len(found) for status, found in rows.items()},
        oldest_queued_s=_age(rows["queued"]),
        oldest_running_s=_age(rows["running"]),
    )


async def stats(journal: Journal, workers: int) -> Stats:
    load = await load_of(journal)
    return Stats(
        checked_at=timestamp(),
        queue_depth=load.queued,
        queue_capacity=0,
        queue_backend="sqlite",
        worker_count=workers,
        in_flight_jobs=sum(load.held.values()),
        queued_runs=load.statuses["queued"],
        running_runs=load.statuses["running"],
        awaiting_approval_runs=load.statuses["awaiting_approval"],
        oldest_queued_age_seconds=load.oldest_queued_s,
        oldest_running_age_seconds=load.oldest_running_s,
        store_backend="sqlite",
    )


async def _runs(journal: Journal, status: RunStatus) -> list[RunRow]:
    rows: list[RunRow] = []
    after: str | None = None
    while page := await journal.runs(status=status, after=after, limit=_PAGE):
        rows += [row for row in page if row.parent_run_id is None]
        after = page[-1].run_id
        if len(page) < _PAGE:
            break
    return rows


def _age(rows: list[RunRow]) -> int:
    """Seconds since the oldest was created; 0 without any."""
    if not rows:
        return 0
    created = datetime.fromisoformat(min(row.created_at for row in rows))
    return max(0, int((datetime.now(UTC) - created).total_seconds()))
