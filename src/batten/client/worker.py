"""A worker: runs prompts in one session, and utilities in its workspace."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, overload

from batten.client.arguments import (
    Approvals,
    Limits,
    PermissionMode,
    Resolved,
    Rules,
    approvals_of,
    classes_of,
    flags_of,
    init_of,
    start_of,
    waits_of,
)
from batten.client.connection import Connection, within
from batten.client.encoding import encoded
from batten.client.errors import NotStarted, WorkerClosed, WorkerDied
from batten.client.events import Request
from batten.client.greeting import About, Greeting, hello, not_started
from batten.client.history import History
from batten.client.output import Output, StructuredResult, decoded, schema_of
from batten.client.process import own_process
from batten.client.result import Result
from batten.client.run import Run
from batten.client.tools import ClientTool, Function
from batten.client.transport import Launch, Transport
from batten.client.utilities import Utilities
from batten.contract.errors import CallerError, Conflict
from batten.protocols.maestro.incoming import Prompt, ShutDown
from batten.protocols.maestro.vocabulary import ThinkingLevel

_FAREWELL_S = 1.0
_NOBODY = "Nobody is there to answer"


class Worker(Utilities):
    """One worker with one session; each prompt continues the conversation.

    Made by `Worker.start`. If the worker itself fails, every pending and later call raises a
    `WorkerError`.
    """

    def __init__(
        self,
        link: Connection,
        group: asyncio.TaskGroup,
        functions: Mapping[str, Function],
        history: History,
    ) -> None:
        super().__init__(link)
        self.history = history
        """The runs in this worker's journal."""
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
        max_turns: int | None = None,
        max_budget_usd: float | None = None,
        max_seconds: float | None = None,
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        ask: Sequence[str] = (),
        permission_mode: PermissionMode | None = None,
        only_tools: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        approvals: Approvals | None = None,
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
        """Start a worker for the length of the context. When it is left, the worker has ended.

        `model` is `provider/model`. `workspace` is the directory it may touch, by default the
        current one. `resume` is the id of a session to continue, or of one of its runs. `env` adds
        to the variables of this process. `flags` are further flags of `batten headless`.
        `max_turns` and `max_seconds` limit each run, `max_budget_usd` all runs of this worker.
        `only_tools` names the only tools to offer. `settings` override settings files.

        `allow`, `deny` and `ask` are rules, such as `bash(make *)`; deny beats ask beats allow.
        Where no rule decides, `approvals` does: `deny` (the default) and `allow` at once, `ask` by
        an `ApprovalAsked` event. `resolves` names the other classes of requests that the embedder
        answers; policy answers the rest. `answers_within_s` bounds the wait for each answer.

        `launch` says where the worker runs: in a process of its own, or in this one with
        `batten.embedded.in_process`. `command` replaces this interpreter's Batten.
        """
        environ = {**waits_of(answers_within_s), **(env or {})}
        decided = approvals_of(approvals, permission_mode)
        more = flags_of(
            Limits(max_turns, max_budget_usd, max_seconds, max_output_tokens, temperature),
            Rules(allow, deny, ask, permission_mode),
            only_tools,
            settings,
        )
        start = start_of(model, workspace, resume, flags, environ, command, more)
        init = init_of(decided, system_prompt, append_system_prompt, thinking, tools)
        classes = classes_of(decided, resolves, tools)
        first = encoded(hello(classes, journal_events=journal_events)), encoded(init)
        functions = {tool.name: tool.run for tool in tools if tool.run is not None}
        async with launch(start) as transport, _connected(transport) as (link, group):
            worker = cls(link, group, functions, History(env=env, command=command))
            try:
                worker._about = await _greet(link, first, starts_within_s)
                yield worker
            finally:
                await worker._say_farewell()

    @property
    def about(self) -> About:
        """Its model, session and workspace."""
        assert self._about is not None
        return self._about

    @property
    def is_working(self) -> bool:
        """Whether a prompt is in progress."""
        return self._run is not None

    @asynccontextmanager
    async def prompt(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = (),
        *,
        schema: type | dict[str, Any] | None = None,
    ) -> AsyncGenerator[Run, None]:
        """Start a run; iterate it for its events.

        `attachments` are files of the workspace; one that cannot be read is a `Problem`, and the
        run goes on without it. With a `schema` the answer is a JSON value that fits it, in the
        result's `structured_output`.

        Leaving the context before the run has ended interrupts it and waits for its end, also after
        an error or a cancel. Raises `Conflict` while another prompt is in progress.
        """
        if self._run is not None:
            raise Conflict("a prompt is being worked on; wait for its end, or interrupt it")
        demand = None if schema is None else schema_of(schema)
        message = Prompt(content=text, attachments=_paths(attachments), output_schema=demand)
        line = encoded(message)
        self._connection.check()
        run = Run(self._connection, self._group, self._functions)
        self._run = self._connection.receiver = run
        try:
            await self._connection.write(line)
            yield run
        finally:
            try:
                await run.leave()
            finally:
                self._run = self._connection.receiver = None

    @overload
    async def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = ...,
        *,
        answer: Callable[[Request], Awaitable[None]] | None = ...,
        within_s: float | None = ...,
    ) -> Result: ...

    @overload
    async def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = ...,
        *,
        schema: type[Output],
        answer: Callable[[Request], Awaitable[None]] | None = ...,
        within_s: float | None = ...,
    ) -> StructuredResult[Output]: ...

    @overload
    async def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = ...,
        *,
        schema: dict[str, Any],
        answer: Callable[[Request], Awaitable[None]] | None = ...,
        within_s: float | None = ...,
    ) -> StructuredResult[dict[str, Any]]: ...

    async def ask(
        self,
        text: str,
        attachments: Sequence[str | os.PathLike[str]] = (),
        *,
        schema: type[Any] | dict[str, Any] | None = None,
        answer: Callable[[Request], Awaitable[None]] | None = None,
        within_s: float | None = None,
    ) -> Result:
        """Prompt and wait for the end. Requests go to `answer`; without it they are refused.

        With a `schema` the result's `output` is a value of that type: a msgspec Struct, a
        dataclass, a pydantic model; or a plain value that fits a JSON Schema.

        Interrupts the run and raises `NoAnswer` if it takes longer than `within_s`.
        """
        late = within(within_s, "the run did not end")
        async with late, self.prompt(text, attachments, schema=schema) as run:
            async for event in run:
                if isinstance(event, Request):
                    with suppress(Conflict):  # already closed by another resolver
                        await (event.refuse(_NOBODY) if answer is None else answer(event))
            return run.result if schema is None else decoded(run.result, schema)

    async def interrupt(self) -> None:
        """Interrupt the current run, if any, and every utility."""
        if self._run is not None:
            await self._run.interrupt()

    async def _say_farewell(self) -> None:
        """Ask the worker to shut down, and close the connection."""
        try:
            with suppress(Exception):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._connection.send(ShutDown())
        finally:  # also for other tasks that wait for it, if this one is cancelled again
            self._connection.fail(WorkerClosed("the worker was closed"))
            self._connection.hang_up()


@asynccontextmanager
async def _connected(
    transport: Transport,
) -> AsyncGenerator[tuple[Connection, asyncio.TaskGroup], None]:
    """A connection that listens, and a group for the functions that the worker calls."""
    link = Connection(transport)
    group = asyncio.TaskGroup()
    # Entered by hand, so that errors of the `async with` body are not wrapped in a group.
    await group.__aenter__()
    listening = group.create_task(link.listen())
    try:
        yield link, group
    finally:
        listening.cancel()
        await group.__aexit__(None, None, None)


async def _greet(link: Connection, first: tuple[bytes, bytes], within_s: float) -> About:
    """Send the handshake and wait for the worker's answer."""
    greeting = Greeting(link.flow)
    link.receiver = greeting
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
        link.receiver = None


def _paths(attachments: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if not isinstance(attachments, str):
        with suppress(TypeError):
            return tuple(os.fspath(path) for path in attachments)
    raise CallerError(f"attachments is {attachments!r}; it must be a list of paths")
