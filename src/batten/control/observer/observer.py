"""The observer: takes described runs whose sessions are on a runtime elsewhere, and follows them.

A duty of the server. Leases and fences see to it that of several servers one observes a run;
another goes on with it when that one is gone.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import TypeVar

from batten.contract import facts
from batten.contract.envelope import decode
from batten.contract.errors import BattenError, Conflict, FenceLost, JournalError, NotFound
from batten.control.coordination.records import Keeping
from batten.control.coordination.run_facts import taken_over
from batten.control.observer.contract import (
    Lifecycle,
    RuntimeClient,
    Said,
    SessionSnapshot,
)
from batten.control.observer.discovery import discover
from batten.control.observer.link import RuntimeLink
from batten.control.observer.observed import ObservedRun
from batten.control.observer.progress import read_progress
from batten.journal.contract import Journal, Lease, RunRow
from batten.journal.workers import is_abandoned, this_worker
from batten.settings.control_plane import ControlPlaneSettings

T = TypeVar("T")
_log = logging.getLogger("batten.observer")
_LOOK_S = 0.5
_RECOVER_S = 3.0
"""Between two looks for runs whose observer is gone."""
_SEARCH_S = 30.0
"""Between two looks through all runs."""
_AWAY_S = 5.0
"""A run that could not be observed is left alone for so long."""
_MOST_AWAY = 10_000
_WATCH_AGAIN_S = 5.0
_RELEASE_S = 2.0
_PAGE = 200
_MOST_QUEUED = 5000
_CANCELS = frozenset({facts.RunCancelRequested.TYPE})


class Observer:
    """All observed runs of this process."""

    def __init__(
        self,
        keeping: Keeping,
        link: RuntimeLink,
        settings: ControlPlaneSettings,
        *,
        lease_s: float,
    ) -> None:
        self._keeping = keeping
        self.link = link
        self._settings = settings
        self._lease_s = lease_s
        self._worker_id = this_worker()
        self._runs: dict[str, ObservedRun] = {}
        """By the id of the run."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._away: dict[str, float] = {}
        self._look = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when a run was taken."""
        self._heeded = -1
        self._latest_ms: int | None = None
        """When the latest session began that a watch told of, by the runtime's clock."""
        self._known_ms: int | None = None
        """The same, before the current watch."""

    @property
    def journal(self) -> Journal:
        return self._keeping.journal

    @property
    def active(self) -> int:
        """Streams that are followed now."""
        return sum(run.is_streaming for run in self._runs.values())

    @property
    def broken(self) -> int:
        """Runs in work whose stream is not connected."""
        return sum(run.is_lost for run in self._runs.values())

    def look(self) -> None:
        """A run was queued, or asked to end: look at once."""
        self._look.set()

    async def run(self) -> None:
        """Until cancelled; then streams end and the runs are given up, for another to go on."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            group.create_task(self._watch(self._lifecycles, self._learn))
            group.create_task(self._watch(lambda client: client.watch_signals(), self._hear))
            await self._attend(group)

    # Taking runs

    async def _attend(self, group: asyncio.TaskGroup) -> None:
        recovered_at = searched_at = float("-inf")
        while True:
            is_asked = self._look.is_set()
            self._look.clear()
            now = time.monotonic()
            is_due = now - recovered_at > _RECOVER_S
            try:
                if await self._heed() or is_asked or is_due:
                    self._take(await self.journal.awaited(limit=_MOST_QUEUED), group)
                if is_due and self._settings.run_recovery_enabled:
                    recovered_at = now
                    held = await self.journal.held(kind="coordination")
                    self._take(filter(self._is_free, held), group)
                    if now - searched_at > _SEARCH_S:
                        searched_at = now
                        await self._take_released(group)
            except JournalError as error:
                _log.warning("runs to observe cannot be looked for: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._look.wait()

    async def _heed(self) -> bool:
        """Pass requests to cancel on to the runs they are about; returns whether anything was
        stored since the last time.
        """
        until = await self.journal.position()
        after = until if self._heeded < 0 else self._heeded
        while page := await self.journal.feed(after=after, until=until, types=_CANCELS):
            after = page[-1].position
            for stored in page:
                if stored.run_id in self._runs:
                    self._runs[stored.run_id].cancel()
        is_new, self._heeded = until != self._heeded, until
        return is_new

    def _is_free(self, row: RunRow) -> bool:
        """Whether a running session's run has no observer; ours may have let go of it."""
        is_ours = row.worker_id == self._worker_id
        return row.kind == "coordination" and (is_ours or is_abandoned(row))

    async def _take_released(self, group: asyncio.TaskGroup) -> None:
        """Those that an observer gave up; no list has them but that of all runs."""
        after = None
        while page := await self.journal.runs(
            kind="coordination", status="running", after=after, limit=_PAGE
        ):
            after = page[-1].run_id
            self._take(filter(self._is_free, page), group)

    def _take(self, rows: Iterable[RunRow], group: asyncio.TaskGroup) -> None:
        now = time.monotonic()
        for row in rows:
            if row.run_id not in self._tasks and self._away.get(row.run_id, 0.0) < now:
                self._tasks[row.run_id] = group.create_task(self._observe(row))

    async def _observe(self, row: RunRow) -> None:
        """Take a run and follow its session to the end, or until another has it."""
        run_id = row.run_id
        run: ObservedRun | None = None
        try:
            run = await self._taken(row)
            if run is not None:
                self._runs[run_id] = run
                self._changed.set()
                if row.cancel_requested:
                    run.cancel()
                await run.observe()
            else:
                self._leave(run_id, float("inf"))
        except (FenceLost, NotFound, Conflict) as error:
            _log.info("run %s is observed no longer: %s", run_id, error)
        except BattenError as error:
            _log.error("run %s cannot be observed now: %s", run_id, error)
            self._leave(run_id, _AWAY_S)
        except Exception as error:  # one run must not end the observation of the others
            _log.error("run %s cannot be observed", run_id, exc_info=error)
            self._leave(run_id, _AWAY_S)
        finally:
            self._runs.pop(run_id, None)
            del self._tasks[run_id]
            if run is not None and not run.has_ended:
                await self._release(run.lease)

    def _leave(self, run_id: str, seconds: float) -> None:
        """Do not take the run again for so long."""
        self._away[run_id] = time.monotonic() + seconds
        if len(self._away) > _MOST_AWAY:
            del self._away[next(iter(self._away))]

    async def _taken(self, row: RunRow) -> ObservedRun | None:
        """The run under our lease; None if it is not for an observer. Raises `Conflict`."""
        progress = await read_progress(self.journal, row.run_id)
        if not progress.is_elsewhere:
            return None
        if row.worker_id == self._worker_id:  # given up after a fault of the store
            lease = Lease(row.run_id, row.fence, row.worker_id, row.lease_until)
            lease = await self.journal.renew(lease, self._lease_s)
        else:
            lease = await self.journal.claim(row.run_id, self._worker_id, self._lease_s)
            # What another observer wrote before we shut it out.
            progress = await read_progress(self.journal, row.run_id)
            begun = taken_over(row, self._worker_id, self._lease_s)
            for stored in await self.journal.append(row.run_id, begun, fence=lease.fence):
                progress.take(decode(stored.body))
        return ObservedRun(lease, progress, self.link, self._keeping, self._settings)

    async def _release(self, lease: Lease) -> None:
        with suppress(BattenError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                await self.journal.release(lease)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            for run in list(self._runs.values()):
                if run.has_ended:
                    continue
                try:
                    run.lease = await self.journal.renew(run.lease, self._lease_s)
                except (FenceLost, NotFound):
                    if task := self._tasks.get(run.run_id):
                        task.cancel()
                except BattenError as error:
                    _log.warning("the lease of run %s is not renewed: %s", run.run_id, error)

    # Watching the runtime

    async def _watch(
        self,
        watch: Callable[[RuntimeClient], AsyncGenerator[T, None]],
        take: Callable[[T], Awaitable[None]],
    ) -> None:
        """Read a watch of the runtime for as long as anybody is interested, again if it ends."""
        while True:
            if not self._settings.session_discovery_enabled and not self._runs:
                self._changed.clear()
                await self._changed.wait()
            try:
                async with aclosing(self.link.stream(watch)) as values:
                    async for value in values:
                        await take(value)
            except BattenError as error:
                _log.info("the runtime cannot be watched: %s", error)
            except Exception as error:  # runs are followed without it
                _log.error("the watch of the runtime failed", exc_info=error)
            await asyncio.sleep(_WATCH_AGAIN_S)

    def _lifecycles(self, client: RuntimeClient) -> AsyncGenerator[Lifecycle, None]:
        self._known_ms = self._latest_ms
        return client.watch_sessions()

    def _is_missed(self, session: SessionSnapshot) -> bool:
        """Whether a session that has ended began after the last one that the watch before told.

        Others had ended before anybody watched: they are history, and their runs may be deleted.
        """
        return self._known_ms is not None and session.started_at_unix_ms > self._known_ms

    def _of(self, session_id: str) -> ObservedRun | None:
        return next((run for run in self._runs.values() if run.session_id == session_id), None)

    async def _learn(self, event: Lifecycle) -> None:
        """Let the session's run look at it; without one, begin to observe it."""
        session, is_change = event.session, event.kind != "CREATED"
        self._latest_ms = max(self._latest_ms or 0, session.started_at_unix_ms)
        run = self._of(session.session_id)
        if run is not None:
            if is_change or run.is_lost or run.progress.state != session.state:
                run.hint()
            return
        is_new = is_change or not session.has_ended or self._is_missed(session)
        is_wanted = is_new and self._settings.session_discovery_enabled
        if is_wanted and await discover(self._keeping, session, self._settings):
            self.look()

    async def _hear(self, signal: Said) -> None:
        run = self._of(signal.session_id or signal.correlation)
        if run is None:
            return
        try:
            await run.hear(signal)
        except BattenError as error:
            _log.info("a signal of session %s is not stored: %s", run.session_id, error)
