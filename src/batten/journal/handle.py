"""The part of a journal that is the same for every store: the writer's jobs, and following.

A store supplies a `Transaction`, runs jobs in it one after another, and makes durable what a job
staged: all of it or nothing.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from batten.contract.envelope import Envelope
from batten.contract.errors import Conflict, JournalError
from batten.contract.facts import Fact, RunQueued, RunStarted
from batten.contract.ids import Minter, SessionId, session_stream
from batten.journal import appending, leasing
from batten.journal.appending import Past, Prepared, RunState
from batten.journal.budget import Spend, reservable
from batten.journal.contract import ArtifactRow, Body, Journal, Lease, NewRun, RunRow, Stored
from batten.journal.followers import FEED, PAGE, Followers, pages
from batten.journal.receipt import Receipt
from batten.journal.rows import Known
from batten.journal.workers import is_gone

T = TypeVar("T")


class Transaction(Protocol):
    """A store's state inside a transaction, with what earlier jobs staged."""

    @property
    def next_key(self) -> int:
        """The store's own number for the next run."""
        ...

    @property
    def next_position(self) -> int: ...

    @property
    def minter(self) -> Minter: ...

    def now(self) -> str: ...

    def run(self, run_id: str) -> RunState: ...

    def find_run(self, run_id: str) -> RunState | None: ...

    def unfinished_of(self, session_id: str | None) -> str | None:
        """A run of the session that has not ended; child runs do not count."""
        ...

    def known(self, facts: Sequence[Fact], session_id: str | None) -> Known | None:
        """The rows to compare these facts with."""
        ...

    def cause_of(self, run: RunState) -> str:
        """Id of the run's last event that is not about an artifact; empty if there is none."""
        ...

    def first(self, run: RunState, type_: str) -> Envelope | None:
        """The run's first event of a type; None if it is gone, or never was."""
        ...

    def stage(
        self, before: RunState, prepared: Prepared, bodies: Sequence[Body], *, is_new: bool = False
    ) -> None:
        """Stage the facts of one append that passed every check, and the rows they change."""
        ...

    def lease(self, run: RunState) -> None:
        """Stage the lease, which is not folded from facts."""
        ...

    def artifacts_of(self, run_id: str) -> Iterable[ArtifactRow]:
        """The artifacts of a run."""
        ...

    def spend(self, task_id: str, but_run: str) -> Spend: ...

    def reserving(self, task_id: str) -> list[str]:
        """The runs of a task that hold a reservation."""
        ...

    def reserve(self, task_id: str, run_id: str, micros_usd: int) -> None: ...

    def unreserve(self, run_id: str) -> None: ...


class Submitter(Protocol):
    def submit(
        self, work: Callable[[Any], Any], facts: Sequence[Fact] = (), run_id: str = ""
    ) -> Receipt[Any]:
        """Queue a job behind all earlier ones, from any thread. `run_id` names the run if its
        holder appends to it.
        """
        ...


