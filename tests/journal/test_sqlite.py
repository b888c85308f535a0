"""The SQLite journal keeps the journal's contract."""

from pathlib import Path

import pytest

from batten.journal.contract import Journal
from batten.journal.sqlite import SqliteJournal
from tests.journal.opened import OpenJournal
from tests.journal.suite import JournalSuite


def _is_a_journal(journal: SqliteJournal) -> Journal:
    return journal  # checked by the type checkers


class TestSqlite(JournalSuite):
    @pytest.fixture
    def open_journal(self, tmp_path: Path) -> OpenJournal:
        return lambda: _is_a_journal(SqliteJournal.open(tmp_path))
