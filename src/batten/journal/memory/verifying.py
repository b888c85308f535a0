"""Checks a memory journal: its chains, its counts, and its rows against the facts."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from batten.contract.envelope import decode
from batten.contract.errors import BattenError
from batten.journal.appending import first_hash
from batten.journal.memory.store import MemoryStore, RunIndex
from batten.journal.rows import Changes, FactContext, RunFold, fold
from batten.journal.upkeep import Damage

_PAGE = 1024


def verify(store: MemoryStore, run_id: str | None) -> list[Damage]:
    """All damage of one run or of all. The caller holds the mutex."""
    indexes = list(store.runs.values()) if run_id is None else [store.index(run_id)]
    return [damage for index in indexes for damage in _run(store, index)]


def _run(store: MemoryStore, index: RunIndex) -> Iterator[Damage]:
    state, base = index.state, index.base
    run_id, sequence = state.run_id, state.base_sequence
    chain = base.chain if base else first_hash(run_id)
    folded = base.rows.fold if base else RunFold(kind=state.fold.kind)
    changes = base.rows.changes() if base else Changes()
    try:
        while page := store.page(run_id, sequence - 1, _PAGE):
            for stored in page:
                chain = sha256(chain + stored.body).digest()
                if chain != index.chain(sequence):
                    yield Damage(run_id, sequence, "the stored bytes are not what was written")
                    return
                envelope = decode(stored.body)
                at = envelope.occurred_at
                place = FactContext(run_id, state.task_id, state.session_id, sequence, at)
                folded = fold(folded, changes, place, envelope.data)
                sequence += 1
    except BattenError as error:
        yield Damage(run_id, sequence, f"cannot be read: {error}")
        return
    if (sequence, chain) != (state.next_sequence, state.head):
        yield Damage(run_id, sequence, f"{state.next_sequence} facts were written")
    if sequence and folded != state.fold:
        yield Damage(run_id, None, "its row is not what its facts say")
    yield from _rows(run_id, "request", store.requests, changes.requests)
    yield from _rows(run_id, "artifact", store.artifacts, changes.artifacts)
    if store.ledger.get(run_id, []) != changes.ledger:
        yield Damage(run_id, None, "its ledger is not what its facts say")
    yield from _bodies(store, run_id)


def _rows(
    run_id: str, noun: str, stored: Mapping[str, Any], folded: Mapping[str, Any]
) -> Iterator[Damage]:
    kept = {key: row for key, row in stored.items() if row.run_id == run_id}
    for key in kept.keys() | folded.keys():
        if kept.get(key) != folded.get(key):
            yield Damage(run_id, None, f"the row of {noun} {key} is not what the facts say")


def _bodies(store: MemoryStore, run_id: str) -> Iterator[Damage]:
    for row in store.artifacts.values():
        if row.run_id == run_id and row.sha256 and row.artifact_id not in store.released:
            try:
                store.body(row.sha256, 0, None)
            except BattenError as error:
                yield Damage(run_id, None, f"body of artifact {row.artifact_id}: {error}")
