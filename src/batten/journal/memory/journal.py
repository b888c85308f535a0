"""`MemoryJournal`: the journal's contract without a file that outlives the process."""

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from batten.contract.errors import NotFound
from batten.contract.facts import Fact
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
from batten.journal.created import row_of
from batten.journal.filters import ArtifactFilters, FeedFilters, RunFilters, SessionFilters
from batten.journal.followers import FEED, PAGE, wake_ups
from batten.journal.handle import JournalHandle
from batten.journal.leasing import waits_for_worker
from batten.journal.memory import upkeep
from batten.journal.memory.bodies import SpoolWriter
from batten.journal.memory.store import MemoryStore
from batten.journal.pruned import KeptBase, Prefix
from batten.journal.receipt import Receipt, Unheard, Waiter, is_told_by_state, lost, wake
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

_INLINE_BYTES = 16 * 1024
_ARTIFACT_BYTES = 2 * 1024**3
_FOLD_PAGE = 1024


class MemoryJournal(JournalHandle):
    """One process's handle on a memory journal, usable from any thread."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        """`store` may be shared with other handles; it then outlives this one."""
        self._shared = store is not None
        self._store = store or MemoryStore()
        super().__init__(self._store.followers)
        self._jobs: deque[tuple[Callable[[MemoryStore], Any], Receipt[Any], str]] = deque()
        self.unheard = Unheard()

    def _write(self) -> "MemoryJournal":
        self._check()
        return self

    def _watching(self, run_id: str) -> AbstractContextManager[None]:
        return nullcontext()

    def submit(
        self, work: Callable[[MemoryStore], Any], facts: Sequence[Fact] = (), run_id: str = ""
    ) -> Receipt[Any]:
        """Queue work behind all earlier work. It runs when its receipt is awaited or on the loop's
        next turn, so that an error without a waiter can be recognized.
        """
        receipt: Receipt[Any] = Receipt(self, run_id)
        self._jobs.append((work, receipt, run_id))
        with suppress(RuntimeError):  # a thread without a loop waits for its receipt
            asyncio.get_running_loop().call_soon(self.hurry)
        return receipt

    def write_here(self, *, asked: bool = False) -> None:
        self.hurry()

    def hurry(self) -> None:
        """Run the queued work and fill its receipts. From any thread."""
        waiters: list[Waiter] = []
        with self._store.mutex:
            while self._jobs:
                self._store.version += 1
                waiters += self._do(*self._jobs.popleft())
            wakeups = self._store.take_wakeups()
        if waiters or wakeups:
            wake(waiters, wakeups)

    def _do(
        self, work: Callable[[MemoryStore], Any], receipt: Receipt[Any], run_id: str
    ) -> list[Waiter]:
        earlier = self.unheard.of(run_id)
        if earlier is not None:  # the journal would have a gap
            return receipt.fill(None, lost(earlier))
        try:
            return receipt.fill(work(self._store), None)
        except Exception as error:  # the appender receives even a bug
            if not is_told_by_state(error) and not receipt.is_awaited:
                self.unheard.keep(error, run_id)
            return receipt.fill(None, error)

    def read_now(self, run_id: str, *, after: int = -1, limit: int = PAGE) -> list[Stored]:
        self._check()
        with self._store.mutex:
            return self._store.page(run_id, after, limit)

    async def feed(
        self, *, after: int = 0, limit: int = PAGE, **filters: Unpack[FeedFilters]
    ) -> list[Stored]:
        self._check()
        with self._store.mutex:
            return self._store.feed(after, limit, filters)

    def follow_queue(self) -> AsyncGenerator[None, None]:
        return wake_ups(self._store.queue.following(FEED, 0), nullcontext(), self._is_closed)

    def run_now(self, run_id: str) -> RunRow | None:
        self._check()
        run = self._store.find_run(run_id)
        return None if run is None else row_of(run)

    async def length(self, run_id: str) -> int:
        self._check()
        run = self._store.find_run(run_id)
        return 0 if run is None else run.next_sequence

    async def position(self) -> int:
        self._check()
        return self._store.next_position - 1

    async def version(self) -> int:
        self._check()
        return self._store.version

    async def runs(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> list[RunRow]:
        rows = self._all_runs()[::-1]
        ids = [row.run_id for row in rows]
        if after is not None:
            rows = rows[ids.index(after) + 1 :] if after in ids else []
        wanted = (row for row in rows if row.kind != "session" and _takes(row, filters))
        return list(islice(wanted, limit))

    async def queued(self, *, limit: int = 256) -> list[RunRow]:
        self._check()
        with self._store.mutex:
            states = [index.state for index in self._store.runs.values()]
        rows = [row_of(state) for state in states if waits_for_worker(state)]
        return sorted(rows, key=lambda row: -row.priority)[:limit]

    async def awaited(self, *, limit: int = 256) -> list[RunRow]:
        rows = [row for row in self._all_runs() if row.kind == "coordination"]
        return [row for row in rows if row.status == "queued" and not row.worker_id][:limit]

    async def held(
        self, *, kind: RunKind | None = None, surface: str | None = None, limit: int = 1000
    ) -> list[RunRow]:
        sessions = self._store.sessions

        def is_wanted(row: RunRow) -> bool:
            if not row.worker_id or row.ended_at is not None or kind not in (None, row.kind):
                return False
            if surface is None:
                return True
            session = sessions.get(row.session_id or "")
            is_own = row.kind != "session" and row.parent_run_id is None
            return is_own and session is not None and session.surface == surface

        return [row for row in self._all_runs() if is_wanted(row)][:limit]

    def _all_runs(self) -> list[RunRow]:
        """Rows of all runs and session streams, oldest first."""
        self._check()
        with self._store.mutex:
            return [row_of(index.state) for index in self._store.runs.values()]

    async def session(self, session_id: str) -> SessionRow | None:
        self._check()
        return self._store.sessions.get(session_id)

    async def sessions(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[SessionFilters]
    ) -> list[SessionRow]:
        self._check()
        with self._store.mutex:
            rows = sorted(self._store.sessions.values(), key=_recency, reverse=True)
            status = filters.pop("status", None)
            if status is not None:
                rows = [row for row in rows if self._store.status_of(row) == status]
        wanted = (
            row
            for row in rows
            if _takes(row, filters) and (after is None or _recency(row) < tuple(after.split(" ")))
        )
        return list(islice(wanted, limit))

    async def request(self, request_id: str) -> RequestRow | None:
        self._check()
        return self._store.requests.get(request_id)

    async def requests(self, run_id: str) -> list[RequestRow]:
        rows = self._of_run(self._store.requests, run_id)
        return sorted(rows, key=lambda row: row.request_id)

    async def pending_requests(
        self, *, due_by: str | None = None, limit: int = 1000
    ) -> list[RequestRow]:
        self._check()
        store = self._store
        with store.mutex:
            pending = [
                row
                for row in store.requests.values()
                if row.status == "pending"
                and store.run(row.run_id).fold.ended_at is None
                and (due_by is None or (row.deadline_at is not None and row.deadline_at <= due_by))
            ]
            pending.sort(key=lambda row: (-store.run(row.run_id).key, row.request_id))
        return pending[:limit]

    async def ids(self, kind: IdKind, first: str, last: str, *, limit: int = 10) -> list[str]:
        self._check()
        store = self._store
        with store.mutex:
            runs = [name for name, one in store.runs.items() if one.state.fold.kind != "session"]
            known = {"run": runs, "stream": store.runs}
            known |= {"session": store.sessions, "request": store.requests}
            found = [name for name in known.get(kind, store.artifacts) if first <= name <= last]
        return sorted(found)[:limit]

    async def streams(self) -> int:
        self._check()
        with self._store.mutex:
            return len(self._store.runs)

    async def ledger(self, run_id: str) -> list[LedgerRow]:
        self._check()
        return list(self._store.ledger.get(run_id, ()))

    async def spend(self, task_id: str, *, but_run: str | None = None) -> Spend:
        self._check()
        with self._store.mutex:
            return self._store.spend(task_id, but_run or "")

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        self._check()
        return self._store.artifacts.get(artifact_id)

    async def artifacts(
        self, run_id: str, *, kind: ArtifactKind | None = None
    ) -> list[ArtifactRow]:
        rows = self._of_run(self._store.artifacts, run_id)
        chosen = [row for row in rows if kind in (None, row.kind)]
        return sorted(chosen, key=lambda row: (row.created_at, row.artifact_id))

    async def public_artifacts(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[ArtifactFilters]
    ) -> list[ArtifactRow]:
        runs = {row.run_id: row for row in self._all_runs()}
        of_run: RunFilters = {
            "task_id": filters.pop("task_id", None),
            "session_id": filters.pop("session_id", None),
        }
        with self._store.mutex:
            rows = sorted(self._store.artifacts.values(), key=lambda row: row.artifact_id)
        wanted = (
            row
            for row in reversed(rows)
            if row.kind != "sealed"
            and row.deleted_at is None
            and (after is None or row.artifact_id < after)
            and _takes(row, filters)
            and _takes(runs[row.run_id], of_run)
        )
        return list(islice(wanted, limit))

    async def artifact_bytes(self, task_id: str) -> int:
        rows = await self.public_artifacts(limit=sys.maxsize, task_id=task_id)
        return sum(row.size_bytes for row in rows)

    def _of_run(self, rows: Mapping[str, Any], run_id: str) -> list[Any]:
        self._check()
        with self._store.mutex:
            return [row for row in rows.values() if row.run_id == run_id]

    async def body(self, sha256: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        self._check()
        with self._store.mutex:
            return self._store.body(sha256, offset, limit)

    async def sealed_body(self, sha256: str) -> bytes:
        return await self.body(sha256)

    def load_now(self, artifact_id: str) -> bytes:
        self._check()
        with self._store.mutex:
            row = self._store.artifacts.get(artifact_id)
            if row is None:
                raise NotFound(f"no artifact {artifact_id}")
            return self._store.body(row.sha256, 0, None)

    def inline(self, data: bytes) -> Body:
        digest = sha256(data).hexdigest()
        if len(data) < _INLINE_BYTES:
            return Body(digest, len(data), bytes(data))
        with self._store.mutex:
            self._store.keep_body(digest, data)
        return Body(digest, len(data), None)

    async def body_writer(self, *, task_id: str | None = None) -> SpoolWriter:
        self._check()
        return SpoolWriter(self._store, _ARTIFACT_BYTES)

    async def prune(
        self, run_id: str, *, before: int, reason: str, base_state: bytes | None = None
    ) -> Stored | None:
        run = await self.run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        prefix = Prefix(run, await self.base(run_id), before)
        if not prefix.left:
            return None
        while prefix.left:
            size = min(_FOLD_PAGE, prefix.left)
            prefix.take(await self.read(run_id, after=prefix.sequence - 1, limit=size))
        cut = prefix.cut()
        marker: Stored = await self._write().submit(
            lambda store: store.remove(cut, reason, base_state)
        )
        return marker

    async def base(self, run_id: str) -> KeptBase | None:
        self._check()
        index = self._store.runs.get(run_id)
        return None if index is None else index.base

    async def delete_session(self, session_id: str, *, only_ended: bool = False) -> int:
        with self._upkeep() as store:
            upkeep.delete_session(store, session_id, only_ended=only_ended)
        return 0

    async def remove_sessions(self, limits: "RemovalLimits", on_removed: "OnRemoved") -> "Removal":
        with self._upkeep() as store:
            return upkeep.remove_sessions(store, limits, on_removed, is_plan=False)

    async def plan_removal(self, limits: "RemovalLimits", on_removed: "OnRemoved") -> "Removal":
        with self._upkeep() as store:
            return upkeep.remove_sessions(store, limits, on_removed, is_plan=True)

    async def extent(self, one: "Removable") -> "Extent":
        with self._upkeep() as store:
            return upkeep.extent(store, one)

    async def old_runs(self, bounds: "Bounds") -> AsyncGenerator[str, None]:
        with self._upkeep() as store:
            found = upkeep.old_runs(store, bounds)
        while True:
            with self._upkeep():
                name = next(found, None)
            if name is None:
                return
            yield name

    async def old_artifacts(self, bounds: "Bounds") -> "list[OldArtifact]":
        with self._upkeep() as store:
            return upkeep.old_artifacts(store, bounds)

    async def drop_released(self, run_id: str, before_step: Callable[[], None]) -> None:
        await self.compact(before_step)

    async def compact(self, before_step: Callable[[], None]) -> None:
        before_step()
        with self._upkeep() as store:
            upkeep.drop_bodies(store)

    async def usage(self, by: "Grouping", since: str | None, until: str | None) -> "list[UsageSum]":
        with self._upkeep() as store:
            return upkeep.usage(store, by, since, until)

    async def file_bytes(self) -> int:
        return 0

    @contextmanager
    def _upkeep(self) -> Generator[MemoryStore]:
        """The store after all queued work."""
        self._check()
        self.hurry()
        with self._store.mutex:
            self._store.version += 1
            yield self._store

    async def verify(self, run_id: str | None = None) -> list[Damage]:
        from batten.journal.memory.verifying import verify

        self._check()
        with self._store.mutex:
            return verify(self._store, run_id)

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        self.hurry()
        self._closed = True
        wake((), [*self._store.followers.ask(), *self._store.queue.ask()])
        if not self._shared:
            self._store.close()
        error = self.unheard.first()
        if error is not None:
            raise lost(error)


def _recency(row: SessionRow) -> tuple[str, ...]:
    return row.updated_at, row.session_id


def _takes(
    row: RunRow | SessionRow | ArtifactRow, filters: RunFilters | SessionFilters | ArtifactFilters
) -> bool:
    at = row.updated_at if isinstance(row, SessionRow) else row.created_at
    for name, value in filters.items():
        if value is None:
            continue
        if name == "since":
            fits = at >= str(value)
        elif name == "until":
            fits = at < str(value)
        else:
            fits = getattr(row, name) == value
        if not fits:
            return False
    return True
