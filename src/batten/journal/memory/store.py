"""The state of a memory journal: rows, and an index of facts and bodies in a spool.

A fact takes about eighty bytes here; its envelope is in the spool. The space of removed facts
is freed when the journal closes. The caller of each method holds the mutex.
"""

import threading
from array import array
from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.envelope import Envelope, decode, timestamp
from batten.contract.errors import NotFound, StoreDamaged
from batten.contract.facts import Fact, GapEventsPruned
from batten.contract.ids import Minter
from batten.contract.outcomes import RunStatus
from batten.journal.appending import Clock, Prepared, RunState
from batten.journal.budget import Spend
from batten.journal.contract import (
    ArtifactRow,
    Body,
    LedgerRow,
    RequestRow,
    RunRow,
    SessionRow,
    Stored,
)
from batten.journal.filters import FeedFilters
from batten.journal.followers import Followers, Wakeup
from batten.journal.handle import append
from batten.journal.leasing import gives_work, waits_for_worker
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


class MemoryStore:
    """The state that the handles of one journal share."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.version = 0
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
        self.past_usage: list[tuple[RunRow, list[LedgerRow]]] = []
        """Pruned runs with their model calls, for sums."""
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

    @property
    def next_position(self) -> int:
        return len(self._feed_keys) + 1

    def index(self, run_id: str) -> RunIndex:
        run = self.runs.get(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        return run

    def run(self, run_id: str) -> RunState:
        return self.index(run_id).state

    def find_run(self, run_id: str) -> RunState | None:
        run = self.runs.get(run_id)
        return None if run is None else run.state

    def unfinished_of(self, session_id: str | None) -> str | None:
        for run_id, index in self.runs.items():
            run = index.state.fold
            ours = index.state.session_id == session_id and run.parent_run_id is None
            if ours and run.ended_at is None and run.kind != "session":
                return run_id
        return None

    def known(self, facts: Sequence[Fact], session_id: str | None) -> Known | None:
        needed = needed_rows(facts)
        return None if needed is None else Known(self.requests, self.artifacts, self.sessions)

    def cause_of(self, run: RunState) -> str:
        index = self.index(run.run_id)
        for place in reversed(range(len(index.types))):
            if not index.types[place].startswith("artifact."):
                return decode(self._at(index, place).body).event_id
        return ""

    def first(self, run: RunState, type_: str) -> Envelope | None:
        index = self.index(run.run_id)
        if type_ not in index.types:
            return None
        return decode(self._at(index, index.types.index(type_)).body)

    def lease(self, run: RunState) -> None:
        self.index(run.run_id).state = run
        if waits_for_worker(run):
            self._wakeups += self.queue.ask()

    def artifacts_of(self, run_id: str) -> list[ArtifactRow]:
        return [row for row in self.artifacts.values() if row.run_id == run_id]

    def spend(self, task_id: str, but_run: str) -> Spend:
        calls = [row for rows in self.ledger.values() for row in rows if row.task_id == task_id]
        held = [
            micros
            for run_id, (task, micros) in self.reservations.items()
            if task == task_id and run_id != but_run
        ]
        return Spend(
            sum(row.input_tokens for row in calls),
            sum(row.output_tokens for row in calls),
            sum(row.cost_micros_usd or 0 for row in calls),
            any(row.cost_micros_usd is None for row in calls),
            sum(held),
        )

    def reserving(self, task_id: str) -> list[str]:
        return [run_id for run_id, (task, _) in self.reservations.items() if task == task_id]

    def reserve(self, task_id: str, run_id: str, micros_usd: int) -> None:
        self.reservations[run_id] = (task_id, micros_usd)

    def unreserve(self, run_id: str) -> None:
        self.reservations.pop(run_id, None)

    def stage(
        self, before: RunState, prepared: Prepared, bodies: Sequence[Body], *, is_new: bool = False
    ) -> None:
        """Keep prepared facts with their rows and bodies, and offer them to followers."""
        after, stored = prepared.after, prepared.stored
        # First the steps that can fail: a full spool leaves nothing behind.
        offsets = [self._spool.write(one.body) for one in stored]
        for body in bodies:
            if body.data is not None:
                self.keep_body(body.sha256, body.data)
        if is_new:
            self.runs[after.run_id] = RunIndex(after)
            self._by_key.append(self.runs[after.run_id])
        index = self.runs[after.run_id]
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
            self.unreserve(after.run_id)
        if stored:
            self._wakeups += self.followers.offer({after.run_id: stored})
        if gives_work(before, prepared):
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
        index = self.index(run_id)
        first = max(0, after + 1 - index.state.base_sequence)
        last = min(len(index.types), first + max(0, limit))
        return [self._at(index, place) for place in range(first, last)]

    def feed(self, after: int, limit: int, filters: FeedFilters) -> list[Stored]:
        types, task_id, until = filters.get("types"), filters.get("task_id"), filters.get("until")
        last = len(self._feed_keys) if until is None else min(until, len(self._feed_keys))
        page: list[Stored] = []
        for place in range(max(0, after), last):
            if len(page) >= limit:
                break
            index = self._by_key[self._feed_keys[place]]
            within = self._feed_sequences[place] - index.state.base_sequence
            if within < 0 or task_id not in (None, index.state.task_id):  # < 0: it was pruned
                continue
            stored = self._at(index, within)
            if types is None or stored.type in types:
                page.append(stored)
        return page

    def status_of(self, session: SessionRow) -> RunStatus:
        """That of the session's last run; queued if it has none."""
        run = self.find_run(session.last_run_id or "")
        return "queued" if run is None else run.fold.status

    def keep_body(self, digest: str, data: bytes) -> None:
        self.keep_spooled(digest, iter((data,)))

    def keep_spooled(self, digest: str, chunks: Iterator[bytes]) -> None:
        if digest not in self.bodies:
            offset = self._spool.size
            for chunk in chunks:
                self._spool.write(chunk)
            self.bodies[digest] = KeptBody(offset, self._spool.size - offset)

    def body(self, digest: str, offset: int, limit: int | None) -> bytes:
        kept = self.bodies.get(digest)
        if kept is None:
            raise NotFound(f"there is no body {digest}")
        rest = max(0, kept.size - offset)
        data = self._spool.read(kept.offset + offset, rest if limit is None else min(limit, rest))
        if len(data) == kept.size and sha256(data).hexdigest() != digest:
            raise StoreDamaged(f"the body {digest} is not what was written")
        return data

    def remove(self, cut: Cut, reason: str, state: bytes | None) -> Stored:
        """Remove a folded prefix, keep its base and append the marker."""
        index = self.index(cut.run_id)
        cut.check(index.state, index.chain(cut.before - 1))
        cut = cut.spare(self.artifacts_of(cut.run_id))
        index.forget(cut.before - cut.first)
        index.base = KeptBase(cut.before, state, cut.rows.remains, cut.chain, cut.rows)
        index.state = replace(index.state, base_sequence=cut.before)
        self.released.update(cut.artifact_ids)
        marker = GapEventsPruned(cut.first, cut.before - 1, timestamp(), reason)
        [stored] = append(self, cut.run_id, (marker,), None)
        return stored
