"""Puts lost runs of the service back into the queue, and closes questions nobody answered.

A run is lost when its worker's process is dead, or when its lease has run out. Only runs of the
service are queued again: those of a terminal belong to its user.

A machine that sleeps, or a container that is paused, lets leases run out and stops this process
too. After such a gap living workers first get the time to renew their leases.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from batten.contract.envelope import timestamp
from batten.contract.errors import BattenError, JournalError
from batten.control.approvals import find_approval, time_out
from batten.control.specification import SURFACE
from batten.control.tasks import Tasks
from batten.journal.contract import RequestRow, RunRow
from batten.journal.workers import boot_ms, has_exited, is_gone, lease_seconds
from batten.session.takeover import end_abandoned, queue_again

_log = logging.getLogger("batten.workers")
_SWEEPING_S = 3600.0
_USUAL_PAUSE_S = 2.0
_GAP_S = 3.0
"""A pause that takes so much longer was no pause of ours."""
_RENEWALS = 3
"""Leases are renewed so many times before they run out."""


class Sweeper:
    """Removes the workspaces of tasks that pruning took away."""

    def __init__(self, tasks: Tasks) -> None:
        self._journal = tasks.journal
        self._workspaces = tasks.workspaces

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if gone := await self.sweep():
                    _log.info("the workspaces of %d tasks that are gone were removed", gone)
            except (BattenError, OSError) as error:
                _log.warning("workspaces cannot be looked through: %s", error)
            await asyncio.sleep(_SWEEPING_S)

    async def sweep(self) -> int:
        """Remove the workspaces of tasks that are gone, however they went; returns how many."""
        gone = 0
        for task_id in await asyncio.to_thread(self._workspaces.task_ids):
            if not await self._journal.sessions(task_id=task_id, limit=1):
                await asyncio.to_thread(self._workspaces.remove, task_id, set())
                gone += 1
        for run_id, path in (await asyncio.to_thread(self._workspaces.worktrees)).items():
            if await self._journal.run(run_id) is None:
                gone += await asyncio.to_thread(self._workspaces.remove_worktree, path)
        return gone


class Reconciler:
    """Looks after the runs that no worker looks after."""

    def __init__(self, tasks: Tasks, hung: Callable[[str], None]) -> None:
        """`hung` is called with the id of a worker that lives and has let a lease run out."""
        self._tasks = tasks
        self._journal = tasks.journal
        self._hung = hung
        self._look = asyncio.Event()
        self._looks_to_wait = 0
        """Until leases count again, after a gap."""

    def look(self) -> None:
        """A worker has ended: look at once."""
        self._look.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._look.clear()
            try:
                await self.reconcile()
            except JournalError as error:
                _log.warning("lost runs cannot be looked for: %s", error)
            began = boot_ms()
            try:
                async with asyncio.timeout(_USUAL_PAUSE_S):
                    await self._look.wait()
            except TimeoutError:
                self._looks_to_wait = max(0, self._looks_to_wait - 1)
            if boot_ms() - began > (_USUAL_PAUSE_S + _GAP_S) * 1000:
                self.forgive()

    def forgive(self) -> None:
        """Time has passed without us: let a renewal of every lease pass before one counts."""
        renewal_s = lease_seconds(self._tasks.base.environ) / _RENEWALS
        self._looks_to_wait = 1 + math.ceil(renewal_s / _USUAL_PAUSE_S)

    async def reconcile(self) -> int:
        """Queue lost runs again and close overdue questions; returns how many."""
        done = 0
        # Runs of terminals may be abandoned in any number: they are no concern of ours.
        for row in await self._journal.held(surface=SURFACE):
            if has_exited(row) or (not self._looks_to_wait and is_gone(row)):
                done += await self._requeue(row)
        for request in await self._journal.pending_requests(due_by=timestamp()):
            done += await self._time_out(request)
        return done

    async def _requeue(self, row: RunRow) -> bool:
        if not has_exited(row):
            self._hung(row.worker_id)
        try:
            if row.cancel_requested:
                budget = await self._tasks.budget_of(row)
                await end_abandoned(self._tasks, row, budget_micros_usd=budget)
                _log.warning(
                    "run %s lost its worker %s and is cancelled", row.run_id, row.worker_id
                )
                return True
            if not await queue_again(self._tasks, row):
                _log.error("run %s lost one worker after another and is ended", row.run_id)
                return True
        except BattenError as error:
            # Another server was faster, or the store fails: the next look tries again.
            _log.info("run %s is not queued again: %s", row.run_id, error)
            return False
        except Exception as error:  # one run that cannot be read must not keep the others
            _log.error("run %s is not queued again", row.run_id, exc_info=error)
            return False
        _log.warning("run %s lost its worker %s and is queued again", row.run_id, row.worker_id)
        return True

    async def _time_out(self, request: RequestRow) -> bool:
        """End a parked run whose question was not answered in time."""
        row = await self._journal.run(request.run_id)
        if row is None or row.worker_id or row.status != "awaiting_approval":
            return False
        try:
            asking = await find_approval(self._tasks, row.task_id or "", request.request_id)
            return await time_out(self._tasks, asking)
        except BattenError as error:
            _log.info("the overdue question of run %s is not closed: %s", row.run_id, error)
            return False
        except Exception as error:  # as above
            _log.error("the overdue question of %s is not closed", row.run_id, exc_info=error)
            return False
