"""The memory journal keeps the journal's contract, and keeps little in memory."""

import pytest

from batten.journal.contract import Journal
from batten.journal.memory import MemoryJournal, MemoryStore
from tests.journal.delayed import delayed
from tests.journal.opened import OpenJournal
from tests.journal.suite import JournalSuite


def _is_a_journal(journal: MemoryJournal) -> Journal:
    return journal  # checked by the type checkers


class TestMemory(JournalSuite):
    @pytest.fixture
    def open_journal(self) -> OpenJournal:
        store = MemoryStore()
        return lambda: _is_a_journal(MemoryJournal(store))


class TestDelayedMemory(JournalSuite):
    """Nothing hangs and nothing is reordered where every read takes its time."""

    @pytest.fixture
    def open_journal(self) -> OpenJournal:
        store = MemoryStore()
        return lambda: delayed(MemoryJournal(store))
