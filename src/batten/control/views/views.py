"""Reads views: what is kept, and the facts since then folded in memory. Keeps them up."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.envelope import decode
from batten.contract.errors import NotFound
from batten.contract.ids import from_uuid
from batten.control.views.board import Board
from batten.control.views.folds import (
    EVENTS,
    RUNS,
    STATES,
    VIEWS,
    Folded,
    RunFold,
    S,
    StateFold,
    View,
    shown_metrics,
    shown_record,
)
from batten.control.views.rebuilding import rebuild
from batten.control.views.run_events import RunEvents, event_row
from batten.control.views.store import EventFilter, EventRow, Kept, Moved, ViewStore
from batten.journal.contract import Journal, RunRow, Stored
from batten.protocols.macp.emitting import run_uuid
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.metrics import RunMetrics
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.projection import project, state_of
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.state import ProjectedState

SNAPSHOT_EVERY = 500
"""Events between two kept states of a run."""
_PAGE = 1000
_FEW = 200
"""Facts folded, or runs looked up, before others get their turn."""
_CACHED = 256
"""Runs whose states stay decoded while views are kept up."""


class EventList(Struct, frozen=True):
    """A page of events, each encoded, and how many fit in all."""

    rows: list[EventRow]
    total: int


class Views:
    """The views of one home."""

    def __init__(self, journal: Journal, store: ViewStore) -> None:
        self._journal = journal
        self._store = store
        self._cached: dict[str, dict[str, Folded]] = {view.name: {} for view in VIEWS}
        self.board = Board({})
        self._board_position = -1

    async def catch_up(self) -> None:
        """Fold all facts of the journal into every view, and commit."""
        for view in VIEWS:
            await self._catch_up(view)

    async def _catch_up(self, view: View[Any]) -> None:
        while True:
            since = self._store.position(view.name)
            page = await self._journal.feed(after=since, limit=_FEW)
            if not page:
                return
            try:
                self._advance(view, page, since)
            except Moved:
                self._cached[view.name].clear()
            await asyncio.sleep(0)

    def _advance(self, view: View[S], page: Sequence[Stored], since: int) -> None:
        changed: dict[str, S] = {}
        events: list[EventRow] = []
        snapshots: list[tuple[str, int, bytes]] = []
        for stored in page:
            state = changed.get(stored.run_id) or self._kept(view, stored.run_id)
            if stored.sequence <= state.sequence:
                continue
            before = state.seq
            made = view.step(state, decode(stored.body))
            changed[stored.run_id] = state
            if view is EVENTS:
                events += [event_row(stored.run_id, event) for event in made]
            if view is STATES and state.seq // SNAPSHOT_EVERY > before // SNAPSHOT_EVERY:
                snapshots.append((stored.run_id, state.seq, view.encode(state)))
        kept = [
            Kept(run_id, state.sequence, state.seq, view.encode(state))
            for run_id, state in changed.items()
            if state.normaliser.kind  # streams of sessions are no runs
        ]
        self._store.commit(
            view.name,
            kept,
            since=since,
            position=page[-1].position,
            events=events,
            snapshots=snapshots,
        )
        self._remember(view, changed)

    def _kept(self, view: View[S], run_id: str) -> S:
        """A state to move on: the cached one, the stored one, or a first one."""
        cached = self._cached[view.name].pop(run_id, None)
        if cached is not None:
            assert isinstance(cached, view.state)
            return cached
        row = self._store.kept(view.name, run_id)
        return view.state() if row is None else view.decode(row.body)

    def _remember(self, view: View[S], changed: dict[str, S]) -> None:
        cache = self._cached[view.name]
        cache.update({id_: state for id_, state in changed.items() if state.normaliser.kind})
        for run_id in list(cache)[: max(0, len(cache) - _CACHED)]:
            del cache[run_id]

    def forget(self, run_ids: Sequence[str]) -> None:
        """Drop runs that were deleted from the journal."""
        self._store.forget(run_ids)
        for run_id in run_ids:
            self.board.remove(run_id)
            for cache in self._cached.values():
                cache.pop(run_id, None)

    async def rebuild(self, run_id: str) -> ProjectedState:
        """Fold a run anew for every view; returns its state. Raises `NotFound`."""
        await self.state(run_id)
        for view in VIEWS:
            await rebuild(self._journal, self._store, view, run_id, SNAPSHOT_EVERY)
            self._cached[view.name].pop(run_id, None)
        return await self.state(run_id)

    async def forget_gone(self) -> None:
        """Drop runs whose facts were removed from the journal, by whichever process."""
        run_ids = self._store.run_ids()
        for start in range(0, len(run_ids), _FEW):
            part = run_ids[start : start + _FEW]
            gone = [one for one in part if not is_whole(await self._journal.run(one))]
            if gone:
                self.forget(gone)
            await asyncio.sleep(0)

    async def _folded(self, view: View[S], run_id: str) -> tuple[S, list[CanonicalEvent]]:
        """A run's state as of now, and the events that are not kept. Raises `NotFound`."""
        row = self._store.kept(view.name, run_id)
        state = view.state() if row is None else view.decode(row.body)
        made: list[CanonicalEvent] = []
        if not is_whole(await self._journal.run(run_id)):
            raise not_found(run_id)
        while page := await self._read(run_id, state.sequence, _FEW):
            for stored in page:
                made += view.step(state, decode(stored.body))
            if len(page) < _FEW:
                break
            await asyncio.sleep(0)
        if not state.normaliser.kind:
            raise not_found(run_id)
        return state, made

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
        if not is_whole(await self._journal.run(run_id)):
            raise not_found(run_id)
        body = self._store.snapshot(run_id, seq)
        folded = StateFold() if body is None else STATES.decode(body)
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

    async def events(self, run_id: str, wanted: EventFilter, limit: int) -> EventList:
        """Events of one run that fit. Raises `NotFound`."""
        wanted = msgspec.structs.replace(wanted, run_ids=(run_id,))
        _, made = await self._folded(EVENTS, run_id)
        return self._listed(wanted, limit, [event_row(run_id, event) for event in made])

    def run_events(self, run_id: str) -> RunEvents:
        """All events of one run, by page or while they happen."""
        return RunEvents(self._journal, self._store, run_id)

    def _listed(self, wanted: EventFilter, limit: int, tail: list[EventRow]) -> EventList:
        with self._store.reading():
            held = {row.run_id: 0 for row in tail}
            for run_id in held:
                kept = self._store.kept(EVENTS.name, run_id)
                held[run_id] = 0 if kept is None else kept.seq
            # What was committed since the tail was folded is in both.
            more = [row for row in tail if row.seq > held[row.run_id] and wanted.fits(row)]
            rows = self._store.events(wanted, limit) + more
            total = self._store.count(wanted) + len(more)
        if wanted.is_timed or wanted.run_ids is None or len(wanted.run_ids) > 1:
            rows.sort(key=lambda row: (row.ts, row.run_id, row.seq))
        return EventList(rows[:limit], total)

    async def all_events(self, wanted: EventFilter, limit: int) -> EventList:
        """Events of all runs that fit, by time."""
        tail: list[EventRow] = []
        states: dict[str, Any] = {}
        after = self._store.position(EVENTS.name)
        while page := await self._journal.feed(after=after, limit=_PAGE):
            after = page[-1].position
            for stored in page:
                state = states.get(stored.run_id)
                if state is None:
                    row = self._store.kept(EVENTS.name, stored.run_id)
                    state = EVENTS.state() if row is None else EVENTS.decode(row.body)
                    states[stored.run_id] = state
                if stored.sequence > state.sequence:
                    made = EVENTS.step(state, decode(stored.body))
                    tail += [event_row(stored.run_id, event) for event in made]
        return self._listed(wanted, limit, tail)

    async def read_board(self) -> Board:
        """What dashboards add up, as of now: the kept runs, and the facts since then."""
        position = self._store.position(RUNS.name)
        if self._board_position < 0 or position < self._board_position:
            kept = self._store.all_kept(RUNS.name)
            self.board = Board({row.run_id: RUNS.decode(row.body) for row in kept})
            self._board_position = position
        while page := await self._journal.feed(after=self._board_position, limit=_PAGE):
            self._board_position = page[-1].position
            changed: dict[str, RunFold] = {}
            for stored in page:
                state = changed.get(stored.run_id) or self.board.take(stored.run_id)
                if stored.sequence > state.sequence:
                    RUNS.step(state, decode(stored.body))
                changed[stored.run_id] = state
            for run_id, state in changed.items():
                if state.normaliser.kind:
                    self.board.put(run_id, state)
        return self.board


def is_whole(row: RunRow | None) -> bool:
    """Whether the journal has all facts of a run: nobody deleted it or a part of it."""
    return row is not None and row.base_sequence == 0


def not_found(run_id: str) -> NotFound:
    return NotFound(f"run {run_uuid(run_id)} not found", code="RUN_NOT_FOUND")


def journal_id(run_id: str) -> str:
    """The journal's id of a run, from the UUID of this protocol. Raises `NotFound`."""
    try:
        return from_uuid(run_id, "run")
    except ValueError as error:
        raise NotFound(f"run {run_id} not found", code="RUN_NOT_FOUND") from error
