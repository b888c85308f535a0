"""Bundles of runs, sent piece by piece: their size in memory does not grow with the run."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from batten.contract.envelope import decode, timestamp
from batten.contract.errors import BattenError
from batten.protocols.macp.requests import BatchRequest
from batten.serve.http.macp.observability import artifacts_of, json_array
from batten.serve.http.macp.runs import journal_run, run_id_of
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Download, Route

if TYPE_CHECKING:  # loaded with the first request
    from batten.control.views.folds import RunFold

NDJSON = "application/x-ndjson"
_PAGE = 500
_log = logging.getLogger("batten.views")
_encode = msgspec.json.Encoder().encode


class ExportParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    include_canonical: bool = True
    """Whether the canonical events are part of it."""
    include_raw: bool = False
    """Whether the facts they were made from are part of it."""
    event_limit: Annotated[int, Meta(ge=1, le=50_000)] = 10_000
    """The most events of each kind, the oldest first."""
    format: Literal["json", "jsonl"] = "json"


async def export(call: Call) -> Download:
    asked: ExportParameters = call.query
    run_id = run_id_of(call)
    parts = await _Parts.of(call.service, run_id, asked)
    _record(call, parts, asked.format)
    if asked.format == "jsonl":
        return Download(source=parts.lines(), size=None, content_type=NDJSON)
    return Download(source=parts.bundle(), size=None, content_type="application/json")


async def export_stream(call: Call) -> Download:
    """All canonical events, whatever the query says of them; its limit is for the raw ones."""
    run_id = run_id_of(call)
    parts = await _Parts.of(call.service, run_id, call.query, has_all=True)
    _record(call, parts, "jsonl")
    return Download(source=parts.lines(), size=None, content_type=NDJSON)


async def export_batch(call: Call) -> Download:
    service: RunService = call.service
    asked: BatchRequest = call.body
    run_ids = [journal_run(given, f"runIds[{place}]") for place, given in enumerate(asked.run_ids)]
    for run_id in run_ids:  # one unknown run refuses them all, before anything is sent
        await service.views.record(run_id)
    return Download(source=_bundles(call, run_ids), size=None, content_type="application/json")


async def _bundles(call: Call, run_ids: Sequence[str]) -> AsyncGenerator[bytes, None]:
    separator = b"["
    for run_id in run_ids:
        parts = await _Parts.of(call.service, run_id, ExportParameters())
        _record(call, parts, "json")
        yield separator
        async for piece in parts.bundle():
            yield piece
        separator = b","
    yield b"[]" if separator == b"[" else b"]"


def _record(call: Call, parts: "_Parts", format_: str) -> None:
    service: RunService = call.service
    try:
        service.recorder.record(call, "run.exported", "run", parts.fold.record.id, format=format_)
    except BattenError as error:
        _log.warning("an export is not in the audit log: %s", error)


class _Parts:
    """The parts of one bundle, as of one moment where they are small."""

    def __init__(
        self,
        service: RunService,
        run_id: str,
        asked: ExportParameters,
        fold: "RunFold",
        state: Any,
        *,
        has_all: bool,
    ) -> None:
        """`has_all`: with every canonical event."""
        self._service = service
        self._run_id = run_id
        self._asked = asked
        self.fold = fold
        self._state = state
        most = asked.event_limit if asked.include_canonical else 0
        self._most_events = fold.seq if has_all else most

    @classmethod
    async def of(
        cls, service: RunService, run_id: str, asked: ExportParameters, *, has_all: bool = False
    ) -> "_Parts":
        """Raises `NotFound`."""
        fold = await service.views.run_fold(run_id)
        state = await service.views.state(run_id)
        return cls(service, run_id, asked, fold, state, has_all=has_all)

    def _head(self) -> bytes:
        """The members before the artifacts, without the brace at the end."""
        from batten.control.views.folds import shown_metrics, shown_record
        from batten.protocols.macp.exporting import exported_run

        session = self.fold.session
        return _encode(
            {
                "run": exported_run(shown_record(self.fold)),
                "session": session if session.run_id else None,
                "projection": self._state,
                "metrics": shown_metrics(self.fold),
            }
        )[:-1]

    async def bundle(self) -> AsyncGenerator[bytes, None]:
        """One JSON object."""
        yield self._head() + b',"artifacts":'
        async for piece in self._artifacts():
            yield piece
        for name, bodies in (("canonicalEvents", self._events()), ("rawEvents", self._raw())):
            yield b',"%b":' % name.encode()
            async for piece in joined(bodies):
                yield piece
        yield b',"exportedAt":"%b"}' % timestamp().encode()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """A header, and an event a line."""
        from batten.protocols.macp.exporting import event_line, raw_line

        yield b'{"type":"header",' + self._head()[1:] + b',"artifacts":'
        async for piece in self._artifacts():
            yield piece
        yield b',"exportedAt":"%b"}\n' % timestamp().encode()
        async for bodies in self._events():
            yield b"".join(map(event_line, bodies))
        async for bodies in self._raw():
            yield b"".join(map(raw_line, bodies))

    def _artifacts(self) -> AsyncIterator[bytes]:
        return json_array(artifacts_of(self._service, self._run_id))

    async def _events(self) -> AsyncGenerator[list[bytes], None]:
        """Pages of encoded canonical events."""
        left = self._most_events
        if not left:
            return
        async with aclosing(self._service.views.run_events(self._run_id).pages()) as pages:
            async for rows in pages:
                yield [row.body for row in rows[:left]]
                left -= len(rows)
                if left <= 0:
                    return

    async def _raw(self) -> AsyncGenerator[list[bytes], None]:
        """Pages of encoded raw events."""
        from batten.control.views.run_events import check_there
        from batten.protocols.macp.exporting import raw_event

        left = self._asked.event_limit if self._asked.include_raw else 0
        known, after = self.fold.normaliser, -1
        trace = known.trace_id, known.span_id
        while left > 0:
            size = min(left, _PAGE)
            page = await self._service.journal.read(self._run_id, after=after, limit=size)
            if not page:
                await check_there(self._service.journal, self._run_id)
                return
            after, left = page[-1].sequence, left - len(page)
            yield [_encode(raw_event(decode(one.body), trace, known.redact)) for one in page]


async def joined(pages: AsyncIterator[list[bytes]]) -> AsyncGenerator[bytes, None]:
    """Encoded values as an array."""
    separator = b"["
    async for bodies in pages:
        yield separator + b",".join(bodies)
        separator = b","
    yield b"[]" if separator == b"[" else b"]"


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/runs/{id}/export",
        handler=export,
        summary="The bundle of a run: record, session, state, metrics, artifacts, events",
        tag="runs",
        query=ExportParameters,
        other_content=(NDJSON,),
        errors=("not_found",),
        timeout_s=120.0,
    ),
    Route(
        method="GET",
        path="/runs/{id}/export/stream",
        handler=export_stream,
        summary="The bundle of a run as lines of JSON",
        tag="runs",
        query=ExportParameters,
        content_type=NDJSON,
        errors=("not_found",),
        timeout_s=120.0,
    ),
    Route(
        method="POST",
        path="/runs/batch/export",
        handler=export_batch,
        summary="The bundles of several runs; none if one of them is unknown",
        tag="runs",
        body=BatchRequest,
        errors=("not_found",),
        timeout_s=120.0,
    ),
)
