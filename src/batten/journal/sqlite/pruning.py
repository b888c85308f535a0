"""Removes the beginning of a run, keeping a base."""

import msgspec
from msgspec.structs import replace

from batten.contract.envelope import timestamp
from batten.contract.errors import NotFound, StoreDamaged
from batten.contract.facts import GapEventsPruned
from batten.journal.contract import RunRow, Stored
from batten.journal.handle import append
from batten.journal.pruned import Cut, KeptBase, Prefix
from batten.journal.rows import Base
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.reader import Reader

PAGE = 1024


def base(reader: Reader, run_id: str) -> KeptBase | None:
    found = reader.all(
        "SELECT sequence, chain, rows, state FROM bases"
        " WHERE run = (SELECT key FROM runs WHERE run_id = ?)",
        (run_id,),
    )
    if not found:
        return None
    sequence, chain, rows, state = found[0]
    try:
        kept = msgspec.json.decode(rows, type=Base)
        return KeptBase(sequence, state, kept.remains, chain, kept)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreDamaged(f"the base of run {run_id} cannot be read: {error}") from error


def plan(reader: Reader, run: RunRow, before: int) -> Cut | None:
    """Fold the prefix to remove, checking its chain. None if there is nothing to remove."""
    prefix = Prefix(run, base(reader, run.run_id), before)
    if not prefix.left:
        return None
    while prefix.left:
        prefix.take(reader.page(run.run_id, prefix.sequence - 1, min(PAGE, prefix.left)))
    return prefix.cut()


def remove(batch: Batch, cut: Cut, reason: str, state: bytes | None) -> Stored:
    """Remove a planned prefix; the marker is the newest row, so no position is used again."""
    run = batch.run(cut.run_id)
    batch.flush()
    where = (run.key, cut.before - 1)
    chain = batch.db.execute("SELECT chain FROM events WHERE run = ? AND sequence = ?", where).get
    cut.check(run, chain)
    cut = cut.spare(batch.artifacts_of(cut.run_id))
    batch.db.execute("DELETE FROM events WHERE run = ? AND sequence <= ?", where)
    batch.db.execute(
        "INSERT OR REPLACE INTO bases VALUES (?, ?, ?, ?, ?)",
        (run.key, cut.before, cut.chain, msgspec.json.encode(cut.rows), state),
    )
    batch.db.executemany(
        "UPDATE artifacts SET released = 1 WHERE artifact_id = ?",
        [(artifact_id,) for artifact_id in cut.artifact_ids],
    )
    batch.rebase(replace(run, base_sequence=cut.before))
    marker = GapEventsPruned(cut.first, cut.before - 1, timestamp(), reason)
    [stored] = append(batch, cut.run_id, (marker,), None)
    return stored


def known_run(reader: Reader, run_id: str) -> RunRow:
    run = reader.run(run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run