class JournalHandle(Journal):
    """One process's handle on a store. Unusable after a fork."""

    def __init__(self, followers: Followers) -> None:
        self._followers = followers
        self._pid = os.getpid()
        self._closed = False
        self._leased: set[str] = set()
        """Runs and session streams that this handle holds a lease of."""

    def _write(self) -> Submitter:
        raise NotImplementedError

    def _watching(self, run_id: str) -> AbstractContextManager[None]:
        """Notices commits of other processes while a run, or the feed, is followed."""
        raise NotImplementedError

    def _check(self) -> None:
        if self._closed:
            raise JournalError("the journal is closed")
        if os.getpid() != self._pid:
            raise JournalError("the journal was opened before a fork: open it again here")

    def create(
        self,
        new: NewRun,
        facts: Sequence[Fact],
        *,
        bodies: Sequence[Body] = (),
        under: Lease | None = None,
        of_session: Sequence[Fact] = (),
    ) -> Awaitable[tuple[Lease | None, list[Stored]]]:
        facts, of_session = tuple(facts), tuple(of_session)
        stream = session_stream(SessionId(new.session_id or ""))

        def work(batch: Transaction) -> tuple[Lease | None, list[Stored]]:
            if batch.find_run(new.run_id) is not None:
                raise Conflict(f"run {new.run_id} exists already", code="run_exists")
            if under is not None:
                leasing.check_holder(batch.run(under.run_id), under)
            if new.first:
                leasing.check_first(batch.known(facts, new.session_id), new.session_id)
            elif new.alone:
                leasing.check_alone(batch.find_run(stream), batch.unfinished_of(new.session_id))
            if of_session:  # refused before anything is staged
                _prepare(batch, batch.run(stream), of_session, guest=True)
            run = appending.new_state(new, batch.next_key, batch.now())
            prepared = _prepare(batch, run, facts, guest=False)
            batch.stage(run, prepared, bodies, is_new=True)
            if of_session:
                append(batch, stream, of_session, None)
            return leasing.lease_of(run), prepared.stored

        created = self._write().submit(work, (*facts, *of_session))
        return self._holding(new.run_id, created) if new.worker_id else created

    def append(
        self,
        run_id: str,
        facts: Sequence[Fact],
        *,
        fence: int | None,
        bodies: Sequence[Body] = (),
        last_words: Sequence[Fact] = (),
    ) -> Receipt[list[Stored]]:
        facts = tuple(facts)
        return self._write().submit(
            lambda batch: append(batch, run_id, facts, fence, bodies, last_words),
            facts,
            "" if fence is None else run_id,
        )

    def append_unless(
        self,
        has: Callable[[ArtifactRow], bool],
        run_id: str,
        facts: Sequence[Fact],
        bodies: Sequence[Body] = (),
    ) -> Awaitable[ArtifactRow | None]:
        facts = tuple(facts)

        def work(batch: Transaction) -> ArtifactRow | None:
            found = next(filter(has, batch.artifacts_of(run_id)), None)
            if found is None:
                append(batch, run_id, facts, None, bodies)
            return found

        return self._write().submit(work)

    def append_now(
        self, run_id: str, facts: Sequence[Fact], *, fence: int | None, timeout_s: float = 10.0
    ) -> list[Stored]:
        facts = tuple(facts)
        receipt = self._write().submit(lambda batch: append(batch, run_id, facts, fence, ()), facts)
        stored: list[Stored] = receipt.wait(timeout_s)
        return stored

    def claim(self, run_id: str, worker_id: str, lease_s: float = 30.0) -> Awaitable[Lease]:
        granted: list[Lease] = []

        def work(batch: Transaction) -> Lease:
            granted.clear()  # by a transaction that failed
            run, lease = leasing.claimed(batch.run(run_id), worker_id, lease_s)
            batch.lease(run)
            granted.append(lease)
            return lease

        return self._claimed(run_id, self._write().submit(work), granted)

    async def _claimed(
        self, run_id: str, receipt: Awaitable[Lease], granted: Sequence[Lease]
    ) -> Lease:
        try:
            return await self._holding(run_id, receipt)
        except asyncio.CancelledError:
            # The claim is made all the same, and nobody would know of the lease.
            with suppress(JournalError):  # it is closed
                self._write().submit(lambda batch: _give_back(batch, granted))
            raise

    async def _holding(self, run_id: str, receipt: Awaitable[T]) -> T:
        """Count the run among those executed here once its lease is granted."""
        granted = await receipt
        self._leased.add(run_id)
        return granted

    def renew(self, lease: Lease, lease_s: float = 30.0) -> Awaitable[Lease]:
        def work(batch: Transaction) -> Lease:
            run, renewed = leasing.renewed(batch.run(lease.run_id), lease, lease_s)
            batch.lease(run)
            return renewed

        return self._write().submit(work)

    def release(self, lease: Lease) -> Awaitable[None]:
        def work(batch: Transaction) -> None:
            run = leasing.released(batch.run(lease.run_id), lease, batch.now())
            if run is not None:
                batch.lease(run)

        self._leased.discard(lease.run_id)
        return self._write().submit(work)

    async def park(self, lease: Lease) -> bool:
        def work(batch: Transaction) -> bool:
            run = leasing.parked(batch.run(lease.run_id), lease, batch.now())
            if run is not None:
                batch.lease(run)
            return run is not None

        receipt = self._write().submit(work)
        try:
            is_parked: bool = await receipt
        except asyncio.CancelledError:
            is_parked = await receipt
            if not is_parked:
                raise
        if is_parked:
            self._leased.discard(lease.run_id)
        return is_parked

    def reserve(
        self, task_id: str, run_id: str, micros_usd: int, limit_micros_usd: int
    ) -> Awaitable[Spend | None]:
        def work(batch: Transaction) -> Spend | None:
            for other in batch.reserving(task_id):
                run = batch.find_run(other)
                if other != run_id and run is not None and is_gone(run):
                    batch.unreserve(other)  # the run has no living worker: its call is over
            spend = batch.spend(task_id, run_id)
            held = reservable(spend, micros_usd, limit_micros_usd)
            if held is None:
                return None
            batch.reserve(task_id, run_id, held)
            return spend

        return self._write().submit(work)

    def unreserve(self, run_id: str) -> Awaitable[None]:
        return self._write().submit(lambda batch: batch.unreserve(run_id))

    async def read(self, run_id: str, *, after: int = -1, limit: int = PAGE) -> list[Stored]:
        return self.read_now(run_id, after=after, limit=limit)

    async def run(self, run_id: str) -> RunRow | None:
        return self.run_now(run_id)

    def follow(
        self, run_id: str, *, after: int = -1, types: frozenset[str] | None = None
    ) -> AsyncGenerator[list[Stored], None]:
        async def read(cursor: int) -> list[Stored]:
            return self.read_now(run_id, after=cursor)

        following = self._followers.following(run_id, after, types)
        return pages(following, self._watching(run_id), read, self._is_closed)

    def follow_feed(self, *, after: int = 0) -> AsyncGenerator[list[Stored], None]:
        async def read(cursor: int) -> list[Stored]:
            return await self.feed(after=cursor)

        following = self._followers.following(FEED, after)
        return pages(following, self._watching(FEED), read, self._is_closed)

    def _is_closed(self) -> bool:
        return self._closed


