"""The state of all sinks: cursors, leases, and messages that wait, failed or were delivered.

A SQLite file of its own beside the journal: a reader never takes the journal's lock, so runs do
not feel it. A cursor and the messages behind it are stored in one transaction. Commits survive the
death of the process; a power cut may set the file back some seconds, and what was told since is
told again.
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import apsw
from msgspec import Struct

from batten.contract.envelope import timestamp
from batten.contract.errors import (
    Conflict,
    FenceLost,
    NotFound,
)
from batten.journal.sqlite.database import Database, connection
from batten.journal.sqlite.faults import side_faults
from batten.journal.workers import boot_ms, is_gone, this_worker
from batten.sinks.backoff import LONGEST_WAIT_S
from batten.sinks.contract import LEASE_S, Message

_REMEDY = "remove it, and sinks begin with the next event"
FILE = "sinks.db"
Status = Literal["pending", "delivered", "dead"]

_BUSY_MS = 10_000
_KEPT_S = 7 * 86_400
_KEPT = 10_000
"""Delivered messages of a sink that are kept, at most."""

_TABLES = """
CREATE TABLE IF NOT EXISTS sinks (
    name TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    fence INTEGER NOT NULL DEFAULT 0,
    worker_id TEXT NOT NULL DEFAULT '',
    lease_until TEXT NOT NULL DEFAULT '',
    lease_boot_ms INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0,
    problem TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    message_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    type TEXT NOT NULL,
    occurred_at TEXT NOT NULL,
    position INTEGER NOT NULL,
    body BLOB NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    since REAL NOT NULL,
    next_at REAL NOT NULL,
    told_at TEXT NOT NULL,
    answer INTEGER,
    problem TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_run ON messages (sink, status, run_id, id);
CREATE TABLE IF NOT EXISTS totals (
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (kind, status)
);
CREATE TABLE IF NOT EXISTS imports (
    run_id TEXT PRIMARY KEY,
    after INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS webhooks (
    id TEXT PRIMARY KEY,
    body BLOB NOT NULL
);
"""
_COLUMNS = (
    "id, sink, message_id, run_id, type, occurred_at, position, body, status, attempts, since,"
    " next_at, told_at, answer, problem"
)


class SinkLease(Struct, frozen=True):
    """The right to read for a sink."""

    name: str
    fence: int
    position: int
    """The cursor when it was taken."""


class SinkRow(Struct, frozen=True, kw_only=True):
    """The state of one sink."""

    name: str
    position: int
    fence: int
    worker_id: str
    lease_until: str
    lease_boot_ms: int
    delivered: int
    """Messages that were delivered, ever."""
    problem: str
    """Why the last attempt failed; empty after a good one."""
    pending: int
    dead: int

    @property
    def is_read(self) -> bool:
        """Whether a living process reads for it."""
        return bool(self.worker_id) and not is_gone(self)


class Entry(Struct, frozen=True, kw_only=True):
    """A message of a sink with what became of it."""

    id: int = 0
    """Its number in the store; 0 before it is stored."""
    sink: str
    message: Message
    status: Status
    attempts: int = 0
    since: float = 0.0
    """When its patience began, in seconds of the epoch."""
    next_at: float = 0.0
    """When to try again."""
    told_at: str = ""
    """When it was delivered."""
    answer: int | None = None
    problem: str = ""


class SinkStore:
    """One process's handle. Not for several threads."""

    def __init__(self, db: Database, now: Callable[[], float] = time.time) -> None:
        self._db = db
        self.now = now

    @classmethod
    def open(cls, home: str, now: Callable[[], float] = time.time) -> "SinkStore":
        """Open the file in this home, creating it."""
        os.makedirs(home, mode=0o700, exist_ok=True)
        path = os.path.join(home, FILE)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(descriptor)
        db = connection(path, apsw.SQLITE_OPEN_READWRITE)
        db.set_busy_timeout(_BUSY_MS)
        try:
            with side_faults(path, _REMEDY):
                db.pragma("journal_mode", "wal")
                db.pragma("synchronous", 1)
                db.execute(_TABLES)
        except BaseException:
            db.close()
            raise
        return cls(db, now)

    @staticmethod
    def exists(home: str) -> bool:
        return os.path.exists(os.path.join(home, FILE))

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def writing(self, *, durable: bool = False) -> Generator[Database]:
        """A transaction. `durable`: it must survive a power cut as well."""
        with side_faults(self._db.filename, _REMEDY):
            if durable:
                self._db.pragma("synchronous", 2)
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            finally:
                if durable:
                    self._db.pragma("synchronous", 1)

    def all(self, query: str, bindings: Sequence[Any] = ()) -> list[Any]:
        with side_faults(self._db.filename, _REMEDY):
            return self._db.execute(query, bindings).fetchall()

    def version(self) -> int:
        """A number that changes with every commit of another process."""
        return int(self._db.pragma("data_version"))

    def add(self, name: str, position: int) -> None:
        """Give a sink its first cursor, unless it has one."""
        with self.writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO sinks (name, position) VALUES (?, ?)", (name, position)
            )

    def skip_to(self, name: str, position: int) -> None:
        """Move a cursor: what lies before is not told. Whoever reads for the sink begins anew."""
        with self.writing() as db:
            db.execute(
                "UPDATE sinks SET position = max(position, ?), fence = fence + 1, worker_id = ''"
                " WHERE name = ?",
                (position, name),
            )

    def trouble(self, name: str, problem: str) -> bool:
        """Note why nothing is told to a sink; whether that is new."""
        query = "SELECT 1 FROM sinks WHERE name = ? AND problem != ?"
        if not self.all(query, (name, problem)):
            return False
        with self.writing() as db:
            db.execute("UPDATE sinks SET problem = ? WHERE name = ?", (problem, name))
        return True

    def remove(self, name: str) -> None:
        """Forget a sink with all its messages."""
        with self.writing() as db:
            db.execute("DELETE FROM messages WHERE sink = ?", (name,))
            db.execute("DELETE FROM sinks WHERE name = ?", (name,))

    def sinks(self) -> list[SinkRow]:
        found = self.all(
            "SELECT name, position, fence, worker_id, lease_until, lease_boot_ms, delivered,"
            " problem, (SELECT count(*) FROM messages WHERE sink = name AND status = 'pending'),"
            " (SELECT count(*) FROM messages WHERE sink = name AND status = 'dead')"
            " FROM sinks ORDER BY name"
        )
        fields = SinkRow.__struct_fields__
        return [SinkRow(**dict(zip(fields, row, strict=True))) for row in found]

    def sink(self, name: str) -> SinkRow | None:
        return next((row for row in self.sinks() if row.name == name), None)

    def claim(self, name: str, lease_s: float = LEASE_S) -> SinkLease:
        """Take the sink. Raises `Conflict` while another living process reads for it."""
        with self.writing() as db:
            row = self.sink(name)
            if row is None:
                raise NotFound(f"there is no sink {name}; batten sinks list shows them")
            if row.is_read and row.worker_id != this_worker():
                raise Conflict(f"{row.worker_id} reads for the sink {name}", code="sink_claimed")
            db.execute(
                "UPDATE sinks SET fence = fence + 1, worker_id = ?, lease_until = ?,"
                " lease_boot_ms = ? WHERE name = ?",
                (this_worker(), *_lease_end(lease_s), name),
            )
        return SinkLease(name, row.fence + 1, row.position)

    def renew(self, lease: SinkLease, lease_s: float = LEASE_S) -> None:
        """Raises `FenceLost` once another process has taken the sink."""
        with self.writing() as db:
            _renew(db, lease, lease_s)

    def release(self, lease: SinkLease) -> None:
        with self.writing() as db:
            db.execute(
                "UPDATE sinks SET worker_id = '' WHERE name = ? AND fence = ?",
                (lease.name, lease.fence),
            )

    def commit(
        self,
        lease: SinkLease,
        entries: Sequence[Entry],
        *,
        position: int | None = None,
        delivered: int = 0,
        problem: str | None = None,
        logs: bool = False,
    ) -> None:
        """Store what became of messages, with the cursor behind them; renews the lease.

        Raises `FenceLost`, and stores nothing, once another process has taken the sink. Without
        `logs` delivered messages are not kept.
        """
        with self.writing() as db:
            _renew(db, lease, LEASE_S)
            _count(db, lease.name, "delivered", delivered)
            _count(db, lease.name, "failed", sum(entry.status == "dead" for entry in entries))
            for entry in entries:
                if entry.status == "delivered" and not logs:
                    db.execute("DELETE FROM messages WHERE id = ?", (entry.id,))
                else:
                    _put(db, entry)
            db.execute(
                "UPDATE sinks SET position = coalesce(?, position), delivered = delivered + ?,"
                " problem = coalesce(?, problem) WHERE name = ?",
                (position, delivered, problem, lease.name),
            )

    def totals(self, kind: str) -> dict[str, int]:
        """Messages of all sinks of a kind by what became of them, ever: also of sinks and messages
        that are gone.
        """
        rows = self.all("SELECT status, count FROM totals WHERE kind = ?", (kind,))
        return {"delivered": 0, "failed": 0} | dict(rows)

    def due(self, name: str, limit: int) -> list[Entry]:
        """Messages to try now: of each run its oldest pending one, if its time has come, or is
        further away than any pause because the clock was set back.
        """
        now = self.now()
        found = self.all(
            f"SELECT {_COLUMNS} FROM messages AS m WHERE sink = ? AND status = 'pending'"
            " AND (next_at <= ? OR next_at > ?) AND id = (SELECT min(id) FROM messages"
            " WHERE sink = m.sink AND status = 'pending' AND run_id = m.run_id)"
            " ORDER BY next_at, id LIMIT ?",
            (name, now, now + LONGEST_WAIT_S, limit),
        )
        return [_entry(row) for row in found]

    def blocked(self, name: str) -> set[str]:
        """Runs with a message that waits: their later ones wait behind it."""
        query = "SELECT DISTINCT run_id FROM messages WHERE sink = ? AND status = 'pending'"
        return {run_id for (run_id,) in self.all(query, (name,))}

    def pending(self, name: str) -> int:
        query = "SELECT count(*) FROM messages WHERE sink = ? AND status = 'pending'"
        [(count,)] = self.all(query, (name,))
        return int(count)

    def next_at(self, name: str) -> float | None:
        """When the next message is due; None if none waits."""
        [(soonest,)] = self.all(
            "SELECT min(next_at) FROM messages AS m WHERE sink = ? AND status = 'pending'"
            " AND id = (SELECT min(id) FROM messages WHERE sink = m.sink AND status = 'pending'"
            " AND run_id = m.run_id)",
            (name,),
        )
        return None if soonest is None else float(soonest)

    def hurry(self, lease: SinkLease) -> None:
        """Make all waiting messages due: the receiver is back."""
        with self.writing() as db:
            _renew(db, lease, LEASE_S)
            db.execute(
                "UPDATE messages SET next_at = 0 WHERE sink = ? AND status = 'pending'",
                (lease.name,),
            )

    def entries(
        self,
        name: str | None = None,
        status: Status | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        """Kept messages, the newest first. `before` is the id of the last one of a page."""
        found = self.all(
            f"SELECT {_COLUMNS} FROM messages WHERE sink = coalesce(?, sink)"
            " AND status = coalesce(?, status) AND id < ? ORDER BY id DESC LIMIT ?",
            (name, status, 2**62 if before is None else before, limit),
        )
        return [_entry(row) for row in found]

    def dead(self, name: str) -> list[int]:
        """The numbers of all dead letters of a sink."""
        query = "SELECT id FROM messages WHERE sink = ? AND status = 'dead'"
        return [number for (number,) in self.all(query, (name,))]

    def entry(self, number: int) -> Entry:
        query = f"SELECT {_COLUMNS} FROM messages WHERE id = ?"
        found = self.all(query, (number,)) if number < 2**63 else []
        if not found:
            raise NotFound(f"there is no message {number}; batten sinks dead shows dead letters")
        return _entry(found[0])

    def replay(self, numbers: Sequence[int]) -> int:
        """Tell kept messages again, with fresh patience; returns how many."""
        with self.writing() as db:
            for number in numbers:
                self.entry(number)
                db.execute(
                    "UPDATE messages SET status = 'pending', attempts = 0, next_at = 0, since = ?"
                    " WHERE id = ?",
                    (self.now(), number),
                )
        return len(numbers)

    def drop(self, numbers: Sequence[int]) -> int:
        """Delete dead letters and log entries. Raises `Conflict` for a message that waits."""
        with self.writing() as db:
            for number in numbers:
                if self.entry(number).status == "pending":
                    raise Conflict(f"message {number} still waits for its receiver")
                db.execute("DELETE FROM messages WHERE id = ?", (number,))
        return len(numbers)

    def trim(self, name: str) -> None:
        """Delete delivered messages that are too old or too many to keep."""
        oldest = timestamp(int((self.now() - _KEPT_S) * 1e9))
        with self.writing() as db:
            db.execute(
                "DELETE FROM messages WHERE sink = ? AND status = 'delivered' AND (told_at < ?"
                " OR id <= (SELECT id FROM messages WHERE sink = ? AND status = 'delivered'"
                " ORDER BY id DESC LIMIT 1 OFFSET ?))",
                (name, oldest, name, _KEPT),
            )

    def remove_before(self, prefix: str, cutoff: str) -> int:
        """Delete what became of messages from before this time, of sinks whose names begin so;
        returns how many. Those that wait stay.
        """
        with self.writing() as db:
            db.execute(
                "DELETE FROM messages WHERE substr(sink, 1, ?) = ? AND status != 'pending'"
                " AND occurred_at < ?",
                (len(prefix), prefix, cutoff),
            )
            return db.changes()


def _count(db: Database, name: str, status: str, count: int) -> None:
    """Add to the totals of the kind of a sink: `webhook` of `webhook:ops`."""
    if count:
        db.execute(
            "INSERT INTO totals VALUES (?, ?, ?)"
            " ON CONFLICT (kind, status) DO UPDATE SET count = count + excluded.count",
            (name.partition(":")[0], status, count),
        )


def _renew(db: Database, lease: SinkLease, lease_s: float) -> None:
    db.execute(
        "UPDATE sinks SET lease_until = ?, lease_boot_ms = ? WHERE name = ? AND fence = ?"
        " AND worker_id = ?",
        (*_lease_end(lease_s), lease.name, lease.fence, this_worker()),
    )
    if db.changes() != 1:
        raise FenceLost(f"another process reads for the sink {lease.name} now, or it was removed")


def _lease_end(lease_s: float) -> tuple[str, int]:
    until = timestamp(time.time_ns() + int(lease_s * 1e9))
    return until, boot_ms() + int(lease_s * 1000)


def _put(db: Database, entry: Entry) -> None:
    one = entry.message
    values = (
        *(entry.sink, one.message_id, one.run_id, one.type, one.occurred_at, one.position),
        *(one.body, entry.status, entry.attempts, entry.since, entry.next_at, entry.told_at),
        *(entry.answer, entry.problem),
    )
    marks = ", ".join("?" * len(values))
    if not entry.id:
        columns = _COLUMNS.removeprefix("id, ")
        db.execute(f"INSERT INTO messages ({columns}) VALUES ({marks})", values)
        return
    db.execute(
        "UPDATE messages SET status = ?, attempts = ?, since = ?, next_at = ?, told_at = ?,"
        " answer = ?, problem = ? WHERE id = ?",
        (*values[7:], entry.id),
    )


def _entry(row: Any) -> Entry:
    message = Message(
        message_id=row[2],
        run_id=row[3],
        type=row[4],
        occurred_at=row[5],
        position=row[6],
        body=row[7],
    )
    return Entry(
        id=row[0],
        sink=row[1],
        message=message,
        status=row[8],
        attempts=row[9],
        since=row[10],
        next_at=row[11],
        told_at=row[12],
        answer=row[13],
        problem=row[14],
    )
