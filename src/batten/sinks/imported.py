"""Sessions that are imported: what happened in them was told where it happened, and is not told
again here.
"""

import logging
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from batten.contract.errors import JournalError
from batten.journal.contract import Stored
from batten.sinks.store import SinkStore

if TYPE_CHECKING:  # readers import nothing
    from batten.journal.bundles.transfer import Source

_PUT = "INSERT OR REPLACE INTO imports VALUES (?, ?, ?)"
_DROP = "DELETE FROM imports WHERE run_id = ?"
_FIND = (
    "SELECT run_id, after, next_sequence FROM imports"
    " WHERE run_id IN (SELECT value FROM json_each(?))"
)
_log = logging.getLogger("batten.sinks")


@contextmanager
def silently(home: str, source: "Source", after: int) -> Generator[None]:
    """Import a session in this block, and the sinks of the home are not told of its facts, which
    come after the position `after`.

    They are noted first: a reader may see them at once. Where there is no sink, none needs it.
    """
    runs = source.manifest.runs
    _write(home, _PUT, ((run.run_id, after, run.next_sequence) for run in runs))
    try:
        yield
    except BaseException:  # a run of these ids is not the bundle's
        _write(home, _DROP, ((run.run_id,) for run in runs))
        raise


def _write(home: str, statement: str, rows: Iterable[tuple[str | int, ...]]) -> None:
    if not SinkStore.exists(home):
        return
    try:
        with closing(SinkStore.open(home)) as store, store.writing(durable=True) as db:
            db.executemany(statement, list(rows))
    except JournalError as error:
        _log.warning("sinks may be told again what an imported session did: %s", error)


def happened_here(store: SinkStore, facts: Iterable[Stored]) -> set[int]:
    """The positions of those facts that were not imported."""
    found = list(facts)
    names = msgspec.json.encode(sorted({one.run_id for one in found})).decode()
    rows: list[tuple[str, int, int]] = store.all(_FIND, (names,))
    ends = {run_id: (after, end) for run_id, after, end in rows}

    def is_imported(fact: Stored) -> bool:
        after, end = ends.get(fact.run_id, (0, 0))
        return fact.position > after and fact.sequence < end

    return {one.position for one in found if not is_imported(one)}
