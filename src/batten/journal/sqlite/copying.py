"""Copies a database that other processes write, through SQLite's backup interface."""

import os
import time
from collections.abc import Callable
from contextlib import suppress

import apsw

from batten.journal.durable import sync
from batten.journal.sqlite.database import Database, connection, copy_pages, new_connection
from batten.journal.sqlite.schema import open_for_reading

_STEP_PAGES = 512
_PATIENCE_S = 10.0


def open_journal_file(path: str) -> Database:
    return open_for_reading(path, _PATIENCE_S)


def open_side_file(path: str) -> Database:
    """A reader's connection to a database beside the journal."""
    db = connection(path, apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(int(_PATIENCE_S * 1000))
    return db


def copy_database(
    path: str,
    target: str,
    *,
    pause_s: float = 0.0,
    opening: Callable[[str], Database] = open_journal_file,
) -> None:
    """Copy a database as of now to a new file, durably; an older copy is replaced.

    One read transaction spans all steps: writers are not blocked, and cannot make the copy begin
    again. `pause_s` is the time between steps.
    """
    aside = f"{target}.{os.getpid()}.partial"
    os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        _copy(opening(path), aside, pause_s)
        sync(aside)
        os.replace(aside, target)
        sync(os.path.dirname(target))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)


def _copy(source: Database, target: str, pause_s: float) -> None:
    try:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # takes the snapshot
        copy = new_connection(target)
        try:
            for _ in copy_pages(source, copy, _STEP_PAGES):
                if pause_s:
                    time.sleep(pause_s)
        finally:
            copy.close()
    finally:
        source.close()
