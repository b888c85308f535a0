"""What `append` answers with: awaited, or not, without losing an error either way.

A receipt is filled by the writer's thread and awaited on any event loop. No future is
made for an append nobody waits for, and a loop is woken once for a whole group.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from batten.contract.errors import JournalError

T = TypeVar("T")

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Unheard:
    """The first store error that nobody has been told yet."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error

    def told(self, error: BaseException) -> None:
        if self.error is error:
            self.error = None


class Receipt(Generic[T]):
    """One thread's promise to another; `fill` is the writer's, the rest the appender's."""

    def __init__(self, unheard: Unheard) -> None:
        self._unheard = unheard
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Waiter] = []
        self._blocked: threading.Event | None = None

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            # Say that we wait, then look again: the writer does these two the other way round.
            self._waiters.append((loop, future))
            if not self._done:
                try:
                    yield from future
                except asyncio.CancelledError:
                    if self._error is not None and isinstance(self._error, JournalError):
                        self._unheard.keep(self._error)
                    raise
        return self._open()

    def wait(self) -> T:
        """Block this thread until the receipt is filled."""
        self._blocked = threading.Event()
        if not self._done:
            self._blocked.wait()
        return self._open()

    def _open(self) -> T:
        if self._error is not None:
            self._unheard.told(self._error)
            raise self._error
        return self._value  # type: ignore[return-value]  # filled with a T when it has no error

    def fill(self, value: T | None, error: BaseException | None) -> list[Waiter]:
        """Called once, by the writer; returns who is to be woken on an event loop."""
        self._value = value
        self._error = error
        self._done = True
        if self._blocked is not None:
            self._blocked.set()
        return self._waiters

    @property
    def is_awaited(self) -> bool:
        return self._blocked is not None or any(not future.done() for _, future in self._waiters)


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
            continue  # the loop was closed: nobody waits there any more


def _resolver(future: "asyncio.Future[None]") -> Callable[[], None]:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    return resolve


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
