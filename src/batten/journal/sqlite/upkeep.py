"""Prunes and deletes sessions, one process at a time, beside any number that work."""

import errno
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw
from msgspec import Struct

from batten.contract.errors import Conflict, NotFound, StoreBusy, StoreFull
from batten.journal.sqlite import reclaiming, removing
from batten.journal.sqlite.ballast import BALLAST_BYTES, Ballast
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.faults import typed
from batten.journal.sqlite.reader import Reader
from batten.journal.sqlite.schema import connect
from batten.journal.sqlite.store import SqliteJournal

T = TypeVar("T")


@contextmanager
def upkeep_lock(home: str, *, shared: bool = False) -> Generator[None]:
    """Keep other processes from removing anything meanwhile; unless `shared`, also from copying.

    Raises `StoreBusy` if one is at work, `StoreReadOnly` if nothing can be removed here.
    """
    path = os.path.join(home, "journal.db.upkeep")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if shared and error.errno in (errno.EROFS, errno.EACCES):
            yield  # nothing can be removed here either
            return
        raise typed(error, home) from error
    try:
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreBusy(
                f"another process prunes, deletes, imports or copies in {home}; try again when it"
                " has finished"
            ) from None
        yield
    finally:
        os.close(fd)


@contextmanager
def open_for_removing(home: str) -> Generator[SqliteJournal]:
    """Open the journal to remove something: on a full disk, with the room of the ballast."""
    ballast = Ballast(home)
    status = os.statvfs(home)
    is_full = status.f_bavail * status.f_frsize < 4 * BALLAST_BYTES
    if is_full:
        ballast.free()
    journal = SqliteJournal.open(home)
    try:
        if is_full:
            journal.free_ballast()  # which opening it has laid again
        yield journal
    finally:
        journal.close()
        ballast.lay()


class Limits(Struct, frozen=True, kw_only=True):
    """What to prune."""

    used_before: str | None = None
    """Sessions last used before this time."""
    keep: int | None = None
    """So many of the most recently used sessions stay in any case."""
    max_bytes: int | None = None
    """The oldest sessions, until the store is no larger."""
    most: int | None = None
    """No more sessions than these, the oldest, of those last used before a time."""
    but: frozenset[str] = frozenset()
    """Sessions that stay."""


class Pruned(Struct, kw_only=True):
    """The result of pruning."""

    removed: list[removing.Stretch] = []
    spared: list[tuple[removing.Stretch, str]] = []
    """Sessions within the limits that stay, and why."""
    young_bodies: int = 0
    """Bodies that stay until the next time: they were written in the last minute."""
    before: reclaiming.Size
    after: reclaiming.Size


Removed = Callable[[removing.Stretch, removing.Extent], None]
"""Is told of each session that goes."""


def settle(path: str) -> None:
    """Fold the log into the file, so that it shrinks now; a busy one shrinks with later writes."""
    db = connect(path, patience_s=0.0, writing=True)
    try:
        with suppress(apsw.BusyError):
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    finally:
        db.close()


async def _work(journal: SqliteJournal, job: Callable[[Batch], T]) -> T:
    """Run a job in a transaction; on a full disk, in the room that the log already has."""
    try:
        return await journal.work(job)
    except StoreFull:
        settle(journal.reader.path)
        return await journal.work(job)


def _writing(journal: SqliteJournal) -> reclaiming.Write:
    return lambda job: _work(journal, job)


async def prune(journal: SqliteJournal, limits: Limits, removed: Removed) -> Pruned:
    """Delete old sessions that have ended, and return their space to the disk."""
    reader = journal.reader
    write = _writing(journal)
    await reclaiming.finish_removals(write)
    result = Pruned(before=reclaiming.size_of(reader), after=reclaiming.size_of(reader))
    pruning = _Pruning(journal, result, removed)
    old, rest = split(removing.stretches(reader), limits)
    await pruning.remove(old)
    for stretch in rest:
        if limits.max_bytes is None or reclaiming.size_of(reader).total <= limits.max_bytes:
            break
        await pruning.remove([stretch])
    settle(reader.path)  # the next steps find room in the log
    await journal.collect_bodies()
    await reclaiming.shrink(write)
    settle(reader.path)
    result.after = reclaiming.size_of(reader)
    return result


