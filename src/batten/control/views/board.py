"""Reads across runs, as of now: lists, events of all runs, dashboards."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from batten.control.views.agents import AgentMetrics, read_agents
from batten.control.views.dashboard import Dated, Query, read_numbers
from batten.control.views.file import ViewFile
from batten.control.views.folds import EVENTS, RUNS, View
from batten.control.views.listing import RunList, RunQuery, read_events, read_runs
from batten.control.views.store import EventFilter, EventList
from batten.control.views.tail import Dropped, Tail
from batten.journal.contract import Journal
from batten.journal.sqlite.database import Database

T = TypeVar("T")
_IDS = 1000
_TRIES = 20


class Board:
    """The runs of a home. One question at a time, in a thread: others on the loop go on."""

    def __init__(
        self,
        journal: Journal,
        file: ViewFile,
        approach: Callable[[View[Any]], Awaitable[None]],
        forget: Callable[[Sequence[str]], None],
    ) -> None:
        """`approach` keeps a view that is far behind; `forget` drops deleted runs from the file."""
        self._journal = journal
        self._approach = approach
        self._forget = forget
        self._tail = Tail(journal, file)
        self._asking = asyncio.Lock()

    def close(self) -> None:
        self._tail.close()

    async def mark(self) -> tuple[int, int]:
        """Equal ones, equal answers: each fact moves the position, a deletion the number."""
        return await self._journal.position(), await self._journal.streams()

    async def runs(self, query: RunQuery) -> RunList:
        """`GET /runs`."""
        return await self._ask((RUNS,), lambda db: read_runs(db, query))

    async def events(self, wanted: EventFilter, limit: int) -> EventList:
        """`GET /events`: events of all runs that fit, in the order of their facts."""
        return await self._ask((RUNS, EVENTS), lambda db: read_events(db, wanted, limit))

    async def numbers(self, query: Query) -> Dated:
        """`GET /dashboard/overview`, without the health of the runtime."""
        return await self._ask((RUNS,), lambda db: read_numbers(db, query))

    async def agents(self) -> list[AgentMetrics]:
        """`GET /dashboard/agents/metrics`: those in the most runs first."""
        return await self._ask((RUNS,), read_agents)

    async def forget_gone(self) -> None:
        """Drop runs that were deleted from the journal, by whichever process."""
        async with self._asking:
            await self._refresh((RUNS,))

    async def _ask(self, views: Sequence[View[Any]], ask: Callable[[Database], T]) -> T:
        async with self._asking:
            while True:
                await self._refresh(views)
                try:
                    return await asyncio.to_thread(self._tail.read, views, ask)
                except Dropped:
                    continue

    async def _refresh(self, views: Sequence[View[Any]]) -> None:
        """Hold all facts of now, and no run that was deleted."""
        for view in views:
            await self._approach(view)
        for _ in range(_TRIES):
            before = await self.mark()
            await self._tail.follow(views, before[0])
            # A run has its first fact when it is created: fewer than are known means deleted ones.
            if self._tail.count() <= before[1]:
                return
            if not await self._drop_gone() and await self.mark() == before:
                return

    async def _drop_gone(self) -> bool:
        """Compare all known runs with those of the journal. True if some were deleted."""
        found = False
        after = ""
        while known := self._tail.run_ids(after, _IDS):
            stored = await self._stored(known[0], known[-1])
            after = known[-1]
            gone = [run_id for run_id in known if run_id not in stored]
            if gone:
                self._forget(gone)
                self._tail.forget(gone)
                found = True
            await asyncio.sleep(0)
        return found

    async def _stored(self, first: str, last: str) -> set[str]:
        """The journal's ids between two."""
        found: set[str] = set()
        while page := await self._journal.ids("stream", first, last, limit=_IDS):
            found.update(page)
            if len(page) < _IDS:
                break
            first = page[-1]
        return found
