"""The journal's contract as tests. A store runs it by giving the fixture `open_journal`."""

from tests.journal.suite_facts import Appending, Leases, Pruning, Reading
from tests.journal.suite_removal import Removing
from tests.journal.suite_rows import Artifacts, Budgets, Rows
from tests.journal.suite_seam import Feeding, Listing, Queueing


class JournalSuite(
    Appending,
    Reading,
    Leases,
    Pruning,
    Removing,
    Rows,
    Budgets,
    Artifacts,
    Queueing,
    Listing,
    Feeding,
):
    """What every journal promises."""
