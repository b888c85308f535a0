"""`verify` folds the facts again and names the row and column that say something else."""

import asyncio
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from batten.contract.facts import SessionClosed, SessionConfigured, SessionOpened, UserMessage
from batten.contract.ids import new_session_id, new_task_id, session_stream
from batten.journal.sqlite import SqliteJournal
from tests.journal.given import FINISHED, approval, approved, artifact, called, new_run, started


async def _filled(home: Path) -> None:
    """A session with a run that asked, paid, made things and ended, and a run beside it."""
    journal = SqliteJournal.open(home)
    session_id, task_id = new_session_id(), new_task_id()
    opened = SessionOpened("/work", task_id, "print")
    stream = await _stream(journal, session_id, task_id, opened)
    lease = await started(journal, session_id=session_id, task_id=task_id)
    facts = [UserMessage(0, "hello"), approval(), approved(), artifact(), called(7), FINISHED]
    await journal.append(lease.run_id, facts, fence=lease.fence)
    configured = SessionConfigured({"model": "m", "limit": 1.5})
    await journal.append(stream.run_id, [configured, SessionClosed("over")], fence=stream.fence)
    other = await started(journal)
    await journal.append(other.run_id, [artifact("art_2"), called(1)], fence=other.fence)
    journal.close()


async def _stream(journal: SqliteJournal, session_id: Any, task_id: str, opened: Any) -> Any:
    new = new_run(
        run_id=session_stream(session_id), kind="session", session_id=session_id, task_id=task_id
    )
    lease, _ = await journal.create(new, [opened])
    assert lease is not None
    return lease


@pytest.fixture
def home(tmp_path: Path) -> Path:
    asyncio.run(_filled(tmp_path))
    return tmp_path


def _change(home: Path, sql: str) -> None:
    db = cast(Any, apsw.Connection(str(home / "journal.db")))
    db.execute(sql)
    assert db.changes() == 1
    db.close()


async def _verify(home: Path) -> list[str]:
    journal = SqliteJournal.open(home, read_only=True)
    found = [damage.message for damage in await journal.verify()]
    journal.close()
    return found


async def test_rows_that_nobody_touched_are_what_their_facts_say(home: Path) -> None:
    assert await _verify(home) == []


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "kind", "'workflow'"),
        ("runs", "status", "'failed'"),
        ("runs", "outcome", "NULL"),
        ("runs", "prior_run_id", "'run_x'"),
        ("runs", "parent_run_id", "'run_x'"),
        ("runs", "model", "'cheaper'"),
        ("runs", "provider", "'q'"),
        ("runs", "workspace_path", "'/elsewhere'"),
        ("runs", "prompt", "'hullo'"),
        ("runs", "turns", "9"),
        ("runs", "cost_micros_usd", "6"),
        ("runs", "cost_unknown", "1"),
        ("runs", "cancel_requested", "1"),
        ("runs", "pending", "1"),
        ("runs", "created_at", "'2001-01-01T00:00:00.000Z'"),
        ("runs", "ended_at", "NULL"),
        ("runs", "task_id", "'task_x'"),
        ("runs", "session_id", "NULL"),
        ("requests", "summary", "'harmless'"),
        ("requests", "resolvers", "'[]'"),
        ("requests", "status", "'pending'"),
        ("requests", "decision", "'denied'"),
        ("requests", "by", "'eve'"),
        ("requests", "answer", "'{}'"),
        ("artifacts", "kind", "'sealed'"),
        ("artifacts", "status", "'applied'"),
        ("artifacts", "size_bytes", "4"),
        ("artifacts", "sha256", "'00'"),
        ("artifacts", "metadata", '\'{"target_path":"b.py"}\''),
        ("artifacts", "reverted_at", "'2026-01-01'"),
        ("artifacts", "released", "1"),
        ("ledger", "input_tokens", "0"),
        ("ledger", "cost_micros_usd", "0"),
        ("ledger", "task_id", "'task_x'"),
        ("sessions", "workspace_path", "'/elsewhere'"),
        ("sessions", "settings", "'{}'"),
        ("sessions", "closed", "0"),
        ("sessions", "last_run_id", "NULL"),
        ("sessions", "updated_at", "'2001-01-01T00:00:00.000Z'"),
    ],
)
async def test_a_column_changed_by_hand_is_named(
    home: Path, table: str, column: str, value: str
) -> None:
    where = {
        "runs": "key = 2",
        "requests": "true",
        "artifacts": "artifact_id = 'art_1'",
        "ledger": "cost_micros_usd = 7",
        "sessions": "true",
    }
    _change(home, f"UPDATE {table} SET {column} = {value} WHERE {where[table]}")
    found = await _verify(home)
    assert any(f"`{column}`" in message for message in found), found


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DELETE FROM requests", "the row of request appr_1 is missing"),
        ("DELETE FROM artifacts WHERE artifact_id = 'art_1'", "artifact art_1 is missing"),
        ("DELETE FROM ledger WHERE cost_micros_usd = 7", "the row of ledger entry 6 is missing"),
        ("DELETE FROM sessions", "the row of session"),
        ("UPDATE artifacts SET artifact_id = 'art_9' WHERE artifact_id = 'art_1'", "no fact made"),
        ("UPDATE ledger SET run_id = 'run_x' WHERE cost_micros_usd = 7", "its run is not stored"),
        ("UPDATE requests SET run_id = 'run_x'", "its run is not stored"),
        ("UPDATE sessions SET session_id = 'sess_x'", "session sess_x has a row, but no facts"),
    ],
)
async def test_a_row_lost_moved_or_made_up_is_found(home: Path, sql: str, told: str) -> None:
    _change(home, sql)
    found = await _verify(home)
    assert any(told in message for message in found), found


async def test_a_pruned_run_is_compared_from_its_base_on(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    lease = await started(journal)
    await journal.append(lease.run_id, [artifact(), called(7)], fence=lease.fence)
    await journal.prune(lease.run_id, before=4, reason="old")
    await journal.append(lease.run_id, [called(5), artifact("art_2")], fence=lease.fence)
    assert await journal.verify() == []
    journal.close()
    _change(tmp_path, "UPDATE ledger SET cost_micros_usd = 1 WHERE sequence = 3")
    _change(tmp_path, "UPDATE runs SET cost_micros_usd = 6")
    _change(tmp_path, "UPDATE artifacts SET released = 0 WHERE artifact_id = 'art_1'")
    assert await _verify(tmp_path) == [
        f"`cost_micros_usd` of run {lease.run_id} is 6, but its facts say 12",
        "`cost_micros_usd` of ledger entry 3 is 1, but its facts say 7",
        "`released` of artifact art_1 is 0",
    ]


@pytest.mark.parametrize("rows", ["x'00'", "x''", "CAST('{}' AS BLOB)", "CAST('[[1' AS BLOB)"])
async def test_a_base_that_cannot_be_read_is_damage_and_no_crash(tmp_path: Path, rows: str) -> None:
    journal = SqliteJournal.open(tmp_path)
    lease = await started(journal)
    await journal.append(lease.run_id, [artifact(), called(7)], fence=lease.fence)
    await journal.prune(lease.run_id, before=3, reason="old")
    journal.close()
    _change(tmp_path, f"UPDATE bases SET rows = {rows}")
    [message] = await _verify(tmp_path)
    assert message.startswith("cannot be read: ")
