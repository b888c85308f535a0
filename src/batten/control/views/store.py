"""Kept views, in a SQLite file of their own beside the journal.

A state, the rows that go with it and the cursor behind them are stored in one transaction. Nothing
is lost with the file: it is folded again from the journal.
"""

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
from msgspec import Struct

from batten.contract.errors import StoreBusy
from batten.control.views.file import FILE, ViewFile
from batten.control.views.folding import Change
from batten.control.views.folds import EVENTS, RUNS, STATES, VIEWS, S, View
from batten.control.views.tables import (
    KEPT_TABLES,
    LAYOUT,
    ROWS,
    EventRow,
    Schema,
    run_row,
)
from batten.journal.sqlite.database import Database


class Kept(Struct, frozen=True):
    """A stored state of a view for a run."""

    run_id: str
    sequence: int
    """The last fact it holds."""
    seq: int
    """The last canonical event it holds."""
    position: int
    """Of the last fact of the run that it holds."""
    body: bytes


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events to read."""

    run_id: str = ""
    """The journal's id; empty for all runs."""
    scenario_ref: str = ""
    """Only of runs whose source is this, or whose scenario has it in its name."""
    after_seq: int = 0
    """Of one run an event's number; of all runs its place."""
    after_ts: str = ""
    """Events at this time or later."""
    before_ts: str = ""
    """Events before this time."""
    types: frozenset[str] = frozenset()

    def fits(self, row: EventRow) -> bool:
        """Whether an event of the run is one of them."""
        return (
            row.seq > self.after_seq
            and row.ts >= self.after_ts
            and (not self.before_ts or row.ts < self.before_ts)
            and (not self.types or row.type in self.types)
        )

    def where(self) -> tuple[str, tuple[Any, ...]]:
        """As a condition of SQL; without the scenario."""
        parts = ["seq > ?" if self.run_id else "place > ?"]
        values: list[Any] = [self.after_seq]
        if self.run_id:
            parts.append("run_id = ?")
            values.append(self.run_id)
        if self.after_ts:
            parts.append("ts >= ?")
            values.append(self.after_ts)
        if self.before_ts:
            parts.append("ts < ?")
            values.append(self.before_ts)
        if self.types:
            parts.append(f"type IN ({', '.join('?' * len(self.types))})")
            values += sorted(self.types)
        return " AND ".join(parts), tuple(values)


class EventList(Struct, frozen=True):
    """A page of events, each encoded, and how many fit in all."""

    rows: list[EventRow]
    total: int


class Moved(Exception):
    """Another process has moved the view on."""


class ViewStore:
    """One process's handle. Not for several threads."""

    def __init__(self, file: ViewFile, db: Database) -> None:
        self.file = file
        self._db = db

    @classmethod
    def open(cls, home: str | os.PathLike[str]) -> "ViewStore":
        """Open the file in this home, creating it or making a damaged one again; views of other
        versions are dropped.
        """
        os.makedirs(home, mode=0o700, exist_ok=True)
        try:
            return cls._open(home)
        except StoreBusy:
            if os.path.exists(os.path.join(home, FILE)):
                raise
            return cls._open(home)

    @classmethod
    def _open(cls, home: str | os.PathLike[str]) -> "ViewStore":
        path = os.path.join(home, FILE)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        file = ViewFile(home)
        store = cls(file, file.connect(apsw.SQLITE_OPEN_READWRITE))
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    def _prepare(self) -> None:
        with self.file.faults():
            self._db.pragma("journal_mode", "wal")
            self._db.pragma("synchronous", 1)
        if self._layout() != LAYOUT:
            with self._writing() as db:
                if self._layout() != LAYOUT:
                    _drop_tables(db)
                    db.execute(KEPT_TABLES)
                    db.pragma("user_version", LAYOUT)
        for view in VIEWS:
            if self.version(view.name) != view.version:
                self.drop(view.name, view.version)

    def _layout(self) -> int:
        [(layout,)] = self._all("PRAGMA user_version")
        return int(layout)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _writing(self) -> Generator[Database]:
        with self.file.faults():
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
        with self.file.faults():
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")

    def _all(self, query: str, bindings: Sequence[Any] = ()) -> list[Any]:
        with self.file.faults():
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
            for table in ROWS[view]:
                db.execute(f"DELETE FROM {table}")
            db.execute(
                "INSERT OR REPLACE INTO views (name, version, position) VALUES (?, ?, 0)",
                (view, kept),
            )

    def forget(self, run_ids: Iterable[str]) -> None:
        """Delete all that the views hold of runs that the journal no longer has."""
        with self._writing() as db:
            forget_rows(db, ("kept", *(one for tables in ROWS.values() for one in tables)), run_ids)

    def kept(self, view: str, run_id: str) -> Kept | None:
        with self.file.faults():
            return read_kept(self._db, "main", view, run_id)

    def decoded(self, view: View[S], body: bytes) -> S:
        """A stored state."""
        with self.file.faults():
            return view.decode(body)

    def all_kept(self, view: str) -> list[Kept]:
        query = (
            "SELECT run_id, sequence, seq, position, body FROM kept WHERE view = ? ORDER BY run_id"
        )
        return [Kept(*row) for row in self._all(query, (view,))]

    def rows(self, table: str) -> list[Any]:
        """All rows of a table, in order."""
        return self._all(f"SELECT * FROM {table} ORDER BY 1, 2")

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
        views: Sequence[View[Any]],
        changes: Mapping[str, Change],
        *,
        since: int,
        position: int,
    ) -> None:
        """Store states and rows with the cursors behind them.

        Raises `Moved`, and stores nothing, unless all cursors still are at `since`.
        """
        with self._writing() as db:
            if any(self.position(view.name) != since for view in views):
                raise Moved
            write_changes(db, "main", views, changes)
            for view in views:
                db.execute("UPDATE views SET position = ? WHERE name = ?", (position, view.name))

    def put_rows(self, run_id: str, change: Change) -> None:
        """Store rows of a run in place of those with the same numbers."""
        with self._writing() as db:
            _write_rows(db, "main", VIEWS, {run_id: change})

    def replace(self, changes: Mapping[str, Change], position: int) -> bool:
        """Store states of all views that were folded anew, and drop the rows after them.

        False, and nothing is changed, unless all cursors still are at this position.
        """
        with self._writing() as db:
            if any(self.position(view.name) != position for view in VIEWS):
                return False
            for run_id, change in changes.items():
                forget_rows(db, ("shares",), (run_id,))
                for table in ("events", "marks", "snapshots"):
                    beyond = (run_id, change.states[0].seq)
                    db.execute(f"DELETE FROM {table} WHERE run_id = ? AND seq > ?", beyond)
            write_changes(db, "main", VIEWS, changes)
        return True

    def events(self, wanted: EventFilter, limit: int) -> list[EventRow]:
        """Kept events of one run, by their number."""
        where, bindings = wanted.where()
        query = f"SELECT run_id, seq, ts, type, body, place FROM events WHERE {where}"
        found = self._all(f"{query} ORDER BY seq LIMIT ?", (*bindings, limit))
        return [EventRow(*row) for row in found]

    def count(self, wanted: EventFilter) -> int:
        where, bindings = wanted.where()
        [(count,)] = self._all(f"SELECT count(*) FROM events WHERE {where}", bindings)
        return int(count)


