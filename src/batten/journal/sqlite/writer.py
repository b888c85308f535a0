"""Group commit: writes on a thread of its own or, where allowed, on the thread that waits.

While one commit runs, the next group gathers in the inbox. A job that fails fails alone. After a
failed transaction each job is retried by itself, so that a large one does not fail the small
ones. On a full disk the ballast is released, but only for an ending.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from batten.contract import errors
from batten.contract.facts import TERMINAL, Fact
from batten.journal.followers import Followers, Wakeup
from batten.journal.receipt import Receipt, Unheard, Waiter, is_told_by_state, lost, wake
from batten.journal.sqlite.ballast import Ballast
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.bell_watch import BellWatches
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.doorbell import Doorbell
from batten.journal.sqlite.faults import typed
from batten.journal.sqlite.inbox import Inbox
from batten.journal.sqlite.lock import FileLock

_GROUP_JOBS = 512
_BEARABLE_S = 0.02
_SHUNNED_S = 1.0
"""How long only the thread writes after a commit blocked a loop for more than `_BEARABLE_S`."""
_BRIEF_S = 0.002
"""A loop with other work waits no longer than this for the disk, on average."""
_LONGEST_IDLE_S = 0.008
"""What one commit counts for in the average: a single slow one is no slow disk."""
_REMEMBERED = 8
"""The commits that the average is of, roughly."""

_FOR_ALL = (errors.StoreBusy, errors.StoreDamaged, errors.StoreReadOnly)
"""Faults that affect every job; any other may be one job's own."""

# A thread that waits for the interpreter gets it after this time. With the default of 5 ms
# a loop that is never idle starves the writer: 2 to 6 appends a second were measured.
_SWITCH_S = 0.0005


class Job(Struct, frozen=True, eq=False):
    """Work inside a transaction; it runs again if that transaction fails."""

    work: Callable[[Batch], Any]
    receipt: Receipt[Any]
    facts: Sequence[Fact] = ()
    run_id: str = ""
    """The run, if its holder appends to it."""

    @property
    def is_ending(self) -> bool:
        return any(fact.type in TERMINAL for fact in self.facts)


