"""Directories that a client watches: each watch belongs to a connection and ends with it."""

import asyncio
import os
import time
from contextlib import suppress

from batten.contract.errors import BattenError, CallerError, Conflict, JournalError, NotFound
from batten.contract.facts import SessionUtilityEnded, SessionUtilityStarted
from batten.contract.utilities import StartWatch, WatchChanged, WatchStarted, WatchStopped
from batten.session.utilities.ownership import Owned, Record, Tell
from batten.workspace.globs import path_glob
from batten.workspace.root import ResolvedPath, Root
from batten.workspace.watch import Change, FileWatcher, watching

MOST_WATCHES = 32
_LONGEST_DEBOUNCE_MS = 60_000
_MOST_PATTERNS = 256
_LONGEST_PATTERN = 4096


class _Watching(Owned):
    def __init__(self, asked: StartWatch, place: ResolvedPath, owner: str) -> None:
        super().__init__("watch", asked.watch_id, owner)
        self.asked = asked
        self.place = place
        self.until: asyncio.Timeout | None = None
        """Set while waiting for changes."""
        self.recorded = False
        self.told = False

    def is_stopped(self) -> bool:
        return bool(self.reason)

    def stop(self, reason: str) -> None:
        """End the watch as soon as possible. A watch that has not begun never does."""
        self.end_for(reason)
        until, self.until = self.until, None  # once: a timeout that has fired cannot be rescheduled
        if until is not None:
            until.reschedule(0)


class UtilityWatches:
    """Watches directories of one workspace and reports the changes in them."""

    def __init__(self, root: Root, record: Record, tell: Tell, group: asyncio.TaskGroup) -> None:
        self._root = root
        self._record = record
        self._tell = tell
        self._group = group
        self._watching: dict[str, _Watching] = {}
        """The latest of each name."""
        self._present: set[_Watching] = set()
        """Those whose end is not reported yet."""

    def start(self, asked: StartWatch, owner: str) -> Owned:
        """Start a watch in the background, after a stopped one of the same name has ended."""
        before = self._watching.get(asked.watch_id)
        if before is not None and not before.is_stopped():
            raise Conflict(f"Utility file watch already exists: {asked.watch_id}")
        if len(self._present) >= MOST_WATCHES:
            raise CallerError(f"{MOST_WATCHES} file watches run already; stop one first")
        _check_patterns((*asked.include, *asked.exclude))
        if not 0 <= asked.debounce_ms <= _LONGEST_DEBOUNCE_MS:
            raise CallerError(f"debounce_ms is 0 to {_LONGEST_DEBOUNCE_MS} milliseconds")
        place = self._root.resolve(asked.root or ".")
        if not os.path.isdir(place.path):
            raise NotFound(f"Utility file watch root directory does not exist: {asked.root}")
        watch = _Watching(asked, place, owner)
        task = self._group.create_task(self._run(watch, before))
        self._watching[asked.watch_id] = watch
        self._present.add(watch)
        task.add_done_callback(lambda _: self._end_of(watch))  # it may never have begun
        return watch

    def stop(self, watch_id: str, *, owner: str) -> Owned | None:
        """Stop a watch; does nothing if there is none of this name."""
        watch = self._watching.get(watch_id)
        if watch is not None:
            watch.check(owner)
            watch.stop("Stopped by controller")
        return watch

    async def end_all(self, reason: str, owner: str | None = None) -> None:
        """Stop the watches of a connection, or all, and wait until their ends are reported."""
        ending = [one for one in self._present if owner in (None, one.owner)]
        for watch in ending:
            watch.stop(reason)
        for watch in ending:
            await watch.over.wait()

    async def _run(self, watch: _Watching, before: _Watching | None) -> None:
        """Watch until stopped. A watch stopped before it begins is not reported."""
        problem = ""
        try:
            if before is not None:
                await before.over.wait()
            if not watch.is_stopped():
                await self._watch(watch)
        except BattenError as error:
            problem = str(error)
        finally:
            self._settle(watch)
        stopped = WatchStopped(watch_id=watch.name, reason=watch.reason or problem)
        if watch.recorded:
            with suppress(JournalError):  # clients receive the end even if unrecorded
                await self._record(_ended_fact(stopped))
        if watch.told or problem:
            await self._tell(stopped)

    def _settle(self, watch: _Watching) -> None:
        watch.settled.set()
        if self._watching.get(watch.name) is watch:
            del self._watching[watch.name]

    def _end_of(self, watch: _Watching) -> None:
        self._settle(watch)
        self._present.discard(watch)
        watch.over.set()

    async def _watch(self, watch: _Watching) -> None:
        asked = watch.asked
        async with watching(
            watch.place,
            include=asked.include,
            exclude=asked.exclude,
            debounce_ms=asked.debounce_ms,
        ) as changes:
            if watch.is_stopped():
                return
            await self._record(_started_fact(watch))
            watch.recorded = True
            if watch.is_stopped():
                return
            await self._tell(WatchStarted(asked=asked, root=watch.place.path, owner=watch.owner))
            watch.told = True
            watch.settled.set()
            await self._show(watch, changes)

    async def _show(self, watch: _Watching, changes: FileWatcher) -> None:
        limit = asyncio.timeout(0 if watch.is_stopped() else None)
        try:
            async with limit:
                watch.until = limit
                async for batch in changes:
                    for change in batch:
                        await self._tell(_changed(watch, change))
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            watch.until = None


def _check_patterns(patterns: tuple[str, ...]) -> None:
    if len(patterns) > _MOST_PATTERNS:
        raise CallerError(f"{len(patterns)} patterns are given; at most {_MOST_PATTERNS} are used")
    for pattern in patterns:
        if len(pattern) > _LONGEST_PATTERN:
            raise CallerError(f"A pattern has more than {_LONGEST_PATTERN} characters")
        path_glob(pattern)


def _changed(watch: _Watching, change: Change) -> WatchChanged:
    return WatchChanged(
        watch_id=watch.name,
        change=change.type,
        path=os.path.join(watch.place.path, change.path),
        relative_path=change.path,
        at_ms=time.time_ns() // 1_000_000,
        is_directory=change.is_directory,
    )


def _started_fact(watch: _Watching) -> SessionUtilityStarted:
    detail = {"root": watch.place.path, "owner": watch.owner}
    return SessionUtilityStarted(utility_id=watch.name, kind="watch", detail=detail)


def _ended_fact(stopped: WatchStopped) -> SessionUtilityEnded:
    detail = {"reason": stopped.reason}
    return SessionUtilityEnded(utility_id=stopped.watch_id, kind="watch", detail=detail)
