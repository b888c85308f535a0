"""The rows of lists: runs, and events of all runs."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from batten.serve.http.macp.runs import LARGEST, MOST_EVENTS, journal_run, names
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route
from batten.serve.http.validation import instant, invalid

_MOST_TAGS = 100
Status = Literal[
    "queued",
    "starting",
    "binding_session",
    "running",
    "suspended",
    "completed",
    "failed",
    "cancelled",
]


class RunParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    status: Status | UnsetType = UNSET
    tags: str | UnsetType = UNSET
    """Only runs with all of these tags, separated by commas."""
    created_after: str | UnsetType = UNSET
    """Only runs created after this ISO 8601 time."""
    created_before: str | UnsetType = UNSET
    """Only runs created before this ISO 8601 time."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    sort_by: Literal["createdAt", "updatedAt"] = "createdAt"
    sort_order: Literal["asc", "desc"] = "desc"
    include_archived: bool = False
    include_sandbox: bool = False
    environment: str | UnsetType = UNSET
    """Only runs whose metadata has exactly this environment."""
    scenario_ref: str | UnsetType = UNSET
    """Only runs whose metadata has this in its scenario, in either case."""
    search: str | UnsetType = UNSET
    """Only runs with this in their id, a tag, scenario or environment, in either case."""


class EventsParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    run_id: str | UnsetType = UNSET
    """Only events of this run."""
    scenario_ref: str | UnsetType = UNSET
    """Only events of runs with this source, or with this in their scenario, in either case."""
    type: str | UnsetType = UNSET
    """Only events of these types, separated by commas."""
    after_seq: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    """The `nextCursor` of the page before. With `runId`, an event's number."""
    after_ts: str | UnsetType = UNSET
    """Only events of this ISO 8601 time or later."""
    before_ts: str | UnsetType = UNSET
    """Only events before this ISO 8601 time."""
    limit: Annotated[int, Meta(ge=1, le=LARGEST)] = 500
    """At most so many events; never more than 10000 at once."""


def _tags(given: str | UnsetType) -> tuple[str, ...]:
    tags = tuple(dict.fromkeys(names(given)))
    if len(tags) > _MOST_TAGS:
        raise invalid(f"`tags` names {len(tags)} tags: at most {_MOST_TAGS} can be asked for")
    return tags


async def list_runs(call: Call) -> Reply:
    service: RunService = call.service
    asked: RunParameters = call.query

    async def make() -> dict[str, Any]:
        from batten.control.views.listing import RunQuery

        query = RunQuery(
            status=None if asked.status is UNSET else asked.status,
            tags=_tags(asked.tags),
            # Runs have whole milliseconds: later than a part of one is at the next or later.
            created_after=instant("createdAfter", asked.created_after, is_down=True),
            created_before=instant("createdBefore", asked.created_before),
            environment=asked.environment or "",
            scenario_ref=asked.scenario_ref or "",
            search=asked.search or "",
            include_archived=asked.include_archived,
            include_sandbox=asked.include_sandbox,
            sort_by=asked.sort_by,
            sort_order=asked.sort_order,
            limit=asked.limit,
            offset=asked.offset,
        )
        found = await service.views.board.runs(query)
        return {
            "data": found.records,
            "total": found.total,
            "limit": asked.limit,
            "offset": asked.offset,
        }

    return await service.answers.get(asked, make, service.views.board.mark)


async def list_events(call: Call) -> Reply:
    service: RunService = call.service
    asked: EventsParameters = call.query

    async def make() -> dict[str, Any]:
        from batten.control.views.store import EventFilter

        wanted = EventFilter(
            run_id="" if asked.run_id is UNSET else journal_run(asked.run_id, "runId"),
            scenario_ref=asked.scenario_ref or "",
            after_seq=asked.after_seq,
            after_ts=instant("afterTs", asked.after_ts),
            before_ts=instant("beforeTs", asked.before_ts),
            types=frozenset(names(asked.type)),
        )
        limit = min(asked.limit, MOST_EVENTS)
        found = await service.views.board.events(wanted, limit)
        rows = found.rows
        page: dict[str, Any] = {
            "data": [Raw(row.body) for row in rows],
            "total": found.total,
            "limit": limit,
        }
        if len(rows) == limit:
            page["nextCursor"] = rows[-1].seq if wanted.run_id else rows[-1].place
        return page

    return await service.answers.get(asked, make, service.views.board.mark)


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/runs",
        handler=list_runs,
        summary="Runs that fit, a page at a time, the newest first",
        tag="runs",
        query=RunParameters,
        timeout_s=120.0,
    ),
    Route(
        method="GET",
        path="/events",
        handler=list_events,
        summary="Canonical events of all runs, in the order in which they were stored",
        tag="runs",
        query=EventsParameters,
        timeout_s=120.0,
    ),
)
