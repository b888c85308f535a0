"""Reads pages and rows: short statements on a connection that never writes."""

import threading
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from batten.contract.errors import NotFound, StoreDamaged
from batten.contract.facts.artifact import ArtifactKind
from batten.journal.budget import Spend
from batten.journal.contract import (
    ArtifactRow,
    IdKind,
    LedgerRow,
    RequestRow,
    RunRow,
    SessionRow,
    Stored,
)
from batten.journal.filters import ArtifactFilters, FeedFilters, RunFilters, SessionFilters
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.faults import FAULTS, faults_typed, typed
from batten.journal.sqlite.schema import open_for_reading

Row = TypeVar("Row", bound=Struct)

_JSON = {"settings", "resolvers", "answer", "metadata"}
_POSITION = "SELECT max(position, coalesce((SELECT max(position) FROM events), 0)) FROM floors"
_PAGE = (
    "SELECT position, sequence, type, body FROM events"
    " WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
_FEED = (
    "SELECT position, run, sequence, type, body FROM events"
    " WHERE {where} AND run NOT IN (SELECT run FROM removals) ORDER BY position LIMIT ?"
)
_FEED_OF_TASK = (
    "SELECT position, run, sequence, type, body FROM events WHERE position IN (SELECT position"
    " FROM events INDEXED BY events_place WHERE run IN (SELECT key FROM runs WHERE task_id = ?)"
    " AND {where} AND run NOT IN (SELECT run FROM removals) ORDER BY position LIMIT ?)"
    " ORDER BY position"
)


def columns(row: type[Struct]) -> str:
    return ", ".join(row.__struct_fields__)


def make(type_: type[Row], values: tuple[Any, ...]) -> Row:
    """A row from its columns, validated: values of a damaged file go no further."""
    try:
        given = dict(zip(type_.__struct_fields__, values, strict=True))
        for name in _json_columns(type_):
            given[name] = msgspec.json.decode(given[name])
        return msgspec.convert(given, type_, strict=False)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise StoreDamaged(f"a stored row of {type_.__name__} cannot be read: {error}") from error


@cache
def _json_columns(type_: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in type_.__struct_fields__ if name in _JSON)


_OF_SURFACE = (
    " AND kind != 'session' AND parent_run_id IS NULL"
    " AND (SELECT surface FROM sessions WHERE sessions.session_id = runs.session_id) = ?"
)
_OF_LAST_RUN = {
    "status = ?": "coalesce((SELECT status FROM runs WHERE run_id = last_run_id), 'queued') = ?"
}
_OF_RUNS = {
    f"{name} = ?": f"run_id IN (SELECT run_id FROM runs WHERE {name} = ?)"
    for name in ("task_id", "session_id")
}


def _conditions(
    time_column: str, filters: RunFilters | SessionFilters | ArtifactFilters
) -> tuple[list[str], list[Any]]:
    """SQL conditions and bindings for these filters."""
    where: list[str] = []
    bindings: list[Any] = []
    spelled = {"since": f"{time_column} >= ?", "until": f"{time_column} < ?"}
    for name, value in filters.items():
        if value is not None:
            where.append(spelled.get(name, f"{name} = ?"))
            bindings.append(value)
    return where, bindings


def values_of(row: Struct) -> tuple[Any, ...]:
    return tuple(
        msgspec.json.encode(value).decode() if name in _JSON else value
        for name, value in zip(row.__struct_fields__, msgspec.structs.astuple(row), strict=True)
    )


class Reader:
    """One connection and its lock; every method fetches its whole result before it returns."""

    def __init__(self, path: str, home: str, patience_s: float) -> None:
        self.path = path
        self._home = home
        self._patience_s = patience_s
        self._mutex = threading.Lock()
        self._db: Database | None = None
        self._keys: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def connection(self) -> Database:
        if self._db is None:
            with faults_typed(self._home):
                self._db = open_for_reading(self.path, self._patience_s)
        return self._db

    def all(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Every row of a short result; a half-read cursor would keep the log from shrinking."""
        with self._mutex:
            db = self._db or self.connection()
            try:  # not `faults_typed`: a block of its own would cost as much as a small result
                return db.execute(sql, bindings).fetchall()
            except FAULTS as error:
                raise typed(error, self._home, db.system_errno) from error

    def close(self) -> None:
        with self._mutex:
            if self._db is not None:
                self._db.close()
                self._db = None

    def version(self) -> int:
        """It counts the commits of other connections; this one makes none."""
        return int(self.all("PRAGMA data_version")[0][0])

    def position(self) -> int:
        """Positions of deleted runs count: they are not used again."""
        return int(self.all(_POSITION)[0][0])

    def page(self, run_id: str, after: int, limit: int) -> list[Stored]:
        key = self._keys.get(run_id) or self._key(run_id)
        rows = self.all(_PAGE, (key, after, limit))
        # It may have been deleted meanwhile, and imported again under another key.
        if not rows and (present := self._key(run_id)) != key:
            rows = self.all(_PAGE, (present, after, limit))
        return [Stored(place, run_id, number, type_, body) for place, number, type_, body in rows]

    def feed(self, after: int, limit: int, filters: FeedFilters) -> list[Stored]:
        names = self._names
        page: list[Stored] = []
        for position, key, sequence, type_, body in self._feed(after, limit, filters):
            name = names.get(key) or self._name(key)
            page.append(Stored(position, name, sequence, type_, body))
        return page

    def _feed(self, after: int, limit: int, filters: FeedFilters) -> list[tuple[Any, ...]]:
        types, task_id, until = filters.get("types"), filters.get("task_id"), filters.get("until")
        where = "position > ?"
        bindings: list[int | str] = [after]
        if until is not None:
            where += " AND position <= ?"
            bindings.append(until)
        if types is not None:
            where += f" AND type IN ({', '.join('?' * len(types))})"
            bindings += sorted(types)
        if task_id is None:
            return self.all(_FEED.format(where=where), (*bindings, limit))
        # From the runs of the task, by index; the facts themselves are read for the page only.
        return self.all(_FEED_OF_TASK.format(where=where), (task_id, *bindings, limit))

    def _key(self, run_id: str) -> int:
        rows = self.all("SELECT key FROM runs WHERE run_id = ?", (run_id,))
        if not rows:
            raise NotFound(f"there is no run {run_id}")
        self._remember(rows[0][0], run_id)
        return int(rows[0][0])

    def _name(self, key: int) -> str:
        rows = self.all("SELECT run_id FROM runs WHERE key = ?", (key,))
        if not rows:
            raise StoreDamaged(f"facts of run number {key} are stored, but not the run")
        self._remember(key, rows[0][0])
        return str(rows[0][0])

    def _remember(self, key: int, run_id: str) -> None:
        if len(self._keys) >= 4096:
            self._keys.clear()
            self._names.clear()
        self._keys[run_id] = key
        self._names[key] = run_id

    def _rows(self, type_: type[Row], rest: str, bindings: tuple[Any, ...]) -> list[Row]:
        table = TABLE_OF[type_]
        found = self.all(f"SELECT {columns(type_)} FROM {table} {rest}", bindings)
        return [make(type_, values) for values in found]

    def run(self, run_id: str) -> RunRow | None:
        return next(iter(self._rows(RunRow, "WHERE run_id = ?", (run_id,))), None)

    def length(self, run_id: str) -> int:
        found = self.all("SELECT next_sequence FROM runs WHERE run_id = ?", (run_id,))
        return int(found[0][0]) if found else 0

    def runs(self, after: str | None, limit: int, filters: RunFilters) -> list[RunRow]:
        where, bindings = _conditions("created_at", filters)
        where.append("kind != 'session'")
        if after is not None:
            where.append("key < (SELECT key FROM runs WHERE run_id = ?)")
            bindings.append(after)
        rest = f"WHERE {' AND '.join(where)} ORDER BY key DESC LIMIT ?"
        return self._rows(RunRow, rest, (*bindings, limit))

    def queued(self, limit: int) -> list[RunRow]:
        rest = (
            "WHERE status = 'queued' AND worker_id = '' AND kind != 'session'"
            " AND kind != 'coordination' ORDER BY priority DESC, key LIMIT ?"
        )
        return self._rows(RunRow, rest, (limit,))

    def awaited(self, limit: int) -> list[RunRow]:
        rest = (
            "WHERE status = 'queued' AND worker_id = '' AND kind = 'coordination'"
            " ORDER BY key LIMIT ?"
        )
        return self._rows(RunRow, rest, (limit,))

    def held(self, kind: str | None, surface: str | None, limit: int) -> list[RunRow]:
        where = "worker_id != '' AND ended_at IS NULL"
        bindings: list[str] = []
        if kind is not None:
            where += " AND kind = ?"
            bindings.append(kind)
        if surface is not None:
            where += _OF_SURFACE
            bindings.append(surface)
        rest = f"WHERE {where} ORDER BY key LIMIT ?"
        return self._rows(RunRow, rest, (*bindings, limit))

    def session(self, session_id: str) -> SessionRow | None:
        return next(iter(self._rows(SessionRow, "WHERE session_id = ?", (session_id,))), None)

    def sessions(self, after: str | None, limit: int, filters: SessionFilters) -> list[SessionRow]:
        where, bindings = _conditions("updated_at", filters)
        where = [_OF_LAST_RUN.get(condition, condition) for condition in where]
        if after is not None:
            where.append("(updated_at, session_id) < (?, ?)")
            bindings += after.split(" ", 1)
        rest = f"WHERE {' AND '.join(where or ['1'])}"
        rest += " ORDER BY updated_at DESC, session_id DESC LIMIT ?"
        return self._rows(SessionRow, rest, (*bindings, limit))

    def request(self, request_id: str) -> RequestRow | None:
        return next(iter(self._rows(RequestRow, "WHERE request_id = ?", (request_id,))), None)

    def requests(self, run_id: str) -> list[RequestRow]:
        return self._rows(RequestRow, "WHERE run_id = ? ORDER BY request_id", (run_id,))

    def pending_requests(self, due_by: str | None, limit: int) -> list[RequestRow]:
        rest = (
            "JOIN (SELECT run_id AS id, key FROM runs WHERE ended_at IS NULL) ON id = run_id"
            " WHERE status = 'pending' AND (?1 IS NULL OR deadline_at <= ?1)"
            " ORDER BY key DESC, request_id LIMIT ?2"
        )
        return self._rows(RequestRow, rest, (due_by, limit))

    def ids(self, kind: IdKind, first: str, last: str, limit: int) -> list[str]:
        table = "run" if kind == "stream" else kind
        column, only = f"{table}_id", " AND kind != 'session'" if kind == "run" else ""
        found = self.all(
            f"SELECT {column} FROM {table}s WHERE {column} BETWEEN ? AND ?{only}"
            f" ORDER BY {column} LIMIT ?",
            (first, last, limit),
        )
        return [str(name) for (name,) in found]

    def streams(self) -> int:
        return int(self.all("SELECT count(*) FROM runs")[0][0])

    def artifact(self, artifact_id: str) -> ArtifactRow | None:
        return next(iter(self._rows(ArtifactRow, "WHERE artifact_id = ?", (artifact_id,))), None)

    def artifacts(self, run_id: str, kind: ArtifactKind | None) -> list[ArtifactRow]:
        order = "ORDER BY created_at, artifact_id"
        if kind is None:
            return self._rows(ArtifactRow, f"WHERE run_id = ? {order}", (run_id,))
        return self._rows(ArtifactRow, f"WHERE run_id = ? AND kind = ? {order}", (run_id, kind))

    def public_artifacts(
        self, after: str | None, limit: int, filters: ArtifactFilters
    ) -> list[ArtifactRow]:
        where, bindings = _conditions("created_at", filters)
        # By index: a join could begin with all artifacts there are.
        where = [_OF_RUNS.get(condition, condition) for condition in where]
        where += ["kind != 'sealed'", "deleted_at IS NULL"]
        if after is not None:
            where.append("artifact_id < ?")
            bindings.append(after)
        rest = f"WHERE {' AND '.join(where)} ORDER BY artifact_id DESC LIMIT ?"
        return self._rows(ArtifactRow, rest, (*bindings, limit))

    def artifact_bytes(self, task_id: str) -> int:
        [(total,)] = self.all(
            "SELECT coalesce(sum(size_bytes), 0) FROM artifacts WHERE kind != 'sealed'"
            f" AND deleted_at IS NULL AND {_OF_RUNS['task_id = ?']}",
            (task_id,),
        )
        return int(total)

    def ledger(self, run_id: str) -> list[LedgerRow]:
        return self._rows(LedgerRow, "WHERE run_id = ? ORDER BY sequence", (run_id,))

    def spend(self, task_id: str, but_run: str | None) -> Spend:
        [spent] = self.all(SPENT, (task_id,))
        [(reserved,)] = self.all(RESERVED, (task_id, but_run or ""))
        return spend_of(spent, reserved)


SPENT = (
    "SELECT coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),"
    " coalesce(sum(cost_micros_usd), 0), coalesce(sum(cost_micros_usd IS NULL), 0)"
    " FROM ledger WHERE task_id = ?"
)
RESERVED = "SELECT coalesce(sum(micros_usd), 0) FROM reservations WHERE task_id = ? AND run_id != ?"


def spend_of(spent: tuple[int, int, int, int], reserved: int) -> Spend:
    tokens_in, tokens_out, cost, unknown = spent
    return Spend(tokens_in, tokens_out, cost, unknown > 0, reserved)


TABLE_OF: dict[type[Struct], str] = {
    RunRow: "runs",
    SessionRow: "sessions",
    RequestRow: "requests",
    ArtifactRow: "artifacts",
    LedgerRow: "ledger",
}
