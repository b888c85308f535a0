"""A run while it happens: its state once, then its canonical events as server-sent events."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.envelope import timestamp
from batten.protocols.macp.streams import event_frame, heartbeat_frame, snapshot_frame, start_after
from batten.serve.http.fanout import Page, Shared
from batten.serve.http.macp.runs import LARGEST, run_id_of
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route, Stream

if TYPE_CHECKING:  # loaded with the first request
    from batten.control.views.tables import EventRow

_LATELY = 500
"""Events that a new channel begins with: readers that come together share them."""
_OVER = frozenset(("completed", "failed", "cancelled"))
_ENDINGS = frozenset(f"run.{status}" for status in _OVER)


class StreamParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    after_seq: Annotated[int, Meta(ge=0, le=LARGEST)] | UnsetType = UNSET
    """Events with a greater number, those that are stored first; 0 for all. Without it only new
    ones.
    """
    include_snapshot: bool = True
    """Whether the state of now comes first."""
    heartbeat_ms: Annotated[int, Meta(ge=1000, le=3_600_000)] | UnsetType = UNSET
    """Time without a frame before a heartbeat; `STREAM_SSE_HEARTBEAT_MS` without it."""


async def stream(call: Call) -> Stream | Reply:
    service: RunService = call.service
    asked: StreamParameters = call.query
    run_id = run_id_of(call)
    state = await service.views.state(run_id)
    last = state.timeline.latest_seq
    first = snapshot_frame(state) if asked.include_snapshot else b""
    given = None if asked.after_seq is UNSET else asked.after_seq
    after = start_after(given, call.last_event_id)
    if call.last_event_id and after == last and state.run.status in _OVER:
        return Reply(status=204)  # a browser does not connect again
    after = last if after is None else after
    base = max(min(after, last), last - _LATELY)
    origin = _RunFrames(service, run_id)
    source = Shared(service.fanout, ("macp", run_id), origin, base, after)
    every_ms = asked.heartbeat_ms or service.settings.stream_sse_heartbeat_ms
    return Stream(source, first=first, heartbeat=beat, heartbeat_s=every_ms / 1000)


def beat() -> bytes:
    return heartbeat_frame(timestamp())


class _RunFrames:
    """The frames of one run, for all its readers."""

    def __init__(self, service: RunService, run_id: str) -> None:
        self._service = service
        self._run_id = run_id

    async def follow(self, after: int) -> AsyncGenerator[Page, None]:
        """Until the run has ended and nothing follows."""
        row = await self._service.journal.run(self._run_id)
        has_ended = row is None or row.outcome is not None
        async with aclosing(self._service.views.run_events(self._run_id).follow(after)) as parts:
            async for part in parts:
                has_ended = has_ended or any(one.type in _ENDINGS for one in part.rows)
                after = part.rows[-1].seq if part.rows else after
                is_end = has_ended and await self._has_all(part.sequence)
                yield Page(_frames(part.rows), after, is_end)

    async def _has_all(self, sequence: int) -> bool:
        row = await self._service.journal.run(self._run_id)
        return row is None or (row.outcome is not None and sequence >= row.next_sequence - 1)

    async def read(self, after: int) -> Page:
        pages = self._service.views.run_events(self._run_id).pages(after)
        async with aclosing(pages):
            async for rows in pages:
                return Page(_frames(rows), rows[-1].seq)
        return Page([], after)


def _frames(rows: Iterable["EventRow"]) -> list[tuple[int, bytes]]:
    return [(row.seq, event_frame(row.seq, row.body)) for row in rows]


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/runs/{id}/stream",
        handler=stream,
        summary="A run while it happens: its state, then its canonical events, and heartbeats",
        tag="runs",
        query=StreamParameters,
        streams=True,
        errors=("not_found",),
    ),
)
