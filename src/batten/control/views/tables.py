"""The tables of views: kept in a file, and for the facts since then in a connection's memory.

Both have the same columns. A row names the position of the fact that made it: of a temporary row
only what is past the position of the kept view counts.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from batten.control.views.folds import RunFold, outcome_of
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.metrics import milliseconds

Schema = Literal["main", "temp"]
LAYOUT = 3
"""Of the tables; a file with another one is made anew."""
PLACE_BITS = 17
"""Places of one fact's events: an envelope of 256 KiB cannot name more participants."""
SEPARATOR = "\x1f"
_MOST = 1 << 62
_encode = msgspec.json.Encoder().encode

_TABLES = """
CREATE TABLE {schema}.kept (
    view TEXT NOT NULL,
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (view, run_id)
) WITHOUT ROWID;
CREATE TABLE {schema}.events (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    place INTEGER NOT NULL,
    ts TEXT NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE TABLE {schema}.runs (
    run_id TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    is_run INTEGER NOT NULL,
    is_sandbox INTEGER NOT NULL,
    is_archived INTEGER NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    ended_at TEXT,
    duration_ms INTEGER,
    environment TEXT,
    scenario_ref TEXT,
    source_ref TEXT,
    scenario TEXT,
    error_code TEXT,
    tokens INTEGER NOT NULL,
    cost_nanos INTEGER NOT NULL,
    tags TEXT NOT NULL,
    words TEXT NOT NULL
);
CREATE TABLE {schema}.marks (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    ts TEXT NOT NULL,
    type TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE TABLE {schema}.shares (
    run_id TEXT NOT NULL,
    participant TEXT NOT NULL,
    messages INTEGER NOT NULL,
    signals INTEGER NOT NULL,
    confidence_micros INTEGER NOT NULL,
    confident INTEGER NOT NULL,
    PRIMARY KEY (run_id, participant)
) WITHOUT ROWID;
"""
_KEPT_ONLY = """
CREATE TABLE views (
    name TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    position INTEGER NOT NULL
);
CREATE TABLE snapshots (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE INDEX events_by_place ON events (place, type, ts);
CREATE INDEX events_by_time ON events (ts, place, type);
CREATE INDEX events_by_type ON events (type, place, ts);
CREATE INDEX runs_by_creation ON runs (created_at, run_id) WHERE is_run;
CREATE INDEX runs_by_update ON runs (updated_at, run_id) WHERE is_run;
CREATE INDEX runs_by_end ON runs (ended_at) WHERE is_run;
CREATE INDEX runs_by_status ON runs (status, created_at, run_id) WHERE is_run;
CREATE INDEX runs_shown ON runs (created_at, run_id)
    WHERE is_run AND NOT is_sandbox AND NOT is_archived;
CREATE INDEX marks_by_time ON marks (type, ts, value);
CREATE TABLE agents (
    participant TEXT PRIMARY KEY,
    runs INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    signals INTEGER NOT NULL,
    confidence_micros INTEGER NOT NULL,
    confident INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER share_added AFTER INSERT ON shares BEGIN
    INSERT INTO agents VALUES (new.participant, 1, new.messages, new.signals,
        new.confidence_micros, new.confident)
    ON CONFLICT DO UPDATE SET runs = runs + 1, messages = messages + excluded.messages,
        signals = signals + excluded.signals,
        confidence_micros = confidence_micros + excluded.confidence_micros,
        confident = confident + excluded.confident;
END;
CREATE TRIGGER share_changed AFTER UPDATE ON shares BEGIN
    UPDATE agents SET messages = messages + new.messages - old.messages,
        signals = signals + new.signals - old.signals,
        confidence_micros = confidence_micros + new.confidence_micros - old.confidence_micros,
        confident = confident + new.confident - old.confident
    WHERE participant = new.participant;
END;
CREATE TRIGGER share_removed AFTER DELETE ON shares BEGIN
    UPDATE agents SET runs = runs - 1, messages = messages - old.messages,
        signals = signals - old.signals,
        confidence_micros = confidence_micros - old.confidence_micros,
        confident = confident - old.confident
    WHERE participant = old.participant;
    DELETE FROM agents WHERE participant = old.participant AND runs = 0;
END;
"""
# What both together say now; `dropped` are runs whose rows before a position no longer count.
_NOW = """
CREATE TABLE temp.dropped (
    run_id TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TEMP VIEW changed AS SELECT run_id FROM temp.runs
    WHERE position > (SELECT position FROM main.views WHERE name = 'runs');
CREATE TEMP VIEW runs_now AS
    SELECT * FROM main.runs WHERE is_run AND run_id NOT IN (SELECT run_id FROM changed)
    UNION ALL
    SELECT * FROM temp.runs WHERE is_run
        AND position > (SELECT position FROM main.views WHERE name = 'runs');
CREATE TEMP VIEW marks_now AS
    SELECT run_id, ts, type, value FROM main.marks
        WHERE run_id NOT IN (SELECT run_id FROM temp.dropped
            WHERE position > (SELECT position FROM main.views WHERE name = 'runs'))
    UNION ALL
    SELECT run_id, ts, type, value FROM temp.marks
        WHERE position > (SELECT position FROM main.views WHERE name = 'runs');
CREATE TEMP VIEW events_now AS
    SELECT * FROM main.events WHERE run_id NOT IN (SELECT run_id FROM temp.dropped
        WHERE position > (SELECT position FROM main.views WHERE name = 'events'))
    UNION ALL
    SELECT * FROM temp.events WHERE place >=
        ((SELECT position FROM main.views WHERE name = 'events') + 1) << {bits};
CREATE TEMP VIEW agents_now AS
    SELECT participant, sum(runs) AS runs, sum(messages) AS messages, sum(signals) AS signals,
        sum(confidence_micros) AS confidence_micros, sum(confident) AS confident
    FROM (
        SELECT participant, runs, messages, signals, confidence_micros, confident FROM main.agents
        UNION ALL
        SELECT participant, -1, -messages, -signals, -confidence_micros, -confident
            FROM main.shares WHERE run_id IN (SELECT run_id FROM changed)
        UNION ALL
        SELECT participant, 1, messages, signals, confidence_micros, confident
            FROM temp.shares WHERE run_id IN (SELECT run_id FROM changed)
    )
    GROUP BY participant HAVING sum(runs) > 0;
"""
KEPT_TABLES = _TABLES.format(schema="main") + _KEPT_ONLY
TAIL_TABLES = _TABLES.format(schema="temp") + _NOW.format(bits=PLACE_BITS)
TAIL = ("kept", "events", "runs", "marks", "shares", "dropped")
"""The temporary tables."""
ROWS: dict[str, tuple[str, ...]] = {
    "events": ("events",),
    "states": ("snapshots",),
    "runs": ("runs", "marks", "shares"),
}
"""The tables of rows that belong to a view, beside its states."""


