"""Feeds a renderer the facts of one run, each once and in order, with those of its child runs."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from batten.contract.envelope import Envelope
from batten.contract.errors import JournalError
from batten.contract.facts import TERMINAL, TOOL_TERMINAL, ToolStarted
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import as_written, whole_envelope, whole_envelope_now
from batten.redact.seal import SealKey
from batten.serve.output import say
from batten.serve.pace import Pace
from batten.serve.renderer import Renderer


class RunFollower:
    """Reads one run from the journal for one renderer, at the reader's pace.

    All facts of a child run are shown before the end of the tool call that started it.
    """

    def __init__(
        self,
        journal: Journal,
        renderer: Renderer,
        run_id: str,
        pace: Pace,
        parent: "RunFollower | None" = None,
        key: Callable[[], SealKey] | None = None,
    ) -> None:
        """`key` unseals answers for the client that asked for them."""
        self._journal = journal
        self._renderer = renderer
        self._run_id = run_id
        self._pace = pace
        self._key = key
        self._top: Renderer = renderer if parent is None else parent._top
        """The renderer of the top-level run: when it is closed, its children stop too."""
        self._children: dict[str, RunFollower] = {}
        """Active child runs, keyed by the tool call that started them."""
        self._shown = -1
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self.has_shown_end = False

    async def follow(self, group: asyncio.TaskGroup) -> None:
        """Show each durable fact up to the terminal one. Child runs are followed in `group`."""
        self._group = group
        try:
            async with aclosing(self._journal.follow(self._run_id)) as pages:
                async for page in pages:
                    for stored in page:
                        await self._show(stored)
                        if stored.type in TERMINAL:
                            self.has_shown_end = True
                        if not self._pace.has_room:
                            await self._pace.room()
                    if self.has_shown_end or self._pace.closed:
                        return
        except JournalError as error:  # only the display fails; the run continues
            say(f"batten: the run cannot be shown any further: {error}")
        finally:
            self._group = None
            for child in self._children.values():
                child.stop()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def show_rest(self) -> None:
        """Show the stored facts that were not shown yet."""
        while page := await self._journal.read(self._run_id, after=self._shown):
            for stored in page:
                await self._show(stored)
            if self._top.closed:
                return

    async def replay(self, until: int | None) -> bool:
        """Show an ended run up to and including sequence `until`; False if that cut it short."""
        while page := await self._journal.read(self._run_id, after=self._shown):
            for stored in page:
                if until is not None and stored.sequence > until:
                    return False
                await self._show(stored)
            await self._pace.room()
        return True

    def catch_up(self) -> None:
        """On the watchdog's thread: stop the loop from rendering, then show the remaining facts.

        `Renderer.complete` needs the loop, so the envelopes are shown without it.
        """
        self._renderer.close()
        while page := self._journal.read_now(self._run_id, after=self._shown):
            for stored in page:
                self._shown = stored.sequence
                envelope = whole_envelope_now(stored, self._journal)
                ended = self._child_of(envelope)
                if ended is not None:
                    ended.catch_up()
                self._renderer.show(stored, envelope)
        for child in self._children.values():
            child.catch_up()

    async def _show(self, stored: Stored) -> None:
        envelope = await self._whole(stored)
        await self._show_child(envelope)
        # No await from here on: either the watchdog's thread shows a fact or the loop does.
        if stored.sequence > self._shown and not self._top.closed:
            self._shown = stored.sequence
            self._renderer.show(stored, envelope)

    async def _whole(self, stored: Stored) -> Envelope:
        envelope = await whole_envelope(stored, self._journal)
        if self._key is not None and self._renderer.unseals:
            envelope = await as_written(envelope, self._journal, self._key)
        return await self._renderer.complete(envelope)

    async def _show_child(self, envelope: Envelope) -> None:
        """Start following a child run, or show the rest of it before its tool call ends."""
        ended = self._child_of(envelope)
        if ended is not None:
            ended.stop()
            await ended.show_rest()
        elif self._group is not None and isinstance(envelope.data, ToolStarted):
            child = self._children.get(envelope.data.tool_call_id)
            if child is not None and child._task is None:
                child._task = self._group.create_task(child.follow(self._group))

    def _child_of(self, envelope: Envelope) -> "RunFollower | None":
        """Keep a child run that a call starts; return the child whose call has ended, if any."""
        fact = envelope.data
        if isinstance(fact, ToolStarted) and isinstance(fact.child_run_id, str):
            renderer = self._renderer.child(fact.tool_call_id)
            if renderer is not None:
                child = RunFollower(
                    self._journal, renderer, fact.child_run_id, self._pace, self, self._key
                )
                self._children[fact.tool_call_id] = child
        elif self._children and envelope.type in TOOL_TERMINAL:
            return self._children.pop(getattr(fact, "tool_call_id", ""), None)
        return None
