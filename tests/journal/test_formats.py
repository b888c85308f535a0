"""The store's format: an older one is converted and a copy kept, a newer one is refused."""

import os
import signal
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from batten.contract.errors import StoreFull, StoreTooNew
from batten.journal.contract import Stored
from batten.journal.file_format import VERSION
from batten.journal.sqlite import SqliteJournal, migrating
from tests.journal.given import all_facts
from tests.journal.process import start
from tests.journal.sessions import ended_session, to_format_1


@pytest.fixture
async def old_home(tmp_path: Path) -> Path:
    """A home of format 1 with three sessions."""
    journal = SqliteJournal.open(tmp_path)
    for number in range(3):
        await ended_session(journal, facts=20, body=b"%d" % number * 20_000)
    journal.close()
    to_format_1(tmp_path)
    return tmp_path


def pragma(path: Path, name: str) -> Any:
    db = cast(Any, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY))
    try:
        return db.pragma(name)
    finally:
        db.close()


async def read(home: Path, *, read_only: bool = True) -> list[Stored]:
    journal = SqliteJournal.open(home, read_only=read_only)
    try:
        assert await journal.verify() == []
        return await all_facts(journal)
    finally:
        journal.close()


async def test_an_old_format_is_read_without_writing(old_home: Path) -> None:
    before = (old_home / "journal.db").read_bytes()
    facts = await read(old_home)
    assert len(facts) > 60
    assert (old_home / "journal.db").read_bytes() == before
    assert not list(old_home.glob("journal.db.format-*"))


async def test_an_old_format_is_converted_with_the_same_bytes_and_a_copy_kept(
    old_home: Path,
) -> None:
    before = await read(old_home)
    assert await read(old_home, read_only=False) == before
    assert pragma(old_home / "journal.db", "user_version") == VERSION
    assert pragma(old_home / "journal.db", "auto_vacuum") == 2
    copy = old_home / "journal.db.format-1"
    assert pragma(copy, "user_version") == 1
    assert copy.stat().st_mode & 0o077 == 0
    # The copy is the old journal: put back, it is a home again.
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (old_home / name).unlink(missing_ok=True)
    copy.rename(old_home / "journal.db")
    assert await read(old_home) == before


async def test_a_converted_journal_is_written_and_pruned_like_a_new_one(old_home: Path) -> None:
    journal = SqliteJournal.open(old_home)
    before = await all_facts(journal)
    await ended_session(journal)
    after = await all_facts(journal)
    assert after[: len(before)] == before
    assert await journal.verify() == []
    journal.close()


async def test_two_processes_convert_one_journal_at_once(old_home: Path) -> None:
    before = await read(old_home)
    writers = [start("write_many", old_home, "5") for _ in range(3)]
    for writer in writers:
        writer.communicate("go\n", timeout=30)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert (await read(old_home))[: len(before)] == before


@pytest.mark.parametrize("step", ["copy_database", "convert"])
async def test_a_conversion_that_is_killed_begins_again(old_home: Path, step: str) -> None:
    before = await read(old_home)
    with start("convert_until", old_home, step) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{step}\n"
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert await read(old_home) == before
    assert await read(old_home, read_only=False) == before
    assert pragma(old_home / "journal.db", "user_version") == VERSION


async def test_a_conversion_without_room_is_refused_before_it_begins(
    old_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (old_home / "journal.db").read_bytes()
    monkeypatch.setattr(migrating, "_TIMES", 10**9)
    with pytest.raises(StoreFull, match="has format 1 and has to be converted"):
        SqliteJournal.open(old_home)
    assert (old_home / "journal.db").read_bytes() == before


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_newer_format_is_refused_with_a_sentence(tmp_path: Path, read_only: bool) -> None:
    SqliteJournal.open(tmp_path).close()
    db = cast(Any, apsw.Connection(str(tmp_path / "journal.db")))
    db.pragma("user_version", VERSION + 1)
    db.close()
    before = (tmp_path / "journal.db").read_bytes()
    with pytest.raises(StoreTooNew, match=f"has format {VERSION + 1}, written by a newer Batten"):
        SqliteJournal.open(tmp_path, read_only=read_only)
    copy = tmp_path / f"journal.db.format-{VERSION}"
    copy.touch()
    with pytest.raises(StoreTooNew, match="put back the copy from before the upgrade") as refused:
        SqliteJournal.open(tmp_path, read_only=read_only)
    assert str(copy) in str(refused.value)
    assert (tmp_path / "journal.db").read_bytes() == before
