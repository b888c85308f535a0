"""Forgetting: the beginning of a run, of which a base is kept, and bodies nobody names."""

import os
import time
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from batten.contract.envelope import decode_fact, timestamp
from batten.contract.errors import CallerError, Conflict, NotFound, StoreDamaged
from batten.contract.facts import ArtifactCreated, GapEventsPruned
from batten.journal.appending import first_hash
from batten.journal.contract import RunRow, Stored
from batten.journal.rows import Base, Changes, FactContext, RunFold, base_of, fold
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.bodies import BodyFiles
from batten.journal.sqlite.jobs import add_marker
from batten.journal.sqlite.reader import Reader

PAGE = 1024


class Cut(Struct, frozen=True):
    """A prefix about to be removed, already folded."""

    run_id: str
    first: int
    before: int
    chain: bytes
    base: bytes
    artifact_ids: list[str]
    """Artifacts created in the prefix: their bodies are no longer needed for it."""


class KeptBase(Struct, frozen=True):
    """Where a pruned run begins now, and what is known of the part before."""

    sequence: int
    chain: bytes
    rows: Base
    state: bytes | None
    """What the pruner of the run wanted kept; the store does not look into it."""


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
        return KeptBase(sequence, chain, msgspec.json.decode(rows, type=Base), state)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreDamaged(f"the base of run {run_id} cannot be read: {error}") from error


def plan(reader: Reader, run: RunRow, before: int) -> Cut | None:
    """Fold the prefix to be removed, checking its chain. None if there is nothing to remove."""
    if before > run.next_sequence:
        raise CallerError(
            f"run {run.run_id} has {run.next_sequence} facts: none is before {before}"
        )
    if before <= run.base_sequence:
        return None
    kept = base(reader, run.run_id)
    folded = kept.rows.fold if kept else RunFold(kind=run.kind)
    changes = kept.rows.changes() if kept else Changes()
    chain = kept.chain if kept else first_hash(run.run_id)
    artifact_ids: list[str] = []
    sequence = run.base_sequence
    while sequence < before:
        page = reader.page(run.run_id, sequence - 1, min(PAGE, before - sequence))
        if not page or page[0].sequence != sequence:
            raise StoreDamaged(f"run {run.run_id} has no fact {sequence}: verify it")
        for stored in page:
            chain = sha256(chain + stored.body).digest()
            fact = decode_fact(stored.body)
            place = FactContext(
                run.run_id, run.task_id, run.session_id, stored.sequence, _at(stored)
            )
            folded = fold(folded, changes, place, fact)
            if isinstance(fact, ArtifactCreated):
                artifact_ids.append(fact.artifact_id)
        sequence = page[-1].sequence + 1
    kept_rows = msgspec.json.encode(base_of(folded, changes))
    return Cut(run.run_id, run.base_sequence, before, chain, kept_rows, artifact_ids)


class _Time(Struct):
    occurred_at: str


_time = msgspec.json.Decoder(_Time)


def _at(stored: Stored) -> str:
    return _time.decode(stored.body).occurred_at


def remove(batch: Batch, cut: Cut, reason: str, state: bytes | None) -> Stored:
    """Remove a planned prefix; the marker is the newest row, so no position is used again."""
    run = batch.run(cut.run_id)
    batch.flush()
    where = (run.key, cut.before - 1)
    chain = batch.db.execute("SELECT chain FROM events WHERE run = ? AND sequence = ?", where).get
    if run.base_sequence != cut.first:
        raise Conflict(f"run {cut.run_id} was pruned by somebody else meanwhile")
    if chain != cut.chain:
        raise StoreDamaged(f"the chain of run {cut.run_id} is broken: verify it before pruning")
    batch.db.execute("DELETE FROM events WHERE run = ? AND sequence <= ?", where)
    batch.db.execute(
        "INSERT OR REPLACE INTO bases VALUES (?, ?, ?, ?, ?)",
        (run.key, cut.before, cut.chain, cut.base, state),
    )
    batch.db.executemany(
        "UPDATE artifacts SET released = 1 WHERE artifact_id = ?",
        [(artifact_id,) for artifact_id in cut.artifact_ids],
    )
    batch.rebase(replace(run, base_sequence=cut.before))
    marker = GapEventsPruned(cut.first, cut.before - 1, timestamp(), reason)
    return add_marker(batch, cut.run_id, marker)


def collect(batch: Batch, files: BodyFiles, grace_s: float) -> int:
    """Free the bodies no artifact needs; how many. Those younger than the grace are kept:
    the fact that names them may be on its way."""
    batch.flush()
    limit = time.time() - grace_s
    batch.db.execute(
        "DELETE FROM bodies WHERE added_at <= ? AND sha256 NOT IN"
        " (SELECT sha256 FROM artifacts WHERE released = 0)",
        (int(limit),),
    )
    freed = batch.db.changes()
    needed = {row[0] for row in batch.db.execute("SELECT sha256 FROM bodies").fetchall()}
    needed |= {
        row[0]
        for row in batch.db.execute("SELECT sha256 FROM artifacts WHERE released = 0").fetchall()
    }
    unneeded = [files.path(name) for name in files.names() if name not in needed]
    for path in unneeded + files.left_over():
        try:
            if os.stat(path).st_mtime <= limit:
                os.unlink(path)
        except FileNotFoundError:
            continue  # its writer finished or gave up meanwhile
    return freed


def known_run(reader: Reader, run_id: str) -> RunRow:
    run = reader.run(run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run
