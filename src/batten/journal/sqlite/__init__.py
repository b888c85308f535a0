"""The journal on one SQLite file, safe for many processes on one machine."""

from batten.journal.sqlite.bodies import Quotas
from batten.journal.sqlite.store import SqliteJournal

__all__ = ["Quotas", "SqliteJournal"]
