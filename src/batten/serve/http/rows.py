"""The rows of the journal over HTTP: what `batten --server` and `batten.client` list.

They are those of `batten runs --json`, with the names of the journal. Nothing here writes.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct

from batten.contract.errors import NotFound
from batten.journal.contract import ArtifactRow, Journal, RequestRow, RunRow, SessionRow
from batten.journal.workers import is_abandoned
from batten.protocols.hecate.errors import ErrorReply
from batten.protocols.rows import PREFIX, ArtifactsQuery, Ids, IdsQuery, RequestsQuery, RunsQuery
from batten.serve.http.hecate.errors import hecate_problem
from batten.serve.http.table import Call, Route, Surface

Row = TypeVar("Row")


class RunState(RunRow, frozen=True, kw_only=True):
    """The row of a run, with its state for people."""

    state: str
    """Its outcome if it has ended, `abandoned` if its worker is gone, else its status."""


class RunRows(Struct, frozen=True, tag_field="object", tag="runs"):
    """Runs of all sessions, the newest first."""

    data: list[RunState]


class RequestRows(Struct, frozen=True, tag_field="object", tag="requests"):
    data: list[RequestRow]


class ArtifactRows(Struct, frozen=True, tag_field="object", tag="artifacts"):
    data: list[ArtifactRow]


async def list_runs(call: Call) -> RunRows:
    journal: Journal = call.service
    return RunRows([_told(row) for row in await journal.runs(**_given(call.query))])


async def get_run(call: Call) -> RunState:
    journal: Journal = call.service
    run_id = call.params["run_id"]
    return _told(_found(await journal.run(run_id), f"no run is named {run_id}"))


async def get_session(call: Call) -> SessionRow:
    journal: Journal = call.service
    session_id = call.params["session_id"]
    return _found(await journal.session(session_id), f"no session is named {session_id}")


async def list_ids(call: Call) -> Ids:
    journal: Journal = call.service
    query: IdsQuery = call.query
    return Ids(await journal.ids(query.kind, query.first, query.last, limit=query.limit))


async def list_requests(call: Call) -> RequestRows:
    journal: Journal = call.service
    query: RequestsQuery = call.query
    if query.run_id is UNSET:
        return RequestRows(await journal.pending_requests(limit=query.limit))
    return RequestRows((await journal.requests(query.run_id))[-query.limit :])


async def get_request(call: Call) -> RequestRow:
    journal: Journal = call.service
    request_id = call.params["request_id"]
    return _found(await journal.request(request_id), f"no request is named {request_id}")


async def list_artifacts(call: Call) -> ArtifactRows:
    journal: Journal = call.service
    query: ArtifactsQuery = call.query
    kind = None if query.kind is UNSET else query.kind
    return ArtifactRows(await journal.artifacts(query.run_id, kind=kind))


async def get_artifact(call: Call) -> ArtifactRow:
    journal: Journal = call.service
    artifact_id = call.params["artifact_id"]
    return _found(await journal.artifact(artifact_id), f"no artifact is named {artifact_id}")


def _told(row: RunRow) -> RunState:
    state = "abandoned" if is_abandoned(row) else row.outcome or row.status
    return RunState(**msgspec.structs.asdict(row), state=state)


def _given(query: RunsQuery) -> dict[str, Any]:
    fields = msgspec.structs.asdict(query)
    return {name: value for name, value in fields.items() if value is not UNSET}


def _found(row: Row | None, otherwise: str) -> Row:
    if row is None:
        raise NotFound(otherwise)
    return row


def _row(path: str, handler: Any, summary: str, reply: Any, query: Any = None) -> Route:
    errors = ("not_found",) if "{" in path else ()
    return Route(
        method="GET",
        path=PREFIX + path,
        handler=handler,
        summary=summary,
        tag="rows",
        query=query,
        reply=reply,
        errors=errors,
    )


ROUTES = (
    _row("/runs", list_runs, "Runs of all sessions, the newest first", RunRows, RunsQuery),
    _row("/runs/{run_id}", get_run, "The row of a run", RunState),
    _row("/sessions/{session_id}", get_session, "The row of a session", SessionRow),
    _row("/ids", list_ids, "Ids in a range, to complete a prefix", Ids, IdsQuery),
    _row("/requests", list_requests, "Requests of a run, or the unanswered ones of all runs",
         RequestRows, RequestsQuery),
    _row("/requests/{request_id}", get_request, "The row of a request", RequestRow),
    _row("/artifacts", list_artifacts, "Artifacts of a run", ArtifactRows, ArtifactsQuery),
    _row("/artifacts/{artifact_id}", get_artifact, "The row of an artifact", ArtifactRow),
)  # fmt: skip


def rows(journal: Journal | None) -> Surface:
    """The surface; without a journal, to document it."""
    return Surface(
        name="rows",
        prefix=PREFIX,
        routes=ROUTES,
        service=journal,
        error=hecate_problem,
        error_reply=ErrorReply,
    )