class EventRow(Struct, frozen=True):
    """A canonical event, encoded as it is served."""

    run_id: str
    seq: int
    ts: str
    type: str
    body: bytes
    place: int
    """Where it stands among the events of all runs: in the order of their facts."""


class Mark(Struct, frozen=True):
    """A signal or a decision, for the dashboard."""

    seq: int
    position: int
    ts: str
    type: str
    value: int


def run_row(run_id: str, position: int, state: RunFold) -> tuple[Any, ...]:
    """The columns of `runs`. A stream that is no run has a row: it was seen."""
    record = state.record
    texts = [record.metadata.get(name) for name in ("environment", "scenarioRef")]
    environment, scenario = (text if isinstance(text, str) else None for text in texts)
    words = (record.id, *record.tags, scenario or "", environment or "")
    lasted: int | None = None
    if record.status == "completed" and record.started_at and record.ended_at:
        lasted = milliseconds(record.started_at, record.ended_at)
    return (
        run_id,
        position,
        bool(record.id),
        record.mode == "sandbox",
        record.archived_at is not None,
        record.status,
        record.created_at,
        record.updated_at,
        record.ended_at,
        lasted,
        environment,
        None if scenario is None else scenario.casefold(),
        record.source_ref,
        record.source_ref or scenario,
        record.error_code,
        min(state.metrics.total_tokens, _MOST),
        min(state.metrics.cost_nanos, _MOST),
        tag_text(record.tags),
        SEPARATOR.join(words).casefold(),
    )


def tag_text(tags: list[str]) -> str:
    """Tags so that each can be found whole."""
    return SEPARATOR.join(("", *tags, ""))


def first_place(position: int) -> int:
    """The place of the first event of the fact at this position."""
    return position << PLACE_BITS


def event_row(run_id: str, event: CanonicalEvent, place: int = 0) -> EventRow:
    return EventRow(run_id, event.seq, event.ts, event.type, _encode(event), place)


def mark_of(event: CanonicalEvent, position: int) -> Mark | None:
    """What the dashboard counts of an event by its time."""
    if event.type == "signal.emitted":
        return Mark(event.seq, position, event.ts, event.type, 1)
    if event.type == "decision.finalized":
        return Mark(event.seq, position, event.ts, event.type, outcome_of(event))
    return None
