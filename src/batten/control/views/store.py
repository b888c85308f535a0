"""Kept views, in a SQLite file of their own beside the journal.

A state, the rows that go with it and the cursor behind them are stored in one transaction. Nothing
is lost with the file: it is folded again from the journal.
"""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
from msgspec import Struct

from batten.control.views.folds import VIEWS
from batten.journal.sqlite.database import Database, connection
from batten.journal.sqlite.faults import side_faults

_REMEDY = "remove it, and it is made again from the journal"
FILE = "views.db"
_BUSY_MS = 10_000
_TABLES = """
CREATE TABLE IF NOT EXISTS views (
    name TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    position INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS kept (
    view TEXT NOT NULL,
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (view, run_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    ts TEXT NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_time ON events (ts, run_id, seq);
"""
_INSERT_KEPT = (
    "INSERT OR REPLACE INTO kept (view, run_id, sequence, seq, body) VALUES (?, ?, ?, ?, ?)"
)
_ROWS = {"events": "events", "states": "snapshots"}
"""The table of rows that belongs to a view."""


class Kept(Struct, frozen=True):
    """A stored state of a view for a run."""

    run_id: str
    sequence: int
    """The last fact it holds."""
    seq: int
    """The last canonical event it holds."""
    body: bytes


class EventRow(Struct, frozen=True):
    """A canonical event, encoded as it is served."""

    run_id: str
    seq: int
    ts: str
    type: str
    body: bytes


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events to read; the run is the journal's id."""

    run_ids: tuple[str, ...] | None = None
    after_seq: int = 0
    after_ts: str = ""
    """Events at this time or later."""
    before_ts: str = ""
    """Events before this time."""
    types: frozenset[str] = frozenset()

    def fits(self, row: EventRow) -> bool:
        return (
            (self.run_ids is None or row.run_id in self.run_ids)
            and row.seq > self.after_seq
            and row.ts >= self.after_ts
            and (not self.before_ts or row.ts < self.before_ts)
            and (not self.types or row.type in self.types)
        )

    @property
    def is_timed(self) -> bool:
        return bool(self.after_ts or self.before_ts)


class Moved(Exception):
    """Another process has moved the view on."""


