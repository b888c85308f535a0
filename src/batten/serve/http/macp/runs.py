"""The rows of a run: its record, its state and its canonical events."""

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from batten.contract.envelope import timestamp
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route
from batten.serve.http.validation import invalid

if TYPE_CHECKING:  # loaded with the first request
    from batten.protocols.macp.records import RunRecord
    from batten.protocols.macp.state import ProjectedState

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


class EventParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    after_seq: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """Only events with a greater number."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 200
    after_ts: str | UnsetType = UNSET
    """Only events of this ISO 8601 time or later."""
    before_ts: str | UnsetType = UNSET
    """Only events before this ISO 8601 time."""
    type: str | UnsetType = UNSET
    """Only events of these types, separated by commas."""


async def get(call: Call) -> "RunRecord":
    service: RunService = call.service
    return await service.views.record(run_id_of(call))


async def state(call: Call) -> "ProjectedState":
    service: RunService = call.service
    return await service.views.state(run_id_of(call))


async def list_events(call: Call) -> Reply:
    from batten.control.views.store import EventFilter

    service: RunService = call.service
    asked: EventParameters = call.query
    types = "" if asked.type is UNSET else asked.type
    wanted = EventFilter(
        after_seq=asked.after_seq,
        after_ts=_instant("afterTs", asked.after_ts),
        before_ts=_instant("beforeTs", asked.before_ts),
        types=frozenset(name.strip() for name in types.split(",") if name.strip()),
    )
    found = await service.views.events(run_id_of(call), wanted, asked.limit)
    rows = found.rows
    if UNSET is asked.after_ts is asked.before_ts is asked.type:
        return Reply(b"[" + b",".join([row.body for row in rows]) + b"]")
    page: dict[str, Any] = {
        "data": [Raw(row.body) for row in rows],
        "total": found.total,
        "limit": asked.limit,
    }
    if len(rows) == asked.limit:
        page["nextCursor"] = rows[-1].seq
    return Reply(page)


def run_id_of(call: Call) -> str:
    """The journal's id of the run that the path names."""
    return read_run_id(call.params["id"])


def read_run_id(run_id: str) -> str:
    """The journal's id of a run that a client names by its UUID."""
    from batten.control.views.views import journal_id

    if _UUID.fullmatch(run_id) is None:
        raise invalid("Validation failed (uuid is expected)", "id")
    return journal_id(run_id)


def _instant(name: str, given: str | UnsetType) -> str:
    """A time as events spell it, in whole milliseconds; empty for none."""
    if given is UNSET:
        return ""
    try:
        read = datetime.fromisoformat(given)
        moment = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        example = "2026-01-31T12:00:00Z"
        raise invalid(f"`{name}` must be an ISO 8601 time, such as {example}", name) from error
    seconds = int(moment.replace(microsecond=0).timestamp())
    return timestamp((seconds * 1000 + math.ceil(moment.microsecond / 1000)) * 1_000_000)


def _row(path: str, handler: Any, summary: str, query: Any = None) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        tag="runs",
        query=query,
        errors=("not_found",),
        timeout_s=120.0,
    )


ROUTES: tuple[Route, ...] = (
    _row("/runs/{id}", get, "The record of a run: of an agent, or of a session of the runtime"),
    _row("/runs/{id}/state", state, "What the events of a run amount to"),
    _row(
        "/runs/{id}/events",
        list_events,
        "Canonical events of a run: an array by number, or a page by time if a filter is given",
        EventParameters,
    ),
)
