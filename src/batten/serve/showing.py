"""Shows a live session to one client: follows the journal, feeds a renderer, watches its reader."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from batten.agent.execution import Ended, Execution
from batten.contract.commands import Command, ShutDown
from batten.contract.errors import JournalError
from batten.contract.ids import SessionId, session_stream
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.recorder import whole_envelope
from batten.serve.following import RunFollower
from batten.serve.guard import SessionGuard, report_ending
from batten.serve.output import say
from batten.serve.pace import STALLED_S, Pace
from batten.serve.renderer import Renderer
from batten.session.live import Finish, LiveSession

_LOOK_S = 0.5
_HURRIED_S = 1.0
"""How long hooks may take when the process was asked to end."""


class Showing:
    """The display of one live session; the guard ends its runs when the process should end."""

    def __init__(
        self,
        live: LiveSession,
        renderer: Renderer,
        output: Pace,
        guard: SessionGuard,
        *,
        idle_is_done: bool = False,
        started: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`idle_is_done`: an end between two prompts keeps the outcome of the last run. `started`
        waits for what a renderer's first frame tells, while the session already works.
        """
        self._live = live
        self._journal = live.session.deps.journal
        self._renderer = renderer
        self._output = output
        self._guard = guard
        self._idle_is_done = idle_is_done
        self._started = started if renderer.introduces else None
        self._introduced = asyncio.Event()
        if self._started is None:
            self._introduced.set()
        self._stream = session_stream(SessionId(live.session.session_id))
        self._beside = live.session.opened_at
        """The last shown sequence of the session's own stream."""
        self._is_cancelled = False
        self._follower: RunFollower | None = None
        """Shows the current run."""
        live.display = self

    @property
    def end_shown(self) -> bool:
        return self._follower is not None and self._follower.has_shown_end

    @property
    def outcome(self) -> Outcome | None:
        """How the last run ended, or `cancelled` if the guard asked for the end before that."""
        return "cancelled" if self._is_cancelled else self._live.outcome

    async def run(self, commands: AsyncIterator[Command] | None = None) -> None:
        """Show the session until it is shut down, or the guard asks for the end.

        `commands` are passed to the session meanwhile, for surfaces without a reader of their own.
        """
        try:
            async with asyncio.TaskGroup() as group:
                if self._started is not None:
                    group.create_task(self._introduce(self._started))
                beside = [group.create_task(self._end_when_asked())]
                if commands is not None:
                    beside.append(group.create_task(self._live.take_all(commands)))
                await self._live.run()
                for task in beside:
                    task.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        if self._guard.asked.is_set() and not self._is_done():
            self._is_cancelled = True
            if self._live.outcome != "cancelled":  # that run was reported
                say(f"batten: cancelled: {self._guard.reason}")
            self._renderer.fail("cancelled", self._guard.reason)

    async def _introduce(self, started: Callable[[], Awaitable[None]]) -> None:
        await started()
        self._renderer.introduce()
        self._introduced.set()

    def _is_done(self) -> bool:
        """Whether all prompts had ended when the guard asked for the end."""
        live = self._live
        expects_more = not live.is_shut_down and not self._idle_is_done
        return live.outcome is not None and not live.dropped and not expects_more

    def starting(self) -> None:
        self._guard.process.begun = True

    def interrupting(self, reason: str) -> None:
        self._guard.interrupted(reason)

    def note(self, run_id: str, note: Note) -> None:
        """Show a note of the current run; those of its children are not shown."""
        if run_id == self._live.run_id:
            self._renderer.note(note)

    async def show(self, execution: Execution, text: str, finish: Finish) -> Ended:
        key = self._live.session.deps.seal_key
        follower = RunFollower(
            self._journal, self._renderer, execution.run_id, self._output, key=key
        )
        self._follower = follower
        self._guard.attend(execution, follower)
        self._renderer.prompted(text)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow(follower, group))
            ended = await finish()
            self._guard.dismiss(ended.outcome)
            if not ended.durable:
                following.cancel()
            await self._until_shown(following)
        await self._show_beside()
        if ended.durable and self._renderer.completes:
            await follower.show_rest()
        self._renderer.ended(ended)
        self._guard.shown()
        report_ending(ended, is_shown=self._renderer.shows_endings and ended.durable)
        return ended

    async def close(self, reason: str = "done") -> None:
        """Close the session, and show the facts it recorded after its last run."""
        await self._live.close(reason, _HURRIED_S if self._guard.asked.is_set() else None)
        await self._show_beside()

    async def _show_beside(self) -> None:
        """Show the new facts of the session's own stream."""
        try:
            while page := await self._journal.read(self._stream, after=self._beside):
                for stored in page:
                    self._beside = stored.sequence
                    self._renderer.beside(stored, await whole_envelope(stored, self._journal))
        except JournalError as error:
            say(f"batten: what belongs to the session cannot be shown: {error}")

    async def _until_shown(self, following: "asyncio.Task[None]") -> None:
        """Wait for the reader, without limit unless the session or the process is ending."""
        while not following.done():
            await asyncio.wait([following], timeout=_LOOK_S)
            leaving = self._live.is_closing or self._guard.asked.is_set()
            if leaving and self._output.stalled_s > STALLED_S:
                following.cancel()

    async def _follow(self, follower: RunFollower, group: asyncio.TaskGroup) -> None:
        if self._renderer.follows:
            await self._introduced.wait()
            await follower.follow(group)

    async def _end_when_asked(self) -> None:
        await self._guard.asked.wait()
        await self._live.take(ShutDown(reason=self._guard.reason, at_once=True))
