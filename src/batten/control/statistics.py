"""The queue, the workers and the runs of a service at one moment."""

from datetime import UTC, datetime

from batten.contract.envelope import timestamp
from batten.contract.outcomes import RunStatus
from batten.journal.contract import Journal, RunRow
from batten.protocols.hecate.system import Stats

_PAGE = 1000


async def stats(journal: Journal, workers: int) -> Stats:
    """Counted from the rows of unfinished runs; child runs belong to their parents."""
    queued = await _runs(journal, "queued")
    running = await _runs(journal, "running")
    awaiting = await _runs(journal, "awaiting_approval")
    return Stats(
        checked_at=timestamp(),
        queue_depth=sum(not row.worker_id for row in queued),
        queue_capacity=0,
        queue_backend="sqlite",
        worker_count=workers,
        in_flight_jobs=sum(bool(row.worker_id) for row in (*queued, *running, *awaiting)),
        queued_runs=len(queued),
        running_runs=len(running),
        awaiting_approval_runs=len(awaiting),
        oldest_queued_age_seconds=_age(queued),
        oldest_running_age_seconds=_age(running),
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
