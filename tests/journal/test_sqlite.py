"""The SQLite journal keeps the journal's contract."""

import asyncio
import stat
import sys
from pathlib import Path

import pytest

from batten.journal.contract import Journal
from batten.journal.sqlite import SqliteJournal
from tests.journal.delayed import delayed
from tests.journal.given import started, text
from tests.journal.opened import OpenJournal
from tests.journal.suite import JournalSuite

ENDS = ("", "-wal", "-shm", ".lock", ".bell", ".queue")


def _is_a_journal(journal: SqliteJournal) -> Journal:
    return journal  # checked by the type checkers


async def test_followers_are_woken_where_the_system_does_not_watch_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "another")
    journal, other = SqliteJournal.open(tmp_path), SqliteJournal.open(tmp_path)
    lease = await started(journal)
    pages = other.follow(lease.run_id)
    assert len(await anext(pages)) == 2
    sent = await journal.append(lease.run_id, [text("a")], fence=lease.fence)
    async with asyncio.timeout(20):
        assert await anext(pages) == sent
    other.close()
    journal.close()


async def test_the_writer_asks_for_short_turns_so_that_a_busy_loop_cannot_starve_it(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal.open(tmp_path)
    await started(journal)
    assert sys.getswitchinterval() <= 0.0005
    journal.close()


def _modes(home: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.glob("journal.db*")}


async def test_the_files_of_a_journal_are_their_owners_alone_also_in_an_open_home(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    journal = SqliteJournal.open(tmp_path)
    await started(journal)
    await journal.verify()
    assert set(_modes(tmp_path)) == {f"journal.db{end}" for end in ENDS}
    assert set(_modes(tmp_path).values()) == {0o600}
    journal.close()
    made = SqliteJournal.open(tmp_path / "home")
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    made.close()


async def test_files_an_earlier_version_left_open_to_others_are_closed_to_them(
    tmp_path: Path,
) -> None:
    first = SqliteJournal.open(tmp_path)
    lease = await started(first)
    await first.verify()
    for end in ENDS:
        (tmp_path / f"journal.db{end}").chmod(0o644)
    second = SqliteJournal.open(tmp_path)
    assert set(_modes(tmp_path).values()) == {0o600}
    await first.append(lease.run_id, [text("a")], fence=lease.fence)
    await second.append(lease.run_id, [text("b")], fence=lease.fence)
    assert await second.verify() == []
    second.close()
    first.close()


class TestSqlite(JournalSuite):
    @pytest.fixture
    def open_journal(self, tmp_path: Path) -> OpenJournal:
        return lambda: _is_a_journal(SqliteJournal.open(tmp_path))


class TestSqliteInAProcessOfItsOwn(JournalSuite):
    @pytest.fixture
    def open_journal(self, tmp_path: Path) -> OpenJournal:
        return lambda: _is_a_journal(SqliteJournal.open(tmp_path, own_process=True))


class TestDelayedSqlite(JournalSuite):
    """Nothing hangs and nothing is reordered where every read takes its time."""

    @pytest.fixture
    def open_journal(self, tmp_path: Path) -> OpenJournal:
        return lambda: delayed(SqliteJournal.open(tmp_path))