def _drop_tables(db: Database) -> None:
    made = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (name,) in db.execute(made).fetchall():
        db.execute(f"DROP TABLE {name}")


def read_kept(db: Database, schema: Schema, view: str, run_id: str) -> Kept | None:
    found = db.execute(
        f"SELECT run_id, sequence, seq, position, body FROM {schema}.kept"
        " WHERE view = ? AND run_id = ?",
        (view, run_id),
    ).fetchall()
    return Kept(*found[0]) if found else None


def newest(db: Database, view: View[S], run_id: str) -> S | None:
    """A run's state, kept in the file or in the temporary tables, whichever holds newer facts."""
    found = [read_kept(db, schema, view.name, run_id) for schema in ("temp", "main")]
    rows = [row for row in found if row is not None]
    return view.decode(max(rows, key=lambda row: row.position).body) if rows else None


def forget_rows(db: Database, tables: Iterable[str], run_ids: Iterable[str]) -> None:
    names = list(tables)
    for run_id in run_ids:
        for table in names:
            db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))


def write_changes(
    db: Database, schema: Schema, views: Sequence[View[Any]], changes: Mapping[str, Change]
) -> None:
    """Store what facts changed, inside a transaction."""
    dropped = [
        (run_id, change.dropped_at) for run_id, change in changes.items() if change.dropped_at
    ]
    tables = [f"{schema}.{table}" for view in views for table in ROWS[view.name]]
    forget_rows(db, tables, [run_id for run_id, _ in dropped])
    if schema == "temp":
        db.executemany("INSERT OR REPLACE INTO temp.dropped VALUES (?, ?)", dropped)
    db.executemany(
        f"INSERT OR REPLACE INTO {schema}.kept VALUES (?, ?, ?, ?, ?, ?)",
        [
            (view.name, run_id, state.sequence, state.seq, change.position, view.encode(state))
            for run_id, change in changes.items()
            for view, state in zip(views, change.states, strict=True)
            if state.normaliser.kind or state.is_pruned  # of a session's stream nothing is folded
        ],
    )
    _write_rows(db, schema, views, changes)
    if RUNS in views:
        _write_runs(db, schema, views.index(RUNS), changes)


def _write_rows(
    db: Database, schema: Schema, views: Sequence[View[Any]], changes: Mapping[str, Change]
) -> None:
    """Store what is appended: events, marks, snapshots."""
    items = changes.items()
    if EVENTS in views:
        db.executemany(
            f"INSERT OR REPLACE INTO {schema}.events VALUES (?, ?, ?, ?, ?, ?)",
            [
                (run_id, row.seq, row.place, row.ts, row.type, row.body)
                for run_id, change in items
                for row in change.events
            ],
        )
    if RUNS in views:
        db.executemany(
            f"INSERT OR REPLACE INTO {schema}.marks VALUES (?, ?, ?, ?, ?, ?)",
            [
                (run_id, mark.seq, mark.position, mark.ts, mark.type, mark.value)
                for run_id, change in items
                for mark in change.marks
            ],
        )
    if STATES in views:
        db.executemany(
            f"INSERT OR REPLACE INTO {schema}.snapshots VALUES (?, ?, ?)",
            [(run_id, seq, body) for run_id, change in items for seq, body in change.snapshots],
        )


def _write_runs(db: Database, schema: Schema, place: int, changes: Mapping[str, Change]) -> None:
    folds = [(run_id, one.position, one.states[place]) for run_id, one in changes.items()]
    rows = [run_row(run_id, position, fold) for run_id, position, fold in folds]
    if rows:
        values = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT OR REPLACE INTO {schema}.runs VALUES ({values})", rows)
    db.executemany(
        f"INSERT INTO {schema}.shares VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " messages = excluded.messages, signals = excluded.signals,"
        " confidence_micros = excluded.confidence_micros, confident = excluded.confident",
        [
            (run_id, name, one.messages, one.signals, one.confidence_micros, one.confident)
            for run_id, _, fold in folds
            for name, one in fold.agents.items()
        ],
    )
