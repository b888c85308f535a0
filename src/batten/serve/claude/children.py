"""Child runs shown beside the run that started them, under the call that did."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from batten.contract.envelope import Envelope
from batten.contract.errors import JournalError
from batten.contract.facts import TERMINAL, ToolStarted
from batten.journal.contract import Journal, Stored
from batten.protocols.claude.frames import ClaudeFrames
from batten.protocols.claude.line import Frame

Read = Callable[[Stored, Journal], Envelope]
Show = Callable[[list[Frame]], None]


class Children:
    """Follows every child run while it works; what it did is shown before its call's result."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        read: Read,
        show: Show,
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._group = group
        self._room = room
        self._read = read
        self._show = show
        self._working: dict[str, _Child] = {}
        self.shows_text = False
        """Whether what children say is shown too, not only what they do."""

    def see(self, frames: ClaudeFrames, envelope: Envelope, journal: Journal) -> None:
        """A fact of a run is about to be shown, which may have to do with a child of it."""
        fact = envelope.data
        if isinstance(fact, ToolStarted) and isinstance(fact.child_run_id, str):
            started = _Child(fact.child_run_id, frames.child(fact.tool_call_id))
            self._working[fact.tool_call_id] = started
            started.following = self._group.create_task(self._follow(started, journal))
            return
        child = self._working.get(getattr(fact, "tool_call_id", ""))
        if child is not None and envelope.type in _ENDS:
            del self._working[child.frames.parent_tool_use_id or ""]
            self._catch_up(child, journal)

    def leave(self) -> None:
        """Nobody is shown anything any more."""
        for child in self._working.values():
            child.leave()
        self._working.clear()

    async def _follow(self, child: "_Child", journal: Journal) -> None:
        try:
            async with aclosing(journal.follow(child.run_id)) as pages:
                async for page in pages:
                    for stored in page:
                        self._feed(child, stored, journal)
                        if stored.type in TERMINAL:
                            return
                    await self._room()
        except JournalError:
            return  # the end of its call is shown all the same

    def _catch_up(self, child: "_Child", journal: Journal) -> None:
        child.leave()
        while page := journal.read(child.run_id, after=child.shown):
            for stored in page:
                self._feed(child, stored, journal)

    def _feed(self, child: "_Child", stored: Stored, journal: Journal) -> None:
        if stored.sequence <= child.shown:
            return
        child.shown = stored.sequence
        envelope = self._read(stored, journal)
        self.see(child.frames, envelope, journal)
        frames = child.frames.feed(envelope)
        self._show(frames if self.shows_text else [one for one in map(_doings, frames) if one])


class _Child:
    def __init__(self, run_id: str, frames: ClaudeFrames) -> None:
        self.run_id = run_id
        self.frames = frames
        self.shown = -1
        self.following: asyncio.Task[None] | None = None

    def leave(self) -> None:
        if self.following is not None:
            self.following.cancel()


_ENDS = frozenset({"tool.completed", "tool.failed", "tool.cancelled", "tool.timed_out"})


def _doings(frame: Frame) -> Frame | None:
    """A frame without what is only said; None if nothing is left of it."""
    if frame["type"] == "user":
        return frame
    if frame["type"] != "assistant":
        return None
    message = frame["message"]
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    return {**frame, "message": {**message, "content": calls}} if calls else None