def _give_back(batch: Transaction, granted: Sequence[Lease]) -> None:
    """Release a lease that was granted, unless its commit failed and another has the run."""
    for lease in granted:
        run = batch.find_run(lease.run_id)
        if run is None or (run.worker_id, run.lease_until) != (lease.worker_id, lease.until):
            return
        if (free := leasing.released(run, lease, batch.now())) is not None:
            batch.lease(free)


def append(
    batch: Transaction,
    run_id: str,
    facts: Sequence[Fact],
    fence: int | None,
    bodies: Sequence[Body] = (),
    last_words: Sequence[Fact] = (),
) -> list[Stored]:
    """The job of an append; without a fence it takes guest facts."""
    run = batch.run(run_id)
    if fence is not None:
        leasing.check_fence(run, fence)
    prepared = _prepare(batch, run, facts, last_words, guest=fence is None)
    batch.stage(run, prepared, bodies)
    return prepared.stored


def _prepare(
    batch: Transaction,
    run: RunState,
    facts: Sequence[Fact],
    last_words: Sequence[Fact] = (),
    *,
    guest: bool,
) -> Prepared:
    """Look up the rows that the rules need, and apply the rules. Stages nothing yet."""
    if appending.needs_cause(run, facts):
        run = replace(run, cause=batch.cause_of(run))
    past = _past(batch, run) if guest and appending.needs_past(run, facts) else Past()
    cancelled = None
    if appending.needs_ancestors(run, facts):
        cancelled = appending.cancelled_above(run, batch.find_run)
    return appending.prepare(
        run,
        facts,
        guest=guest,
        known=batch.known(facts, run.session_id),
        cancelled=cancelled,
        past=past,
        last_words=last_words,
        position=batch.next_position,
        at=batch.now(),
        mint=batch.minter.mint,
    )


def _past(batch: Transaction, run: RunState) -> Past:
    queued, started = (batch.first(run, type_) for type_ in (RunQueued.TYPE, RunStarted.TYPE))
    fact = None if queued is None else queued.data
    return Past(
        queued=fact if isinstance(fact, RunQueued) else None,
        started_at="" if started is None else started.occurred_at,
    )
