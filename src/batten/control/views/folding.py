"""Folds facts of many runs into views: what is to be stored afterwards, run by run."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from batten.contract.envelope import decode
from batten.control.views.folds import EVENTS, RUNS, STATES, Folded, View
from batten.control.views.tables import EventRow, Mark, event_row, first_place, mark_of
from batten.journal.contract import Stored

SNAPSHOT_EVERY = 500
"""Events between two kept states of a run."""
_SLICE_S = 0.005
"""Time of folding before others get their turn."""
_PRUNED = "gap.events_pruned"

Load = Callable[[str], list[Any]]
"""The states that a stream has so far, one for each view; first ones before its first fact."""


class Change(Struct, kw_only=True):
    """What facts changed of one stream."""

    states: list[Any]
    """Of each view that was folded, in their order; all with the same normaliser."""
    position: int = 0
    """Of its last fact."""
    dropped_at: int = 0
    """The position of the fact whose earlier rows are to be removed; 0 if all of them count."""
    events: list[EventRow] = field(default_factory=list[EventRow])
    marks: list[Mark] = field(default_factory=list[Mark])
    snapshots: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])


class Folding:
    """Folds pages of facts into views that hold the same facts before them.

    A fact is read and normalised once, for however many views.
    """

    def __init__(self, views: Sequence[View[Any]], load: Load) -> None:
        self.views = views
        self.changes: dict[str, Change] = {}
        self._load = load

    def take(self, stored: Stored) -> None:
        """Fold the next fact of the feed."""
        change = self.changes.get(stored.run_id) or self._begin(stored.run_id)
        if stored.sequence == 0 and stored.position != change.states[0].first_position:
            self._start(change, stored.position)
        state = change.states[0]
        if stored.sequence <= state.sequence:
            return
        self.changes[stored.run_id] = change
        change.position = stored.position
        if stored.type == _PRUNED:
            self._prune(change, stored)
            return
        before: int = state.seq
        envelope = decode(stored.body)
        events = self.views[0].step(state, envelope)
        for view, other in zip(self.views[1:], change.states[1:], strict=True):
            view.apply(other, envelope, events)
        if not events:
            return
        if EVENTS in self.views:
            place = first_place(stored.position)
            change.events += [
                event_row(stored.run_id, event, place + number)
                for number, event in enumerate(events)
            ]
        if RUNS in self.views:
            marks = (mark_of(event, stored.position) for event in events)
            change.marks += [mark for mark in marks if mark is not None]
        if STATES in self.views and state.seq // SNAPSHOT_EVERY > before // SNAPSHOT_EVERY:
            held = change.states[self.views.index(STATES)]
            change.snapshots.append((state.seq, STATES.encode(held)))

    def _begin(self, run_id: str) -> Change:
        states = self._load(run_id)
        _share_normaliser(states)
        return Change(states=states)

    def _start(self, change: Change, position: int) -> None:
        """Begin with a stream's first fact; another stream may have had its id before."""
        if change.states[0].sequence >= 0:
            self._drop(change, position, [view.state() for view in self.views])
        for state in change.states:
            state.first_position = position

    def _prune(self, change: Change, stored: Stored) -> None:
        self._drop(change, stored.position, [view.state(is_pruned=True) for view in self.views])
        change.states[0].normaliser.sequence = stored.sequence

    def _drop(self, change: Change, position: int, states: list[Any]) -> None:
        """Go on with these states, and without the rows before this fact."""
        change.states = states
        _share_normaliser(states)
        change.dropped_at = position
        change.events.clear()
        change.marks.clear()
        change.snapshots.clear()


def _share_normaliser(states: Sequence[Folded]) -> None:
    for state in states[1:]:
        state.normaliser = states[0].normaliser


async def fold_in_slices(folding: Folding, page: Sequence[Stored]) -> None:
    """Fold a page of facts; others get their turns meanwhile."""
    until = time.monotonic() + _SLICE_S
    for stored in page:
        folding.take(stored)
        if time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + _SLICE_S
