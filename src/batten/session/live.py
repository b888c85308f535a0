"""A live session: takes every command of a client, and owns its prompts, its run and its lease.

Prompts become runs, one after the other. Other commands take effect at once, even during a run.
A `Display` shows the runs in lockstep: the next one begins when the last one has been shown.
Runs execute without a display, too.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from batten.agent.execution import Ended, Execution
from batten.agent.hooks.dispatch import ClientHook
from batten.contract.commands import (
    Command,
    Configure,
    GoOn,
    Interrupt,
    Prompt,
    Resolve,
    ShutDown,
)
from batten.contract.errors import BattenError, CallerError, Conflict, FenceLost, JournalError
from batten.contract.outcomes import Outcome
from batten.session.prompt_queue import Bounds, PromptQueue, Ready, Waiting
from batten.session.requests import resolve
from batten.session.session import Session
from batten.tools.contract import Tool

Finish = Callable[[], Awaitable[Ended]]


class Display(Protocol):
    """Shows the runs of a live session to a client."""

    @property
    def end_shown(self) -> bool:
        """Whether the terminal fact of the current run was shown."""
        ...

    def starting(self) -> None:
        """A run is about to be created."""
        ...

    def interrupting(self, reason: str) -> None:
        """A cancel of the current run was requested."""
        ...

    async def show(self, execution: Execution, text: str, finish: Finish) -> Ended:
        """Show a run while `finish` executes it; returns when all of it was shown."""
        ...


class LiveSession:
    """One session and its commands."""

    def __init__(self, session: Session, bounds: Bounds | None = None) -> None:
        self.session = session
        self.display: Display | None = None
        self.outcome: Outcome | None = None
        """The outcome of the last run; None before the first."""
        self.is_shut_down = False
        """Whether the client has sent a shutdown."""
        self.dropped = False
        """Whether a prompt was dropped because the session ended."""
        self._queue = PromptQueue(bounds or Bounds())
        self._execution: Execution | None = None
        self._beginning = False
        """A prompt has left the queue, and its run is not created yet."""
        self._is_over = False
        """The current run has ended and is still being shown."""
        self._stop: Interrupt | None = None
        """An interrupt that arrived before its run was created."""
        self._at_once: ShutDown | None = None
        self._readiness: asyncio.Timeout | None = None
        self._failed: BattenError | None = None
        """The error that ends the session after the queued prompts."""
        self._relieved: FenceLost | None = None
        """Set when another process has claimed the session."""

    @property
    def is_working(self) -> bool:
        return self._is_ahead or self._execution is not None

    @property
    def is_closing(self) -> bool:
        """Whether the session accepts no more prompts."""
        return self._queue.closed

    @property
    def run_id(self) -> str | None:
        """The current run."""
        return None if self._execution is None else self._execution.run_id

    @property
    def _is_ahead(self) -> bool:
        """Whether a run is about to begin."""
        return self._beginning or len(self._queue) > 0

    async def take(self, command: Command, ready: Ready | None = None) -> None:
        """Carry out a command. A prompt is only queued: this waits while the queue is full.

        `ready` is awaited before the run of a prompt is created. Raises `Conflict` for a prompt
        after a shutdown, and the errors of `resolve` and `Session.configure`.
        """
        match command:
            case Prompt() | GoOn():
                await self._enqueue(Waiting(command, ready))
            case Interrupt():
                await self._interrupt(command)
            case Resolve():
                await self._resolve(command)
            case Configure():
                await self.session.configure(command.changes, command.by)
            case ShutDown(at_once=True):
                await self._end_at_once(command)
            case ShutDown():
                self.is_shut_down = True
                self._queue.close()
            case _:
                raise CallerError(f"a session does not take {type(command).__name__}")

    async def _enqueue(self, waiting: Waiting) -> None:
        if await self._queue.put(waiting):
            return
        if self.is_shut_down:
            raise Conflict(f"session {self.session.session_id} takes no more prompts")
        self.dropped = True  # the client receives the error that ends the session

    async def take_all(self, commands: AsyncIterator[Command]) -> None:
        """Take commands until they end, then shut down. A `BattenError` ends the session."""
        try:
            async for command in commands:
                await self.take(command)
                if isinstance(command, ShutDown):
                    return
            await self.take(ShutDown())
        except BattenError as error:
            self.fail(error)

    def fail(self, error: BattenError) -> None:
        """End the session with this error after the queued prompts."""
        self._failed = error
        self._queue.close()

    def lend(
        self, *, hooks: Sequence[ClientHook] = (), tools: Sequence[Tool] | None = None
    ) -> None:
        """Lend the client's hooks, used at once, and its tools, used from the next run on.

        The tools replace those lent before. They are live objects, so this is no `Command`.
        """
        for hook in hooks:
            self.session.deps.hooks.register(hook)
        if tools is not None:
            self.session.lent_tools = tuple(tools)

    async def run(self) -> None:
        """Execute prompts until a shutdown. Raises the error that ended the session, if any.

        `FenceLost`: this process did not renew its lease in time and another one has claimed the
        session. The current run has stopped here; the other process writes its ending.
        """
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep_lease())
                while (waiting := await self._queue.get()) is not None:
                    await self._work(waiting)
                keeping.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        if self._relieved is not None:
            raise self._relieved
        if self._failed is not None and self._at_once is None:
            raise self._failed

    async def _keep_lease(self) -> None:
        """Renew the session's lease while it is live, even when idle."""
        while self._relieved is None:
            await asyncio.sleep(self.session.deps.lease_s / 3)
            await self._renew()

    async def _renew(self) -> None:
        try:
            await self.session.renew()
        except FenceLost as error:
            self._relieved = error
            self.dropped = self._queue.drop() or self.dropped
            self._queue.close()
            if self._execution is not None:
                self._execution.lose(error)
        except JournalError:
            return  # the store may be busy or full: the next renewal is soon enough

    async def close(self, reason: str = "done", within_s: float | None = None) -> None:
        """Run the session's last hooks, within `within_s` if given, and give up its lease."""
        await self.session.close(reason, within_s, self.outcome)

    async def _work(self, waiting: Waiting) -> None:
        self._beginning = True
        if self.display is not None:
            self.display.starting()
        try:
            if waiting.ready is not None:
                await self._until_ready(waiting.ready)
                if self._at_once is not None:
                    self.dropped = True
                    return
            execution = await self._begin(waiting.command)
        except FenceLost:
            await self._renew()
            if self._relieved is None:
                raise
            return
        finally:
            self._beginning = False
        self._execution, self._is_over = execution, False
        try:
            ended = await self._show(execution, waiting.command)
        finally:
            self._execution = None
        self.outcome = ended.outcome
        if not ended.durable:
            await self._renew()

    async def _until_ready(self, ready: Ready) -> None:
        """Await `ready`. An interrupt ends the wait: the run begins and is cancelled at once."""
        try:
            async with asyncio.timeout(0 if self._stop is not None else None) as self._readiness:
                await ready()
        except TimeoutError:
            pass
        finally:
            self._readiness = None

    async def _begin(self, command: Prompt | GoOn) -> Execution:
        if isinstance(command, Prompt):
            return await self.session.prompt(command.text, (*command.images, *command.files))
        return await self.session.finish_left()

    async def _show(self, execution: Execution, command: Prompt | GoOn) -> Ended:
        async def finish() -> Ended:
            try:
                if self._at_once is not None:
                    await execution.cancel("operator", self._at_once.reason)
                elif self._stop is not None:
                    stop, self._stop = self._stop, None
                    await self._cancel(execution, stop)
            finally:  # whoever cancels this meanwhile
                ended = await execution.finish()
                self._is_over = True
            return ended

        if self.display is None:
            return await finish()
        text = command.text if isinstance(command, Prompt) else ""
        return await self.display.show(
            execution, self.session.deps.redactor.authored.text(text), finish
        )

    async def _interrupt(self, command: Interrupt) -> None:
        """Cancel the current run, or the one about to begin."""
        end_shown = self._is_over if self.display is None else self.display.end_shown
        if self._execution is not None and not end_shown:
            if not self._is_over:
                await self._cancel(self._execution, command)
        elif self._is_ahead:
            self._stop = command
            self._hurry()

    async def _cancel(self, execution: Execution, command: Interrupt) -> None:
        if self.display is not None:
            self.display.interrupting(command.reason)
        await execution.cancel("client", command.reason)

    async def _end_at_once(self, command: ShutDown) -> None:
        self._at_once = command
        self.dropped = self._queue.drop() or self.dropped
        self._queue.close()
        self._hurry()
        if self._execution is not None:
            await self._execution.cancel("operator", command.reason)

    def _hurry(self) -> None:
        if self._readiness is not None:
            self._readiness.reschedule(0)
            self._readiness = None

    async def _resolve(self, command: Resolve) -> None:
        deps = self.session.deps
        await resolve(
            deps.journal,
            deps.redactor,
            command.request_id,
            granted=command.granted,
            by=command.by,
            text=command.text,
            updated_input=command.updated_input,
            halt=command.halt,
            seal_key=deps.seal_key,
        )
