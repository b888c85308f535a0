"""The receipt of an append: awaited or not, no error is lost.

The writer's thread fills a receipt; any event loop can await it. An append without a waiter
makes no future, and a loop is woken once for a whole group.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from batten.contract.errors import Conflict, FenceLost, JournalError, NotFound, StoreBusy

T = TypeVar("T")

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Unheard:
    """The first unreported errors of appends without a waiter: the store's, and each run's."""

    def __init__(self) -> None:
        self._errors: dict[str, BaseException] = {}

    def of(self, run_id: str) -> BaseException | None:
        """The error that blocks an append to this run: the store's or an earlier append's."""
        return self._errors.get("") or self._errors.get(run_id)

    def first(self) -> BaseException | None:
        return next(iter(self._errors.values()), None)

    def keep(self, error: BaseException, run_id: str) -> None:
        if isinstance(error, JournalError):
            self._errors.setdefault("", error)
        elif run_id:
            self._errors.setdefault(run_id, error)

    def told(self, error: BaseException) -> None:
        for key, kept in list(self._errors.items()):
            if kept in (error, error.__cause__):
                self._errors.pop(key, None)


def is_told_by_state(failure: BaseException) -> bool:
    """Whether the run's own state shows the failure: the run has ended, was answered already, or
    another worker holds it. An unawaited append may fail with it unreported.
    """
    return isinstance(failure, FenceLost | Conflict | NotFound)


def lost(error: BaseException) -> JournalError:
    """The error for appends after an unawaited one that failed: the journal would have a gap."""
    if isinstance(error, JournalError):
        return error
    told = JournalError(f"an earlier fact was not stored: {error}")
    told.__cause__ = error
    return told


class Scribe(Protocol):
    """Fills receipts."""

    unheard: Unheard

    def hurry(self) -> None:
        """Begin at once: a caller waits."""
        ...

    def write_here(self, *, asked: bool = False) -> None:
        """Write on this thread, if possible and allowed; `asked`: the caller allows it."""
        ...


class Receipt(Generic[T]):
    """A result handed from the writer's thread (`fill`) to the appender (all other methods)."""

    __slots__ = (
        "_blocked",
        "_error",
        "_run_id",
        "_value",
        "_waiters",
        "is_filled",
        "is_written_here",
        "scribe",
    )

    def __init__(self, scribe: Scribe, run_id: str) -> None:
        self.scribe = scribe
        self._run_id = run_id
        self.is_filled = False
        self.is_written_here = False
        """The waiting thread is writing it itself."""
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Waiter] = []
        self._blocked: threading.Event | None = None

    def __await__(self) -> Generator[Any, None, T]:
        if not self.is_filled:
            try:
                if self._write_here():
                    yield  # give other tasks a turn, as if we had waited
                else:
                    yield from self._filled()
            except asyncio.CancelledError:
                # A conflict with the run's state does not matter to a caller that was cancelled.
                if self._error is not None and not isinstance(self._error, Conflict):
                    self.scribe.unheard.keep(self._error, self._run_id)
                raise
        return self._open()

    def _write_here(self) -> bool:
        self.is_written_here = True
        try:
            self.scribe.write_here()
        finally:
            self.is_written_here = False
        return self.is_filled

    def _filled(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # Register, then look again: the writer fills, then reads the waiters.
        self.add_waiter((loop, future))
        self.scribe.hurry()
        if not self.is_filled:
            yield from future

    def add_waiter(self, waiter: Waiter) -> None:
        """Have a future resolved when the receipt is filled; it may be filled already."""
        self._waiters.append(waiter)

    def wait(self, timeout_s: float) -> T:
        """Block this thread until the receipt is filled. Raises `StoreBusy` after the timeout."""
        self._blocked = threading.Event()
        self.scribe.hurry()
        if not self.is_filled and not self._blocked.wait(timeout_s):
            raise StoreBusy(f"the store did not answer within {timeout_s:g} s")
        return self._open()

    def _open(self) -> T:
        error = self.error()
        if error is not None:
            raise error
        return self._value  # type: ignore[return-value]  # filled with a T when it has no error

    def error(self) -> BaseException | None:
        """The error of a filled receipt, which counts as reported from now on."""
        if self._error is not None:
            self.scribe.unheard.told(self._error)
        return self._error

    def fill(self, value: T | None, error: BaseException | None) -> list[Waiter]:
        """Called once, by the writer. Returns the waiters to wake."""
        self._value = value
        self._error = error
        self.is_filled = True
        if self._blocked is not None:
            self._blocked.set()
        return self._waiters

    @property
    def is_awaited(self) -> bool:
        if self._blocked is not None or self.is_written_here:
            return True
        return any(not future.done() for _, future in self._waiters)


class Receipts:
    """Receipts of several appends to one journal, opened together: one wake-up for all of them."""

    def __init__(self, receipts: Sequence[Receipt[Any]]) -> None:
        self._receipts = receipts

    def write_here(self) -> bool:
        """Write them on this thread unless a lock is in the way or the disk is slow.

        Returns whether all are filled.
        """
        receipts = self._receipts
        for one in receipts:
            one.is_written_here = True
        try:
            receipts[-1].scribe.write_here(asked=True)
        finally:
            for one in receipts:
                one.is_written_here = False
        return all(one.is_filled for one in receipts)

    def when_filled(self, call: Callable[[list[BaseException | None]], object]) -> None:
        """Call with the error of each, now or on this event loop, once all are filled."""
        waiting = [one for one in self._receipts if not one.is_filled]
        if not waiting:
            call([one.error() for one in self._receipts])
            return
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        future.add_done_callback(lambda _: self.when_filled(call))
        for one in waiting:
            one.add_waiter((loop, future))
        waiting[-1].scribe.hurry()
        if all(one.is_filled for one in waiting) and not future.done():
            future.set_result(None)


def wake(waiters: Iterable[Waiter], also: Iterable[tuple[Any, Callable[[], None]]] = ()) -> None:
    """Wake every waiter, and call everything in `also` on its loop: one call per loop."""
    calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
    for loop, future in dict.fromkeys(waiters):
        calls.setdefault(loop, []).append(_resolver(future))
    for loop, call in also:
        calls.setdefault(loop, []).append(call)
    for loop, todo in calls.items():
        try:
            loop.call_soon_threadsafe(_call_all, todo)
        except RuntimeError:
            continue  # the loop was closed, and its waiters are gone


def _resolver(future: "asyncio.Future[None]") -> Callable[[], None]:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    return resolve


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
