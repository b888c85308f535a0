"""Removes what the settings no longer keep: events of old runs, and artifacts.

Each run keeps its row, a `gap.events_pruned` marker and, sealed, what a continuation needs. The
work is done in a thread with a handle of its own: it reads whole runs, and requests must not wait
for that. Between two runs other writers have the store for as long as a run took.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import groupby

from msgspec import Struct

from batten.contract.envelope import decode_fact, timestamp
from batten.contract.errors import BattenError, Conflict, JournalError, NotFound, NotReady
from batten.contract.facts import ArtifactCreated, ArtifactUpdated
from batten.control.retention_log import RetentionLog
from batten.journal.contract import Journal, RunRow
from batten.journal.opening import open_for_removal, removal_lock
from batten.journal.removal import Bounds, OldArtifact
from batten.protocols.hecate.system import RetentionResult, RetentionRun, Subsystem
from batten.redact.seal import SealKey
from batten.session.history import prune

REASON = "retention_window"
ACTOR = "retention"
EVERY_S = 900.0
SUBSYSTEMS: tuple[Subsystem, ...] = ("runs", "artifacts")

_log = logging.getLogger("batten.retention")
_MOST_WAITING = 8
_LONGEST_PAUSE_S = 1.0
_DAY_S = 86400


class Keep(Struct, frozen=True, kw_only=True):
    """How much of one subsystem is kept; 0 for no limit."""

    max_age_s: int = 0
    max_count: int = 0
    max_bytes: int = 0

    def bounds(self) -> Bounds:
        since = None
        if self.max_age_s:
            at = datetime.fromtimestamp(time.time() - self.max_age_s, UTC)
            since = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
        return Bounds(since=since, most=self.max_count or None, most_bytes=self.max_bytes or None)


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """What a service keeps. Without any limit nothing is removed."""

    runs: Keep = Keep()
    artifacts: Keep = Keep()
    every_s: float = EVERY_S

    def of(self, name: Subsystem) -> Keep:
        return self.runs if name == "runs" else self.artifacts

    @property
    def has_limits(self) -> bool:
        return self.runs != Keep() or self.artifacts != Keep()


class _Asked(Struct):
    subsystems: tuple[Subsystem, ...]
    actor: str
    request_id: str
    done: "asyncio.Future[RetentionRun]"


class Retention:
    """Removes by schedule and on request, one removal at a time."""

    def __init__(self, home: str, key: Callable[[], SealKey], policy: RetentionPolicy) -> None:
        self._home = home
        self._key = key
        self._policy = policy
        self._asked: asyncio.Queue[_Asked] = asyncio.Queue(_MOST_WAITING)
        self._stopping = threading.Event()
        self.log = RetentionLog(home)
        self.removed: dict[Subsystem, int] = dict.fromkeys(SUBSYSTEMS, 0)
        """Since the process started."""

    async def apply(
        self, subsystems: Iterable[Subsystem], *, actor: str, request_id: str
    ) -> RetentionRun:
        """Remove now; returns when it is done. A caller that stops waiting does not stop it."""
        done: asyncio.Future[RetentionRun] = asyncio.get_running_loop().create_future()
        wanted = set(subsystems)
        chosen: tuple[Subsystem, ...] = tuple(name for name in SUBSYSTEMS if name in wanted)
        try:
            self._asked.put_nowait(_Asked(chosen or SUBSYSTEMS, actor, request_id, done))
        except asyncio.QueueFull:
            raise NotReady(f"{_MOST_WAITING} removals wait already; ask again later") from None
        return await done

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                asked = await self._next()
                try:
                    result = await self._carry_out(asked)
                except Exception as error:
                    _log.error("a removal failed", exc_info=error)
                    if asked is not None and not asked.done.cancelled():
                        asked.done.set_exception(error)
                    continue
                if asked is not None and not asked.done.cancelled():
                    asked.done.set_result(result)
        finally:
            self._stopping.set()

    async def _next(self) -> _Asked | None:
        """The next request; None when it is time without one."""
        if not self._policy.has_limits:
            return await self._asked.get()
        try:
            async with asyncio.timeout(self._policy.every_s):
                return await self._asked.get()
        except TimeoutError:
            return None

    async def _carry_out(self, asked: _Asked | None) -> RetentionRun:
        began = timestamp()
        names = SUBSYSTEMS if asked is None else asked.subsystems
        results = await asyncio.to_thread(self._remove_in_thread, names)
        for result in results:
            self.removed[result.name] += result.deleted
        done = RetentionRun(
            started_at=began,
            finished_at=timestamp(),
            trigger="scheduled" if asked is None else "manual",
            actor=ACTOR if asked is None else asked.actor,
            request_id="" if asked is None else asked.request_id,
            results=results,
        )
        removed = {result.name: result.deleted for result in results}
        if asked is not None or any(removed.values()):
            self.log.add(done)
            _log.info("old data was removed", extra={"fields": {"removed": removed}})
        return done

    def _remove_in_thread(self, names: Iterable[Subsystem]) -> list[RetentionResult]:
        return asyncio.run(self._remove(names))

    async def _remove(self, names: Iterable[Subsystem]) -> list[RetentionResult]:
        results: list[RetentionResult] = []
        for name in names:
            keep = self._policy.of(name)
            deleted, error = 0, ""
            if keep != Keep():
                try:
                    with removal_lock(self._home), open_for_removal(self._home) as journal:
                        removal = _Removal(journal, self._key, self._stopping)
                        deleted = await removal.remove(name, keep.bounds())
                        error = "; ".join(removal.problems)
                except BattenError as problem:
                    # The store's own text names paths of this machine.
                    _log.warning("%s cannot be removed: %s", name, problem)
                    is_store = isinstance(problem, JournalError)
                    error = f"{problem.code}: see the log" if is_store else problem.message
            results.append(
                RetentionResult(
                    name=name,
                    deleted=deleted,
                    max_age=shown_age(keep.max_age_s),
                    max_count=keep.max_count,
                    max_bytes=keep.max_bytes,
                    error=error,
                    skipped=keep == Keep(),
                )
            )
        return results


class _Removal:
    """One pass over one subsystem."""

    def __init__(
        self, journal: Journal, key: Callable[[], SealKey], stopping: threading.Event
    ) -> None:
        self._journal = journal
        self._key = key
        self._stopping = stopping
        self.problems: list[str] = []
        """Why something stays, at most a few."""

    async def remove(self, name: Subsystem, bounds: Bounds) -> int:
        deleted = await (self._runs(bounds) if name == "runs" else self._artifacts(bounds))
        if deleted and not self._stopping.is_set():
            await self._journal.compact(self._check)
        return deleted

    def _check(self) -> None:
        if self._stopping.is_set():
            raise NotReady("the service stops; the next one goes on")

    async def _runs(self, bounds: Bounds) -> int:
        deleted = 0
        async for run_id in self._journal.old_runs(bounds):
            if self._stopping.is_set():
                break
            visible = [
                row.artifact_id
                for row in await self._journal.artifacts(run_id)
                if row.kind != "sealed" and row.deleted_at is None and not row.pinned
            ]
            deleted += await self._step(run_id, visible, None)
        return deleted

    async def _artifacts(self, bounds: Bounds) -> int:
        deleted = 0
        old = await self._journal.old_artifacts(bounds)
        for run_id, group in groupby(old, key=lambda one: one.run_id):
            if self._stopping.is_set():
                break
            chosen = list(group)
            visible = [one.artifact_id for one in chosen if not one.is_deleted]
            if await self._step(run_id, visible, chosen):
                deleted += len(chosen)
        return deleted

    async def _step(self, run_id: str, gone: list[str], only: list[OldArtifact] | None) -> bool:
        """Hide these artifacts and prune the run: whole, or as far as `only` these were made."""
        began = time.monotonic()
        try:
            marks = [
                ArtifactUpdated(one, "deleted_at", None, timestamp(), by=ACTOR, reason=REASON)
                for one in gone
            ]
            if marks:
                await self._journal.append(run_id, marks, fence=None)
            row = await self._journal.run(run_id)
            if row is None:
                return False
            before = row.next_sequence if only is None else await self._end_of(row, only)
            await prune(self._journal, self._key, row, before, reason=REASON)
        except (Conflict, NotFound) as problem:
            # It was pinned, deleted or pruned meanwhile: the next pass looks again.
            if len(self.problems) < 5:
                self.problems.append(f"{run_id} stays: {problem}")
            return False
        await self._journal.drop_released(run_id, self._check)
        _log.info("a run was pruned", extra={"fields": {"run_id": run_id, "before": before}})
        await asyncio.sleep(min(time.monotonic() - began, _LONGEST_PAUSE_S))
        return True

    async def _end_of(self, row: RunRow, artifacts: list[OldArtifact]) -> int:
        """The sequence after the last event that made one of these."""
        wanted = {one.artifact_id for one in artifacts}
        end, after = row.base_sequence + 1, row.base_sequence - 1
        while wanted and (page := await self._journal.read(row.run_id, after=after)):
            for stored in page:
                if stored.type == ArtifactCreated.TYPE:
                    fact = decode_fact(stored.body)
                    if isinstance(fact, ArtifactCreated) and fact.artifact_id in wanted:
                        wanted.discard(fact.artifact_id)
                        end = stored.sequence + 1
            after = page[-1].sequence
        return end


def shown_age(seconds: int) -> str:
    """An age in its largest whole unit: `7d`, `36h`; empty for none."""
    for unit, length in (("d", _DAY_S), ("h", 3600), ("m", 60)):
        if seconds and not seconds % length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s" if seconds else ""
