"""The journal in memory, for runs that are not kept (`--no-save`) and for tests."""

from batten.journal.memory.journal import MemoryJournal
from batten.journal.memory.store import MemoryStore

__all__ = ["MemoryJournal", "MemoryStore"]
