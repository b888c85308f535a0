"""The journal under test, opened by whichever store runs the suite."""

from collections.abc import AsyncIterator, Callable

import pytest

from batten.journal.contract import Journal

OpenJournal = Callable[[], Journal]


class WithJournal:
    """Opens the journal under test; the store's own class gives `open_journal`."""

    @pytest.fixture
    async def journal(self, open_journal: OpenJournal) -> AsyncIterator[Journal]:
        journal = open_journal()
        yield journal
        journal.close()
