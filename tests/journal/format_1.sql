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
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    outcome TEXT,
    prior_run_id TEXT,
    parent_run_id TEXT,
    model TEXT,
    provider TEXT,
    workspace_path TEXT NOT NULL,
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
