"""The tables, and how connections to them are opened; `journal.rows` defines the rows' meaning."""

import os
from contextlib import suppress

import apsw

from batten.contract.errors import (
    JournalError,
    NotFound,
    StoreDamaged,
    StoreReadOnly,
    StoreTooNew,
)
from batten.journal.file_format import APPLICATION_ID, VERSION
from batten.journal.sqlite.database import Database, connection

INCREMENTAL = 2
"""`auto_vacuum` that returns free pages only when asked. Costs 1 µs an event."""

# The rowid of an event is its position: cheaper than a key of its own, and the feed's cursor.
# `floors` keeps positions and keys of deleted runs from being used again.
TABLES = """
CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    task_id TEXT,
    session_id TEXT,
    next_sequence INTEGER NOT NULL,
    head BLOB NOT NULL,
    base_sequence INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    lease_until TEXT NOT NULL,
    lease_boot_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    outcome TEXT,
    prior_run_id TEXT,
    parent_run_id TEXT,
    model TEXT,
    provider TEXT,
    workspace_path TEXT NOT NULL,
    workspace_mode TEXT NOT NULL,
    priority INTEGER NOT NULL,
    prompt TEXT NOT NULL,
    turns INTEGER NOT NULL,
    cost_micros_usd INTEGER NOT NULL,
    cost_unknown INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    ended_at TEXT
) STRICT;
CREATE INDEX runs_session ON runs (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_task ON runs (task_id) WHERE task_id IS NOT NULL;

CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    type TEXT NOT NULL,
    terminal INTEGER,
    body BLOB NOT NULL,
    chain BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_place ON events (run, sequence);
CREATE UNIQUE INDEX events_ending ON events (run) WHERE terminal = 1;

CREATE TABLE bases (
    run INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL,
    chain BLOB NOT NULL,
    rows BLOB NOT NULL,
    state BLOB
) STRICT;

CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    workspace_path TEXT NOT NULL,
    surface TEXT NOT NULL,
    settings TEXT NOT NULL,
    last_run_id TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    closed INTEGER NOT NULL,
    forked_from TEXT,
    forked_at_run_id TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    request_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    request_class TEXT NOT NULL,
    tool_call_id TEXT NOT NULL,
    summary TEXT NOT NULL,
    digest TEXT NOT NULL,
    deadline_at TEXT,
    resolvers TEXT NOT NULL,
    status TEXT NOT NULL,
    decision TEXT,
    by TEXT,
    answer TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_run ON requests (run_id);

CREATE TABLE artifacts (
    artifact_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    summary TEXT NOT NULL,
    tool_call_id TEXT,
    metadata TEXT NOT NULL,
    created_at TEXT NOT NULL,
    applied_at TEXT,
    reverted_at TEXT,
    pinned INTEGER NOT NULL DEFAULT 0,
    deleted_at TEXT,
    released INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX artifacts_run ON artifacts (run_id);
CREATE INDEX artifacts_body ON artifacts (sha256) WHERE released = 0;

CREATE TABLE bodies (
    sha256 TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    added_at INTEGER NOT NULL,
    data BLOB
) STRICT;

CREATE TABLE ledger (
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    task_id TEXT,
    turn_index INTEGER NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cost_micros_usd INTEGER,
    price_as_of TEXT,
    PRIMARY KEY (run_id, sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_task ON ledger (task_id) WHERE task_id IS NOT NULL;

CREATE TABLE reservations (
    run_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    micros_usd INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_task ON reservations (task_id);
"""

TABLES_SINCE_2 = """
CREATE TABLE floors (
    position INTEGER NOT NULL,
    key INTEGER NOT NULL
) STRICT;
INSERT INTO floors VALUES (0, 0);

CREATE TABLE removals (run INTEGER PRIMARY KEY) STRICT;

CREATE TABLE resealed (
    sha256 TEXT PRIMARY KEY,
    data BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE past_usage (
    hour TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    workspace_path TEXT NOT NULL,
    runs INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cost_micros_usd INTEGER NOT NULL,
    cost_unknown INTEGER NOT NULL,
    PRIMARY KEY (hour, provider, model, workspace_path)
) STRICT, WITHOUT ROWID;
"""
"""`removals`: keys of deleted runs whose facts are still being removed. `resealed`: sealed bodies
of imported sessions, encrypted again with this home's key. `past_usage`: that of pruned sessions.
"""

INDEXES_SINCE_2 = """
CREATE INDEX runs_queued ON runs (priority DESC, key)
    WHERE status = 'queued' AND worker_id = '' AND kind != 'session' AND kind != 'coordination';
CREATE INDEX runs_awaited ON runs (key)
    WHERE status = 'queued' AND worker_id = '' AND kind = 'coordination';
CREATE INDEX runs_held ON runs (key) WHERE worker_id != '' AND ended_at IS NULL;
CREATE INDEX sessions_task ON sessions (task_id);
CREATE INDEX sessions_recent ON sessions (updated_at DESC, session_id DESC);
"""

_COLUMNS_SINCE_2 = {
    "runs": "0 AS lease_boot_ms, 'in_place' AS workspace_mode, 0 AS priority",
    "artifacts": "0 AS pinned, NULL AS deleted_at",
}
_SIDE_FILES = ("-wal", "-shm", ".lock", ".bell", ".queue")


