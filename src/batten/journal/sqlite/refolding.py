"""Folds the stored facts of a run again, to compare the result with its stored rows.

Leases, fences and reservations are not folded from facts, so they are not compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from batten.contract.envelope import decode
from batten.contract.facts import RunQueued, SessionClosed, SessionConfigured, SessionOpened
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import ArtifactRow, LedgerRow, RequestRow, SessionRow
from batten.journal.rows import STEPS, Base, Changes, FactContext, RunFold, fold
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.reader import TABLE_OF, columns, values_of

LEFT_OUT = 2
"""`released` of an artifact that was imported without its body."""

STEP_TYPES = frozenset(fact.TYPE for fact in STEPS)

_FOLD = RunFold.__struct_fields__
_SELECT_FOLD = f"SELECT {', '.join(_FOLD)} FROM runs WHERE key = ?"
_TOUCHED = ("last_run_id", "updated_at")
"""Columns of a session's row that its runs change; only its own stream changes the rest."""

_TOUCHES = (
    "SELECT position, body FROM events WHERE run = ? AND type IN ("
    f"'{SessionOpened.TYPE}', '{SessionConfigured.TYPE}', '{SessionClosed.TYPE}')"
    " UNION ALL SELECT position, body FROM runs JOIN events ON run = key AND sequence <= 1"
    f" WHERE session_id = ? AND type = '{RunQueued.TYPE}' ORDER BY position"
)
_ORPHANS = "SELECT {key} FROM {table} WHERE run_id NOT IN (SELECT run_id FROM runs)"

_decode_base = msgspec.json.Decoder(Base)


class Run(Struct, frozen=True):
    """The ids of a run, and its first stored sequence."""

    key: int
    run_id: str
    task_id: str | None
    session_id: str | None
    base: int


class Refolded:
    """The rows folded from a run's facts, one fact after the other."""

    def __init__(self, db: Database, run: Run) -> None:
        self._db = db
        self._run = run
        self._stored = db.execute(_SELECT_FOLD, (run.key,)).fetchone()
        self._pruned: frozenset[str] = frozenset()
        if run.base:
            rows = db.execute("SELECT rows FROM bases WHERE run = ?", (run.key,)).get
            base = _decode_base.decode(rows)
            self._fold, self._changes = base.fold, base.changes()
            self._pruned = frozenset(self._changes.artifacts).difference(base.kept)
        else:
            # A run without facts has the values it was created with.
            known = dict(zip(_FOLD, self._stored, strict=True))
            self._fold = RunFold(kind=known["kind"], created_at=known["created_at"])
            self._changes = Changes()

    def take(self, sequence: int, body: bytes) -> None:
        envelope = decode(body)
        run = self._run
        place = FactContext(run.run_id, run.task_id, run.session_id, sequence, envelope.occurred_at)
        self._fold = fold(self._fold, self._changes, place, envelope.data)

    def differences(self) -> Iterator[str]:
        """Differences of the stored rows, by row and column."""
        run_id, changes = self._run.run_id, self._changes
        yield from _compared(f"run {run_id}", _FOLD, self._stored, astuple(self._fold))
        yield from self._rows("request", RequestRow, "request_id", changes.requests)
        yield from self._rows("artifact", ArtifactRow, "artifact_id", changes.artifacts)
        ledger = {row.sequence: row for row in changes.ledger}
        yield from self._rows("ledger entry", LedgerRow, "sequence", ledger)
        yield from self._released()
        yield from self._session()

    def _rows(
        self, noun: str, type_: type[Struct], key: str, folded: Mapping[Any, Struct]
    ) -> Iterator[str]:
        names = type_.__struct_fields__
        found = self._db.execute(
            f"SELECT {columns(type_)} FROM {TABLE_OF[type_]} WHERE run_id = ?", (self._run.run_id,)
        ).fetchall()
        place = names.index(key)
        stored = {values[place]: values for values in found}
        for name, row in folded.items():
            if name not in stored:
                yield f"the row of {noun} {name} is missing"
            else:
                yield from _compared(f"{noun} {name}", names, stored[name], values_of(row))
        for name in stored:
            if name not in folded:
                yield f"{noun} {name} has a row, but no fact made it"

    def _released(self) -> Iterator[str]:
        """Whether exactly the artifacts whose creation was pruned have released their bodies.

        A pin keeps a body. Others may lack a sealed body because the bundle they came in left it
        out.
        """
        found = self._db.execute(
            "SELECT artifact_id, released FROM artifacts WHERE run_id = ?", (self._run.run_id,)
        )
        for artifact_id, released in found.fetchall():
            if released != (artifact_id in self._pruned) and released != LEFT_OUT:
                yield f"`released` of artifact {artifact_id} is {released}"

    def _session(self) -> Iterator[str]:
        for session_id, row in self._changes.sessions.items():
            sql = f"SELECT {columns(SessionRow)} FROM sessions WHERE session_id = ?"
            stored = self._db.execute(sql, (session_id,)).fetchone()
            if stored is None:
                yield f"the row of session {session_id} is missing"
            else:
                names = SessionRow.__struct_fields__
                for name, is_, was in zip(names, stored, values_of(row), strict=True):
                    if name not in _TOUCHED and is_ != was:
                        yield _said(f"session {session_id}", name, is_, was)


def sessions_touched(db: Database) -> Iterator[str]:
    """Differences in the columns that any run of a session writes; skipped if one was pruned."""
    for session_id, *stored in db.execute(
        f"SELECT session_id, {', '.join(_TOUCHED)} FROM sessions"
    ).fetchall():
        key = db.execute(
            "SELECT key FROM runs WHERE run_id = ?", (session_stream(SessionId(session_id)),)
        ).get
        if key is None:
            yield f"session {session_id} has a row, but no facts"
            continue
        pruned = "SELECT count(*) FROM runs WHERE session_id = ? AND base_sequence > 0"
        if db.execute(pruned, (session_id,)).get:
            continue
        folded = _touches(db.execute(_TOUCHES, (key, session_id)).fetchall())
        yield from _compared(f"session {session_id}", _TOUCHED, stored, folded)


def _touches(found: list[tuple[int, bytes]]) -> tuple[str | None, str]:
    last_run_id, updated_at = None, ""
    for _, body in found:
        envelope = decode(body)
        if isinstance(envelope.data, RunQueued):
            if not updated_at or envelope.data.parent_run_id is not msgspec.UNSET:
                continue  # before the session was opened, or a child run
            last_run_id = envelope.run_id
        updated_at = envelope.occurred_at
    return last_run_id, updated_at


def orphans(db: Database) -> Iterator[str]:
    """Rows of runs that are not stored."""
    for noun, table, key in (
        ("request", "requests", "request_id"),
        ("artifact", "artifacts", "artifact_id"),
        ("ledger entry", "ledger", "run_id || ' ' || sequence"),
    ):
        for (name,) in db.execute(_ORPHANS.format(key=key, table=table)).fetchall():
            yield f"{noun} {name} has a row, but its run is not stored"


def _compared(whose: str, names: tuple[str, ...], stored: Any, folded: Any) -> Iterator[str]:
    if tuple(stored) == tuple(folded):
        return
    for name, is_, was in zip(names, stored, folded, strict=True):
        if is_ != was:
            yield _said(whose, name, is_, was)


def _said(whose: str, name: str, is_: object, was: object) -> str:
    return f"`{name}` of {whose} is {_shown(is_)}, but its facts say {_shown(was)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
