"""An append-only record in a file of its own, each entry chained to the one before by a hash.

h₋₁ = SHA-256("batten audit"), hₙ = SHA-256(hₙ₋₁ ‖ bytes). The head holds the last hash, the count
and the cursor over the journal, so that a changed entry and a cut tail are both found. It outlives
what it tells of: deleting a session removes none of its entries. Where old entries were removed,
the base holds the number and the hash of the last of them, and the chain is verified from there.
"""

import asyncio
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import apsw
import msgspec
from msgspec import Struct

from batten.contract.envelope import timestamp
from batten.contract.errors import StoreDamaged, StoreReadOnly
from batten.journal.contract import Damage
from batten.journal.sqlite.database import Database, connection
from batten.journal.sqlite.faults import side_faults
from batten.sinks.audit.derive import TYPES, entry_of
from batten.sinks.audit.entry import AuditEntry, NewEntry
from batten.sinks.contract import Feed

FILE = "audit.db"
_START = sha256(b"batten audit").digest()
_BUSY_MS = 10_000
_PAGE = 256
_TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    resource TEXT NOT NULL,
    resource_id TEXT,
    body BLOB NOT NULL,
    hash BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_time ON entries (at);
CREATE TABLE IF NOT EXISTS head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    count INTEGER NOT NULL,
    hash BLOB NOT NULL,
    position INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS base (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    hash BLOB NOT NULL
);
"""

_OVERLAY = """
CREATE TEMP TABLE tail AS SELECT * FROM main.entries WHERE 0;
CREATE TEMP VIEW entries AS SELECT * FROM main.entries UNION ALL SELECT * FROM tail;
CREATE TEMP TRIGGER adding INSTEAD OF INSERT ON entries BEGIN
    INSERT INTO tail VALUES (
        new.number, new.at, new.actor, new.action,
        new.resource, new.resource_id, new.body, new.hash
    );
END;
CREATE TEMP TABLE head AS SELECT * FROM main.head;
"""
"""What is added stays with the connection, and is read together with what the file holds."""


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Which entries; empty fields do not count. Times are exclusive."""

    actor: str = ""
    action: str = ""
    resource: str = ""
    resource_id: str = ""
    created_after: str = ""
    created_before: str = ""
    limit: int = 50
    offset: int = 0