def keep_private(path: str) -> None:
    """Create the file for its owner alone; repair modes that an earlier version left open.

    The log and its index take their mode from the file. The caller holds the lock.
    """
    if not os.path.exists(path):
        # Never on a file in use: closing it would drop SQLite's locks on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for suffix in ("", *_SIDE_FILES):
        with suppress(OSError):  # gone meanwhile, or a file system without modes
            status = os.stat(path + suffix)
            if status.st_mode & 0o077 and status.st_uid == os.geteuid():
                os.chmod(path + suffix, 0o600)


def connect(path: str, *, patience_s: float, writing: bool) -> Database:
    """A connection to a journal that exists or is about to be created."""
    if writing:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    else:
        flags = apsw.SQLITE_OPEN_READONLY
    db = connection(path, flags)
    # For readers too: the first one after a crash recovers the file.
    db.set_busy_timeout(int(patience_s * 1000))
    if writing:
        db.pragma("synchronous", "full")
        # 500 pages: a log that stays near 2 MB, and no commit that pays for more than it wrote.
        db.pragma("wal_autocheckpoint", 500)
        db.pragma("journal_size_limit", 8 * 1024 * 1024)
    return db


def prepare(db: Database) -> None:
    """Create the tables in an empty file. The caller holds the lock."""
    version = user_version(db)
    if version == 0:
        if db.execute("SELECT count(*) FROM sqlite_schema").get:
            raise StoreDamaged(f"{db.filename} is a database, but not a journal")
        db.pragma("auto_vacuum", INCREMENTAL)  # first: it cannot be changed later
        db.pragma("application_id", APPLICATION_ID)
        if db.pragma("journal_mode", "wal") != "wal":
            raise JournalError(f"{db.filename} cannot keep a write-ahead log on this file system")
        db.execute(
            f"BEGIN IMMEDIATE; {TABLES} {TABLES_SINCE_2} {INDEXES_SINCE_2}"
            f" PRAGMA user_version = {VERSION}; COMMIT"
        )
    elif version > VERSION:
        raise too_new(db.filename, version)
    elif version < VERSION:
        from batten.journal.sqlite.migrating import migrate

        migrate(db, version)


def copy_of_format(path: str, version: int) -> str:
    """The copy of a journal that is kept when it is converted from this format."""
    return f"{path}.format-{version}"


def too_new(path: str, version: int) -> StoreTooNew:
    copies = [copy_of_format(path, older) for older in range(VERSION, 0, -1)]
    kept = next((copy for copy in copies if os.path.exists(copy)), None)
    instead = "" if kept is None else f" or put back the copy from before the upgrade, {kept},"
    return StoreTooNew(
        f"the journal {path} has format {version}, written by a newer Batten; this one reads"
        f" formats up to {VERSION}. Use the newer one,{instead} or set BATTEN_HOME to another"
        " directory"
    )


def user_version(db: Database) -> int:
    return int(db.pragma("user_version"))


def open_immutable(path: str) -> Database:
    """A reader's connection to a file that nobody writes; makes no side files."""
    uri = "file:" + path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return connection(uri + "?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def _is_folded(path: str) -> bool:
    """Whether everything is in the file itself and nothing in its log."""
    try:
        return os.path.getsize(path + "-wal") == 0
    except FileNotFoundError:
        return True


def _reading(path: str, patience_s: float) -> Database:
    """Without a log, any reader makes one. It is then to remove it, too, which takes a connection
    that could write: what a reader left behind would keep the owner of the home out if that is
    another user.
    """
    if os.path.exists(path + "-wal"):
        return connect(path, patience_s=patience_s, writing=False)
    db = connection(path, apsw.SQLITE_OPEN_READWRITE)
    db.set_busy_timeout(int(patience_s * 1000))
    return db


def open_for_reading(path: str, patience_s: float) -> Database:
    """A reader's connection, also where the side files of the log cannot be written."""
    if not os.path.exists(path):
        raise NotFound(f"there is no journal at {path}")
    db = _reading(path, patience_s)
    try:
        version = user_version(db)
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.FullError, apsw.IOError) as error:
        db.close()
        if not _is_folded(path):
            if isinstance(error, apsw.FullError | apsw.IOError):
                raise
            raise StoreReadOnly(f"{path} has a log that cannot be read here: {error}") from error
        db = open_immutable(path)
        version = user_version(db)
    if version == 0:
        if not db.execute("SELECT count(*) FROM sqlite_schema").get:
            db.close()
            raise NotFound(f"the journal at {path} is only being created")
        version = user_version(db)  # tables and version are committed together, perhaps just now
    if version > VERSION:
        db.close()
        raise too_new(path, version)
    if version <= 0:
        db.close()
        raise StoreDamaged(f"{path} is a database, but not a journal")
    if version < VERSION:
        # Reading never writes: what the old format lacks is in tables and views of our own.
        db.execute(TABLES_SINCE_2.replace("CREATE TABLE", "CREATE TEMP TABLE"))
        for table, added in _COLUMNS_SINCE_2.items():
            db.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {added} FROM main.{table}")
    db.pragma("query_only", 1)
    return db
