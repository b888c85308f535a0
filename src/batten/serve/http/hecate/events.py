"""Rows for events: of one run and of all, as lists and as streams of stored bytes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import UNSET

from batten.journal.contract import Journal, Stored
from batten.protocols.hecate import cursors, streams
from batten.protocols.hecate.events import EventList, EventsQuery, FeedList, FeedQuery, types_of
from batten.protocols.hecate.rows import StoredLike
from batten.protocols.hecate.vocabulary import page_size
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.tasks import RUN
from batten.serve.http.table import Call, Reply, Route, Stream

_MOST = 500
_USUAL_FEED = 200


async def run_events(call: Call) -> Reply | Stream:
    service: Service = call.service
    query: EventsQuery = call.query
    row = await service.tasks.run(call.params["task_id"], call.params["run_id"])
    start = cursors.start_of(query.after_sequence, call.last_event_id)
    wants_page = query.limit is not UNSET or query.wait is not UNSET
    if cursors.wants_stream(call.header("accept"), wants_page=wants_page):
        ended = row.outcome is not None
        if cursors.is_at_end(start, ended=ended, last_sequence=row.next_sequence - 1):
            return Reply(status=204)
        return Stream(_frames_of(service.journal, row.run_id, start.after))
    limit = page_size(query.limit, _MOST, _MOST)
    page = await service.journal.read(row.run_id, after=start.after, limit=limit)
    if not page and query.wait is not UNSET and row.outcome is None:
        page = await _first(service.journal.follow(row.run_id, after=start.after), query.wait)
    return Reply(streams.event_list(page[:limit]))


async def _first(pages: AsyncGenerator[list[Stored], None], seconds: float) -> list[Stored]:
    """The first page within this time; empty if none comes."""
    async with aclosing(pages):
        try:
            async with asyncio.timeout(seconds):
                return await anext(pages, [])
        except TimeoutError:
            return []


async def _frames_of(journal: Journal, run_id: str, after: int) -> AsyncGenerator[bytes, None]:
    """The frames of a run until it has ended and nothing follows."""
    if await _is_over(journal, run_id, after):
        return
    async with aclosing(journal.follow(run_id, after=after)) as pages:
        async for page in pages:
            yield streams.run_frames(page)
            if await _is_over(journal, run_id, page[-1].sequence):
                return


async def _is_over(journal: Journal, run_id: str, sequence: int) -> bool:
    """Whether a run has ended with this event, or before it."""
    row = await journal.run(run_id)
    return row is None or (row.outcome is not None and sequence >= row.next_sequence - 1)


async def feed(call: Call) -> Reply:
    service: Service = call.service
    query: FeedQuery = call.query
    start = cursors.position_of(cursors.start_of(query.after_sequence, call.last_event_id))
    limit = page_size(query.limit, _USUAL_FEED, _MOST)
    chosen = streams.FeedFilter(types_of(query), query.task_id or "")
    found: list[StoredLike] = []
    position = start
    while len(found) < limit:
        page = await service.journal.feed(after=position, limit=_MOST)
        found += chosen.select(page)
        if page:
            position = page[-1].position
        if len(page) < _MOST:
            break
    if len(found) > limit:
        found = found[:limit]
        position = found[-1].position
    return Reply(streams.feed_list(found, position if position > start else None))


async def feed_stream(call: Call) -> Stream:
    service: Service = call.service
    query: FeedQuery = call.query
    start = cursors.position_of(cursors.start_of(query.after_sequence, call.last_event_id))
    chosen = streams.FeedFilter(types_of(query), query.task_id or "")

    async def frames() -> AsyncGenerator[bytes, None]:
        async with aclosing(service.journal.follow_feed(after=start)) as pages:
            async for page in pages:
                if found := chosen.select(page):
                    yield streams.feed_frames(found)

    return Stream(frames(), first=b": ok\n\n")


ROUTES = (
    Route(
        method="GET",
        path=f"{RUN}/events",
        handler=run_events,
        summary="The events of a run: a stream, or a list if a limit is given",
        tag="events",
        query=EventsQuery,
        reply=EventList,
        streams=True,
        errors=("not_found",),
        timeout_s=90.0,
    ),
    Route(
        method="GET",
        path="/hecate/v1/events",
        handler=feed,
        summary="The events of all runs, by position",
        tag="events",
        query=FeedQuery,
        reply=FeedList,
        timeout_s=90.0,
    ),
    Route(
        method="GET",
        path="/hecate/v1/events/stream",
        handler=feed_stream,
        summary="The events of all runs as a stream",
        tag="events",
        query=FeedQuery,
        streams=True,
    ),
)
