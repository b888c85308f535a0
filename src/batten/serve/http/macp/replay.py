"""Replays of a run: its events again at any pace, and its state at any of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.protocols.macp.requests import ReplayParameters, ReplayRequest
from batten.protocols.macp.streams import event_frame, start_after
from batten.serve.http.macp.runs import LARGEST, run_id_of
from batten.serve.http.macp.service import RunService
from batten.serve.http.macp.streams import beat
from batten.serve.http.table import Call, Reply, Route, Stream
from batten.serve.http.validation import invalid

if TYPE_CHECKING:  # loaded with the first request
    from batten.control.views.run_events import RunEvents
    from batten.control.views.tables import EventRow
    from batten.protocols.macp.replaying import ReplayDescriptor
    from batten.protocols.macp.state import ProjectedState


class StateParameters(Struct, frozen=True, kw_only=True):
    seq: Annotated[int, Meta(ge=0, le=LARGEST)] | UnsetType = UNSET
    """The last event that counts; all of them without it."""


async def create(call: Call) -> "ReplayDescriptor":
    from batten.protocols.macp.replaying import replay_descriptor

    service: RunService = call.service
    asked: ReplayRequest = call.body
    _check(asked)
    record = await service.views.record(run_id_of(call))
    return replay_descriptor(record.id, asked)


async def stream(call: Call) -> Stream | Reply:
    service: RunService = call.service
    asked: ReplayParameters = call.query
    _check(asked)
    run_id = run_id_of(call)
    last = (await service.views.record(run_id)).last_event_seq
    last = last if asked.to_seq is UNSET else min(last, asked.to_seq)
    begin = 0 if asked.from_seq is UNSET else asked.from_seq - 1
    after = start_after(begin, call.last_event_id) or 0
    if call.last_event_id and after >= last:
        return Reply(status=204)  # a browser does not connect again
    settings = service.settings
    pages = _pages(service.views.run_events(run_id), after, last, settings.replay_batch_size)
    source = _at_once(pages)
    if asked.mode == "timed":
        source = _timed(pages, asked.speed, settings.replay_max_delay_ms)
    return Stream(source, heartbeat=beat, heartbeat_s=settings.stream_sse_heartbeat_ms / 1000)


def _check(asked: ReplayParameters) -> None:
    if asked.from_seq is not UNSET and asked.to_seq is not UNSET and asked.to_seq < asked.from_seq:
        raise invalid("`toSeq` must not be less than `fromSeq`", "toSeq")


async def _pages(
    events: "RunEvents", after: int, last: int, size: int
) -> AsyncGenerator[list["EventRow"], None]:
    """The events between two numbers."""
    if after >= last:
        return
    async with aclosing(events.pages(after, size)) as pages:
        async for rows in pages:
            yield [row for row in rows if row.seq <= last]
            if rows[-1].seq >= last:
                return


async def _at_once(
    pages: AsyncGenerator[list["EventRow"], None],
) -> AsyncGenerator[bytes, None]:
    async with aclosing(pages):
        async for rows in pages:
            yield b"".join([event_frame(row.seq, row.body) for row in rows])


async def _timed(
    pages: AsyncGenerator[list["EventRow"], None], speed: float, most_ms: int
) -> AsyncGenerator[bytes, None]:
    """Frame by frame, with the distances of the events."""
    from batten.protocols.macp.replaying import delay_ms

    before = ""
    async with aclosing(pages):
        async for rows in pages:
            for row in rows:
                wait_ms = delay_ms(before, row.ts, speed, most_ms) if before else 0
                if wait_ms:
                    await asyncio.sleep(wait_ms / 1000)
                before = row.ts
                yield event_frame(row.seq, row.body)


async def state(call: Call) -> "ProjectedState":
    service: RunService = call.service
    asked: StateParameters = call.query
    run_id = run_id_of(call)
    if asked.seq is UNSET:
        return await service.views.state(run_id)
    return await service.views.state_at(run_id, asked.seq)


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/runs/{id}/replay",
        handler=create,
        summary="Describe a replay: the addresses of its stream and of its states",
        tag="runs",
        body=ReplayRequest,
        body_optional=True,
        status=201,
        errors=("not_found",),
        timeout_s=120.0,
    ),
    Route(
        method="GET",
        path="/runs/{id}/replay/stream",
        handler=stream,
        summary="The events of a run again: at once, or with their distances in time",
        tag="runs",
        query=ReplayParameters,
        streams=True,
        errors=("not_found",),
        timeout_s=120.0,
    ),
    Route(
        method="GET",
        path="/runs/{id}/replay/state",
        handler=state,
        summary="The state of a run after one of its events",
        tag="runs",
        query=StateParameters,
        errors=("not_found",),
        timeout_s=120.0,
    ),
)
