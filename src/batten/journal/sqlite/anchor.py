"""The anchor of a record that is kept beside the journal: how long it was, and its last hash.

It is in the journal's file, so that a record that was removed, emptied or put back from an earlier
time is noticed. It trails the record: a crash between the two leaves the anchor of before.
"""

import os
from collections.abc import Callable
from contextlib import closing

from msgspec import Struct

from batten.journal.sqlite.faults import faults_typed
from batten.journal.sqlite.lock import FileLock
from batten.journal.sqlite.schema import connect, open_for_reading

_TABLE = """
CREATE TABLE IF NOT EXISTS anchors (
    name TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT, WITHOUT ROWID
"""
_PATIENCE_S = 2.0


class Anchor(Struct, frozen=True):
    """The end of a record."""

    count: int
    hash: bytes


def read_anchor(home: str, name: str) -> Anchor | None:
    """The anchor of a record; None if there is none, or no journal. Writes nothing."""
    path = _journal(home)
    if not os.path.exists(path):
        return None
    with faults_typed(home), closing(open_for_reading(path, _PATIENCE_S)) as db:
        if not db.execute("SELECT 1 FROM main.sqlite_schema WHERE name = 'anchors'").fetchall():
            return None
        rows = db.execute("SELECT count, hash FROM anchors WHERE name = ?", (name,)).fetchall()
        return Anchor(*rows[0]) if rows else None


def move_anchor(home: str, name: str, end: Anchor, has: Callable[[Anchor], bool]) -> None:
    """Anchor the end of a record, if it has what was anchored before; without a journal, do
    nothing. Raises what the journal raises.
    """
    path = _journal(home)
    if not os.path.exists(path):
        return
    with faults_typed(home), closing(FileLock(f"{path}.lock")) as lock:
        lock.acquire(_PATIENCE_S)
        try:
            before = read_anchor(home, name)
            if before is not None and (before.count >= end.count or not has(before)):
                return
            with closing(connect(path, patience_s=_PATIENCE_S, writing=True)) as db:
                db.execute(f"BEGIN IMMEDIATE; {_TABLE}")
                values = (name, end.count, end.hash)
                db.execute("INSERT OR REPLACE INTO anchors VALUES (?, ?, ?)", values)
                db.execute("COMMIT")
        finally:
            lock.release()


def _journal(home: str) -> str:
    return os.path.join(home, "journal.db")
