"""The journal's contract as tests. A store runs it by giving the fixture `open_journal`."""

from tests.journal.suite_facts import Appending, Leases, Pruning, Reading
from tests.journal.suite_rows import Artifacts, Budgets, Rows


class JournalSuite(Appending, Reading, Leases, Pruning, Rows, Budgets, Artifacts):
    """What every journal promises."""
