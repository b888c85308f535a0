"""A warm worker: claims queued runs and executes several at once.

It wakes up when a run is queued, in any process. A run is claimed before anything of it is
loaded, so that losing a race costs one transaction.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from batten.agent.ending import terminal_fact
from batten.agent.execution import Execution
from batten.agent.halt import Halt, HandedOver
from batten.agent.progress import Progress
from batten.contract.errors import (
    BattenError,
    CallerError,
    Conflict,
    JournalError,
    NotFound,
    StoreDamaged,
)
from batten.contract.facts import Fact
from batten.contract.ids import SessionId, session_stream
from batten.contract.outcomes import Outcome
from batten.control.warm import WarmKeepers
from batten.journal.contract import Journal, Lease, RunRow, SessionRow
from batten.redact.redactor import Redactor
from batten.session.last_turn import last_turn
from batten.session.session import SESSION_HELD
from batten.session.takeover import progress_of, queue_again
from batten.session.worker import execute
from batten.wiring.opener import SessionOpener
from batten.wiring.opening import OpenedSession
from batten.wiring.spec import SessionSpec
from batten.workspace.worktrees import WORKTREE_BUSY

_log = logging.getLogger("batten.workers")
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5
_STORE_PAUSE_S = 1.0
"""After an error of the store."""
_FIRST_AWAY_S = 0.1
_LONGEST_AWAY_S = 5.0
"""For a run that was given up: others may have to end first."""

_NO_WORKTREE = ("usage", "git_failed")
"""Codes of a worktree that cannot be made; nothing else of a task is a matter of usage."""
_WAITS = (SESSION_HELD, WORKTREE_BUSY)
"""Conflicts with another process that soon is done."""

Specify = Callable[[RunRow, SessionRow], Awaitable[SessionSpec]]
"""The specification of a queued run's session."""


class Slots(Struct, frozen=True):
    """How much a worker does at once."""

    runs: int = 16
    lease_s: float = 30.0
    finish_s: float = 5.0
    """For its runs to end after `stop`; the others are handed over."""


class Away(Struct, frozen=True):
    """A run that was given up, and is not looked at for a while."""

    pause_s: float
    until: float
    """By the clock of the loop."""


