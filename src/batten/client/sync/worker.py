"""A worker with plain methods. Each waits for its twin in `batten.client`, on the worker's loop."""

import os
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from batten.client import command, events, run, watch, worker
from batten.client.command import Exit
from batten.client.events import Event
from batten.client.greeting import About
from batten.client.output import Output, StructuredResult
from batten.client.result import Result
from batten.client.sync.history import History
from batten.client.sync.loop_thread import Call, LoopThread
from batten.client.sync.requests import Request, event_of, request_of
from batten.client.watch import FileChanged

P = ParamSpec("P")
Value = TypeVar("Value")
Own = TypeVar("Own", bound="_Twin[Any]")
Twin = TypeVar("Twin")
Held = TypeVar("Held", covariant=True)
Other = TypeVar("Other")


class _Twin(Generic[Held]):
    """An object of `batten.client`, and the loop that it lives on."""

    def __init__(self, loop: LoopThread, twin: Held) -> None:
        self.loop = loop
        self.twin = twin


def _waiting(
    method: Callable[Concatenate[Twin, P], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate[_Twin[Twin], P], Value]:
    """The method, which waits for its twin."""

    @wraps(method)
    def call(own: _Twin[Twin], /, *args: P.args, **kwargs: P.kwargs) -> Value:
        return own.loop.call(method(own.twin, *args, **kwargs))

    return call


def _scope(
    method: Callable[Concatenate[Twin, P], AbstractAsyncContextManager[Other]],
    made: Callable[[LoopThread, Other], Own],
) -> Callable[Concatenate[_Twin[Twin], P], AbstractContextManager[Own]]:
    """The context of the method, with the twin of what it gives."""

    @wraps(method)
    @contextmanager
    def scope(own: _Twin[Twin], /, *args: P.args, **kwargs: P.kwargs) -> Generator[Own, None, None]:
        with Call(own.loop).hold(method(own.twin, *args, **kwargs)) as other:
            yield made(own.loop, other)

    return scope


def _started(
    start: Callable[P, AbstractAsyncContextManager[worker.Worker]],
) -> Callable[P, "AbstractContextManager[Worker]"]:
    @wraps(start)
    @contextmanager
    def started(*args: P.args, **kwargs: P.kwargs) -> Generator["Worker", None, None]:
        with LoopThread() as loop, Call(loop).hold(start(*args, **kwargs)) as twin:
            yield Worker(loop, twin)

    return started


class Run(_Twin[run.Run]):
    """Iterate it for its events; the last one is `Ended`. One reader at a time."""

    @property
    def run_id(self) -> str:
        """Empty until it has started."""
        return self.twin.run_id

    @property
    def result(self) -> Result:
        """How it ended. Raises `Conflict` while it is running."""
        return self.twin.result

    def __iter__(self) -> Iterator[Event]:
        for event in self.loop.iterate(self.twin.__aiter__()):
            yield event_of(event, self.loop)

    interrupt = _waiting(run.Run.interrupt)


class Command(_Twin[command.Command]):
    """A running command. Iterate it for its output; one reader at a time."""

    @property
    def exit(self) -> Exit:
        """How it ended. Raises `Conflict` while it is running."""
        return self.twin.exit

    def __iter__(self) -> Iterator[command.Output]:
        return self.loop.iterate(self.twin.__aiter__())

    write = _waiting(command.Command.write)
    resize = _waiting(command.Command.resize)
    terminate = _waiting(command.Command.terminate)


class Watch(_Twin[watch.Watch]):
    """Iterate it for changes until the watch ends; one reader at a time."""

    def __iter__(self) -> Iterator[FileChanged]:
        return self.loop.iterate(self.twin.__aiter__())


class Worker(_Twin[worker.Worker]):
    """One worker with one session, for programs without an event loop. Use it from any thread.

    It owns a thread with a loop, which ends with it. An interrupt (Ctrl-C) in a thread that waits
    ends what it waits for, and is raised.
    """

    start = staticmethod(_started(worker.Worker.start))

    @property
    def about(self) -> About:
        """Its model, session and workspace."""
        return self.twin.about

    @property
    def is_working(self) -> bool:
        """Whether a prompt is in progress."""
        return self.twin.is_working

    @property
    def history(self) -> History:
        """The runs in this worker's journal."""
        return History(self.twin.history)

    @overload
    def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = ...,
        *,
        answer: Callable[[Request], None] | None = ...,
        within_s: float | None = ...,
    ) -> Result: ...

    @overload
    def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = ...,
        *,
        schema: type[Output],
        answer: Callable[[Request], None] | None = ...,
        within_s: float | None = ...,
    ) -> StructuredResult[Output]: ...

    @overload
    def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = ...,
        *,
        schema: dict[str, Any],
        answer: Callable[[Request], None] | None = ...,
        within_s: float | None = ...,
    ) -> StructuredResult[dict[str, Any]]: ...

    def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = (),
        *,
        schema: type[Any] | dict[str, Any] | None = None,
        answer: Callable[[Request], None] | None = None,
        within_s: float | None = None,
    ) -> Result:
        """Prompt and wait for the end. Requests go to `answer`, in the calling thread.

        Without it they are refused. The rest is as in `batten.client`.
        """
        call = Call(self.loop)

        def pass_on(request: events.Request) -> None:
            assert answer is not None
            answer(request_of(request, self.loop))

        asked = None if answer is None else call.call_back(pass_on)
        more: dict[str, Any] = {"answer": asked, "within_s": within_s, "schema": schema}
        result: Result = call.run(self.twin.ask(text, attachments, **more))
        return result

    prompt = _scope(worker.Worker.prompt, Run)
    command = _scope(worker.Worker.command, Command)
    watch = _scope(worker.Worker.watch, Watch)
    interrupt = _waiting(worker.Worker.interrupt)
    run_command = _waiting(worker.Worker.run_command)
    read_file = _waiting(worker.Worker.read_file)
    search_files = _waiting(worker.Worker.search_files)
