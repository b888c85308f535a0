"""A session's prompts, one run after the other, each shown as it happens.

Commands are taken while a run works, so that an interrupt finds it. Whoever sends faster
than we work waits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from batten.agent.execution import Ended, Execution
from batten.contract.commands import Command, GoOn, Interrupt, Prompt, ShutDown
from batten.contract.errors import BattenError, JournalError
from batten.contract.facts import TERMINAL
from batten.contract.ids import SessionId, session_stream
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.serve.guard import Guard, told
from batten.serve.output import say
from batten.serve.pace import Pace
from batten.serve.remainder import at_once
from batten.serve.renderer import Renderer
from batten.session.session import Session

STALLED_S = 10.0
"""How long a reader may take nothing before it is given up."""
_LOOK_S = 0.5
_HURRIED_S = 1.0
"""How long hooks may take to hear of an end that somebody asked for."""
_MOST_QUEUED = 256
_MOST_WAITING = 10 * 1024 * 1024
"""Characters and bytes of images of prompts that wait, and one prompt more."""

Carrier = Callable[[Command], Awaitable[None]]
"""Carries out what is neither a prompt nor an end: answers, settings."""


class Dialogue:
    """Works through the prompts of one session."""

    def __init__(
        self,
        session: Session,
        renderer: Renderer,
        output: Pace,
        guard: Guard,
        carry_out: Carrier | None = None,
    ) -> None:
        self._session = session
        self._journal = session.deps.journal
        self._renderer = renderer
        self._output = output
        self._guard = guard
        self._carry_out = carry_out
        self._stream = session_stream(SessionId(session.session_id))
        row = at_once(self._journal.run(self._stream))
        self._beside = -1 if row is None else row.next_sequence - 1
        self._waiting = 0
        self._taken = asyncio.Event()
        self._prompts: asyncio.Queue[Prompt | GoOn | None] = asyncio.Queue(_MOST_QUEUED)
        self._execution: Execution | None = None
        self._stop: Interrupt | None = None
        """Asked for before the run began that it is meant for."""
        self._beginning = False
        self._on_the_way: Callable[[], bool] | None = None
        self._is_over = False
        """The run has ended and is only to be shown."""
        self._is_shown = False
        """Its end was shown too: whoever speaks now may speak of the next one."""
        self._all_read = False
        """There is nothing more to be asked for than what was."""
        self._given_up = False
        """A prompt was left out, since everything is to end."""
        self._broken: BattenError | None = None
        self.outcome: Outcome | None = None
        """How the last run ended; None if there was none."""

    async def run(
        self, commands: AsyncIterator[Command], on_the_way: Callable[[], bool] | None = None
    ) -> None:
        """Carry out commands until there are no more, or somebody wants everything to end.

        An error of the commands themselves is raised when the runs before it have ended.
        `on_the_way` says whether a prompt has come that we were not handed yet. Where nobody
        knows, there may always be one until the commands end.
        """
        self._on_the_way = on_the_way
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(commands))
                ending = group.create_task(self._end_when_asked())
                while (prompt := await self._next()) is not None:
                    await self._work(prompt)
                reading.cancel()
                ending.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        if self._guard.asked.is_set():
            self._be_cancelled()
        elif self._broken is not None:
            raise self._broken

    def _be_cancelled(self) -> None:
        """Everything was to end. If all that was asked for had ended before that, it stays so."""
        more = not self._all_read if self._on_the_way is None else self._on_the_way()
        if self.outcome is None or self._given_up or more:
            self.outcome = "cancelled"
            self._renderer.fail("cancelled", self._guard.reason)

    @property
    def is_working(self) -> bool:
        return self._waits or self._execution is not None

    @property
    def _waits(self) -> bool:
        """Whether a run is about to begin."""
        return self._beginning or not self._prompts.empty()

    @property
    def run_id(self) -> str | None:
        """The run that works now."""
        return None if self._execution is None else self._execution.run_id

    async def interrupt(self, asked: Interrupt) -> None:
        """End the run that works now, or the one that is about to begin."""
        if self._execution is not None and not self._is_shown:
            if not self._is_over:
                await self._cancel(self._execution, asked)
        elif self._waits or (self._on_the_way is not None and self._on_the_way()):
            self._stop = asked

    def note(self, run_id: str, note: Note) -> None:
        """Show something that is said once; a child's notes are its own."""
        if self._execution is not None and run_id == self._execution.run_id:
            self._renderer.note(note)

    async def close(self, reason: str = "done") -> None:
        """Close the session, and show what it said after its last run."""
        await self._session.close(reason, _HURRIED_S if self._guard.asked.is_set() else None)
        await self._show_beside()

    async def _show_beside(self) -> None:
        """Show what belongs to the session and to none of its runs, since the last time."""
        try:
            for stored in await self._journal.read(self._stream, after=self._beside):
                self._beside = stored.sequence
                self._renderer.beside(stored, self._journal)
        except JournalError as error:
            say(f"batten: what belongs to the session cannot be shown: {error}")

    async def _read(self, commands: AsyncIterator[Command]) -> None:
        try:
            async for command in commands:
                match command:
                    case Prompt() | GoOn():
                        await self._room_for(command)
                        await self._prompts.put(command)
                    case Interrupt():
                        await self.interrupt(command)
                    case ShutDown():
                        break
                    case _:
                        assert self._carry_out is not None
                        await self._carry_out(command)
        except BattenError as error:
            self._broken = error
        self._all_read = self._broken is None
        await self._prompts.put(None)

    async def _room_for(self, command: Prompt | GoOn) -> None:
        """Wait while too much waits to be worked on: whoever sends it waits too."""
        while self._waiting > _MOST_WAITING:
            self._taken.clear()
            await self._taken.wait()
        self._waiting += _size(command)

    async def _next(self) -> Prompt | GoOn | None:
        prompt = await self._prompts.get()
        self._waiting -= _size(prompt)
        self._taken.set()
        if self._guard.asked.is_set():
            self._given_up = self._given_up or prompt is not None
            return None
        return prompt

    async def _work(self, prompt: Prompt | GoOn) -> None:
        self._guard.begun = self._beginning = True
        execution = await self._begin(prompt)
        self._beginning = self._is_over = self._is_shown = False
        self._execution = execution
        self._guard.attend(execution, self._journal)
        shown = prompt.text if isinstance(prompt, Prompt) else ""
        self._renderer.prompted(self._session.deps.redactor.text(shown))
        try:
            ended = await self._see_through(execution)
        finally:
            self._execution = None
        self.outcome = ended.outcome
        await self._show_beside()
        self._renderer.ended(ended, self._journal)
        self._guard.shown()
        told(ended)

    async def _begin(self, prompt: Prompt | GoOn) -> Execution:
        if isinstance(prompt, Prompt):
            return await self._session.prompt(prompt.text, prompt.images)
        return await self._session.finish_left()

    async def _see_through(self, execution: Execution) -> Ended:
        """Run to the end while the renderer follows, and leave nothing unsaid."""
        if self._guard.asked.is_set():
            await execution.cancel("operator", self._guard.reason)
        elif self._stop is not None:
            stop, self._stop = self._stop, None
            await self._cancel(execution, stop)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow(execution.run_id))
            ended = await execution.finish()
            self._is_over = True
            self._guard.dismiss(ended.outcome)
            if not ended.durable:
                following.cancel()
            await self._until_shown(following)
        return ended

    async def _until_shown(self, following: "asyncio.Task[None]") -> None:
        """Wait for the renderer as long as its reader takes anything, or may ask for more."""
        while not following.done():
            await asyncio.wait([following], timeout=_LOOK_S)
            leaving = self._all_read or self._broken is not None or self._guard.asked.is_set()
            if leaving and self._output.stalled_s > STALLED_S:
                following.cancel()

    async def _follow(self, run_id: str) -> None:
        """Show each fact once it is durable, until the last one."""
        if not self._renderer.follows:
            return
        try:
            await self._show_all(run_id)
        except JournalError as error:  # the run is not to blame, and goes on
            say(f"batten: the run cannot be shown any further: {error}")

    async def _show_all(self, run_id: str) -> None:
        ended = False
        async with aclosing(self._journal.follow(run_id)) as pages:
            async for page in pages:
                for stored in page:
                    self._renderer.show(stored, self._journal)
                    ended = ended or stored.type in TERMINAL
                    self._is_shown = ended
                    if not self._output.has_room:
                        await self._output.room()
                if ended or self._output.closed:
                    return

    async def _end_when_asked(self) -> None:
        await self._guard.asked.wait()
        if self._execution is not None:
            await self._execution.cancel("operator", self._guard.reason)
        while not self._prompts.empty():
            self._given_up = self._prompts.get_nowait() is not None or self._given_up
        self._prompts.put_nowait(None)

    async def _cancel(self, execution: Execution, asked: Interrupt) -> None:
        self._guard.interrupted(asked.reason)
        await execution.cancel("client", asked.reason)


def _size(prompt: Prompt | GoOn | None) -> int:
    if not isinstance(prompt, Prompt):
        return 0
    return len(prompt.text) + sum(len(image.data) for image in prompt.images)
