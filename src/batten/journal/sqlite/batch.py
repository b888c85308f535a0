"""One transaction under construction: the writes of all appends of a group.

Appends only stage here, after every check, so that a failed one leaves nothing behind and does
not affect the others of its group. Used by the writer's thread alone.
"""

import time
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from batten.contract.envelope import Envelope, decode
from batten.contract.errors import NotFound, StoreDamaged
from batten.contract.facts import TERMINAL, Fact
from batten.contract.ids import Minter
from batten.journal.appending import Clock, Prepared, RunState
from batten.journal.budget import Spend
from batten.journal.contract import (
    ArtifactRow,
    Body,
    LedgerRow,
    RequestRow,
    SessionRow,
    Stored,
)
from batten.journal.leasing import gives_work, waits_for_worker
from batten.journal.needed import needed_rows
from batten.journal.rows import Changes, Known, RunFold
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.reader import (
    RESERVED,
    SPENT,
    TABLE_OF,
    columns,
    make,
    spend_of,
    values_of,
)

Row = TypeVar("Row", bound=Struct)

_PLACE = (
    "key",
    "run_id",
    "task_id",
    "session_id",
    "next_sequence",
    "head",
    "base_sequence",
    "fence",
    "worker_id",
    "lease_until",
    "lease_boot_ms",
)
_FOLD = RunFold.__struct_fields__
_KNOWN_RUNS = 4096

_SELECT_RUN = f"SELECT {', '.join(_PLACE + _FOLD)} FROM runs WHERE run_id = ?"
_INSERT_RUN = (
    f"INSERT INTO runs ({', '.join(_PLACE + _FOLD)})"
    f" VALUES ({', '.join('?' * len(_PLACE + _FOLD))})"
)
_SELECT_CAUSE = (
    "SELECT body FROM events WHERE run = ? AND type NOT LIKE 'artifact.%'"
    " ORDER BY sequence DESC LIMIT 1"
)
_SELECT_FIRST = "SELECT body FROM events WHERE run = ? AND type = ? ORDER BY sequence LIMIT 1"
_SELECT_NEXT = (
    "SELECT 1 + max(position, coalesce((SELECT max(position) FROM events), 0)),"
    " 1 + max(key, coalesce((SELECT max(key) FROM runs), 0)) FROM floors"
)
INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"
_UPDATE_TIP = "UPDATE runs SET next_sequence = ?, head = ? WHERE key = ?"
_UPDATE_FOLD = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _FOLD)} WHERE key = ?"
INSERT_BODY = (
    "INSERT INTO bodies (sha256, size, added_at, data) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (sha256) DO UPDATE SET added_at = excluded.added_at"
)

EventRow = tuple[int, int, int, str, int | None, bytes, bytes]


def insert_run(db: Database, run: RunState) -> None:
    place = [getattr(run, name) for name in _PLACE]
    db.execute(_INSERT_RUN, (*place, *astuple(run.fold)))


