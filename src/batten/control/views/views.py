"""Reads views: what is kept, and the facts since then folded in memory. Keeps them up."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from batten.contract.envelope import decode
from batten.contract.errors import BattenError, NotFound
from batten.contract.ids import from_uuid
from batten.control.views.board import Board
from batten.control.views.folding import SNAPSHOT_EVERY, Change, Folding, fold_in_slices
from batten.control.views.folds import (
    EVENTS,
    RUNS,
    STATES,
    VIEWS,
    RunFold,
    S,
    StateFold,
    View,
    shown_metrics,
    shown_record,
)
from batten.control.views.rebuilding import rebuild
from batten.control.views.run_events import RunEvents, not_found
from batten.control.views.store import EventFilter, EventList, Moved, ViewStore
from batten.control.views.tables import event_row
from batten.journal.contract import Journal, RunRow, Stored
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.ids import run_uuid
from batten.protocols.macp.metrics import RunMetrics
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.projection import project, state_of
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.state import ProjectedState

_PAGE = 200
"""Facts that are read, and stored, together."""
_FAR_BEHIND = 2000
"""Facts: a reader that has to fold more keeps them first, so that it needs no memory for them."""
_CACHED = 256
"""Runs whose states stay decoded while views are kept up."""
_log = logging.getLogger("batten.views")


class Views:
    """The views of one home."""

    def __init__(self, journal: Journal, store: ViewStore) -> None:
        self._journal = journal
        self._store = store
        self._cached: dict[str, list[Any]] = {}
        self._cached_of: list[View[Any]] = []
        """The views whose states are cached: those that were folded together last."""
        self._cached_at = 0
        """The position of these views then."""
        self._keeping = asyncio.Lock()
        self.board = Board(journal, store.file, self._approach, self.forget)
        """What tells of all runs."""

    @property
    def are_there(self) -> bool:
        """False once their file was removed: open them again."""
        return self._store.file.is_there

    def close(self) -> None:
        self.board.close()
        self._store.close()

    async def catch_up(self) -> None:
        """Fold all facts of the journal into every view, and commit; others get their turns.

        It rests as long as it works: a server that is busy with requests catches up afterwards.
        """
        is_behind = True
        while is_behind:
            async with self._keeping:  # page by page: readers that wait for one view go first
                began = time.monotonic()
                is_behind = await self._advance(VIEWS)
            await asyncio.sleep(time.monotonic() - began)

    async def _advance(self, views: Sequence[View[Any]]) -> bool:
        """Fold a page into those views that are farthest behind. False if nothing is left."""
        positions = [self._store.position(view.name) for view in views]
        since = min(positions)
        behind = [view for view, one in zip(views, positions, strict=True) if one == since]
        page = await self._journal.feed(after=since, limit=_PAGE)
        if not page:
            return False
        if (behind, since) != (self._cached_of, self._cached_at):
            self._cached, self._cached_of = {}, behind
        folding = Folding(behind, self._states)
        await fold_in_slices(folding, page)
        try:
            self._store.commit(behind, folding.changes, since=since, position=page[-1].position)
        except Moved:
            self._cached.clear()
        else:
            self._remember(folding.changes)
            self._cached_at = page[-1].position
        await asyncio.sleep(0)
        return True

    def _states(self, run_id: str) -> list[Any]:
        """States to move on: cached ones, stored ones, or first ones."""
        cached = self._cached.pop(run_id, None)
        if cached is not None:
            return cached
        rows = [(view, self._store.kept(view.name, run_id)) for view in self._cached_of]
        return [
            view.state() if row is None else self._store.decoded(view, row.body)
            for view, row in rows
        ]

    def _remember(self, changes: dict[str, Change]) -> None:
        self._cached.update({run_id: change.states for run_id, change in changes.items()})
        for run_id in list(self._cached)[: max(0, len(self._cached) - _CACHED)]:
            del self._cached[run_id]

    async def _approach(self, view: View[Any]) -> None:
        """Keep a view that is far behind, before somebody has to fold all of that in memory."""
        if await self._journal.position() - self._store.position(view.name) <= _FAR_BEHIND:
            return
        try:
            async with self._keeping:
                while await self._advance((view,)):
                    pass
        except BattenError as error:
            _log.warning("a view is folded in memory: %s", error)

    def forget(self, run_ids: Sequence[str]) -> None:
        """Drop runs that were deleted from the journal."""
        self._store.forget(run_ids)
        for run_id in run_ids:
            self._cached.pop(run_id, None)

    async def rebuild(self, run_id: str) -> ProjectedState:
        """Fold a run anew for every view; returns its state. Raises `NotFound`."""
        await self.state(run_id)
        is_done = False
        while not is_done:
            await self.catch_up()
            async with self._keeping:
                self._cached.clear()
                position = self._store.position(RUNS.name)
                is_done = await rebuild(self._journal, self._store, run_id, position)
        return await self.state(run_id)

    async def _folded(self, view: View[S], run_id: str) -> tuple[S, list[CanonicalEvent]]:
        """A run's state as of now, and the events that are not kept. Raises `NotFound`."""
        run = await self._journal.run(run_id)
        if run is None or not is_whole(run):
            raise not_found(run_id)
        state = self._known(view, run_id, run.created_at)
        if run.next_sequence - state.sequence > _FAR_BEHIND:
            await self._approach(view)
            state = self._known(view, run_id, run.created_at)
        made: list[CanonicalEvent] = []
        while page := await self._read(run_id, state.sequence, _PAGE):
            for stored in page:
                made += view.step(state, decode(stored.body))
            if len(page) < _PAGE:
                break
            await asyncio.sleep(0)
        if not state.seq:
            raise not_found(run_id)
        return state, made

    def _known(self, view: View[S], run_id: str, created_at: str) -> S:
        """The kept state of a run, or a first one. A run that was deleted may have had its id."""
        kept = self._store.kept(view.name, run_id)
        state = view.state() if kept is None else self._store.decoded(view, kept.body)
        return state if state.normaliser.queued_at == created_at else view.state()

    async def _read(self, run_id: str, after: int, limit: int) -> list[Stored]:
        try:
            return await self._journal.read(run_id, after=after, limit=limit)
        except NotFound as error:
            raise not_found(run_id) from error

    async def state(self, run_id: str) -> ProjectedState:
        """`GET /runs/:id/state`. Raises `NotFound`."""
        folded, _ = await self._folded(STATES, run_id)
        return state_of(folded.projection)

    async def state_at(self, run_id: str, seq: int) -> ProjectedState:
        """The state after the event with this number, from the nearest kept one.

        Raises `NotFound`.
        """
        run = await self._journal.run(run_id)
        if run is None or not is_whole(run):
            raise not_found(run_id)
        body = self._store.snapshot(run_id, seq)
        folded = StateFold() if body is None else self._store.decoded(STATES, body)
        if folded.normaliser.queued_at != run.created_at:
            folded = StateFold()
        while folded.projection.timeline.latest_seq < seq:
            page = await self._read(run_id, folded.sequence, SNAPSHOT_EVERY)
            if not page:
                break
            for stored in page:
                for event in normalise(folded.normaliser, decode(stored.body)):
                    if event.seq <= seq:
                        project(folded.projection, event)
                if folded.seq >= seq:
                    break
            if folded.seq >= seq:
                break
        folded.projection.run.run_id = run_uuid(run_id)
        return state_of(folded.projection)

    async def run_fold(self, run_id: str) -> RunFold:
        """A run's record, numbers and session, as of now. Raises `NotFound`."""
        folded, _ = await self._folded(RUNS, run_id)
        return folded

    async def record(self, run_id: str) -> RunRecord:
        """`GET /runs/:id`. Raises `NotFound`."""
        return shown_record(await self.run_fold(run_id))

    async def metrics(self, run_id: str) -> RunMetrics:
        """`GET /runs/:id/metrics`. Raises `NotFound`."""
        return shown_metrics(await self.run_fold(run_id))

    def run_events(self, run_id: str) -> RunEvents:
        """All events of one run, by page or while they happen."""
        return RunEvents(self._journal, self._store, run_id)

    async def events(self, run_id: str, wanted: EventFilter, limit: int) -> EventList:
        """Events of one run that fit, by their number. Raises `NotFound`."""
        wanted = msgspec.structs.replace(wanted, run_id=run_id)
        while True:
            folded, made = await self._folded(EVENTS, run_id)
            with self._store.reading():
                held = self._known(EVENTS, run_id, folded.normaliser.queued_at).seq
                if held < folded.seq - len(made):
                    continue  # the view was dropped meanwhile
                # What was committed since the tail was folded is in both.
                tail = (event_row(run_id, event) for event in made if event.seq > held)
                more = [row for row in tail if wanted.fits(row)]
                rows = self._store.events(wanted, limit) if held else []
                total = (self._store.count(wanted) if held else 0) + len(more)
            return EventList([*rows, *more][:limit], total)


def is_whole(row: RunRow | None) -> bool:
    """Whether the journal has all facts of a run: nobody deleted it or a part of it."""
    return row is not None and row.base_sequence == 0


def journal_id(run_id: str) -> str:
    """The journal's id of a run, from the UUID of this protocol. Raises `NotFound`."""
    try:
        return from_uuid(run_id, "run")
    except ValueError as error:
        raise NotFound(f"run {run_id} not found", code="RUN_NOT_FOUND") from error