class Writer:
    """Owns the writing connection. The holder of `_writing` writes: its thread or a waiting one."""

    def __init__(
        self,
        db: Database,
        home: str,
        lock: FileLock,
        bell: Doorbell,
        followers: Followers,
        watches: BellWatches,
        ring_queue: Callable[[int], list[Wakeup]],
        ballast: Ballast,
        patience_s: float,
        may_write: Callable[[], bool],
    ) -> None:
        """`may_write` says whether a waiting event loop may commit by itself, which saves the
        switch to the thread and back.
        """
        self._db = db
        self._home = home
        self._lock = lock
        self._bell = bell
        self._followers = followers
        self._watches = watches
        self._ring_queue = ring_queue
        self._ballast = ballast
        self._patience_s = patience_s
        self._may_write = may_write
        self._shunned_until = 0.0
        self._idle_s = 0.0
        """The average time that a commit on a loop waited for the disk."""
        self._writing = threading.Lock()
        self._locked = False
        """The lock between processes is held for the next commit."""
        self._batch = Batch(db)
        self._inbox: Inbox[Job] = Inbox()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopped = False
        self.unheard = Unheard()

    def submit(
        self, work: Callable[[Batch], Any], facts: Sequence[Fact] = (), run_id: str = ""
    ) -> Receipt[Any]:
        """Queue a job behind all earlier ones, from any thread."""
        if self._thread is None:
            self._start()
        receipt: Receipt[Any] = Receipt(self, run_id)
        self._inbox.put(Job(work, receipt, facts, run_id))
        if self._stopped:
            self._refuse_rest()
        return receipt

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopped:
                if sys.getswitchinterval() > _SWITCH_S:
                    sys.setswitchinterval(_SWITCH_S)
                thread = threading.Thread(target=self._run, name="journal", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the machine has no room for another
                    raise errors.JournalError(f"the journal cannot be written: {error}") from error
                self._thread = thread

    def stop(self) -> None:
        """Wait until all queued jobs are written; later ones are refused."""
        with self._starting:
            if self._thread is None:
                self._stopped = True
                return
        self._inbox.close()
        self._thread.join()

    def hurry(self) -> None:
        """A caller waits for its job."""
        self._inbox.ring()

    def write_here(self, *, asked: bool = False) -> None:
        """Write the queued jobs on this thread, if that is allowed and no lock is in the way."""
        if not (asked or self._may_write()) or time.monotonic() < self._shunned_until:
            return
        if not self._writing.acquire(blocking=False):
            return
        try:
            if self._stopped or not self._lock.try_acquire():
                return
            began, worked = time.monotonic(), time.thread_time()
            self._locked = True
            self._write(self._inbox.take(_GROUP_JOBS))
            self._unlock()
            now = time.monotonic()
            idle_s = min(now - began - (time.thread_time() - worked), _LONGEST_IDLE_S)
            self._idle_s += (idle_s - self._idle_s) / _REMEMBERED
            if self._idle_s > _BRIEF_S if asked else now - began > _BEARABLE_S:
                self._idle_s = min(self._idle_s, _BRIEF_S)
                self._shunned_until = now + _SHUNNED_S
        finally:
            self._writing.release()

    def _run(self) -> None:
        while self._inbox.wait():
            while self._write_some():
                pass
        while self._write_some():
            pass
        with self._writing:
            self._stopped = True
        self._refuse_rest()

    def _write_some(self) -> bool:
        """Write one group. Returns whether there may be another."""
        with self._writing:
            group = self._inbox.take(_GROUP_JOBS)
            self._write(group)
        return len(group) == _GROUP_JOBS

    def _refuse_rest(self) -> None:
        while jobs := self._inbox.take(_GROUP_JOBS):
            for job in jobs:
                wake(job.receipt.fill(None, errors.JournalError("the journal is closed")))

    def _write(self, group: list[Job]) -> None:
        if not group:
            return
        waiters: list[Waiter] = []
        self._write_group([job for job in group if not self._is_refused(job, waiters)], waiters)
        grown = self._batch.take_grown()
        followers = self._followers
        wakeups = followers.ask() if grown is None else followers.offer(grown)
        if self._batch.take_queued():
            wakeups += self._ring_queue(self._watches.own_position)
        wake(waiters, wakeups)

    def _write_group(self, group: Sequence[Job], waiters: list[Waiter]) -> None:
        if not group:
            return
        try:
            results = self._commit(group)
        except Exception as error:
            self._recover(group, self._typed(error), waiters)
            return
        for job, (value, failure) in zip(group, results, strict=True):
            self._fill(job, value, failure, waiters)

    def _is_refused(self, job: Job, waiters: list[Waiter]) -> bool:
        """Refuse an append that follows a lost one, until the loss is reported."""
        error = self.unheard.of(job.run_id)
        if error is None:
            return False
        self._fill(job, None, lost(error), waiters)
        return True

    def _fill(
        self, job: Job, value: Any, failure: BaseException | None, waiters: list[Waiter]
    ) -> None:
        # Keep the error before filling: a caller that opens the receipt later removes it.
        if failure is not None and _is_unheard(job, failure):
            self.unheard.keep(failure, job.run_id)
        waiters += job.receipt.fill(value, failure)

    def _commit(self, group: Sequence[Job]) -> list[tuple[Any, errors.BattenError | None]]:
        """Run one transaction. Raises, with nothing written, if the store fails."""
        batch = self._batch
        results: list[tuple[Any, errors.BattenError | None]] = []
        unheard = Unheard()
        if not self._locked:
            self._lock.acquire(self._patience_s)
            self._locked = True
        try:
            if self._lock.is_gone():  # a commit to a file without a name succeeds, and is lost
                raise errors.JournalError(f"the journal in {self._home} was removed")
            batch.begin()
            for job in group:
                earlier = unheard.of(job.run_id)
                if earlier is not None:
                    results.append((None, lost(earlier)))
                    continue
                try:
                    results.append((job.work(batch), None))
                except errors.BattenError as error:
                    results.append((None, error))
                    if _is_unheard(job, error):
                        unheard.keep(error, job.run_id)
            batch.commit()
            position = batch.next_position - 1
            # Before the lock is released: the bell must not go backwards.
            if position != self._watches.own_position:
                self._watches.own_position = position
                self._bell.ring(position)
        except BaseException:
            batch.rollback()
            raise
        finally:
            self._unlock()
        return results

    def _unlock(self) -> None:
        if self._locked:
            self._locked = False
            self._lock.release()

    def _recover(
        self, group: Sequence[Job], failure: errors.BattenError, waiters: list[Waiter]
    ) -> None:
        """Retry each job by itself, unless the fault affects all of them."""
        if len(group) > 1 and not isinstance(failure, _FOR_ALL):
            for job in group:
                if not self._is_refused(job, waiters):
                    self._write_group([job], waiters)
        elif isinstance(failure, errors.StoreFull) and group[0].is_ending and self._ballast.free():
            self._write_group(group, waiters)
        else:
            for job in group:
                self._fill(job, None, failure, waiters)

    def _typed(self, error: Exception) -> errors.BattenError:
        failure = typed(error, self._home, self._db.system_errno)
        if failure is not error:
            failure.__cause__ = error
        return failure


def _is_unheard(job: Job, failure: BaseException) -> bool:
    """Whether no caller waits for this failure and the run's state does not show it."""
    return not is_told_by_state(failure) and not job.receipt.is_awaited
