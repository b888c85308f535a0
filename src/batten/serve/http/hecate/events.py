"""Rows for events: of one run and of all, as lists and as streams of stored bytes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing

from msgspec import UNSET, Struct

from batten.contract.facts import TERMINAL
from batten.journal.contract import Journal, RunRow, Stored
from batten.protocols.hecate import cursors, streams
from batten.protocols.hecate.events import EventList, EventsQuery, FeedList, FeedQuery, types_of
from batten.protocols.hecate.rows import StoredLike
from batten.protocols.hecate.vocabulary import page_size
from batten.serve.http.fanout import Page, Shared
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.tasks import RUN
from batten.serve.http.table import Call, Reply, Route, Stream

_MOST = 500
_USUAL_FEED = 200
_LATELY = 500
"""Events that a new channel begins with: readers that come together share them."""
RESUMED = (
    ("Last-Event-ID", "The last `id` that a reader has; of this and the query the larger counts."),
)
_STRETCH = 4_000
"""Events looked at in one go: some milliseconds."""
_STRETCHES = 250
"""For one answer; the next one goes on where it ended."""


async def run_events(call: Call) -> Reply | Stream:
    service: Service = call.service
    query: EventsQuery = call.query
    row = await service.tasks.run(call.params["task_id"], call.params["run_id"])
    start = cursors.start_of(query.after_sequence, call.last_event_id)
    wants_page = query.limit is not UNSET or query.wait is not UNSET
    if cursors.wants_stream(call.header("accept"), wants_page=wants_page):
        ended, last = row.outcome is not None, row.next_sequence - 1
        if cursors.is_at_end(start, ended=ended, last_sequence=last):
            return Reply(status=204)
        base = max(min(start.after, last), last - _LATELY)
        origin = _RunFrames(service.journal, row.run_id)
        return Stream(Shared(service.fanout, row.run_id, origin, base, start.after))
    limit = page_size(query.limit, _MOST, _MOST)
    page = await service.journal.read(row.run_id, after=start.after, limit=limit)
    if not page and query.wait is not UNSET and row.outcome is None:
        following = service.journal.follow(row.run_id, after=start.after)
        page = await _first(following, service.waits.at_most(query.wait))
    return Reply(streams.event_list(page[:limit]))


async def _first(
    pages: AsyncGenerator[list[Stored], None], wait: AbstractAsyncContextManager[None]
) -> list[Stored]:
    """The first page while the wait lasts; empty if none comes."""
    async with aclosing(pages), wait:
        async for page in pages:
            return page
    return []


class _RunFrames:
    """The frames of one run."""

    def __init__(self, journal: Journal, run_id: str) -> None:
        self._journal = journal
        self._run_id = run_id

    async def follow(self, after: int) -> AsyncGenerator[Page, None]:
        """Until the run has ended and nothing follows."""
        row = await self._journal.run(self._run_id)
        if row is None or _is_over(row, after):
            yield Page([], after, is_end=True)
            return
        async with aclosing(self._journal.follow(self._run_id, after=after)) as pages:
            # Its ending may be before the cursor, or pruned.
            has_ended = row.outcome is not None
            async for page in pages:
                has_ended = has_ended or any(stored.type in TERMINAL for stored in page)
                is_end = has_ended and await self._has_all(page[-1].sequence)
                yield _page_of_run(page, after, is_end=is_end)

    async def read(self, after: int) -> Page:
        return _page_of_run(await self._journal.read(self._run_id, after=after), after)

    async def _has_all(self, sequence: int) -> bool:
        row = await self._journal.run(self._run_id)
        return row is None or _is_over(row, sequence)


def _is_over(row: RunRow, sequence: int) -> bool:
    """Whether the run has ended with this event, or before it."""
    return row.outcome is not None and sequence >= row.next_sequence - 1


def _page_of_run(page: list[Stored], after: int, *, is_end: bool = False) -> Page:
    frames = [(stored.sequence, streams.run_frame(stored)) for stored in page]
    return Page(frames, page[-1].sequence if page else after, is_end)


async def feed(call: Call) -> Reply:
    service: Service = call.service
    query: FeedQuery = call.query
    start = cursors.position_of(cursors.start_of(query.after_sequence, call.last_event_id))
    limit = page_size(query.limit, _USUAL_FEED, _MOST)
    chosen = await _chosen(service.journal, query)
    found: list[StoredLike] = []
    position, is_end = start, False
    for _ in range(_STRETCHES):
        stretch = await _stretch(service.journal, chosen, position, limit - len(found))
        found += stretch.found
        position, is_end = stretch.last, stretch.is_end
        if len(found) == limit or is_end:
            break
    if not found and is_end and query.wait is UNSET:
        return Reply(streams.feed_list([]))
    if not found and query.wait is not UNSET:
        wait = service.waits.at_most(query.wait)
        found, position = await _first_of_feed(service.journal, chosen, position, wait)
    if len(found) > limit:
        found = found[:limit]
        position = found[-1].position
    return Reply(streams.feed_list(found, position if position > start else None))


async def _chosen(journal: Journal, query: FeedQuery) -> streams.FeedFilter:
    """What a query selects. The facts of a task have an index: a run is looked for among them."""
    task_id, run_id = query.task_id or "", query.run_id or ""
    if run_id and not task_id:
        row = await journal.run(run_id)
        task_id = "" if row is None else row.task_id or ""
    return streams.FeedFilter(types_of(query), task_id, run_id)


class _Stretch(Struct, frozen=True):
    """A part of the feed."""

    found: list[StoredLike]
    """What a filter chooses of it."""
    last: int
    """The position up to which it goes."""
    is_end: bool
    """Whether nothing was stored after it."""


async def _stretch(
    journal: Journal, chosen: streams.FeedFilter, after: int, limit: int
) -> _Stretch:
    """The next part of the feed, not more than can be looked at while others wait."""
    await asyncio.sleep(0)
    end = await journal.position()
    # The facts of a task are found by an index; those of a type are looked for.
    until = end if chosen.task_id else min(after + _STRETCH, end)
    page = await journal.feed(
        after=after,
        limit=limit,
        until=until,
        types=chosen.types or None,
        task_id=chosen.task_id or None,
    )
    last = page[-1].position if len(page) == limit else max(until, after)
    return _Stretch(chosen.select(page), last, last >= end)


async def _first_of_feed(
    journal: Journal,
    chosen: streams.FeedFilter,
    position: int,
    wait: AbstractAsyncContextManager[None],
) -> tuple[list[StoredLike], int]:
    """The next events of the feed while the wait lasts, and the position up to which they are
    all.
    """
    async with aclosing(journal.follow_feed(after=position)) as pages, wait:
        async for page in pages:
            position = page[-1].position
            if found := chosen.select(page):
                return found, position
    return [], position


async def feed_stream(call: Call) -> Stream:
    service: Service = call.service
    query: FeedQuery = call.query
    start = cursors.position_of(cursors.start_of(query.after_sequence, call.last_event_id))
    chosen = await _chosen(service.journal, query)
    last = await service.journal.position()
    base = max(min(start, last), last - _LATELY)
    origin = _FeedFrames(service.journal, chosen)
    return Stream(Shared(service.fanout, chosen, origin, base, start), first=streams.OPENING)


class _FeedFrames:
    """The frames of all runs that a filter selects."""

    def __init__(self, journal: Journal, chosen: streams.FeedFilter) -> None:
        self._journal = journal
        self._chosen = chosen

    async def follow(self, after: int) -> AsyncGenerator[Page, None]:
        async with aclosing(self._journal.follow_feed(after=after)) as pages:
            async for page in pages:
                yield self._page(page, after)

    async def read(self, after: int) -> Page:
        """The first one that has frames, unless that is far away."""
        stretch = await _stretch(self._journal, self._chosen, after, _LATELY)
        return Page(_frames(stretch.found), stretch.last)

    def _page(self, page: list[Stored], after: int) -> Page:
        return Page(_frames(self._chosen.select(page)), page[-1].position if page else after)


def _frames(found: list[StoredLike]) -> list[tuple[int, bytes]]:
    return [(stored.position, streams.feed_frame(stored)) for stored in found]


ROUTES = (
    Route(
        method="GET",
        path=f"{RUN}/events",
        handler=run_events,
        summary="The events of a run: a stream, or a list if a limit is given",
        tag="events",
        query=EventsQuery,
        headers=RESUMED,
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
        headers=RESUMED,
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
        headers=RESUMED,
        streams=True,
    ),
)