class Worker:
    """Executes queued runs of one journal until it is stopped."""

    def __init__(
        self, opener: SessionOpener, specify: Specify, worker_id: str, slots: Slots | None = None
    ) -> None:
        self._opener = opener
        self._specify = specify
        self._worker_id = worker_id
        self._slots = slots or Slots()
        self._redact = Redactor.from_environment(opener.base.environ).text
        self._active: dict[str, asyncio.Task[None]] = {}
        self._opening: set[str] = set()
        self._executions: dict[str, Execution] = {}
        self._away: dict[str, Away] = {}
        self._look = asyncio.Event()
        self._warm = WarmKeepers()
        self._stopping = False
        self._hands_over = False

    @property
    def busy(self) -> int:
        """How many runs it executes now."""
        return len(self._active)

    def stop(self) -> None:
        """Claim no more runs. Those that do not end soon are handed over, at once if called again.

        `run` returns then.
        """
        if self._stopping:
            self._hand_over()
        else:
            asyncio.get_running_loop().call_later(self._slots.finish_s, self._hand_over)
        self._stopping = True
        self._look.set()

    def _hand_over(self) -> None:
        self._hands_over = True
        for execution in self._executions.values():
            execution.hand_over()
        for run_id in self._opening:
            self._active[run_id].cancel()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            duties = [group.create_task(self._listen()), group.create_task(self._warm.run())]
            while self._active or not self._stopping:
                self._look.clear()
                if not self._stopping:
                    await self._fill(group)
                await self._look.wait()
            for duty in duties:
                duty.cancel()

    async def _listen(self) -> None:
        async with aclosing(self._journal.follow_queue()) as wakes:
            async for _ in wakes:
                self._look.set()

    def _look_later(self, error: JournalError) -> None:
        _log.warning("the queue cannot be read: %s", error)
        asyncio.get_running_loop().call_later(_STORE_PAUSE_S, self._look.set)

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        """Start on as many queued runs as there are free slots."""
        free = self._slots.runs - len(self._active)
        if free <= 0:
            return
        try:
            rows = await self._journal.queued(limit=free + len(self._active) + len(self._away))
        except JournalError as error:
            self._look_later(error)
            return
        now = asyncio.get_running_loop().time()
        self._away = {
            run_id: away
            for run_id, away in self._away.items()
            if now < away.until + _LONGEST_AWAY_S
        }
        for row in rows:
            if row.run_id in self._active or self._is_away(row.run_id):
                continue
            if len(self._active) < self._slots.runs:
                task = group.create_task(self._work(row))
                self._active[row.run_id] = task

    def _is_away(self, run_id: str) -> bool:
        away = self._away.get(run_id)
        return away is not None and asyncio.get_running_loop().time() < away.until

    def _leave_for_a_while(self, run_id: str, error: BattenError) -> None:
        """Do not take a run again at once: it would be given up again at once."""
        before = self._away.get(run_id)
        pause_s = _FIRST_AWAY_S if before is None else min(2 * before.pause_s, _LONGEST_AWAY_S)
        loop = asyncio.get_running_loop()
        self._away[run_id] = Away(pause_s, loop.time() + pause_s)
        loop.call_later(pause_s, self._look.set)
        _log.info("run %s is left for %g s: %s", run_id, pause_s, error)

    async def _work(self, row: RunRow) -> None:
        try:
            lease, held = await self._claim(row)
            if lease is not None:
                await self._execute(row, lease, held)
                await self._tell(row)
        finally:
            del self._active[row.run_id]
            self._look.set()

    async def _tell(self, row: RunRow) -> None:
        """Log how a run left this worker."""
        if not _log.isEnabledFor(logging.INFO):
            return
        with suppress(JournalError):
            now = await self._journal.run(row.run_id)
            if now is not None:
                about: dict[str, object] = {"run_id": row.run_id, "status": now.status}
                if now.outcome is not None:
                    about |= {"outcome": now.outcome, "turns": now.turns}
                _log.info("a run left its worker", extra={"fields": about})

    async def _claim(self, row: RunRow) -> tuple[Lease | None, Lease | None]:
        """The leases of a run and of its session, in one transaction; None if it has another."""
        stream = session_stream(SessionId(row.session_id or ""))
        lease, held = await asyncio.gather(
            *(
                self._journal.claim(one, self._worker_id, self._slots.lease_s)
                for one in (row.run_id, stream)
            ),
            return_exceptions=True,
        )
        for claimed in (lease, held):
            if isinstance(claimed, JournalError) and not isinstance(claimed, NotFound):
                self._look_later(claimed)
            elif isinstance(claimed, BaseException) and not isinstance(claimed, BattenError):
                raise claimed
        session = held if isinstance(held, Lease) else None
        if isinstance(lease, Lease):
            return lease, session
        # Another worker was faster, or the run was deleted.
        await self._give_up(session)
        return None, None

    async def _give_up(self, lease: Lease | None) -> None:
        if lease is not None:
            with suppress(JournalError):
                await self._journal.release(lease)

    async def _execute(self, row: RunRow, lease: Lease, held: Lease | None) -> None:
        """Execute a claimed run; `held` is the lease of its session, unless another has it yet."""
        opened = await self._opened(row, lease, held)
        if opened is None:
            return
        try:
            if row.workspace_mode == "in_place":  # nobody comes back to a run's own workspace soon
                await self._warm.hold(opened.keeper)
            await execute(opened.session, row, lease, self._began)
        except HandedOver:
            with suppress(BattenError):  # then its lease runs out, and it is queued again
                await queue_again(opened.session.deps, row, lease)
        except StoreDamaged as error:  # it cannot be read, and will not be later
            await self._fail(row, lease, error)
        except (Conflict, JournalError) as error:  # another worker has it, or the store fails
            self._leave_for_a_while(row.run_id, error)
            await self._give_up(lease)
        except Exception as error:  # a bug in one run must not end the others
            await self._fail(row, lease, error)
        finally:
            self._executions.pop(row.run_id, None)
            await opened.session.leave()
            await opened.close()

    async def _opened(self, row: RunRow, lease: Lease, held: Lease | None) -> OpenedSession | None:
        """The session of a claimed run; None if the run was given up or ended instead."""
        self._opening.add(row.run_id)
        try:
            if self._hands_over:
                raise asyncio.CancelledError
            async with self._renewing(lease, held):
                return await self._open(row, held)
        except asyncio.CancelledError:
            if not self._hands_over:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            # Nothing of it was done, so it is queued as it was; what was half made is removed.
            await self._give_up(lease)
        except Exception as error:  # even a bug must leave the run with an ending
            if isinstance(error, Conflict) and error.code in _WAITS:
                self._leave_for_a_while(row.run_id, error)
                await self._give_up(lease)
            else:
                await self._fail(row, lease, error)
        finally:
            self._opening.discard(row.run_id)
        await self._give_up(held)
        return None

    def _began(self, execution: Execution) -> None:
        self._executions[execution.run_id] = execution
        if self._hands_over:
            execution.hand_over()

    async def _open(self, row: RunRow, held: Lease | None) -> OpenedSession:
        """Open the run's session; its last worker may be just about to leave it."""
        session = await self._journal.session(row.session_id or "")
        if session is None:
            raise NotFound(f"{row.run_id} belongs to no session")
        spec = replace(await self._specify(row, session), lease=held)
        pause_s, waited_s = _FIRST_PAUSE_S, 0.0
        while True:
            try:
                return await self._opener.open(spec)
            except Conflict as error:
                if error.code not in _WAITS or waited_s > self._slots.lease_s:
                    raise
            await asyncio.sleep(pause_s)
            waited_s += pause_s
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @asynccontextmanager
    async def _renewing(self, lease: Lease, held: Lease | None) -> AsyncGenerator[None]:
        """Keep the leases of the run and its session while that is being opened."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._slots.lease_s / 3)
                for one in (held, lease):
                    if one is not None:
                        await self._journal.renew(one, self._slots.lease_s)

        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(renew())
                yield
                renewing.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _fail(self, row: RunRow, lease: Lease, error: Exception) -> None:
        """End a run that could not be executed, with the reason."""
        if row.workspace_mode == "worktree":
            error = _without_flag(error)
        outcome, code = _ending_of(error)
        message = self._redact(str(error))
        if isinstance(error, JournalError):  # its own text names paths of the service
            _log.error("run %s failed: the store", row.run_id, exc_info=error)
            message = f"{error.plain}; the log of the service has the reason"
        elif outcome == "internal":
            _log.error("run %s failed", row.run_id, exc_info=error)
            message = f"{type(error).__name__}: {message}"
        by = error.by if isinstance(error, Halt) else "runtime"
        # Else its lease runs out and it is queued again, or it has an ending.
        with suppress(BattenError):
            progress, ending = await self._so_far(row)
            took_ms = progress.duration_ms
            ending.append(terminal_fact(outcome, message, progress, took_ms, by=by, code=code))
            await self._journal.append(row.run_id, ending, fence=lease.fence)
            await self._journal.release(lease)

    async def _so_far(self, row: RunRow) -> tuple[Progress, list[Fact]]:
        """A run's progress, and what completes its turn; none if its facts cannot be read."""
        try:
            left = await last_turn(self._journal, row, self._opener.base.budget_micros_usd)
            return await progress_of(self._journal, row), left
        except StoreDamaged:
            return Progress(), []

    @property
    def _journal(self) -> Journal:
        return self._opener.journal


def _without_flag(error: Exception) -> Exception:
    """The error of a worktree that could not be made, in the words of a task."""
    if not isinstance(error, BattenError) or error.code not in _NO_WORKTREE:
        return error
    problem = error.message.removeprefix("--worktree").lstrip(" :")
    return CallerError(f"the worktree could not be made: {problem}", code="workspace_failed")


def _ending_of(error: Exception) -> tuple[Outcome, str]:
    """The outcome and code of a run whose session could not be opened."""
    if isinstance(error, Halt):
        return error.outcome, ""
    if isinstance(error, JournalError):
        return "store", error.code
    if isinstance(error, BattenError):
        return "config", error.code
    return "internal", ""
