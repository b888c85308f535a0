"""An event loop in a thread of its own, and calls into it from any other thread."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, Self, TypeVar, cast

from batten.client.errors import NotStarted, WorkerClosed
from batten.contract.errors import Conflict

_GLANCE_S = 1.0
"""Seconds between checks whether the loop is still there."""

Value = TypeVar("Value")
Work = Coroutine[Any, Any, Value]


class _Outcome(Generic[Value]):
    """The value or the error of a coroutine."""

    def __init__(self, value: Value | None = None, error: BaseException | None = None) -> None:
        self._value = value
        self._error = error

    def get(self) -> Value:
        if self._error is not None:
            raise self._error
        return cast("Value", self._value)


class Call:
    """One coroutine in the loop, and the thread that waits for it.

    If the thread is interrupted while it waits (Ctrl-C), the coroutine is cancelled and has cleaned
    up before the interrupt is raised. A second interrupt does not wait.
    """

    def __init__(self, loop: "LoopThread") -> None:
        self._loop = loop
        self._news: SimpleQueue[_Outcome[Any] | Callable[[], None]] = SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._ended = threading.Event()
        """Set when the coroutine has ended."""

    def run(self, work: Work[Value]) -> Value:
        """Start the coroutine and wait for its outcome."""
        try:
            self._loop.post(partial(self._begin, work))
            outcome = self._next()
        except BaseException:
            self._cancel(work)
            raise
        return cast("Value", outcome.get())

    def call_back(self, function: Callable[..., Value]) -> Callable[..., Work[Value]]:
        """A function for the coroutine to await: it runs in the thread that waits."""

        async def call(*arguments: object) -> Value:
            answer: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

            def run() -> None:
                try:
                    value = function(*arguments)
                except Exception as error:
                    self._loop.post(partial(_fail, answer, error))
                else:
                    self._loop.post(partial(_set, answer, value))

            self._news.put(run)
            return await answer

        return call

    @contextmanager
    def hold(self, scope: AbstractAsyncContextManager[Value]) -> Generator[Value, None, None]:
        """Enter an asynchronous context and leave it with this one, both in one task."""
        leaving = asyncio.Event()
        work = self._enter(scope, leaving)
        value = cast("Value", self.run(work))
        try:
            yield value
        finally:
            try:
                self._loop.post(leaving.set)
                outcome = self._next()
            except BaseException:
                self._cancel(work)
                raise
            outcome.get()

    async def _enter(
        self, scope: AbstractAsyncContextManager[Value], leaving: asyncio.Event
    ) -> None:
        async with scope as value:
            self._news.put(_Outcome(value))
            await leaving.wait()

    def _begin(self, work: Work[Any]) -> None:
        self._task = self._loop.begin(self._finish(work))
        if self._task is None:
            self._never_ran(work)
        else:
            self._task.add_done_callback(partial(self._end, work))

    async def _finish(self, work: Work[Any]) -> None:
        try:
            self._news.put(_Outcome(await work))
        except asyncio.CancelledError:
            self._news.put(_Outcome(error=_closed()))
        except BaseException as error:  # raised again in the thread that waits
            self._news.put(_Outcome(error=error))

    def _end(self, work: Work[Any], task: "asyncio.Task[None]") -> None:
        if task.cancelled():  # before its first step: `_finish` would have caught it
            self._never_ran(work)
        self._ended.set()

    def _never_ran(self, work: Work[Any]) -> None:
        work.close()
        self._news.put(_Outcome(error=_closed()))
        self._ended.set()

    def _next(self) -> _Outcome[Any]:
        """The next outcome; runs functions of the coroutine meanwhile."""
        while True:
            news = self._get()
            if not callable(news):
                return news
            news()

    def _get(self) -> "_Outcome[Any] | Callable[[], None]":
        while True:
            try:
                return self._news.get(timeout=_GLANCE_S)
            except Empty:
                if not self._loop.is_alive:  # it ended before it saw the call
                    return _Outcome[Any](error=_closed())

    def _cancel(self, work: Work[Any]) -> None:
        """Cancel the coroutine and wait until it has ended."""

        def cancel() -> None:
            if self._task is not None:
                self._task.cancel()
            else:  # interrupted before it was started
                work.close()
                self._ended.set()

        try:
            self._loop.post(cancel)
        except (WorkerClosed, Conflict):
            work.close()
            return
        # The outcome tells nothing here: the interrupt may have come after it was read.
        while not self._ended.wait(_GLANCE_S) and self._loop.is_alive:
            pass


class LoopThread:
    """The loop. It takes calls until it is closed; after that they raise `WorkerClosed`."""

    def __init__(self) -> None:
        """Raises `NotStarted` if the process has no descriptor left for a loop."""
        began: SimpleQueue[_Outcome[None]] = SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        # A daemon, so that the interpreter can exit although an object was never closed.
        self._thread = threading.Thread(
            target=self._run, args=(began,), name="batten-client", daemon=True
        )
        self._thread.start()
        began.get().get()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def call(self, work: Work[Value]) -> Value:
        """Run a coroutine and wait for it."""
        return Call(self).run(work)

    def iterate(self, source: AsyncGenerator[Value, None]) -> Iterator[Value]:
        """The items of an asynchronous generator, which is closed with this one."""
        try:
            while True:
                try:
                    item = self.call(_next_of(source))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            with suppress(WorkerClosed):
                self.call(_close(source))

    def post(self, step: Callable[[], object]) -> None:
        """Call a function in the loop soon."""
        if threading.current_thread() is self._thread:
            raise Conflict("the client's own thread cannot wait for itself")
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:  # the loop is closed
            raise _closed() from None

    def begin(self, work: Work[None]) -> asyncio.Task[None] | None:
        """Start a task, in the loop; None after it was closed."""
        if self._closing.is_set():
            work.close()
            return None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Cancel every call that is still running, and end the thread."""
        with suppress(WorkerClosed):
            self.post(self._closing.set)
        self._thread.join()

    def _run(self, began: "SimpleQueue[_Outcome[None]]") -> None:
        runner = asyncio.Runner()
        try:
            runner.get_loop()
        except OSError as error:
            began.put(_Outcome(error=NotStarted(f"no event loop can be opened: {error}")))
            return
        with runner:
            runner.run(self._serve(began))

    async def _serve(self, began: "SimpleQueue[_Outcome[None]]") -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        async with asyncio.TaskGroup() as self._group:
            began.put(_Outcome())
            await self._closing.wait()
            for task in self._tasks:
                task.cancel()


async def in_thread(function: Callable[[], Value]) -> Value:
    """Run a blocking function in a thread of its own; a cancel abandons it.

    The thread is no part of a pool, which would wait for it at the end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Value] = loop.create_future()

    def run() -> None:
        try:
            step: Callable[[], None] = partial(_set, answer, function())
        except BaseException as error:  # raised again where the function is awaited
            step = partial(_fail, answer, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(step)

    threading.Thread(target=run, name="batten-client-tool", daemon=True).start()
    return await answer


def _set(answer: "asyncio.Future[Value]", value: Value) -> None:
    if not answer.done():
        answer.set_result(value)


def _fail(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if not answer.done():
        # A future takes no StopIteration, and an exit of one thread is not that of the loop.
        plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
        answer.set_exception(error if plain else RuntimeError(repr(error)))


async def _next_of(source: AsyncIterator[Value]) -> Value:
    return await anext(source)


async def _close(source: AsyncGenerator[Any, None]) -> None:
    await source.aclose()


def _closed() -> WorkerClosed:
    return WorkerClosed("the worker was closed")
