"""The rows of a run: its record, its state and its canonical events."""

import re
from collections.abc import Awaitable, Callable, Hashable
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route
from batten.serve.http.validation import instant, invalid

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
LARGEST = 2**53 - 1
"""Numbers that every client can read."""
MOST_EVENTS = 10_000
"""Events of one answer: who asks for more gets so many, and the cursor to go on."""


class EventParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    after_seq: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    """Only events with a greater number."""
    limit: Annotated[int, Meta(ge=1, le=LARGEST)] = 200
    """At most so many events; never more than 10000 at once."""
    after_ts: str | UnsetType = UNSET
    """Only events of this ISO 8601 time or later."""
    before_ts: str | UnsetType = UNSET
    """Only events before this ISO 8601 time."""
    type: str | UnsetType = UNSET
    """Only events of these types, separated by commas."""


async def get(call: Call) -> Reply:
    service: RunService = call.service
    return await _answer(call, lambda run_id: service.views.record(run_id))


async def state(call: Call) -> Reply:
    service: RunService = call.service
    return await _answer(call, lambda run_id: service.views.state(run_id))


async def _answer(call: Call, make: Callable[[str], Awaitable[Struct]]) -> Reply:
    """An answer that depends on one run, made again when the run has changed."""
    service: RunService = call.service

    async def mark() -> Hashable:
        run = await service.journal.run(run_id_of(call))
        # A run that was deleted may have had the same id, and as many facts.
        return run and (run.created_at, run.next_sequence, run.base_sequence)

    return await service.answers.get(call.path, lambda: make(run_id_of(call)), mark)


async def list_events(call: Call) -> Reply:
    from batten.control.views.store import EventFilter

    service: RunService = call.service
    asked: EventParameters = call.query
    wanted = EventFilter(
        after_seq=asked.after_seq,
        after_ts=instant("afterTs", asked.after_ts),
        before_ts=instant("beforeTs", asked.before_ts),
        types=frozenset(names(asked.type)),
    )
    limit = min(asked.limit, MOST_EVENTS)
    found = await service.views.events(run_id_of(call), wanted, limit)
    rows = found.rows
    if UNSET is asked.after_ts is asked.before_ts is asked.type:
        return Reply(b"[" + b",".join([row.body for row in rows]) + b"]")
    page: dict[str, Any] = {
        "data": [Raw(row.body) for row in rows],
        "total": found.total,
        "limit": limit,
    }
    if len(rows) == limit:
        page["nextCursor"] = rows[-1].seq
    return Reply(page)


def run_id_of(call: Call) -> str:
    """The journal's id of the run that the path names."""
    return journal_run(call.params["id"], "id")


def journal_run(run_id: str, field: str) -> str:
    """The journal's id of the run with this UUID, which `field` of a request gave."""
    from batten.control.views.views import journal_id

    if _UUID.fullmatch(run_id) is None:
        raise invalid("Validation failed (uuid is expected)", field)
    return journal_id(run_id)


def names(given: str | UnsetType) -> tuple[str, ...]:
    """What commas separate."""
    return (
        () if given is UNSET else tuple(one for name in given.split(",") if (one := name.strip()))
    )


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
