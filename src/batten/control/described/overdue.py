"""Fails described runs whose session did not open in time."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime

from batten.contract.errors import BattenError, JournalError
from batten.contract.facts import RunFailed
from batten.journal.contract import Journal, RunRow
from batten.journal.workers import this_worker

_log = logging.getLogger("batten.runs")
_LONGEST_PAUSE_S = 1.0
_SHORTEST_PAUSE_S = 0.05
_PAGE = 200


class Overdue:
    """Looks after runs that wait for a session, of every process of the home. Each is claimed
    before it is ended, so several servers may look.
    """

    def __init__(
        self,
        journal: Journal,
        timeout_ms: int,
        *,
        wall_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        self._timeout_ms = timeout_ms
        self._worker_id = this_worker()
        self._wall_s = wall_s
        self._steady_s = steady_s
        self._until: dict[str, float] = {}
        """When a run is due, by the steady clock: the other one may be set while it waits."""

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = max(_SHORTEST_PAUSE_S, min(_LONGEST_PAUSE_S, self._timeout_ms / 4000))
        while True:
            try:
                await self.look()
            except JournalError as error:
                _log.warning("runs that wait for a session cannot be looked for: %s", error)
            await asyncio.sleep(pause_s)

    async def look(self) -> int:
        """End the runs that have waited too long; returns how many."""
        ended = 0
        while page := await self._journal.awaited(limit=_PAGE):
            self._until = {row.run_id: self._due_at(row) for row in page}
            now_s = self._steady_s()
            due = [row for row in page if self._until[row.run_id] <= now_s]
            done = sum(await asyncio.gather(*(self._fail(row) for row in due)))
            ended += done
            if not done or len(due) < len(page):
                break
        return ended

    def _due_at(self, row: RunRow) -> float:
        """As it was when the run was first seen; its age counts up to there."""
        if row.run_id in self._until:
            return self._until[row.run_id]
        age_s = self._wall_s() - datetime.fromisoformat(row.created_at).timestamp()
        return self._steady_s() + self._timeout_ms / 1000 - max(0.0, age_s)

    async def _fail(self, row: RunRow) -> bool:
        try:
            lease = await self._journal.claim(row.run_id, self._worker_id)
            now = await self._journal.run(row.run_id)
            if now is not None and now.status == "queued":  # else the session opened just before
                await self._journal.append(row.run_id, [self._timed_out()], fence=lease.fence)
            await self._journal.release(lease)
        except BattenError as error:  # its session opens, or another server was faster
            _log.info("run %s is not ended: %s", row.run_id, error)
            return False
        return True

    def _timed_out(self) -> RunFailed:
        return RunFailed(
            code="RUNTIME_TIMEOUT",
            message=f"the session did not open within {self._timeout_ms} ms",
            retriable=True,
            outcome="timeout",
            turns=0,
            cost_micros_usd=0,
            duration_ms=self._timeout_ms,
        )
