"""`GET /runs` and `GET /events`: which runs and events fit, and in which order."""

from typing import Any, Literal

from msgspec import Struct

from batten.control.views.folds import RUNS, shown_record
from batten.control.views.store import EventFilter, EventList, newest
from batten.control.views.tables import SEPARATOR, EventRow
from batten.journal.sqlite.database import Database
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.state import RunStatus

SortBy = Literal["createdAt", "updatedAt"]
SortOrder = Literal["asc", "desc"]
_COLUMNS: dict[SortBy, str] = {"createdAt": "created_at", "updatedAt": "updated_at"}
OF_SCENARIO = "(source_ref = ? OR instr(scenario_ref, ?) > 0)"
"""Runs of a scenario: by the whole name of their source, or by a part of the scenario's."""


class RunQuery(Struct, frozen=True, kw_only=True):
    """A page of runs; instants are spelled as those of runs."""

    status: RunStatus | None = None
    tags: tuple[str, ...] = ()
    """A run has all of them."""
    created_after: str = ""
    """Runs created later."""
    created_before: str = ""
    """Runs created earlier."""
    environment: str = ""
    scenario_ref: str = ""
    """A part of the scenario's name, in either case."""
    search: str = ""
    """A part of the id, of a tag, of the scenario's name or of the environment's."""
    include_archived: bool = False
    include_sandbox: bool = False
    sort_by: SortBy = "createdAt"
    sort_order: SortOrder = "desc"
    limit: int = 50
    offset: int = 0

    def where(self) -> tuple[str, list[Any]]:
        """As a condition of SQL. What is not asked for is left out, so that indexes fit."""
        parts = ["is_run"]
        if not self.include_archived:
            parts.append("NOT is_archived")
        if not self.include_sandbox:
            parts.append("NOT is_sandbox")
        given: list[tuple[str, Any]] = [
            ("status = ?", self.status),
            ("created_at > ?", self.created_after),
            ("created_at < ?", self.created_before),
            ("environment = ?", self.environment),
            ("instr(scenario_ref, ?) > 0", self.scenario_ref.casefold()),
            ("instr(words, ?) > 0", self.search.casefold()),
            *(("instr(tags, ?) > 0", f"{SEPARATOR}{tag}{SEPARATOR}") for tag in self.tags),
        ]
        parts += [part for part, value in given if value]
        return " AND ".join(parts), [value for _, value in given if value]


class RunList(Struct, frozen=True):
    """A page of runs, and how many fit in all."""

    records: list[RunRecord]
    total: int


def read_runs(db: Database, query: RunQuery) -> RunList:
    where, bindings = query.where()
    column, order = _COLUMNS[query.sort_by], query.sort_order
    bounds = (*bindings, query.limit, query.offset)
    records = read_records(db, where, f"{column} {order}, run_id {order} LIMIT ? OFFSET ?", bounds)
    total = db.execute(f"SELECT count(*) FROM runs_now WHERE {where}", bindings).get
    return RunList(records, int(total))


def read_records(
    db: Database, where: str, order: str, bindings: tuple[Any, ...]
) -> list[RunRecord]:
    """The records of runs that fit, in this order."""
    # The columns of the order are selected: only then SQLite merges both parts by their indexes.
    found = db.execute(
        f"SELECT run_id, created_at, updated_at FROM runs_now WHERE {where} ORDER BY {order}",
        bindings,
    ).fetchall()
    folds = (newest(db, RUNS, run_id) for run_id, _, _ in found)
    return [shown_record(fold) for fold in folds if fold is not None]


def read_events(db: Database, wanted: EventFilter, limit: int) -> EventList:
    """Events of one run by their number, of all runs by their place."""
    where, values = wanted.where()
    bindings = [*values]
    if wanted.scenario_ref:
        where += f" AND run_id IN (SELECT run_id FROM runs_now WHERE {OF_SCENARIO})"
        bindings += [wanted.scenario_ref, wanted.scenario_ref.casefold()]
    found = db.execute(
        "SELECT run_id, seq, ts, type, body, place FROM events_now"
        f" WHERE {where} ORDER BY {'seq' if wanted.run_id else 'place'} LIMIT ?",
        (*bindings, limit),
    ).fetchall()
    total = db.execute(f"SELECT count(*) FROM events_now WHERE {where}", bindings).get
    return EventList([EventRow(*row) for row in found], int(total))
