"""Runs that a run starts: what they do and ask is shown before the result of the call that did."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from batten.contract.envelope import Envelope
from batten.contract.errors import JournalError
from batten.contract.facts import TERMINAL, ToolStarted
from batten.journal.contract import Journal, Stored
from batten.protocols.maestro.calls import Calls

_ENDS = frozenset({"tool.completed", "tool.failed", "tool.cancelled", "tool.timed_out"})

Read = Callable[[Stored, Journal], Envelope]
Show = Callable[[Calls, Stored, Envelope], None]


class Children:
    """Follows every child run while it works, and the children of children."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        read: Read,
        show: Show,
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._group = group
        self._read = read
        self._show = show
        self._room = room
        self._working: dict[tuple[int, str], _Child] = {}
        """By whose calls, and which of them, started it."""

    def see(self, calls: Calls, envelope: Envelope, journal: Journal) -> None:
        """A fact of a run is about to be shown, which may have to do with a child of it."""
        fact = envelope.data
        key = (id(calls), getattr(fact, "tool_call_id", ""))
        if isinstance(fact, ToolStarted) and isinstance(fact.child_run_id, str):
            child = _Child(fact.child_run_id, calls)
            self._working[key] = child
            child.following = self._group.create_task(self._follow(child, journal))
        elif envelope.type in _ENDS and key in self._working:
            self._catch_up(self._working.pop(key), journal)

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
        if stored.sequence > child.shown:
            child.shown = stored.sequence
            envelope = self._read(stored, journal)
            self.see(child.calls, envelope, journal)
            self._show(child.calls, stored, envelope)


class _Child:
    def __init__(self, run_id: str, starter: Calls) -> None:
        self.run_id = run_id
        self.starter = starter
        """Kept, since it is known by its identity."""
        self.calls = starter.child()
        self.shown = -1
        self.following: asyncio.Task[None] | None = None

    def leave(self) -> None:
        if self.following is not None:
            self.following.cancel()
