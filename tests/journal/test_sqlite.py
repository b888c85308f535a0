"""The SQLite journal keeps the journal's contract."""

import asyncio
import sys
from pathlib import Path

import pytest

from batten.journal.contract import Journal
from batten.journal.sqlite import SqliteJournal
from tests.journal.given import started, text
from tests.journal.opened import OpenJournal
from tests.journal.suite import JournalSuite


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


class TestSqlite(JournalSuite):
    @pytest.fixture
    def open_journal(self, tmp_path: Path) -> OpenJournal:
        return lambda: _is_a_journal(SqliteJournal.open(tmp_path))
