"""The one way to a store: an address names it, and callers never learn of which kind it is.

An address is the path of a home, or `memory:` for a store that ends with its process.
"""

import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from batten.journal.contract import Journal

MEMORY = "memory:"


def open_store(
    address: str,
    *,
    read_only: bool = False,
    own_process: bool = False,
    artifact_bytes: int | None = None,
) -> Journal:
    """Open a store, and create it unless `read_only`. Raises `NotFound` if there is none to read.

    `own_process`: it may block the event loop for a commit. `artifact_bytes` limits one artifact.
    """
    if address == MEMORY:
        from batten.journal.memory import MemoryJournal

        return MemoryJournal()
    from batten.journal.sqlite import Quotas, SqliteJournal

    quotas = Quotas() if artifact_bytes is None else Quotas(artifact_bytes=artifact_bytes)
    return SqliteJournal.open(address, read_only=read_only, own_process=own_process, quotas=quotas)


def has_store(address: str) -> bool:
    """Whether there is a store to read."""
    return os.path.exists(os.path.join(address, "journal.db"))


def removal_lock(address: str, *, shared: bool = False) -> AbstractContextManager[None]:
    """Keep other processes from removing anything meanwhile; unless `shared`, also from copying.

    Raises `StoreBusy` if one is at work, `StoreReadOnly` if nothing can be removed here.
    """
    from batten.journal.sqlite.upkeep import upkeep_lock

    return upkeep_lock(address, shared=shared)


@contextmanager
def open_for_removal(address: str) -> Generator[Journal]:
    """Open a store to remove something, on a full disk too. The caller holds the `removal_lock`."""
    from batten.journal.sqlite.upkeep import open_for_removing

    with open_for_removing(address) as journal:
        yield journal


def store_versions() -> dict[str, str]:
    """The software that keeps a home, each with its version."""
    import apsw

    return {"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()}
