"""Folds a run anew and replaces all that a view keeps of it."""

import asyncio

from batten.contract.envelope import decode
from batten.control.views.folds import EVENTS, STATES, S, View
from batten.control.views.run_events import event_row
from batten.control.views.store import EventRow, Kept, ViewStore
from batten.journal.contract import Journal

_PAGE = 200


async def rebuild(
    journal: Journal, store: ViewStore, view: View[S], run_id: str, snapshot_every: int
) -> S:
    """The run's state, folded from its first fact.

    Rows are replaced in pages and the state at the end: a fold gives the same bytes each time, so a
    reader, or another process that keeps the view up, may be between two of them.
    """
    state = view.state()
    while True:
        while page := await journal.read(run_id, after=state.sequence, limit=_PAGE):
            events: list[EventRow] = []
            snapshots: list[tuple[str, int, bytes]] = []
            for stored in page:
                before = state.seq
                made = view.step(state, decode(stored.body))
                if view is EVENTS:
                    events += [event_row(run_id, event) for event in made]
                if view is STATES and state.seq // snapshot_every > before // snapshot_every:
                    snapshots.append((run_id, state.seq, view.encode(state)))
            store.put_rows(events, snapshots)
            await asyncio.sleep(0)
        if store.replace(view.name, Kept(run_id, state.sequence, state.seq, view.encode(state))):
            return state