class ViewStore:
    """One process's handle. Not for several threads."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @classmethod
    def open(cls, home: str | os.PathLike[str]) -> "ViewStore":
        """Open the file in this home, creating it; views of other versions are dropped."""
        os.makedirs(home, mode=0o700, exist_ok=True)
        path = os.path.join(home, FILE)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = connection(path, apsw.SQLITE_OPEN_READWRITE)
        db.set_busy_timeout(_BUSY_MS)
        store = cls(db)
        try:
            with side_faults(path, _REMEDY):
                db.pragma("journal_mode", "wal")
                db.pragma("synchronous", 1)
                db.execute(_TABLES)
            for view in VIEWS:
                if store.version(view.name) != view.version:
                    store.drop(view.name, view.version)
        except BaseException:
            db.close()
            raise
        return store

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _writing(self) -> Generator[Database]:
        with side_faults(self._db.filename, _REMEDY):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def reading(self) -> Generator[None]:
        """All reads inside see the same commit."""
        with side_faults(self._db.filename, _REMEDY):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")

    def _all(self, query: str, bindings: Sequence[Any] = ()) -> list[Any]:
        with side_faults(self._db.filename, _REMEDY):
            return self._db.execute(query, bindings).fetchall()

    def version(self, view: str) -> str:
        found = self._all("SELECT version FROM views WHERE name = ?", (view,))
        return found[0][0] if found else ""

    def position(self, view: str) -> int:
        """The last fact of the feed that the view holds."""
        found = self._all("SELECT position FROM views WHERE name = ?", (view,))
        return found[0][0] if found else 0

    def drop(self, view: str, version: str | None = None) -> None:
        """Forget all that a view holds; it is folded again from the first fact."""
        with self._writing() as db:
            kept = self.version(view) if version is None else version
            db.execute("DELETE FROM kept WHERE view = ?", (view,))
            if view in _ROWS:
                db.execute(f"DELETE FROM {_ROWS[view]}")
            db.execute(
                "INSERT OR REPLACE INTO views (name, version, position) VALUES (?, ?, 0)",
                (view, kept),
            )

    def forget(self, run_ids: Iterable[str]) -> None:
        """Delete all that the views hold of runs that the journal no longer has."""
        with self._writing() as db:
            for run_id in run_ids:
                for table in ("kept", "snapshots", "events"):
                    db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))

    def kept(self, view: str, run_id: str) -> Kept | None:
        found = self._all(
            "SELECT run_id, sequence, seq, body FROM kept WHERE view = ? AND run_id = ?",
            (view, run_id),
        )
        return Kept(*found[0]) if found else None

    def run_ids(self) -> list[str]:
        """All runs that a view holds something of."""
        return [run_id for (run_id,) in self._all("SELECT DISTINCT run_id FROM kept")]

    def all_kept(self, view: str) -> list[Kept]:
        query = "SELECT run_id, sequence, seq, body FROM kept WHERE view = ? ORDER BY run_id"
        return [Kept(*row) for row in self._all(query, (view,))]

    def snapshot(self, run_id: str, seq: int) -> bytes | None:
        """The newest kept state of a run at or before an event."""
        found = self._all(
            "SELECT body FROM snapshots WHERE run_id = ? AND seq <= ? ORDER BY seq DESC LIMIT 1",
            (run_id, seq),
        )
        return found[0][0] if found else None

    def snapshots(self, run_id: str) -> list[tuple[int, bytes]]:
        query = "SELECT seq, body FROM snapshots WHERE run_id = ? ORDER BY seq"
        return [(seq, body) for seq, body in self._all(query, (run_id,))]

    def commit(
        self,
        view: str,
        kept: Sequence[Kept],
        *,
        since: int,
        position: int,
        events: Sequence[EventRow] = (),
        snapshots: Sequence[tuple[str, int, bytes]] = (),
    ) -> None:
        """Store states and rows with the cursor behind them.

        Raises `Moved`, and stores nothing, unless the cursor still is at `since`.
        """
        with self._writing() as db:
            if self.position(view) != since:
                raise Moved(view)
            db.executemany(
                _INSERT_KEPT,
                [(view, one.run_id, one.sequence, one.seq, one.body) for one in kept],
            )
            _insert_rows(db, events, snapshots)
            db.execute("UPDATE views SET position = ? WHERE name = ?", (position, view))

    def put_rows(
        self, events: Sequence[EventRow], snapshots: Sequence[tuple[str, int, bytes]]
    ) -> None:
        """Store rows of runs in place of those with the same numbers."""
        with self._writing() as db:
            _insert_rows(db, events, snapshots)

    def replace(self, view: str, kept: Kept) -> bool:
        """Store a state that was folded anew, and drop the rows after it.

        False, and nothing is changed, if the view has moved on meanwhile.
        """
        with self._writing() as db:
            stored = self.kept(view, kept.run_id)
            if stored is not None and stored.sequence > kept.sequence:
                return False
            db.execute(_INSERT_KEPT, (view, kept.run_id, kept.sequence, kept.seq, kept.body))
            if view in _ROWS:
                db.execute(
                    f"DELETE FROM {_ROWS[view]} WHERE run_id = ? AND seq > ?",
                    (kept.run_id, kept.seq),
                )
        return True

    def events(self, wanted: EventFilter, limit: int) -> list[EventRow]:
        """Kept events by time; those of one run, without bounds of time, by their number."""
        where, bindings = _where(wanted)
        one_run = wanted.run_ids is not None and len(wanted.run_ids) == 1
        order = "seq" if one_run and not wanted.is_timed else "ts, run_id, seq"
        found = self._all(
            f"SELECT run_id, seq, ts, type, body FROM events WHERE {where} ORDER BY {order}"
            " LIMIT ?",
            (*bindings, limit),
        )
        return [EventRow(*row) for row in found]

    def count(self, wanted: EventFilter) -> int:
        where, bindings = _where(wanted)
        [(count,)] = self._all(f"SELECT count(*) FROM events WHERE {where}", bindings)
        return int(count)


def _insert_rows(
    db: Database, events: Sequence[EventRow], snapshots: Sequence[tuple[str, int, bytes]]
) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO events (run_id, seq, ts, type, body) VALUES (?, ?, ?, ?, ?)",
        [(one.run_id, one.seq, one.ts, one.type, one.body) for one in events],
    )
    db.executemany(
        "INSERT OR REPLACE INTO snapshots (run_id, seq, body) VALUES (?, ?, ?)", snapshots
    )


def _where(wanted: EventFilter) -> tuple[str, tuple[Any, ...]]:
    parts = ["seq > ?"]
    values: list[Any] = [wanted.after_seq]
    if wanted.run_ids is not None:
        parts.append(f"run_id IN ({', '.join('?' * len(wanted.run_ids))})")
        values += wanted.run_ids
    if wanted.after_ts:
        parts.append("ts >= ?")
        values.append(wanted.after_ts)
    if wanted.before_ts:
        parts.append("ts < ?")
        values.append(wanted.before_ts)
    if wanted.types:
        parts.append(f"type IN ({', '.join('?' * len(wanted.types))})")
        values += sorted(wanted.types)
    return " AND ".join(parts), tuple(values)
