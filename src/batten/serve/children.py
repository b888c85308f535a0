"""Runs that a run starts, shown beside it: what they do comes before the result of the call."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from batten.contract.envelope import Envelope
from batten.contract.errors import JournalError
from batten.contract.facts import TERMINAL, ToolStarted
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import whole_envelope
from batten.serve.remainder import at_once

_ENDS = frozenset({"tool.completed", "tool.failed", "tool.cancelled", "tool.timed_out"})

Codec = TypeVar("Codec")
"""What turns the facts of one run into frames."""


class Children(Generic[Codec]):
    """Follows every child run while it works, and the children of children."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        begin: Callable[[Codec, str], Codec],
        show: Callable[[Codec, Stored, Envelope], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        """`begin` makes the codec of a run that a call of another one's started."""
        self._group = group
        self._begin = begin
        self._show = show
        self._room = room
        self._working: dict[tuple[int, str], _Child[Codec]] = {}
        """By whose call, and which of them, started it."""

    def see(self, codec: Codec, envelope: Envelope, journal: Journal) -> None:
        """A fact of a run is about to be shown, which may have to do with a child of it."""
        fact = envelope.data
        key = (id(codec), getattr(fact, "tool_call_id", ""))
        if isinstance(fact, ToolStarted) and isinstance(fact.child_run_id, str):
            child = _Child(fact.child_run_id, codec, self._begin(codec, fact.tool_call_id))
            self._working[key] = child
            child.following = self._group.create_task(self._follow(child, journal))
        elif envelope.type in _ENDS and key in self._working:
            self._catch_up(self._working.pop(key), journal)

    def leave(self) -> None:
        """Nobody is shown anything any more."""
        for child in self._working.values():
            child.leave()
        self._working.clear()

    async def _follow(self, child: "_Child[Codec]", journal: Journal) -> None:
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

    def _catch_up(self, child: "_Child[Codec]", journal: Journal) -> None:
        child.leave()
        while page := journal.read_now(child.run_id, after=child.shown):
            for stored in page:
                self._feed(child, stored, journal)

    def _feed(self, child: "_Child[Codec]", stored: Stored, journal: Journal) -> None:
        if stored.sequence > child.shown:
            child.shown = stored.sequence
            envelope = at_once(whole_envelope(stored, journal))
            self.see(child.codec, envelope, journal)
            self._show(child.codec, stored, envelope)


class _Child(Generic[Codec]):
    def __init__(self, run_id: str, starter: Codec, codec: Codec) -> None:
        self.run_id = run_id
        self.starter = starter
        """Kept, since it is known by its identity."""
        self.codec = codec
        self.shown = -1
        self.following: asyncio.Task[None] | None = None

    def leave(self) -> None:
        if self.following is not None:
            self.following.cancel()
