"""`MemoryJournal`: the journal's contract without a file that outlives the process."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from hashlib import sha256
from itertools import islice
from typing import Any, Unpack

from batten.contract.envelope import timestamp
from batten.contract.errors import Conflict, JournalError, NotFound
from batten.contract.facts import Fact, GapEventsPruned
from batten.contract.facts.artifact import ArtifactKind
from batten.journal import leasing
from batten.journal.appending import RunState, new_state
from batten.journal.contract import (
    ArtifactRow,
    Body,
    Damage,
    IdKind,
    Lease,
    LedgerRow,
    NewRun,
    RequestRow,
    RunFilters,
    RunRow,
    SessionFilters,
    SessionRow,
    Spend,
    Stored,
)
from batten.journal.followers import FEED, PAGE, pages, wake_ups
from batten.journal.memory.bodies import SpoolWriter
from batten.journal.memory.store import MemoryStore
from batten.journal.pruned import Cut, KeptBase, Prefix
from batten.journal.receipt import Receipt, Unheard, Waiter, is_told_by_state, lost, wake
from batten.journal.rules import reservable
from batten.journal.workers import is_gone

_INLINE_BYTES = 16 * 1024
_ARTIFACT_BYTES = 2 * 1024**3
_FOLD_PAGE = 1024


class MemoryJournal:
    """One process's handle on a memory journal, usable from any thread."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        """`store` may be shared with other handles; it then outlives this one."""
        self._shared = store is not None
        self._store = store or MemoryStore()
        self._pid = os.getpid()
        self._closed = False
        self._jobs: deque[tuple[Callable[[], Any], Receipt[Any], str]] = deque()
        self.unheard = Unheard()

    def _check(self) -> None:
        if self._closed:
            raise JournalError("the journal is closed")
        if os.getpid() != self._pid:
            raise JournalError("the journal was opened before a fork: open it again here")

    def _submit(self, work: Callable[[], Any], run_id: str = "") -> Receipt[Any]:
        """Queue work behind all earlier work. It runs when its receipt is awaited or on the loop's
        next turn, so that an error without a waiter can be recognized.
        """
        self._check()
        receipt: Receipt[Any] = Receipt(self, run_id)
        self._jobs.append((work, receipt, run_id))
        with suppress(RuntimeError):  # a thread without a loop waits for its receipt
            asyncio.get_running_loop().call_soon(self.hurry)
        return receipt

    def write_here(self) -> None:
        self.hurry()

    def hurry(self) -> None:
        """Run the queued work and fill its receipts. From any thread."""
        waiters: list[Waiter] = []
        with self._store.mutex:
            while self._jobs:
                waiters += self._do(*self._jobs.popleft())
            wakeups = self._store.take_wakeups()
        if waiters or wakeups:
            wake(waiters, wakeups)

    def _do(self, work: Callable[[], Any], receipt: Receipt[Any], run_id: str) -> list[Waiter]:
        earlier = self.unheard.of(run_id)
        if earlier is not None:  # the journal would have a gap
            return receipt.fill(None, lost(earlier))
        try:
            return receipt.fill(work(), None)
        except Exception as error:  # the appender receives even a bug
            if not is_told_by_state(error) and not receipt.is_awaited:
                self.unheard.keep(error, run_id)
            return receipt.fill(None, error)

    def create(
        self,
        new: NewRun,
        facts: Sequence[Fact],
        *,
        bodies: Sequence[Body] = (),
        under: Lease | None = None,
    ) -> Awaitable[tuple[Lease | None, list[Stored]]]:
        def work() -> tuple[Lease | None, list[Stored]]:
            store = self._store
            if new.run_id in store.runs:
                raise Conflict(f"run {new.run_id} exists already", code="run_exists")
            if under is not None:
                leasing.check_holder(store.run(under.run_id).state, under)
            if new.alone:
                self._check_alone(new)
            run = new_state(new, store.next_key, store.now())
            prepared = store.prepare(run, facts, guest=False)
            store.commit(run, prepared, bodies)
            return leasing.lease_of(run), prepared.stored

        return self._submit(work)

    def _check_alone(self, new: NewRun) -> None:
        for index in self._store.runs.values():
            run = index.state.fold
            ours = index.state.session_id == new.session_id and run.parent_run_id is None
            if ours and run.ended_at is None and run.kind != "session":
                raise leasing.not_alone(index.state.run_id)

    def append(
        self,
        run_id: str,
        facts: Sequence[Fact],
        *,
        fence: int | None,
        bodies: Sequence[Body] = (),
    ) -> Awaitable[list[Stored]]:
        return self._submit(
            lambda: self._append(run_id, facts, fence, bodies), "" if fence is None else run_id
        )

    def _append(
        self, run_id: str, facts: Sequence[Fact], fence: int | None, bodies: Sequence[Body] = ()
    ) -> list[Stored]:
        run = self._store.run(run_id).state
        if fence is not None:
            leasing.check_fence(run, fence)
        prepared = self._store.prepare(run, facts, guest=fence is None)
        self._store.commit(run, prepared, bodies)
        return prepared.stored

    def append_now(
        self, run_id: str, facts: Sequence[Fact], *, fence: int | None, timeout_s: float = 10.0
    ) -> list[Stored]:
        stored: list[Stored] = self._submit(lambda: self._append(run_id, facts, fence)).wait(
            timeout_s
        )
        return stored

    def claim(self, run_id: str, worker_id: str, lease_s: float = 30.0) -> Awaitable[Lease]:
        return self._submit(
            lambda: self._hold(leasing.claimed(self._store.run(run_id).state, worker_id, lease_s))
        )

    def renew(self, lease: Lease, lease_s: float = 30.0) -> Awaitable[Lease]:
        return self._submit(
            lambda: self._hold(leasing.renewed(self._store.run(lease.run_id).state, lease, lease_s))
        )

    def _hold(self, held: tuple[RunState, Lease]) -> Lease:
        self._change(held[0])
        return held[1]

    def _change(self, run: RunState | None) -> bool:
        if run is not None:
            self._store.run(run.run_id).state = run
        return run is not None

    def release(self, lease: Lease) -> Awaitable[None]:
        def work() -> None:
            run = self._store.run(lease.run_id).state
            self._change(leasing.released(run, lease, self._store.now()))

        return self._submit(work)

    def park(self, lease: Lease) -> Awaitable[bool]:
        def work() -> bool:
            run = self._store.run(lease.run_id).state
            return self._change(leasing.parked(run, lease, self._store.now()))

        return self._submit(work)

    def reserve(
        self, task_id: str, run_id: str, micros_usd: int, limit_micros_usd: int
    ) -> Awaitable[Spend | None]:
        def work() -> Spend | None:
            held = self._store.reservations
            for other in [key for key, (task, _) in held.items() if task == task_id]:
                run = self._store.find_state(other)
                gone = run is not None and is_gone(run)
                if other != run_id and gone:
                    del held[other]  # the run has no living worker: its call is over
            spend = self._spend(task_id, run_id)
            micros = reservable(spend, micros_usd, limit_micros_usd)
            if micros is None:
                return None
            held[run_id] = (task_id, micros)
            return spend

        return self._submit(work)

    def unreserve(self, run_id: str) -> Awaitable[None]:
        def work() -> None:
            self._store.reservations.pop(run_id, None)

        return self._submit(work)

    def read_now(self, run_id: str, *, after: int = -1, limit: int = PAGE) -> list[Stored]:
        self._check()
        with self._store.mutex:
            return self._store.page(run_id, after, limit)

    async def read(self, run_id: str, *, after: int = -1, limit: int = PAGE) -> list[Stored]:
        return self.read_now(run_id, after=after, limit=limit)

    async def feed(self, *, after: int = 0, limit: int = PAGE) -> list[Stored]:
        self._check()
        with self._store.mutex:
            return self._store.feed(after, limit)

    def follow(
        self, run_id: str, *, after: int = -1, types: frozenset[str] | None = None
    ) -> AsyncGenerator[list[Stored], None]:
        async def read(cursor: int) -> list[Stored]:
            return await self.read(run_id, after=cursor)

        following = self._store.followers.following(run_id, after, types)
        return pages(following, nullcontext(), read, self._is_closed)

    def follow_feed(self, *, after: int = 0) -> AsyncGenerator[list[Stored], None]:
        async def read(cursor: int) -> list[Stored]:
            return await self.feed(after=cursor)

        following = self._store.followers.following(FEED, after)
        return pages(following, nullcontext(), read, self._is_closed)

    def follow_queue(self) -> AsyncGenerator[None, None]:
        return wake_ups(self._store.queue.following(FEED, 0), nullcontext(), self._is_closed)

    def _is_closed(self) -> bool:
        return self._closed

    def run_now(self, run_id: str) -> RunRow | None:
        self._check()
        run = self._store.find_state(run_id)
        return None if run is None else _row_of(run)

    async def run(self, run_id: str) -> RunRow | None:
        return self.run_now(run_id)

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
        rows = [row for row in self._all_runs() if row.status == "queued" and not row.worker_id]
        return sorted(rows, key=lambda row: -row.priority)[:limit]

    async def held(self, *, limit: int = 1000) -> list[RunRow]:
        rows = self._all_runs()
        return [row for row in rows if row.worker_id and row.ended_at is None][:limit]

    def _all_runs(self) -> list[RunRow]:
        """Rows of all runs and session streams, oldest first."""
        self._check()
        with self._store.mutex:
            return [_row_of(index.state) for index in self._store.runs.values()]

    async def session(self, session_id: str) -> SessionRow | None:
        self._check()
        return self._store.sessions.get(session_id)

    async def sessions(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[SessionFilters]
    ) -> list[SessionRow]:
        self._check()
        with self._store.mutex:
            rows = sorted(self._store.sessions.values(), key=_recency, reverse=True)
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
                and store.run(row.run_id).state.fold.ended_at is None
                and (due_by is None or (row.deadline_at is not None and row.deadline_at <= due_by))
            ]
            pending.sort(key=lambda row: (-store.run(row.run_id).state.key, row.request_id))
        return pending[:limit]

    async def ids(self, kind: IdKind, first: str, last: str, *, limit: int = 10) -> list[str]:
        self._check()
        store = self._store
        with store.mutex:
            streams = [name for name, one in store.runs.items() if one.state.fold.kind != "session"]
            known = {"run": streams, "session": store.sessions, "request": store.requests}
            found = [name for name in known.get(kind, store.artifacts) if first <= name <= last]
        return sorted(found)[:limit]

    async def ledger(self, run_id: str) -> list[LedgerRow]:
        self._check()
        return list(self._store.ledger.get(run_id, ()))

    async def spend(self, task_id: str, *, but_run: str | None = None) -> Spend:
        self._check()
        with self._store.mutex:
            return self._spend(task_id, but_run)

    def _spend(self, task_id: str, but_run: str | None) -> Spend:
        calls = [
            row for rows in self._store.ledger.values() for row in rows if row.task_id == task_id
        ]
        held = [
            micros
            for run_id, (task, micros) in self._store.reservations.items()
            if task == task_id and run_id != but_run
        ]
        return Spend(
            sum(row.input_tokens for row in calls),
            sum(row.output_tokens for row in calls),
            sum(row.cost_micros_usd or 0 for row in calls),
            any(row.cost_micros_usd is None for row in calls),
            sum(held),
        )

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        self._check()
        return self._store.artifacts.get(artifact_id)

    async def artifacts(
        self, run_id: str, *, kind: ArtifactKind | None = None
    ) -> list[ArtifactRow]:
        rows = self._of_run(self._store.artifacts, run_id)
        chosen = [row for row in rows if kind in (None, row.kind)]
        return sorted(chosen, key=lambda row: (row.created_at, row.artifact_id))

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
        marker: Stored = await self._submit(lambda: self._remove(cut, reason, base_state))
        return marker

    def _remove(self, cut: Cut, reason: str, state: bytes | None) -> Stored:
        self._store.remove(cut, state)
        marker = GapEventsPruned(cut.first, cut.before - 1, timestamp(), reason)
        [stored] = self._append(cut.run_id, (marker,), None)
        return stored

    async def base(self, run_id: str) -> KeptBase | None:
        self._check()
        index = self._store.runs.get(run_id)
        return None if index is None else index.base

    async def verify(self, run_id: str | None = None) -> list[Damage]:
        from batten.journal.memory.verifying import verify

        self._check()
        with self._store.mutex:
            return verify(self._store, run_id)

    def collect_bodies(self, *, grace_s: float = 3600.0) -> Awaitable[int]:
        return self._submit(lambda: self._store.collect(grace_s))

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        self.hurry()
        self._closed = True
        wake((), self._store.followers.ask())
        if not self._shared:
            self._store.close()
        error = self.unheard.first()
        if error is not None:
            raise lost(error)


def _row_of(run: RunState) -> RunRow:
    state, fold = _STATE, run.fold
    values = {
        name: getattr(run if name in state else fold, name) for name in RunRow.__struct_fields__
    }
    return RunRow(**values)


_STATE = frozenset(RunState.__struct_fields__)


def _recency(row: SessionRow) -> tuple[str, ...]:
    return row.updated_at, row.session_id


def _takes(row: RunRow | SessionRow, filters: RunFilters | SessionFilters) -> bool:
    at = row.created_at if isinstance(row, RunRow) else row.updated_at
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
