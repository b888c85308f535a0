"""`verify` finds what was changed, cut off or lost; a damaged file is never a traceback."""

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from batten.contract.errors import BattenError, NotFound, StoreDamaged
from batten.journal.sqlite import SqliteJournal
from tests.journal.given import FINISHED, artifact, called, started, text

BIG = b"large body " * 5_000


async def _filled(home: Path) -> str:
    journal = SqliteJournal.open(home)
    lease = await started(journal)
    small, big = journal.inline(b"small"), journal.inline(BIG)
    await journal.append(
        lease.run_id,
        [artifact("art_s", small.sha256), artifact("art_b", big.sha256)],
        fence=lease.fence,
        bodies=[small, big],
    )
    for number in range(30):
        await journal.append(lease.run_id, [text(f"word {number}")], fence=lease.fence)
    await journal.append(lease.run_id, [called(), FINISHED], fence=lease.fence)
    await started(journal)
    journal.close()
    return lease.run_id


@pytest.fixture
def home(tmp_path: Path) -> Path:
    asyncio.run(_filled(tmp_path))
    return tmp_path


def _change(home: Path, sql: str, bindings: tuple[Any, ...] = ()) -> None:
    db = cast(Any, apsw.Connection(str(home / "journal.db")))
    db.execute(sql, bindings)
    assert db.changes() > 0
    db.close()


async def _verify(home: Path) -> list[str]:
    journal = SqliteJournal.open(home, read_only=True)
    found = [damage.message for damage in await journal.verify()]
    journal.close()
    return found


async def test_an_untouched_store_has_no_damage(home: Path) -> None:
    assert await _verify(home) == []


@pytest.mark.parametrize("column", ["body", "chain"])
@pytest.mark.parametrize("seed", range(8))
async def test_any_flipped_bit_of_a_stored_row_is_found(home: Path, column: str, seed: int) -> None:
    chance = random.Random(seed)
    db = cast(Any, apsw.Connection(str(home / "journal.db")))
    position, value = chance.choice(db.execute(f"SELECT position, {column} FROM events").fetchall())
    changed = bytearray(value)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    db.execute(f"UPDATE events SET {column} = ? WHERE position = ?", (bytes(changed), position))
    db.close()
    assert await _verify(home) != []


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM events WHERE position = (SELECT max(position) FROM events)",
        "DELETE FROM events WHERE run = 1 AND sequence > 20",
        "DELETE FROM events WHERE run = 1 AND sequence = 5",
        "DELETE FROM events WHERE run = 1 AND sequence = 0",
        "DELETE FROM events WHERE run = 1",
        "DELETE FROM runs WHERE key = 1",
        "UPDATE runs SET next_sequence = next_sequence - 1 WHERE key = 1",
        "UPDATE runs SET next_sequence = next_sequence + 1 WHERE key = 1",
        "UPDATE runs SET head = zeroblob(32) WHERE key = 1",
        "UPDATE runs SET base_sequence = 3 WHERE key = 1",
        "UPDATE runs SET run_id = 'run_other' WHERE key = 1",
        "UPDATE events SET type = 'turn.started' WHERE run = 1 AND sequence = 7",
        "UPDATE events SET terminal = NULL WHERE terminal = 1",
        "UPDATE bodies SET data = x'00' WHERE data IS NOT NULL",
        "DELETE FROM bodies WHERE data IS NOT NULL",
    ],
)
async def test_a_change_made_behind_the_journals_back_is_found(home: Path, sql: str) -> None:
    _change(home, sql)
    assert await _verify(home) != []


def _body_file(home: Path) -> Path:
    [path] = [path for path in (home / "artifacts").glob("*/*") if path.is_file()]
    return path


@pytest.mark.parametrize(
    "found",
    [None, b"", BIG[:-1], BIG[:-1] + b"!", BIG + b"!"],
    ids=["gone", "empty", "cut", "changed", "longer"],
)
async def test_a_body_file_that_is_not_what_was_written_is_found(
    home: Path, found: bytes | None
) -> None:
    path = _body_file(home)
    digest = path.name
    if found is None:
        path.unlink()
    else:
        path.write_bytes(found)
    [message] = await _verify(home)
    assert "art_b" in message
    journal = SqliteJournal.open(home, read_only=True)
    with pytest.raises((StoreDamaged, NotFound)):
        await journal.body(digest)
    journal.close()


async def test_a_log_that_lost_its_end_is_found(tmp_path: Path) -> None:
    """The whole last commit is gone: every run is consistent, but the bell has rung further."""

    async def write() -> bytes:
        journal = SqliteJournal.open(tmp_path)
        lease = await started(journal)
        await journal.append(lease.run_id, [text("a")], fence=lease.fence)
        log = (tmp_path / "journal.db-wal").read_bytes()
        await journal.append(lease.run_id, [text("b")], fence=lease.fence)
        kept = (tmp_path / "journal.db").read_bytes()
        journal.close()
        (tmp_path / "journal.db").write_bytes(kept)
        return log

    log = await write()
    (tmp_path / "journal.db-wal").write_bytes(log)
    assert await _verify(tmp_path) == ["the store ends at position 3, but 4 was committed"]


@pytest.mark.parametrize("seed", range(25))
def test_flipped_bytes_of_the_file_are_typed_errors_or_damage_and_never_a_crash(
    home: Path, seed: int
) -> None:
    chance = random.Random(seed)
    path = home / "journal.db"
    data = bytearray(path.read_bytes())
    start = chance.choice([0, chance.randrange(len(data))])
    for _ in range(64):
        data[(start + chance.randrange(4096)) % len(data)] = chance.randrange(256)
    path.write_bytes(bytes(data))

    async def use() -> None:
        journal = SqliteJournal.open(home)
        try:
            await journal.verify()
            for item in await journal.feed(limit=10_000):
                await journal.run(item.run_id)
                await journal.artifacts(item.run_id)
                await journal.ledger(item.run_id)
            await started(journal)
        finally:
            journal.close()

    try:
        asyncio.run(use())
    except BattenError:
        return


def test_a_file_that_is_no_database_is_a_damaged_store(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database at all" * 500)
    with pytest.raises(StoreDamaged):
        SqliteJournal.open(tmp_path)
    with pytest.raises(StoreDamaged):
        SqliteJournal.open(tmp_path, read_only=True)


def test_somebody_elses_database_is_not_taken_for_a_journal(tmp_path: Path) -> None:
    db = cast(Any, apsw.Connection(str(tmp_path / "journal.db")))
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(StoreDamaged, match="not a journal"):
        SqliteJournal.open(tmp_path)


async def test_one_run_is_verified_alone(home: Path) -> None:
    _change(home, "UPDATE events SET body = x'00' WHERE run = 1 AND sequence = 3")
    journal = SqliteJournal.open(home, read_only=True)
    [other, harmed] = [run.run_id for run in await journal.runs()]
    assert await journal.verify(other) == []
    assert [(item.run_id, item.sequence) for item in await journal.verify(harmed)] == [(harmed, 3)]
    with pytest.raises(NotFound):
        await journal.verify("run_unknown")
    journal.close()
