"""The canonical events of one run in order: the kept ones, then those of newer facts."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import Struct

from batten.contract.envelope import decode
from batten.contract.errors import NotFound
from batten.control.views.folds import EVENTS, EventsFold
from batten.control.views.store import EventFilter, ViewStore
from batten.control.views.tables import EventRow, event_row
from batten.journal.contract import Journal, Stored
from batten.protocols.macp.ids import run_uuid

PAGE = 500


async def check_there(journal: Journal, run_id: str) -> None:
    """Raises `NotFound` if there is no such run, or no longer."""
    if await journal.run(run_id) is None:
        raise not_found(run_id)


def not_found(run_id: str) -> NotFound:
    return NotFound(f"run {run_uuid(run_id)} not found", code="RUN_NOT_FOUND")


class EventPart(Struct, frozen=True):
    """Events that follow each other."""

    rows: list[EventRow]
    sequence: int
    """The fact up to which these are all; -1 while kept ones follow."""


class RunEvents:
    """Reads a run's encoded events past a number, as a list of pages or while they happen.

    Every reading folds a fact once at most, and only facts that the store does not hold.
    """

    def __init__(self, journal: Journal, store: ViewStore, run_id: str) -> None:
        self._journal = journal
        self._store = store
        self._run_id = run_id

    async def pages(self, after: int = 0, size: int = PAGE) -> AsyncGenerator[list[EventRow]]:
        """Pages of about this size, up to the events of now. Raises `NotFound` if the run is
        deleted meanwhile: what was read is not all of it.
        """
        state = await self._fold()
        async with aclosing(self._kept(state, after, size)) as kept:
            async for part in kept:
                yield part.rows
                after = part.rows[-1].seq
        while page := await self._journal.read(self._run_id, after=state.sequence, limit=size):
            if rows := self._step(state, page, after):
                yield rows
        await check_there(self._journal, self._run_id)

    async def follow(self, after: int) -> AsyncGenerator[EventPart]:
        """All events up to now, then each new part as its facts commit. Does not end."""
        state = await self._fold()
        async with aclosing(self._kept(state, after, PAGE)) as kept:
            async for part in kept:
                yield part
                after = part.rows[-1].seq
        yield EventPart([], state.sequence)
        async with aclosing(self._journal.follow(self._run_id, after=state.sequence)) as pages:
            async for page in pages:
                yield EventPart(self._step(state, page, after), state.sequence)

    async def _fold(self) -> EventsFold:
        """What makes the events after the kept ones, unless these are of a deleted run that had
        the same id.
        """
        run = await self._journal.run(self._run_id)
        row = self._store.kept(EVENTS.name, self._run_id)
        state = EventsFold() if row is None else EVENTS.decode(row.body)
        is_other = run is not None and state.normaliser.queued_at != run.created_at
        return EventsFold() if is_other else state

    async def _kept(self, state: EventsFold, after: int, size: int) -> AsyncGenerator[EventPart]:
        """The kept events up to `state`, which begins anew if they were dropped meanwhile."""
        while after < state.seq:
            wanted = EventFilter(run_id=self._run_id, after_seq=after)
            rows = self._store.events(wanted, min(size, state.seq - after))
            if not rows or rows[0].seq != after + 1:
                state.normaliser = EventsFold().normaliser
                return
            after = rows[-1].seq
            yield EventPart(rows, -1)

    def _step(self, state: EventsFold, page: Sequence[Stored], after: int) -> list[EventRow]:
        return [
            event_row(self._run_id, event)
            for stored in page
            for event in EVENTS.step(state, decode(stored.body))
            if event.seq > after
        ]
