"""An append-only record in a file of its own, each entry chained to the one before by a hash.

h₋₁ = SHA-256("batten audit"), hₙ = SHA-256(hₙ₋₁ ‖ bytes). The head holds the last hash, the count
and the cursor over the journal, so that a changed entry and a cut tail are both found. It outlives
what it tells of: deleting a session removes none of its entries. Where old entries were removed,
the base holds the number and the hash of the last of them, and the chain is verified from there.
The journal anchors the head: a log that is gone, or another one, is found too.

What is about to be done elsewhere is noted first. If the process is killed before it knows what
became of it, the next one that looks records it.
"""

import asyncio
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import quote

import apsw
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from batten.contract.envelope import timestamp
from batten.contract.errors import JournalError, NotFound, StoreDamaged, StoreReadOnly
from batten.contract.ids import from_uuid, is_ulid, to_uuid
from batten.journal.sqlite.anchor import Anchor, move_anchor, read_anchor
from batten.journal.sqlite.database import Database, connection
from batten.journal.sqlite.faults import side_faults
from batten.journal.upkeep import Damage
from batten.journal.workers import is_dead, this_worker
from batten.sinks.audit.derive import IMPORTED, TYPES, entry_of
from batten.sinks.audit.entry import AuditEntry, NewEntry
from batten.sinks.contract import Feed

FILE = "audit.db"
_NAME = "audit"
"""Of the log, in what is said of damage and among the journal's anchors."""
_START = sha256(b"batten audit").digest()
_BUSY_MS = 10_000
_FORGOTTEN_S = 3600
"""What was noted longer ago is no work in progress: its process may be of an earlier boot."""
_PAGE = 256
_PREFIXES = ("run", "chat", "task", "art")
"""Of ids that some surface spells as UUIDs."""
_TABLES = f"""
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
CREATE INDEX IF NOT EXISTS imports ON entries (resource_id, at) WHERE action = '{IMPORTED}';
CREATE TABLE IF NOT EXISTS head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    count INTEGER NOT NULL,
    hash BLOB NOT NULL,
    position INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS intents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    worker TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS base (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    hash BLOB NOT NULL
);
"""

_IMPORTS = (
    f"SELECT resource_id, max(at) FROM entries WHERE action = '{IMPORTED}' GROUP BY resource_id"
)
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
_INTENTS = "CREATE TEMP TABLE intents AS SELECT * FROM main.intents;"
_NO_INTENTS = "CREATE TEMP TABLE intents (number, worker, body);"


