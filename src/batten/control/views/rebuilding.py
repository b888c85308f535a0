"""Folds a run anew and replaces all that the views keep of it."""

from typing import Any

from batten.control.views.folding import Change, Folding, fold_in_slices
from batten.control.views.folds import VIEWS
from batten.control.views.store import ViewStore
from batten.journal.contract import Journal

_PAGE = 500


async def rebuild(journal: Journal, store: ViewStore, run_id: str, position: int) -> bool:
    """Fold the facts of a run up to the position that all views have. False if they moved on.

    Rows are replaced in pages and the states at the end: a fold gives the same bytes each time, so
    a reader may be between two of them.
    """
    folding = Folding(VIEWS, _first_states)
    sequence = -1
    while page := await journal.read(run_id, after=sequence, limit=_PAGE):
        sequence = page[-1].sequence
        await fold_in_slices(folding, [one for one in page if one.position <= position])
        change = folding.changes.get(run_id)
        if change is not None:
            store.put_rows(run_id, change)
            _drop_rows(change)
    return store.replace(folding.changes, position)


def _first_states(run_id: str) -> list[Any]:
    return [view.state() for view in VIEWS]


def _drop_rows(change: Change) -> None:
    change.events.clear()
    change.marks.clear()
    change.snapshots.clear()