class AuditLog:
    """One process's handle. Not for several threads."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @classmethod
    def open(cls, home: str) -> "AuditLog":
        """Open the record of this home, creating it."""
        path = os.path.join(home, FILE)
        try:
            os.makedirs(home, mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StoreReadOnly(f"{path} cannot be written: {error.strerror}") from error
        db = connection(path, apsw.SQLITE_OPEN_READWRITE)
        db.set_busy_timeout(_BUSY_MS)
        try:
            with side_faults(path):
                db.pragma("journal_mode", "wal")
                db.pragma("synchronous", 2)
                db.execute(_TABLES)
                db.execute("INSERT OR IGNORE INTO head VALUES (1, 0, ?, 0)", (_START,))
        except BaseException:
            db.close()
            raise
        return cls(db)

    @staticmethod
    def exists(home: str) -> bool:
        return os.path.exists(os.path.join(home, FILE))

    def close(self) -> None:
        self._db.close()

    def append(self, **fields: Any) -> None:
        """Record one thing that was done now; see `NewEntry`."""
        with self._writing():
            self._add([NewEntry(created_at=timestamp(), **fields)])

    async def catch_up(self, journal: Feed) -> None:
        """Record what the journal says was done since the last time. Nothing is recorded twice."""
        while True:
            position = self._position()
            page = await journal.feed(after=position, limit=_PAGE)
            if not page:
                return
            found = [one for stored in page if stored.type in TYPES and (one := entry_of(stored))]
            with self._writing():
                if self._position() != position:  # another process was faster
                    continue
                self._add(found)
                self._db.execute("UPDATE head SET position = ?", (page[-1].position,))
            await asyncio.sleep(0)  # a long journal does not keep requests waiting

    def _position(self) -> int:
        with side_faults(self._db.filename):
            return int(self._db.execute("SELECT position FROM head").get)

    def _add(self, entries: Sequence[NewEntry]) -> None:
        count, last = self._db.execute("SELECT count, hash FROM head").get
        for new in entries:
            body = msgspec.json.encode(new)
            last = sha256(last + body).digest()
            count += 1
            self._db.execute(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(count, new.created_at, new.actor, new.action, new.resource),
                    *(new.resource_id, body, last),
                ),
            )
        self._db.execute("UPDATE head SET count = ?, hash = ?", (count, last))

    def find(self, query: AuditQuery) -> tuple[list[AuditEntry], int]:
        """A page of entries, the newest first, and how many there are in all.

        By their times, not their numbers: those of facts are written when somebody looks.
        """
        where, bindings = _where(query)
        with side_faults(self._db.filename):
            total = int(self._db.execute(f"SELECT count(*) FROM entries{where}", bindings).get)
            rows = self._db.execute(
                f"SELECT number, body FROM entries{where}"
                " ORDER BY at DESC, number DESC LIMIT ? OFFSET ?",
                (*bindings, query.limit, query.offset),
            ).fetchall()
        return [_entry(number, body) for number, body in rows], total

    def remove_before(self, cutoff: str, most: int) -> int:
        """Remove the oldest entries, at most so many, up to the first of this time or later;
        returns how many.
        """
        with self._writing():
            base, _ = self._base()
            kept = self._db.execute(
                "SELECT number FROM entries WHERE at >= ? ORDER BY number LIMIT 1", (cutoff,)
            ).get
            count = int(self._db.execute("SELECT count FROM head").get)
            last = min(count if kept is None else kept - 1, base + most)
            if last <= base:
                return 0
            digest = self._db.execute("SELECT hash FROM entries WHERE number = ?", (last,)).get
            if digest is None:
                raise StoreDamaged(f"{self._db.filename}: entry {last} is missing")
            self._db.execute("INSERT OR REPLACE INTO base VALUES (1, ?, ?)", (last, digest))
            self._db.execute("DELETE FROM entries WHERE number <= ?", (last,))
            return last - base

    def _base(self) -> tuple[int, bytes]:
        """The number and the hash of the last entry that was removed."""
        names = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'base'").fetchall()
        rows = self._db.execute("SELECT number, hash FROM base").fetchall() if names else []
        return rows[0] if rows else (0, _START)

    def verify(self) -> list[Damage]:
        """Whether each entry is the one that was written, and none is missing."""
        found: list[Damage] = []
        try:
            with side_faults(self._db.filename):
                count, last = self._base()
                head = self._db.execute("SELECT count, hash FROM head").get
                while rows := self._page(count):
                    for row in rows:
                        count += 1
                        if isinstance(row[-2], bytes):
                            last = sha256(last + row[-2]).digest()
                        if row[0] != count or last != row[-1] or not _agrees(row):
                            message = "this entry of the audit log is not what was written"
                            return [Damage("audit", row[0], message)]
        except StoreDamaged as error:
            return [Damage("audit", None, str(error))]
        if head is None or (count, last) != tuple(head):
            found.append(Damage("audit", count, "the end of the audit log is missing"))
        return found

    def _page(self, after: int) -> list[Any]:
        return self._db.execute(
            "SELECT number, at, actor, action, resource, resource_id, body, hash FROM entries"
            " WHERE number > ? ORDER BY number LIMIT 1000",
            (after,),
        ).fetchall()

    @classmethod
    def open_for_reading(cls, home: str) -> "AuditLog":
        """Open an existing record without changing a byte of the home."""
        path = os.path.join(home, FILE)
        db = connection(path, apsw.SQLITE_OPEN_READONLY)
        try:
            db.execute("SELECT count FROM head").fetchall()
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            db.close()
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            db = connection(f"file:{quote(path)}?immutable=1", flags)
        return cls(db)

    @classmethod
    def open_overlaid(cls, home: str) -> "AuditLog":
        """Open the record to catch up and search without writing: what is added is not kept.

        An empty one, if this home has none.
        """
        if not cls.exists(home):
            db = connection(":memory:", apsw.SQLITE_OPEN_READWRITE)
            db.execute(_TABLES)
            db.execute("INSERT INTO head VALUES (1, 0, ?, 0)", (_START,))
            return cls(db)
        path = os.path.join(home, FILE)
        with side_faults(path):
            log = cls.open_for_reading(home)
            try:
                log._db.execute(_OVERLAY)
            except BaseException:
                log.close()
                raise
        return log

    @contextmanager
    def _writing(self) -> Generator[None]:
        with side_faults(self._db.filename):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def verify_audit(home: str) -> list[Damage]:
    """Check the audit log of a home, if it has one."""
    if not AuditLog.exists(home):
        return []
    try:
        log = AuditLog.open_for_reading(home)
    except apsw.Error as error:
        return [Damage("audit", None, f"the audit log cannot be read: {error}")]
    try:
        return log.verify()
    finally:
        log.close()


def _agrees(row: Any) -> bool:
    """Whether the columns that filters use say what the chained bytes say."""
    try:
        new = msgspec.json.decode(row[-2], type=NewEntry)
    except (msgspec.MsgspecError, ValueError):
        return False
    said = (new.created_at, new.actor, new.action, new.resource, new.resource_id)
    return bool(tuple(row[1:6]) == said)


def _entry(number: int, body: bytes) -> AuditEntry:
    new = msgspec.json.decode(body, type=NewEntry)
    return AuditEntry(id=str(number), **msgspec.structs.asdict(new))


def _where(query: AuditQuery) -> tuple[str, list[str]]:
    fields: Mapping[str, str] = {
        "actor = ?": query.actor,
        "action = ?": query.action,
        "resource = ?": query.resource,
        "resource_id = ?": query.resource_id,
        "at > ?": query.created_after,
        "at < ?": query.created_before,
    }
    given = {text: value for text, value in fields.items() if value}
    where = f" WHERE {' AND '.join(given)}" if given else ""
    return where, list(given.values())