Became = Literal["done", "refused", "unknown"]
"""What became of something that was noted before it was done."""


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

    def __init__(self, db: Database, home: str = "") -> None:
        """`home` is that of a log which is written."""
        self._db = db
        self._home = home

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
            log = cls(db, home)
            with log._writing():  # all or nothing, also on a full disk
                db.execute(_TABLES)
                db.execute("INSERT OR IGNORE INTO head VALUES (1, 0, ?, 0)", (_START,))
        except BaseException:
            db.close()
            raise
        return log

    @staticmethod
    def exists(home: str) -> bool:
        return os.path.exists(os.path.join(home, FILE))

    def close(self) -> None:
        self._db.close()

    def append(self, **fields: Any) -> None:
        """Record one thing that was done now; see `NewEntry`."""
        with self._writing():
            self._add([NewEntry(created_at=timestamp(), **fields)])
        self._anchor()

    def intend(self, **fields: Any) -> int:
        """Note what is about to be done now, for `settle`; see `NewEntry`."""
        body = msgspec.json.encode(NewEntry(created_at=timestamp(), **fields))
        with self._writing():
            insert = "INSERT INTO intents (worker, body) VALUES (?, ?) RETURNING number"
            return int(self._db.execute(insert, (this_worker(), body)).get)

    def settle(self, number: int, became: Became) -> None:
        """Record what was noted, unless it was not done."""
        with self._writing():
            self._settle(number, became)
        self._anchor()

    def _settle(self, number: int, became: Became) -> None:
        body = self._db.execute("SELECT body FROM intents WHERE number = ?", (number,)).get
        if body is None:
            return  # another process took this one for dead
        self._db.execute("DELETE FROM intents WHERE number = ?", (number,))
        noted = msgspec.json.decode(body, type=NewEntry)
        if became == "unknown":
            noted = replace(noted, details={**noted.details, "answer": "none"})
        if became != "refused":
            self._add([noted])

    def _settle_lost(self) -> bool:
        """Record what processes noted that are gone; returns whether there was something."""
        with side_faults(self._db.filename):
            rows = self._db.execute("SELECT number, worker, body FROM intents").fetchall()
        long_ago = timestamp(time.time_ns() - _FORGOTTEN_S * 1_000_000_000)
        lost = [
            number
            for number, worker, body in rows
            if is_dead(worker) or msgspec.json.decode(body, type=NewEntry).created_at < long_ago
        ]
        if lost:
            with self._writing():
                for number in lost:
                    self._settle(number, "unknown")
        return bool(lost)

    async def catch_up(self, journal: Feed) -> None:
        """Record what the journal says was done since the last time. Nothing is recorded twice."""
        has_grown = self._settle_lost()
        while True:
            position = self._position()
            page = await journal.feed(after=position, limit=_PAGE)
            if not page:
                break
            wanted = [stored for stored in page if stored.type in TYPES]
            imports = self._imports() if wanted else {}
            found = [one for stored in wanted if (one := entry_of(stored, imports))]
            with self._writing():
                if self._position() != position:  # another process was faster
                    continue
                self._add(found)
                self._db.execute("UPDATE head SET position = ?", (page[-1].position,))
            has_grown = has_grown or bool(found)
            await asyncio.sleep(0)  # a long journal does not keep requests waiting
        if has_grown:
            self._anchor()

    def _imports(self) -> dict[str, str]:
        """When sessions were imported. The entries come before the facts."""
        with side_faults(self._db.filename):
            return dict(self._db.execute(_IMPORTS).fetchall())

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

    def _anchor(self) -> None:
        if not self._home:
            return  # nothing of it is kept
        with side_faults(self._db.filename):
            count, last = self._db.execute("SELECT count, hash FROM head").get
        with suppress(JournalError, NotFound):  # the next entry does it
            move_anchor(self._home, _NAME, Anchor(count, last), self.has)

    def has(self, anchor: Anchor) -> bool:
        """Whether this log went on from there."""
        with side_faults(self._db.filename):
            if not self._is_made():
                return False
            number, digest = self._base()
            if anchor.count > number:
                digest = self._db.execute(
                    "SELECT hash FROM main.entries WHERE number = ?", (anchor.count,)
                ).get
        return anchor.count < number or digest == anchor.hash

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
        has_base = self._has("base")
        rows = self._db.execute("SELECT number, hash FROM base").fetchall() if has_base else []
        return rows[0] if rows else (0, _START)

    def verify(self) -> list[Damage]:
        """Whether each entry is the one that was written, and none is missing."""
        found: list[Damage] = []
        try:
            with side_faults(self._db.filename):
                if not self._is_made():
                    return []
                count, last = self._base()
                head = self._db.execute("SELECT count, hash FROM head").get
                while rows := self._page(count):
                    for row in rows:
                        count += 1
                        if isinstance(row[-2], bytes):
                            last = sha256(last + row[-2]).digest()
                        if row[0] != count or last != row[-1] or not _agrees(row):
                            message = "this entry of the audit log is not what was written"
                            return [Damage(_NAME, row[0], message)]
        except StoreDamaged as error:
            return [Damage(_NAME, None, str(error))]
        if head is None or (count, last) != tuple(head):
            found.append(Damage(_NAME, count, "the end of the audit log is missing"))
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
            db.execute("SELECT 1 FROM sqlite_master").fetchall()
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
            return cls._in_memory()
        path = os.path.join(home, FILE)
        with side_faults(path):
            log = cls.open_for_reading(home)
            try:
                if log._is_made():
                    intents = _INTENTS if log._has("intents") else _NO_INTENTS
                    log._db.execute(_OVERLAY + intents)
                    return log
            except BaseException:
                log.close()
                raise
        log.close()
        return cls._in_memory()

    @classmethod
    def _in_memory(cls) -> "AuditLog":
        db = connection(":memory:", apsw.SQLITE_OPEN_READWRITE)
        db.execute(_TABLES)
        db.execute("INSERT INTO head VALUES (1, 0, ?, 0)", (_START,))
        return cls(db)

    def _is_made(self) -> bool:
        """False for a file whose creation a full disk or a kill cut short."""
        return self._has("head")

    def _has(self, table: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE name = ?"
        return bool(self._db.execute(query, (table,)).fetchall())

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
    """Check the audit log of a home, if it has one or had one."""
    try:
        anchor = read_anchor(home, _NAME)
    except (JournalError, NotFound):
        anchor = None  # told by the check of the journal
    if not AuditLog.exists(home):
        if anchor is None:
            return []
        message = f"the audit log is missing; it had {anchor.count} entries"
        return [Damage(_NAME, None, message)]
    try:
        log = AuditLog.open_for_reading(home)
    except apsw.Error as error:
        return [Damage(_NAME, None, f"the audit log cannot be read: {error}")]
    try:
        found = log.verify()
        if not found and anchor is not None and not log.has(anchor):
            message = "the audit log is another one: this entry is missing, or not the one it had"
            found = [Damage(_NAME, anchor.count, message)]
        return found
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
        "at > ?": query.created_after,
        "at < ?": query.created_before,
    }
    given = {text: [value] for text, value in fields.items() if value}
    if query.resource_id:
        names = _spellings(query.resource_id)
        given[f"resource_id IN ({', '.join('?' * len(names))})"] = names
    where = f" WHERE {' AND '.join(given)}" if given else ""
    return where, [value for values in given.values() for value in values]


def _spellings(resource_id: str) -> list[str]:
    """An id in each way that entries may spell it: surfaces differ."""
    if is_ulid(resource_id):
        return [resource_id, to_uuid(resource_id)]
    try:
        spelled = [from_uuid(resource_id, prefix) for prefix in _PREFIXES]
    except ValueError:
        return [resource_id]
    return [to_uuid(spelled[0]), *spelled]
