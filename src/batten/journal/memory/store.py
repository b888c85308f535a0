"""The state of a memory journal: rows, and an index of facts and bodies in a spool.

A fact takes about eighty bytes here; its envelope is in the spool. The space of removed facts
and bodies is freed when the journal closes. The caller of each method holds the mutex.
"""

import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.envelope import decode
from batten.contract.errors import NotFound, StoreDamaged
from batten.contract.facts import Fact
from batten.contract.ids import Minter
from batten.journal.appending import (
    Clock,
    Prepared,
    RunState,
    cancelled_above,
    needs_ancestors,
    needs_cause,
    prepare,
)
from batten.journal.contract import ArtifactRow, Body, LedgerRow, RequestRow, SessionRow, Stored
from batten.journal.followers import Followers, Wakeup
from batten.journal.memory.spool import Spool
from batten.journal.needed import needed_rows
from batten.journal.pruned import Cut, KeptBase
from batten.journal.rows import Known

_HASH = 32


class RunIndex:
    """One run: its state, and the places of its stored facts in the spool."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.base: KeptBase | None = None
        self.positions = array("Q")
        self.offsets = array("Q")
        self.sizes = array("Q")
        self.types: list[str] = []
        self.chains = bytearray()

    def add(self, stored: Stored, offset: int, chain: bytes) -> None:
        self.positions.append(stored.position)
        self.offsets.append(offset)
        self.sizes.append(len(stored.body))
        self.types.append(stored.type)
        self.chains += chain

    def chain(self, sequence: int) -> bytes:
        begin = (sequence - self.state.base_sequence) * _HASH
        return bytes(self.chains[begin : begin + _HASH])

    def forget(self, count: int) -> None:
        for column in (self.positions, self.offsets, self.sizes, self.types):
            del column[:count]
        del self.chains[: count * _HASH]


class KeptBody(Struct, frozen=True):
    offset: int
    size: int
    added_at: float


class MemoryStore:
    """The state that the handles of one journal share."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.followers = Followers()
        self.queue = Followers()
        self.minter = Minter()
        self.now = Clock().now
        self.runs: dict[str, RunIndex] = {}
        """By id, in the order of creation."""
        self.sessions: dict[str, SessionRow] = {}
        self.requests: dict[str, RequestRow] = {}
        self.artifacts: dict[str, ArtifactRow] = {}
        self.ledger: dict[str, list[LedgerRow]] = {}
        self.released: set[str] = set()
        """Artifacts whose creation was pruned: they no longer need their bodies."""
        self.reservations: dict[str, tuple[str, int]] = {}
        self.bodies: dict[str, KeptBody] = {}
        self._spool = Spool()
        self._by_key: list[RunIndex] = []
        self._feed_keys = array("Q")
        self._feed_sequences = array("Q")
        self._wakeups: list[Wakeup] = []

    def close(self) -> None:
        self._spool.close()

    @property
    def next_key(self) -> int:
        return len(self._by_key)

    def run(self, run_id: str) -> RunIndex:
        run = self.runs.get(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        return run

    def find_state(self, run_id: str) -> RunState | None:
        run = self.runs.get(run_id)
        return None if run is None else run.state

    def prepare(self, run: RunState, facts: Sequence[Fact], *, guest: bool) -> Prepared:
        """Look up the rows that the rules need, and apply the rules. Keeps nothing yet."""
        if needs_cause(run, facts):
            run = replace(run, cause=self._cause_of(run.run_id))
        above = cancelled_above(run, self.find_state) if needs_ancestors(run, facts) else None
        return prepare(
            run,
            facts,
            guest=guest,
            known=self._known(facts),
            cancelled=above,
            position=len(self._feed_keys) + 1,
            at=self.now(),
            mint=self.minter.mint,
        )

    def _known(self, facts: Sequence[Fact]) -> Known | None:
        needed = needed_rows(facts)
        return None if needed is None else Known(self.requests, self.artifacts, self.sessions)

    def _cause_of(self, run_id: str) -> str:
        index = self.run(run_id)
        for place in reversed(range(len(index.types))):
            if not index.types[place].startswith("artifact."):
                return decode(self._at(index, place).body).event_id
        return ""

    def commit(self, before: RunState, prepared: Prepared, bodies: Sequence[Body]) -> None:
        """Keep prepared facts with their rows and bodies, and offer them to followers."""
        after, stored = prepared.after, prepared.stored
        # First the steps that can fail: a full spool leaves nothing behind.
        offsets = [self._spool.write(one.body) for one in stored]
        for body in bodies:
            if body.data is not None:
                self.keep_body(body.sha256, body.data)
        index = self.runs.get(after.run_id)
        if index is None:
            index = self.runs[after.run_id] = RunIndex(after)
            self._by_key.append(index)
        for one, offset, chain in zip(stored, offsets, prepared.chains, strict=True):
            index.add(one, offset, chain)
            self._feed_keys.append(after.key)
            self._feed_sequences.append(one.sequence)
        index.state = after
        changes = prepared.changes
        self.requests.update(changes.requests)
        self.artifacts.update(changes.artifacts)
        self.sessions.update(changes.sessions)
        if changes.ledger:
            self.ledger.setdefault(after.run_id, []).extend(changes.ledger)
        if changes.ledger or (after.fold.ended_at is not None and before.fold.ended_at is None):
            self.reservations.pop(after.run_id, None)
        if stored:
            self._wakeups += self.followers.offer({after.run_id: stored})
        if after.fold is not before.fold and after.fold.status == "queued" and not after.worker_id:
            self._wakeups += self.queue.ask()

    def take_wakeups(self) -> list[Wakeup]:
        wakeups, self._wakeups = self._wakeups, []
        return wakeups

    def _at(self, index: RunIndex, place: int) -> Stored:
        return Stored(
            index.positions[place],
            index.state.run_id,
            index.state.base_sequence + place,
            index.types[place],
            self._spool.read(index.offsets[place], index.sizes[place]),
        )

    def page(self, run_id: str, after: int, limit: int) -> list[Stored]:
        index = self.run(run_id)
        first = max(0, after + 1 - index.state.base_sequence)
        last = min(len(index.types), first + max(0, limit))
        return [self._at(index, place) for place in range(first, last)]

    def feed(self, after: int, limit: int) -> list[Stored]:
        page: list[Stored] = []
        for place in range(max(0, after), len(self._feed_keys)):
            if len(page) >= limit:
                break
            index = self._by_key[self._feed_keys[place]]
            within = self._feed_sequences[place] - index.state.base_sequence
            if within >= 0:  # else it was pruned
                page.append(self._at(index, within))
        return page

    def keep_body(self, digest: str, data: bytes) -> None:
        """Keep a body; one that exists already counts as new for `collect`."""
        self.keep_spooled(digest, iter((data,)))

    def keep_spooled(self, digest: str, chunks: Iterator[bytes]) -> None:
        known = self.bodies.get(digest)
        if known is None:
            offset = self._spool.size
            size = 0
            for chunk in chunks:
                self._spool.write(chunk)
                size += len(chunk)
            known = KeptBody(offset, size, 0)
        self.bodies[digest] = replace(known, added_at=time.time())

    def body(self, digest: str, offset: int, limit: int | None) -> bytes:
        kept = self.bodies.get(digest)
        if kept is None:
            raise NotFound(f"there is no body {digest}")
        rest = max(0, kept.size - offset)
        data = self._spool.read(kept.offset + offset, rest if limit is None else min(limit, rest))
        if len(data) == kept.size and sha256(data).hexdigest() != digest:
            raise StoreDamaged(f"the body {digest} is not what was written")
        return data

    def remove(self, cut: Cut, state: bytes | None) -> None:
        """Remove a folded prefix and keep its base."""
        index = self.run(cut.run_id)
        cut.check(index.state, index.chain(cut.before - 1))
        index.forget(cut.before - cut.first)
        index.base = KeptBase(cut.before, cut.chain, cut.rows, state)
        index.state = replace(index.state, base_sequence=cut.before)
        self.released.update(cut.artifact_ids)

    def collect(self, grace_s: float) -> int:
        """Delete the bodies that no artifact needs. Returns how many."""
        limit = time.time() - grace_s
        needed = {row.sha256 for key, row in self.artifacts.items() if key not in self.released}
        unneeded = [
            digest
            for digest, kept in self.bodies.items()
            if digest not in needed and kept.added_at <= limit
        ]
        for digest in unneeded:
            del self.bodies[digest]
        return len(unneeded)
