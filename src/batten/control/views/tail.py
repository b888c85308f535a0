"""The views as of now: what is kept, and temporary rows of the facts since then.

One statement sees both, nothing is written to the file, and memory does not grow with what there
is: SQLite moves large temporary tables to a file.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, Unpack

import apsw
from msgspec import Struct

from batten.control.views.file import ViewFile
from batten.control.views.folding import Folding, fold_in_slices
from batten.control.views.folds import EVENTS, RUNS, View
from batten.control.views.store import forget_rows, newest, write_changes
from batten.control.views.tables import ROWS, TAIL, TAIL_TABLES
from batten.journal.contract import Stored
from batten.journal.filters import FeedFilters
from batten.journal.sqlite.database import Database

T = TypeVar("T")
_PAGE = 500
_LONGEST = 10_000
"""Facts; a longer tail is begun anew where the kept view is now."""
_IDS = (
    "SELECT run_id FROM main.runs WHERE run_id > ? UNION"
    " SELECT run_id FROM temp.runs WHERE run_id > ? ORDER BY run_id LIMIT ?"
)
_COUNT = (
    "SELECT (SELECT count(*) FROM main.runs)"
    " + (SELECT count(*) FROM temp.runs WHERE run_id NOT IN (SELECT run_id FROM main.runs))"
)


class Feed(Protocol):
    """The facts of all runs."""

    async def feed(
        self, *, after: int = 0, limit: int = 256, **filters: Unpack[FeedFilters]
    ) -> list[Stored]: ...


class Dropped(Exception):
    """Another process dropped a view: its facts are to be folded again."""


class _Span(Struct):
    """The facts that temporary rows of a view hold: those after `base`, up to `position`."""

    base: int = 0
    position: int = 0


class Tail:
    """One reader at a time."""

    def __init__(self, feed: Feed, file: ViewFile) -> None:
        self._feed = feed
        self._file = file
        self._db: Database | None = None
        self._spans = {view.name: _Span() for view in (RUNS, EVENTS)}
        self._mutex = threading.Lock()
        """A statement in a thread may outlive the request that waited for it."""

    def close(self) -> None:
        with self._mutex:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def _transaction(self) -> Generator[Database]:
        with self._mutex:
            if self._db is None:
                db = self._file.connect(apsw.SQLITE_OPEN_READONLY)
                with self._file.faults():
                    db.execute(TAIL_TABLES)
                self._db = db
            db = self._db
            with self._file.faults():
                db.execute("BEGIN")
                try:
                    yield db
                finally:
                    db.execute("COMMIT")

    async def follow(self, views: Sequence[View[Any]], until: int) -> None:
        """Hold all facts up to this position."""
        for view in views:
            span = self._spans[view.name]
            self._begin(view, span)
            while span.position < until:
                page = await self._feed.feed(after=span.position, limit=_PAGE, until=until)
                folding = Folding((view,), partial(self._state, view))
                await fold_in_slices(folding, page)
                with self._transaction() as db:
                    write_changes(db, "temp", (view,), folding.changes)
                span.position = page[-1].position if page else until

    def _begin(self, view: View[Any], span: _Span) -> None:
        """Drop the temporary rows, if the kept view holds as much or was dropped itself."""
        with self._transaction() as db:
            kept = _position(db, view)
            is_long = span.position - span.base > _LONGEST and kept > span.base
            if span.base <= kept < span.position and not is_long:
                return
            db.execute("DELETE FROM temp.kept WHERE view = ?", (view.name,))
            for table in ROWS[view.name]:
                db.execute(f"DELETE FROM temp.{table}")
            span.base = span.position = kept

    def _state(self, view: View[Any], run_id: str) -> list[Any]:
        """The newest state of a run that is stored anywhere, or a first one."""
        with self._transaction() as db:
            return [newest(db, view, run_id) or view.state()]

    def read(self, views: Sequence[View[Any]], ask: Callable[[Database], T]) -> T:
        """What `ask` reads, in one transaction. Raises `Dropped`."""
        with self._transaction() as db:
            for view in views:
                if _position(db, view) < self._spans[view.name].base:
                    raise Dropped(view.name)
            return ask(db)

    def forget(self, run_ids: Sequence[str]) -> None:
        """Drop the temporary rows of deleted runs."""
        if self._db is not None:
            with self._transaction() as db:
                forget_rows(db, [f"temp.{table}" for table in TAIL], run_ids)

    def run_ids(self, after: str, limit: int) -> list[str]:
        """Streams of the journal that are known, in order."""
        with self._transaction() as db:
            return [run_id for (run_id,) in db.execute(_IDS, (after, after, limit)).fetchall()]

    def count(self) -> int:
        """How many streams are known."""
        with self._transaction() as db:
            return int(db.execute(_COUNT).get)


def _position(db: Database, view: View[Any]) -> int:
    return int(db.execute("SELECT position FROM main.views WHERE name = ?", (view.name,)).get or 0)
