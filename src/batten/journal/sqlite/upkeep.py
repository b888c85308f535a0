"""Prunes and deletes sessions, one process at a time, beside any number that work."""

import errno
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from batten.contract.errors import Conflict, NotFound, StoreBusy, StoreFull
from batten.journal.removal import OnRemoved, Removable, Removal, RemovalLimits, StoreSize
from batten.journal.sqlite import reclaiming, removing
from batten.journal.sqlite.ballast import BALLAST_BYTES, Ballast
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.faults import typed
from batten.journal.sqlite.reader import Reader
from batten.journal.sqlite.retaining import released_digests
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


async def prune(journal: SqliteJournal, limits: RemovalLimits, removed: OnRemoved) -> Removal:
    reader = journal.reader
    write = _writing(journal)
    await reclaiming.finish_removals(write)
    result = Removal(before=reclaiming.size_of(reader), after=reclaiming.size_of(reader))
    pruning = _Pruning(journal, result, removed)
    old, rest = limits.split(removing.removables(reader))
    await pruning.remove(old)
    for one in rest:
        if limits.max_bytes is None or reclaiming.size_of(reader).total <= limits.max_bytes:
            break
        await pruning.remove([one])
    settle(reader.path)  # the next steps find room in the log
    await journal.collect_bodies()
    await reclaiming.shrink(write)
    settle(reader.path)
    result.after = reclaiming.size_of(reader)
    return result


def plan(reader: Reader, limits: RemovalLimits, removed: OnRemoved) -> Removal:
    before = reclaiming.size_of(reader)
    result, left = Removal(before=before, after=before), before.total
    old, rest = limits.split(removing.removables(reader))

    def take(one: Removable) -> None:
        nonlocal left
        gone = frozenset(one.name for one in result.removed)
        problem = removing.obstacle(
            lambda sql, bindings: reader.all(sql, bindings),
            one.name,
            is_session=one.is_session,
            prune=True,
            gone=gone,
        )
        if problem is not None:
            result.spared.append((one, str(problem)))
            return
        size = removing.extent(reader, one)
        left -= size.bytes
        result.removed.append(one)
        removed(one, size)

    for one in old:
        take(one)
    for one in rest:
        if limits.max_bytes is None or left <= limits.max_bytes:
            break
        take(one)
    result.after = StoreSize(max(0, left), 0)
    return result


class _Pruning:
    def __init__(self, journal: SqliteJournal, result: Removal, removed: OnRemoved) -> None:
        self._journal = journal
        self._write = _writing(journal)
        self._result = result
        self._removed = removed

    async def remove(self, old: list[Removable]) -> None:
        """Remove these; a session whose forks are among them, after the forks."""
        digests: list[str] = []
        while old:
            again: list[tuple[Removable, str]] = []
            for one in old:
                try:
                    digests += await self._delete(one)
                except Conflict as problem:
                    if problem.code == "session_forked":
                        again.append((one, str(problem)))
                    else:
                        self._result.spared.append((one, str(problem)))
                except NotFound:
                    continue  # deleted by another meanwhile
            if len(again) == len(old):
                self._result.spared += again
                break
            old = [one for one, _ in again]
        await reclaiming.finish_removals(self._write)
        young = await reclaiming.drop_bodies(self._write, self._journal.files, digests)
        self._result.young_bodies += young

    async def _delete(self, one: Removable) -> list[str]:
        journal = self._journal
        size = removing.extent(journal.reader, one)
        digests = await _work(
            journal,
            lambda batch: removing.delete(
                batch,
                one.name,
                is_session=one.is_session,
                prune=True,
                used_at=one.used_at,
            ),
        )
        self._result.removed.append(one)
        self._removed(one, size)
        return digests


async def drop_released(
    journal: SqliteJournal, run_id: str, before_step: Callable[[], None]
) -> None:
    digests = released_digests(journal.reader, run_id)
    await reclaiming.drop_bodies(_stepwise(journal, before_step), journal.files, digests)


async def compact(journal: SqliteJournal, before_step: Callable[[], None]) -> None:
    settle(journal.reader.path)
    await journal.collect_bodies()
    await reclaiming.shrink(_stepwise(journal, before_step))
    settle(journal.reader.path)


def _stepwise(journal: SqliteJournal, before_step: Callable[[], None]) -> reclaiming.Write:
    async def write(job: Callable[[Batch], int]) -> int:
        before_step()
        return await journal.work(job)

    return write


async def delete_session(
    journal: SqliteJournal, session_id: str, *, only_ended: bool = False
) -> int:
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
