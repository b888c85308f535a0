"""`SqliteJournal`: the journal's contract on one SQLite file, assembled from its parts."""

import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from batten.contract.errors import JournalError, NotFound, StoreDamaged, StoreReadOnly
from batten.contract.facts.artifact import ArtifactKind
from batten.contract.facts.run import RunKind
from batten.journal.budget import Spend
from batten.journal.contract import (
    ArtifactRow,
    Body,
    IdKind,
    LedgerRow,
    RequestRow,
    RunRow,
    SessionRow,
    Stored,
)
from batten.journal.filters import ArtifactFilters, FeedFilters, RunFilters, SessionFilters
from batten.journal.followers import FEED, PAGE, Followers, Wakeup, wake_ups
from batten.journal.handle import JournalHandle
from batten.journal.pruned import KeptBase
from batten.journal.receipt import lost, wake
from batten.journal.sqlite import pruning
from batten.journal.sqlite.ballast import Ballast
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.bell_watch import BellWatches
from batten.journal.sqlite.bodies import INLINE_BYTES, BodyFiles, FileWriter, Quotas
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.doorbell import Doorbell
from batten.journal.sqlite.faults import faults_typed
from batten.journal.sqlite.lock import FileLock
from batten.journal.sqlite.reader import Reader
from batten.journal.sqlite.schema import connect, keep_private, open_for_reading, prepare
from batten.journal.sqlite.writer import Writer
from batten.journal.upkeep import Damage

if TYPE_CHECKING:
    from batten.journal.removal import (
        Bounds,
        Extent,
        Grouping,
        OldArtifact,
        OnRemoved,
        Removable,
        Removal,
        RemovalLimits,
        UsageSum,
    )

_NO_QUOTAS = Quotas()
_A_SESSION_AND_ITS_RUN = 2


T = TypeVar("T")