def plan(reader: Reader, limits: Limits, removed: Removed) -> Pruned:
    """The same without changing anything; sizes are estimates."""
    before = reclaiming.size_of(reader)
    result, left = Pruned(before=before, after=before), before.total
    old, rest = split(removing.stretches(reader), limits)

    def take(stretch: removing.Stretch) -> None:
        nonlocal left
        gone = frozenset(one.name for one in result.removed)
        problem = removing.obstacle(
            lambda sql, bindings: reader.all(sql, bindings),
            stretch.name,
            is_session=stretch.is_session,
            prune=True,
            gone=gone,
        )
        if problem is not None:
            result.spared.append((stretch, str(problem)))
            return
        size = removing.extent(reader, stretch)
        left -= size.bytes
        result.removed.append(stretch)
        removed(stretch, size)

    for stretch in old:
        take(stretch)
    for stretch in rest:
        if limits.max_bytes is None or left <= limits.max_bytes:
            break
        take(stretch)
    result.after = reclaiming.Size(max(0, left), 0)
    return result


def split(
    known: list[removing.Stretch], limits: Limits
) -> tuple[list[removing.Stretch], list[removing.Stretch]]:
    """The sessions to remove, newest first; and those that may follow, oldest first."""
    begin = limits.keep or 0
    if limits.used_before is not None:
        old = [
            one
            for one in known[begin:]
            if one.used_at < limits.used_before and one.name not in limits.but
        ]
        if limits.most is not None:
            old = old[-limits.most :]
    else:
        old = known[begin:] if limits.keep is not None and limits.max_bytes is None else []
    names = {one.name for one in old}
    rest = [one for one in known[begin:] if one.name not in names]
    return old, rest[::-1]


class _Pruning:
    def __init__(self, journal: SqliteJournal, result: Pruned, removed: Removed) -> None:
        self._journal = journal
        self._write = _writing(journal)
        self._result = result
        self._removed = removed

    async def remove(self, old: list[removing.Stretch]) -> None:
        """Remove these; a session whose forks are among them, after the forks."""
        digests: list[str] = []
        while old:
            again: list[tuple[removing.Stretch, str]] = []
            for stretch in old:
                try:
                    digests += await self._delete(stretch)
                except Conflict as problem:
                    if problem.code == "session_forked":
                        again.append((stretch, str(problem)))
                    else:
                        self._result.spared.append((stretch, str(problem)))
                except NotFound:
                    continue  # deleted by another meanwhile
            if len(again) == len(old):
                self._result.spared += again
                break
            old = [stretch for stretch, _ in again]
        await reclaiming.finish_removals(self._write)
        young = await reclaiming.drop_bodies(self._write, self._journal.files, digests)
        self._result.young_bodies += young

    async def _delete(self, stretch: removing.Stretch) -> list[str]:
        journal = self._journal
        size = removing.extent(journal.reader, stretch)
        digests = await _work(
            journal,
            lambda batch: removing.delete(
                batch,
                stretch.name,
                is_session=stretch.is_session,
                prune=True,
                used_at=stretch.used_at,
            ),
        )
        self._result.removed.append(stretch)
        self._removed(stretch, size)
        return digests


async def delete_session(
    journal: SqliteJournal, session_id: str, *, only_ended: bool = False
) -> int:
    """Delete a session and return its space. Returns how many bodies are too young to go yet.

    Raises `Conflict` while a living process holds it, or if another session continues it; with
    `only_ended`, also while a run has not ended.
    """
    write = _writing(journal)
    digests = await _work(
        journal,
        lambda batch: removing.delete(
            batch, session_id, is_session=True, prune=False, only_ended=only_ended
        ),
    )
    await reclaiming.finish_removals(write)
    young = await reclaiming.drop_bodies(write, journal.files, digests)
    await reclaiming.shrink(write)
    settle(journal.reader.path)
    return young
