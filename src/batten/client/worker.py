"""A worker and what it is asked for: prompts, and utilities in its workspace."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

from batten.client.arguments import (
    Approvals,
    Resolved,
    classes_of,
    init_of,
    start_of,
    waits_of,
)
from batten.client.connection import Connection
from batten.client.encoding import encoded
from batten.client.errors import NoAnswer, NotStarted, WorkerClosed, WorkerDied
from batten.client.events import Request
from batten.client.greeting import About, Greeting, hello, not_started
from batten.client.process import own_process
from batten.client.result import Result
from batten.client.run import Run
from batten.client.tools import ClientTool, Function
from batten.client.transport import Launch
from batten.client.utilities import Utilities
from batten.contract.errors import CallerError, Conflict
from batten.protocols.maestro.incoming import Prompt, ShutDown
from batten.protocols.maestro.vocabulary import ThinkingLevel

_FAREWELL_S = 1.0
_NOBODY = "Nobody is there to answer"


class Worker(Utilities):
    """One worker with one session: prompts one after the other, each going on from the last.

    Made by `Worker.start`. Whatever goes wrong with the worker itself is a `WorkerError` for
    everything that was, and will be, asked of it.
    """

    def __init__(
        self, link: Connection, group: asyncio.TaskGroup, functions: Mapping[str, Function]
    ) -> None:
        super().__init__(link)
        self._group = group
        self._functions = functions
        self._run: Run | None = None
        self._about: About | None = None

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        *,
        model: str = "",
        workspace: str | os.PathLike[str] | None = None,
        resume: str = "",
        env: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        approvals: Approvals = "deny",
        resolves: Collection[Resolved] = (),
        tools: Sequence[ClientTool] = (),
        system_prompt: str | None = None,
        append_system_prompt: str | None = None,
        thinking: ThinkingLevel | None = None,
        journal_events: bool = False,
        answers_within_s: float | None = None,
        starts_within_s: float = 30.0,
        launch: Launch = own_process,
        command: Sequence[str] = (),
    ) -> AsyncGenerator[Self, None]:
        """A worker for as long as the context lasts. When it is left, the worker has ended.

        `model` is `provider/model`; `workspace` the directory it may touch, the current one
        unless said otherwise; `resume` a session to go on with, by its id or that of one of its
        runs; `env` are variables beside those of this process; `flags` whatever else
        `batten headless` takes.

        What tools may do is decided by rules (flags and settings). Where none decides, `approvals`
        does: `deny` and `allow` at once, `ask` with `ApprovalAsked` events. `resolves` names the
        other classes of requests that somebody here answers; policy answers the rest at once.
        `answers_within_s` bounds how long a run waits for each answer.

        `launch` says where the worker runs: in a process of its own, or, with
        `batten.embedded.in_process`, in this one. `command` is started in place of this
        interpreter's batten.
        """
        environ = {**waits_of(answers_within_s), **(env or {})}
        start = start_of(model, workspace, resume, flags, environ, command)
        init = init_of(approvals, system_prompt, append_system_prompt, thinking, tools)
        classes = classes_of(approvals, resolves, tools)
        first = encoded(hello(classes, journal_events=journal_events)), encoded(init)
        functions = {tool.name: tool.run for tool in tools if tool.run is not None}
        async with launch(start) as transport:
            link = Connection(transport)
            group = asyncio.TaskGroup()
            # Held open by hand: an error of whoever uses the worker is raised as it is.
            await group.__aenter__()
            listening = group.create_task(link.listen())
            worker = cls(link, group, functions)
            try:
                worker._about = await _greet(link, first, starts_within_s)
                yield worker
            finally:
                try:
                    await worker._say_farewell()
                finally:
                    listening.cancel()
                    await group.__aexit__(None, None, None)

    @property
    def about(self) -> About:
        """Which model answers, in which session, and where it works."""
        assert self._about is not None
        return self._about

    @property
    def is_working(self) -> bool:
        """Whether a prompt is being worked on."""
        return self._run is not None

    @asynccontextmanager
    async def prompt(
        self, text: str, attachments: Sequence[str | os.PathLike[str]] = ()
    ) -> AsyncGenerator[Run, None]:
        """Begin a run; iterate it for its events.

        `attachments` are files of the workspace; one that cannot be read is a `Problem`, and the
        run goes on without it.

        Leaving the context before the run has ended interrupts it, and waits for that: also when
        whoever reads it is cancelled, or raises. `Conflict` if another prompt is worked on.
        """
        if self._run is not None:
            raise Conflict("a prompt is being worked on; wait for its end, or interrupt it")
        said = Prompt(content=text, attachments=_paths(attachments))
        line = encoded(said)
        self._connection.check()
        run = Run(self._connection, self._group, self._functions)
        self._run = self._connection.hearer = run
        try:
            await self._connection.write(line)
            yield run
        finally:
            try:
                await run.leave()
            finally:
                self._run = self._connection.hearer = None

    async def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = (),
        *,
        answer: Callable[[Request], Awaitable[None]] | None = None,
        within_s: float | None = None,
    ) -> Result:
        """Prompt and wait for the end. Requests go to `answer`; without it they are refused.

        `NoAnswer` if it takes longer than `within_s`; the run was interrupted then.
        """
        limit = asyncio.timeout(within_s)
        try:
            async with limit, self.prompt(text, attachments) as run:
                async for event in run:
                    if isinstance(event, Request):
                        with suppress(Conflict):  # it is over: somebody else was first
                            await (event.refuse(_NOBODY) if answer is None else answer(event))
                return run.result
        except TimeoutError as error:
            if not limit.expired():
                raise  # it is somebody else's
            raise NoAnswer(f"the run did not end within {within_s:g} s") from error

    async def interrupt(self) -> None:
        """End the run that is worked on, if there is one, and every utility."""
        if self._run is not None:
            await self._run.interrupt()

    async def _say_farewell(self) -> None:
        """What works ends; the worker leaves when it has."""
        with suppress(Exception):
            async with asyncio.timeout(_FAREWELL_S):
                await self._connection.send(ShutDown())
        self._connection.fail(WorkerClosed("the worker was closed"))
        self._connection.hang_up()


async def _greet(link: Connection, first: tuple[bytes, bytes], within_s: float) -> About:
    """Say the first words, and wait until the worker has understood them."""
    greeting = Greeting(link.flow)
    link.hearer = greeting
    try:
        async with asyncio.timeout(within_s):
            for line in first:
                await link.write(line)
            return await greeting.answer.get()
    except WorkerDied as died:
        raise not_started(died) from died
    except TimeoutError as error:
        late = f"the worker did not come up within {within_s:g} s"
        raise NotStarted(late, complaints=link.complaints) from error
    finally:
        link.hearer = None


def _paths(attachments: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if not isinstance(attachments, str):
        with suppress(TypeError):
            return tuple(os.fspath(path) for path in attachments)
    raise CallerError(f"attachments is {attachments!r}; it is a list of paths")