class SqliteJournal(JournalHandle):
    """One process's handle on the journal of a home. Unusable after a fork."""

    def __init__(
        self,
        home: str,
        reader: Reader,
        bell: Doorbell,
        queue_bell: Doorbell,
        patience_s: float,
        quotas: Quotas,
        writing: tuple[Database, FileLock] | None,
        own_process: bool,
    ) -> None:
        super().__init__(Followers())
        self._home = home
        self._reader = reader
        self._bell = bell
        self._patience_s = patience_s
        self._quotas = quotas
        self._files = BodyFiles(home)
        self._watches = BellWatches(bell, self._followers)
        self._queue_bell = queue_bell
        self._queue_followers = Followers()
        self._queue_watches = BellWatches(queue_bell, self._queue_followers)
        self._ballast = Ballast(home)
        self._writing = writing
        self._writer: Writer | None = None
        self._own_process = own_process
        if writing is not None:
            db, lock = writing
            self._ballast.lay()
            self._writer = Writer(
                db,
                home,
                lock,
                bell,
                self._followers,
                self._watches,
                self._ring_queue,
                self._ballast,
                patience_s,
                self._may_write,
            )
        _OPEN.add(self)

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str],
        *,
        patience_s: float = 10.0,
        read_only: bool = False,
        quotas: Quotas = _NO_QUOTAS,
        own_process: bool = False,
    ) -> "SqliteJournal":
        """Open the journal under `home`, creating it unless `read_only`.

        `own_process`: the journal may block the event loop for the time of a commit while there is
        one run; a fact with a waiter is then committed on the waiting thread.
        """
        home = os.path.abspath(os.fspath(home))
        path = os.path.join(home, "journal.db")
        reader = Reader(path, home, patience_s)
        writing: tuple[Database, FileLock] | None = None
        with faults_typed(home):
            if read_only:
                reader.connection()
            else:
                os.makedirs(home, mode=0o700, exist_ok=True)
                writing = _open_for_writing(path, patience_s)
            bell = Doorbell(path + ".bell", writing=not read_only)
            queue_bell = Doorbell(path + ".queue", writing=not read_only)
        return cls(home, reader, bell, queue_bell, patience_s, quotas, writing, own_process)

    @property
    def home(self) -> str:
        return self._home

    def _write(self) -> Writer:
        self._check()
        if self._writer is None:
            raise StoreReadOnly(f"the journal in {self._home} was opened for reading only")
        return self._writer

    def _may_write(self) -> bool:
        return self._own_process and len(self._leased) <= _A_SESSION_AND_ITS_RUN

    def _ring_queue(self, position: int) -> list[Wakeup]:
        self._queue_bell.ring(position)
        return self._queue_followers.ask()

    def _read(self) -> Reader:
        self._check()
        return self._reader

    def _watching(self, run_id: str) -> AbstractContextManager[None]:
        return self._watches.watching(ours=run_id in self._leased)

    def follow_queue(self) -> AsyncGenerator[None, None]:
        following = self._queue_followers.following(FEED, 0)
        return wake_ups(following, self._queue_watches.watching(ours=False), self._is_closed)

    async def queued(self, *, limit: int = PAGE) -> list[RunRow]:
        return self._read().queued(limit)

    async def awaited(self, *, limit: int = PAGE) -> list[RunRow]:
        return self._read().awaited(limit)

    async def held(
        self, *, kind: RunKind | None = None, surface: str | None = None, limit: int = 1000
    ) -> list[RunRow]:
        return self._read().held(kind, surface, limit)

    async def feed(
        self, *, after: int = 0, limit: int = PAGE, **filters: Unpack[FeedFilters]
    ) -> list[Stored]:
        return self._read().feed(after, limit, filters)

    def read_now(self, run_id: str, *, after: int = -1, limit: int = PAGE) -> list[Stored]:
        return self._read().page(run_id, after, limit)

    def run_now(self, run_id: str) -> RunRow | None:
        return self._read().run(run_id)

    def load_now(self, artifact_id: str) -> bytes:
        row = self._read().artifact(artifact_id)
        if row is None:
            raise NotFound(f"no artifact {artifact_id}")
        return self._body(row.sha256, 0, None)

    async def position(self) -> int:
        return self._read().position()

    async def length(self, run_id: str) -> int:
        return self._read().length(run_id)

    async def version(self) -> int:
        return self._read().version()

    async def runs(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> list[RunRow]:
        return self._read().runs(after, limit, filters)

    async def session(self, session_id: str) -> SessionRow | None:
        return self._read().session(session_id)

    async def sessions(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[SessionFilters]
    ) -> list[SessionRow]:
        return self._read().sessions(after, limit, filters)

    async def request(self, request_id: str) -> RequestRow | None:
        return self._read().request(request_id)

    async def requests(self, run_id: str) -> list[RequestRow]:
        return self._read().requests(run_id)

    async def pending_requests(
        self, *, due_by: str | None = None, limit: int = 1000
    ) -> list[RequestRow]:
        return self._read().pending_requests(due_by, limit)

    async def ids(self, kind: IdKind, first: str, last: str, *, limit: int = 10) -> list[str]:
        return self._read().ids(kind, first, last, limit)

    async def streams(self) -> int:
        return self._read().streams()

    async def ledger(self, run_id: str) -> list[LedgerRow]:
        return self._read().ledger(run_id)

    async def spend(self, task_id: str, *, but_run: str | None = None) -> Spend:
        return self._read().spend(task_id, but_run)

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        return self._read().artifact(artifact_id)

    async def artifacts(
        self, run_id: str, *, kind: ArtifactKind | None = None
    ) -> list[ArtifactRow]:
        return self._read().artifacts(run_id, kind)

    async def public_artifacts(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[ArtifactFilters]
    ) -> list[ArtifactRow]:
        return self._read().public_artifacts(after, limit, filters)

    async def artifact_bytes(self, task_id: str) -> int:
        return self._read().artifact_bytes(task_id)

    async def body(self, sha256: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return self._body(sha256, offset, limit)

    def _body(self, sha256: str, offset: int, limit: int | None) -> bytes:
        found = self._read().all("SELECT data FROM bodies WHERE sha256 = ?", (sha256,))
        if not found or found[0][0] is None:
            return self._files.read(sha256, offset, limit)
        data: bytes = found[0][0]
        if digest_of(data) != sha256:
            raise StoreDamaged(f"the body {sha256} is not what was written")
        return data[offset:] if limit is None else data[offset : offset + limit]

    async def sealed_body(self, sha256: str) -> bytes:
        found = self._read().all("SELECT data FROM resealed WHERE sha256 = ?", (sha256,))
        return found[0][0] if found else self._body(sha256, 0, None)

    def inline(self, data: bytes) -> Body:
        if len(data) < INLINE_BYTES:
            return Body(digest_of(data), len(data), bytes(data))
        return self._files.write(data)

    async def body_writer(self, *, task_id: str | None = None) -> FileWriter:
        self._check()
        room = None if task_id is None else partial(self._room_for, task_id)
        return FileWriter(self._files, limit=self._quotas.artifact_bytes, room=room)

    def _room_for(self, task_id: str) -> int:
        [(kept,)] = self._reader.all(
            "SELECT coalesce(sum(size), 0) FROM bodies WHERE sha256 IN (SELECT a.sha256 FROM runs"
            " JOIN artifacts a USING (run_id) WHERE runs.task_id = ? AND a.released = 0)",
            (task_id,),
        )
        return self._quotas.task_bytes - int(kept)

    async def prune(
        self, run_id: str, *, before: int, reason: str, base_state: bytes | None = None
    ) -> Stored | None:
        import asyncio

        reader = self._read()
        run = pruning.known_run(reader, run_id)
        cut = await asyncio.to_thread(pruning.plan, reader, run, before)
        if cut is None:
            return None
        stored: Stored = await self._write().submit(
            lambda batch: pruning.remove(batch, cut, reason, base_state)
        )
        return stored

    async def base(self, run_id: str) -> KeptBase | None:
        return pruning.base(self._read(), run_id)

    async def collect_bodies(self, *, grace_s: float = 3600.0) -> int:
        """Delete bodies that no artifact needs. Returns how many."""
        from batten.journal.sqlite.reclaiming import collect

        return await collect(self.work, self._read(), self._files, grace_s)

    async def delete_session(self, session_id: str, *, only_ended: bool = False) -> int:
        from batten.journal.sqlite.upkeep import delete_session

        return await delete_session(self, session_id, only_ended=only_ended)

    async def remove_sessions(self, limits: "RemovalLimits", on_removed: "OnRemoved") -> "Removal":
        from batten.journal.sqlite.upkeep import prune

        return await prune(self, limits, on_removed)

    async def plan_removal(self, limits: "RemovalLimits", on_removed: "OnRemoved") -> "Removal":
        from batten.journal.sqlite.upkeep import plan

        return plan(self._read(), limits, on_removed)

    async def extent(self, one: "Removable") -> "Extent":
        from batten.journal.sqlite.removing import extent

        return extent(self._read(), one)

    def old_runs(self, bounds: "Bounds") -> AsyncGenerator[str, None]:
        from batten.journal.sqlite.retaining import old_runs

        return old_runs(self._read(), bounds)

    async def old_artifacts(self, bounds: "Bounds") -> "list[OldArtifact]":
        from batten.journal.sqlite.retaining import old_artifacts

        return old_artifacts(self._read(), bounds)

    async def drop_released(self, run_id: str, before_step: Callable[[], None]) -> None:
        from batten.journal.sqlite.upkeep import drop_released

        await drop_released(self, run_id, before_step)

    async def compact(self, before_step: Callable[[], None]) -> None:
        from batten.journal.sqlite.upkeep import compact

        await compact(self, before_step)

    async def usage(self, by: "Grouping", since: str | None, until: str | None) -> "list[UsageSum]":
        from batten.journal.sqlite.usage import usage

        return usage(self._read(), by, since, until)

    async def file_bytes(self) -> int:
        return os.stat(self._reader.path).st_size

    def work(self, job: Callable[[Batch], T]) -> Awaitable[T]:
        """Run a job of upkeep in the next transaction; it runs again if that one fails."""
        return self._write().submit(job)

    def work_now(self, job: Callable[[Batch], T], timeout_s: float = 10.0) -> T:
        """The same from a thread, until it is durable."""
        result: T = self._write().submit(job).wait(timeout_s)
        return result

    @property
    def reader(self) -> Reader:
        return self._read()

    @property
    def files(self) -> BodyFiles:
        return self._files

    async def verify(self, run_id: str | None = None) -> list[Damage]:
        import asyncio

        self._check()
        return await asyncio.to_thread(self._verify, run_id)

    def _verify(self, run_id: str | None) -> list[Damage]:
        from batten.journal.sqlite.verify import verify

        try:
            with faults_typed(self._home):
                db = open_for_reading(self._reader.path, self._patience_s)
        except StoreDamaged as error:
            return [Damage(run_id or "", None, str(error))]
        try:
            return verify(db, self._files, self._bell, run_id)
        finally:
            db.close()

    def free_ballast(self) -> bool:
        """Release the reserved room. An ending that meets a full disk does this by itself."""
        return self._ballast.free()

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        error: BaseException | None = None
        if self._writer is not None and self._writing is not None:
            self._writer.stop()
            error = self._writer.unheard.first()
            _close_writing(*self._writing, self._reader, self._patience_s)
        else:
            self._reader.close()
        self._bell.close()
        self._queue_bell.close()
        wake((), [*self._followers.ask(), *self._queue_followers.ask()])
        if error is not None:
            raise lost(error)


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def _open_for_writing(path: str, patience_s: float) -> tuple[Database, FileLock]:
    """Under the lock: two processes that create the file at once would fail each other."""
    lock = FileLock(path + ".lock")
    try:
        lock.acquire(patience_s)
        try:
            keep_private(path)
            db = connect(path, patience_s=patience_s, writing=True)
            try:
                prepare(db)
            except BaseException:
                db.close()
                raise
        finally:
            lock.release()
    except BaseException:
        lock.close()
        raise
    return db, lock


def _close_writing(db: Database, lock: FileLock, reader: Reader, patience_s: float) -> None:
    """Under the lock: the last connection to close folds the log into the file."""
    try:
        lock.acquire(patience_s)
    except JournalError:
        locked = False
    else:
        locked = True
    try:
        reader.close()
        db.close()
    finally:
        if locked:
            lock.release()
        lock.close()


_OPEN: "weakref.WeakSet[SqliteJournal]" = weakref.WeakSet()
_INHERITED: list[Any] = []


def _leave_alone_after_fork() -> None:
    """Keep inherited handles from being closed here: that would harm the parent's store."""
    _INHERITED.extend(_OPEN)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_alone_after_fork)
