"""The receipt of an append: awaited or not, no error is lost.

The writer's thread fills a receipt; any event loop can await it. An append without a waiter
makes no future, and a loop is woken once for a whole group.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
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

    def write_here(self) -> None:
        """Write on this thread, if possible and allowed."""
        ...


class Receipt(Generic[T]):
    """A result handed from the writer's thread (`fill`) to the appender (all other methods)."""

    def __init__(self, scribe: Scribe, run_id: str) -> None:
        self._scribe = scribe
        self._unheard = scribe.unheard
        self._run_id = run_id
        self._done = False
        self._written_here = False
        """The waiting thread is writing it itself."""
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Waiter] = []
        self._blocked: threading.Event | None = None

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            try:
                if self._write_here():
                    yield  # give other tasks a turn, as if we had waited
                else:
                    yield from self._filled()
            except asyncio.CancelledError:
                # A conflict with the run's state does not matter to a caller that was cancelled.
                if self._error is not None and not isinstance(self._error, Conflict):
                    self._unheard.keep(self._error, self._run_id)
                raise
        return self._open()

    def _write_here(self) -> bool:
        self._written_here = True
        try:
            self._scribe.write_here()
        finally:
            self._written_here = False
        return self._done

    def _filled(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # Register, then look again: the writer fills, then reads the waiters.
        self._waiters.append((loop, future))
        self._scribe.hurry()
        if not self._done:
            yield from future

    def wait(self, timeout_s: float) -> T:
        """Block this thread until the receipt is filled. Raises `StoreBusy` after the timeout."""
        self._blocked = threading.Event()
        self._scribe.hurry()
        if not self._done and not self._blocked.wait(timeout_s):
            raise StoreBusy(f"the store did not answer within {timeout_s:g} s")
        return self._open()

    def _open(self) -> T:
        if self._error is not None:
            self._unheard.told(self._error)
            raise self._error
        return self._value  # type: ignore[return-value]  # filled with a T when it has no error

    def fill(self, value: T | None, error: BaseException | None) -> list[Waiter]:
        """Called once, by the writer. Returns the waiters to wake."""
        self._value = value
        self._error = error
        self._done = True
        if self._blocked is not None:
            self._blocked.set()
        return self._waiters

    @property
    def is_awaited(self) -> bool:
        if self._blocked is not None or self._written_here:
            return True
        return any(not future.done() for _, future in self._waiters)


def wake(waiters: Iterable[Waiter], also: Iterable[tuple[Any, Callable[[], None]]] = ()) -> None:
    """Wake every waiter, and call everything in `also` on its loop: one call per loop."""
    calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
    for loop, future in waiters:
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
