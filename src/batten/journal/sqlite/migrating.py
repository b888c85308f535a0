"""Converts a journal of an older format, one format at a time. A copy of the old file stays.

The caller holds the lock. A conversion that is interrupted leaves the old format, and begins
again with the next open.
"""

import os
from collections.abc import Callable

from batten.contract.errors import StoreFull
from batten.journal.file_format import VERSION
from batten.journal.sqlite.copying import copy_database
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.schema import (
    INCREMENTAL,
    INDEXES_SINCE_2,
    TABLES_SINCE_2,
    copy_of_format,
    user_version,
)

_TIMES = 3
"""Room for the copy, and for the new file and its log while it is written."""


def migrate(db: Database, version: int) -> None:
    path = db.filename
    _check_room(path, version)
    copy_database(path, copy_of_format(path, version))
    for older in range(version, VERSION):
        convert(db, older)


def convert(db: Database, older: int) -> None:
    """Convert from this format to the next."""
    _STEPS[older](db)
    assert user_version(db) == older + 1


def _check_room(path: str, version: int) -> None:
    room = os.statvfs(os.path.dirname(path))
    needed = _TIMES * os.path.getsize(path)
    if room.f_bavail * room.f_frsize < needed:
        raise StoreFull(
            f"the journal {path} has format {version} and has to be converted to {VERSION}, which"
            f" takes {needed // 2**20 + 1} MB on its disk: make room, then try again"
        )


def _to_2(db: Database) -> None:
    """Let free pages be returned to the disk, runs be deleted and queued, leases outlast clocks."""
    db.pragma("auto_vacuum", INCREMENTAL)
    db.execute("VACUUM")
    added = (
        "runs ADD COLUMN lease_boot_ms INTEGER NOT NULL DEFAULT 0",
        "runs ADD COLUMN workspace_mode TEXT NOT NULL DEFAULT 'in_place'",
        "runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
        "artifacts ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
        "artifacts ADD COLUMN deleted_at TEXT",
    )
    columns = "".join(f"ALTER TABLE {column};" for column in added)
    db.execute(
        f"BEGIN IMMEDIATE; {columns} {TABLES_SINCE_2} {INDEXES_SINCE_2}"
        " PRAGMA user_version = 2; COMMIT"
    )


_STEPS: dict[int, Callable[[Database], None]] = {1: _to_2}
"""By the format that each begins with."""