class Batch:
    """The open `Transaction`, and the state cached between transactions."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.minter = Minter()
        self.now = Clock().now
        self.next_position = 0
        self.next_key = 0
        self._others_wrote = False
        self._queued = False
        self._runs: dict[str, RunState] = {}
        self._version = -1
        self._staged: dict[str, list[Stored]] = {}
        self._grown: dict[str, list[Stored]] = {}
        self._start_over()

    def _start_over(self) -> None:
        self._events: list[EventRow] = []
        self._new: dict[int, RunState] = {}
        self._tips: dict[int, tuple[int, bytes, int]] = {}
        self._folds: dict[int, RunFold] = {}
        self._rows = Changes()
        self._bodies: list[Body] = []
        self._settled: list[str] = []

    def begin(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        version = self.db.execute("PRAGMA data_version").get
        if version == self._version:
            return
        self._others_wrote = True
        self._version = version
        self._runs.clear()
        self.next_position, self.next_key = self.db.execute(_SELECT_NEXT).get

    def commit(self) -> None:
        self.flush()
        self.db.execute("COMMIT")
        staged, self._staged = self._staged, {}
        for run_id, facts in staged.items():
            self._grown.setdefault(run_id, []).extend(facts)

    def rollback(self) -> None:
        """Undo everything, and drop the cache: it may describe facts that were not written."""
        self._start_over()
        self._staged.clear()
        self._runs.clear()
        self._version = -1
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def take_grown(self) -> dict[str, list[Stored]] | None:
        """The facts committed since the last call, by run; None if other processes wrote too."""
        grown, self._grown = self._grown, {}
        if self._others_wrote:
            self._others_wrote = False
            return None
        return grown

    def take_queued(self) -> bool:
        """Whether a run was queued since the last call."""
        queued, self._queued = self._queued, False
        return queued

    def run(self, run_id: str) -> RunState:
        known = self._runs.get(run_id) or self.find_run(run_id)
        if known is None:
            raise NotFound(f"there is no run {run_id}")
        return known

    def find_run(self, run_id: str) -> RunState | None:
        known = self._runs.get(run_id)
        if known is not None:
            return known
        values = self.db.execute(_SELECT_RUN, (run_id,)).fetchone()
        if values is None:
            return None
        place = dict(zip(_PLACE, values, strict=False))
        folded = dict(zip(_FOLD, values[len(_PLACE) :], strict=True))
        try:
            fold = msgspec.convert(folded, RunFold, strict=False)
            state = msgspec.convert({**place, "fold": fold}, RunState, strict=True)
        except msgspec.ValidationError as error:
            raise StoreDamaged(f"the stored row of run {run_id} cannot be read: {error}") from error
        return self._know(state)

    def unfinished_of(self, session_id: str | None) -> str | None:
        self.flush()
        found: str | None = self.db.execute(
            "SELECT run_id FROM runs WHERE session_id = ? AND ended_at IS NULL"
            " AND kind != 'session' AND parent_run_id IS NULL LIMIT 1",
            (session_id,),
        ).get
        return found

    def cause_of(self, run: RunState) -> str:
        self.flush()
        body = self.db.execute(_SELECT_CAUSE, (run.key,)).get
        return "" if body is None else decode(body).event_id

    def first(self, run: RunState, type_: str) -> Envelope | None:
        self.flush()
        body = self.db.execute(_SELECT_FIRST, (run.key, type_)).get
        return None if body is None else decode(body)

    def _know(self, run: RunState) -> RunState:
        if len(self._runs) >= _KNOWN_RUNS:
            self._runs.clear()
        self._runs[run.run_id] = run
        return run

    def known(self, facts: Sequence[Fact], session_id: str | None) -> Known | None:
        needed = needed_rows(facts)
        if needed is None:
            return None
        known, staged = Known(), self._rows
        for request_id in needed.requests:
            request = staged.request_row(request_id) or self._row(RequestRow, request_id)
            if request is not None:
                known.requests[request_id] = request
        for artifact_id in needed.artifacts:
            artifact = staged.artifact_row(artifact_id) or self._row(ArtifactRow, artifact_id)
            if artifact is not None:
                known.artifacts[artifact_id] = artifact
        if needed.session and session_id is not None:
            session = staged.session_row(session_id) or self._row(SessionRow, session_id)
            if session is not None:
                known.sessions[session_id] = session
        return known

    def artifacts_of(self, run_id: str) -> list[ArtifactRow]:
        self.flush()
        sql = f"SELECT {columns(ArtifactRow)} FROM artifacts WHERE run_id = ?"
        return [make(ArtifactRow, row) for row in self.db.execute(sql, (run_id,)).fetchall()]

    def _row(self, type_: type[Row], value: str) -> Row | None:
        key = type_.__struct_fields__[0]
        sql = f"SELECT {columns(type_)} FROM {TABLE_OF[type_]} WHERE {key} = ?"
        values = self.db.execute(sql, (value,)).fetchone()
        return None if values is None else make(type_, values)

    def stage(
        self, before: RunState, prepared: Prepared, bodies: Sequence[Body], *, is_new: bool = False
    ) -> None:
        after, stored, changes = prepared.after, prepared.stored, prepared.changes
        key = after.key
        if is_new:
            self.next_key += 1
        self._events += [
            (
                one.position,
                key,
                one.sequence,
                one.type,
                1 if one.type in TERMINAL else None,
                one.body,
                chain,
            )
            for one, chain in zip(stored, prepared.chains, strict=True)
        ]
        self.next_position += len(stored)
        if is_new or key in self._new:
            self._new[key] = after
        else:
            self._tips[key] = (after.next_sequence, after.head, key)
            if after.fold is not before.fold:
                self._folds[key] = after.fold
        if gives_work(before, prepared):
            self._queued = True
        self._rows.requests.update(changes.requests)
        self._rows.artifacts.update(changes.artifacts)
        self._rows.sessions.update(changes.sessions)
        self._rows.ledger += changes.ledger
        self._bodies += bodies
        if changes.ledger or (after.fold.ended_at is not None and before.fold.ended_at is None):
            self._settled.append(after.run_id)
        self._staged.setdefault(after.run_id, []).extend(stored)
        self._know(after)

    def forget(self, run_ids: Sequence[str]) -> None:
        """Drop deleted runs, and keep their keys and positions from being used again."""
        for run_id in run_ids:
            self._runs.pop(run_id, None)
        self.db.execute(
            "UPDATE floors SET position = ?, key = ?", (self.next_position - 1, self.next_key - 1)
        )

    def lease(self, run: RunState) -> None:
        self.flush()
        self.db.execute(
            "UPDATE runs SET fence = ?, worker_id = ?, lease_until = ?, lease_boot_ms = ?"
            " WHERE key = ?",
            (run.fence, run.worker_id, run.lease_until, run.lease_boot_ms, run.key),
        )
        if waits_for_worker(run):
            self._queued = True
        self._know(run)

    def spend(self, task_id: str, but_run: str) -> Spend:
        self.flush()
        spent = self.db.execute(SPENT, (task_id,)).fetchall()[0]
        return spend_of(spent, self.db.execute(RESERVED, (task_id, but_run)).get)

    def reserving(self, task_id: str) -> list[str]:
        self.flush()
        sql = "SELECT run_id FROM reservations WHERE task_id = ?"
        return [run_id for (run_id,) in self.db.execute(sql, (task_id,)).fetchall()]

    def reserve(self, task_id: str, run_id: str, micros_usd: int) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?)", (run_id, task_id, micros_usd)
        )

    def unreserve(self, run_id: str) -> None:
        self.flush()
        self.db.execute("DELETE FROM reservations WHERE run_id = ?", (run_id,))

    def rebase(self, run: RunState) -> None:
        """Write the run's first stored sequence."""
        self.flush()
        self.db.execute(
            "UPDATE runs SET base_sequence = ? WHERE key = ?", (run.base_sequence, run.key)
        )
        self._know(run)

    def flush(self) -> None:
        """Write the staged rows, so that a statement can see them. The transaction stays open."""
        db = self.db
        for run in self._new.values():
            insert_run(db, run)
        if self._events:
            db.executemany(INSERT_EVENT, self._events)
        if self._tips:
            db.executemany(_UPDATE_TIP, list(self._tips.values()))
        for key, folded in self._folds.items():
            db.execute(_UPDATE_FOLD, (*astuple(folded), key))
        self._flush_rows()
        self._start_over()

    def _flush_rows(self) -> None:
        rows = self._rows
        for changed in (rows.requests, rows.artifacts, rows.sessions):
            for row in changed.values():
                self._replace(row)
        for entry in rows.ledger:
            self._replace(entry)
        if self._bodies:
            now = int(time.time())
            given = [(body.sha256, body.size, now, body.data) for body in self._bodies]
            self.db.executemany(INSERT_BODY, given)
        for run_id in self._settled:
            self.db.execute("DELETE FROM reservations WHERE run_id = ?", (run_id,))

    def _replace(self, row: RequestRow | ArtifactRow | SessionRow | LedgerRow) -> None:
        self.db.execute(_replacing(type(row)), values_of(row))


@cache
def _replacing(type_: type[Struct]) -> str:
    """Not `OR REPLACE`: that would reset the columns that are not part of the row."""
    names = type_.__struct_fields__
    return (
        f"INSERT INTO {TABLE_OF[type_]} ({', '.join(names)})"
        f" VALUES ({', '.join('?' * len(names))}) ON CONFLICT DO UPDATE"
        f" SET {', '.join(f'{name} = excluded.{name}' for name in names)}"
    )
