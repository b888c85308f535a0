"""What was measured of a run, its trace, its messages and its artifacts."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.contract.errors import NotFound
from batten.contract.ids import from_uuid, to_uuid
from batten.protocols.macp.artifacts import ROOT_TRACE, Artifact, attached
from batten.protocols.macp.requests import CreateArtifact
from batten.serve.http.macp.runs import run_id_of
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Download, Route

if TYPE_CHECKING:  # loaded with the first request
    from batten.protocols.macp.metrics import RunMetrics
    from batten.protocols.macp.outbound import OutboundMessage

_encode = msgspec.json.Encoder().encode
_PIECE = 1 << 16


class TraceSummary(Struct, frozen=True, kw_only=True, rename="camel"):
    """`GET /runs/:id/traces`."""

    trace_id: str | UnsetType = UNSET
    span_count: int
    last_span_id: str | UnsetType = UNSET
    linked_artifacts: list[str]
    run_status: str
    scenario_ref: str | UnsetType = UNSET
    """What the run was launched from; absent for a run without a scenario."""


async def metrics(call: Call) -> "RunMetrics":
    service: RunService = call.service
    return await service.views.metrics(run_id_of(call))


async def traces(call: Call) -> TraceSummary:
    service: RunService = call.service
    run_id = run_id_of(call)
    state = await service.views.state(run_id)
    record = await service.views.record(run_id)
    named = record.source_ref or record.metadata.get("scenarioRef")
    return TraceSummary(
        trace_id=state.trace.trace_id,
        span_count=state.trace.span_count,
        last_span_id=state.trace.last_span_id,
        linked_artifacts=state.trace.linked_artifacts,
        run_status=record.status,
        scenario_ref=named if isinstance(named, str) else UNSET,
    )


async def messages(call: Call) -> Download:
    service: RunService = call.service
    run_id = run_id_of(call)
    await service.views.record(run_id)  # raises for an unknown run
    return Download(
        source=json_array(_messages(service, run_id)), size=None, content_type="application/json"
    )


async def _messages(service: RunService, run_id: str) -> AsyncGenerator["OutboundMessage", None]:
    from batten.protocols.macp.events import CanonicalEvent
    from batten.protocols.macp.outbound import TYPES, MessageCapture

    capture = MessageCapture()
    async with aclosing(service.views.run_events(run_id).pages()) as pages:
        async for rows in pages:
            for row in rows:
                if row.type in TYPES:
                    event = msgspec.json.decode(row.body, type=CanonicalEvent)
                    for message in capture.take(event):
                        yield message
    for message in capture.rest():
        yield message


async def json_array(source: AsyncIterator[Any]) -> AsyncGenerator[bytes, None]:
    """The values of a source as an array, in pieces: they are never all in memory."""
    piece = b"["
    separator = b""
    async for value in source:
        piece += separator + _encode(value)
        separator = b","
        if len(piece) >= _PIECE:
            yield piece
            piece = b""
    yield piece + b"]"


async def list_artifacts(call: Call) -> Download:
    service: RunService = call.service
    run_id = run_id_of(call)
    await service.views.record(run_id)
    return Download(
        source=json_array(artifacts_of(service, run_id)),
        size=None,
        content_type="application/json",
    )


async def artifacts_of(service: RunService, run_id: str) -> AsyncGenerator[Artifact, None]:
    """The artifacts of a run in the order of their events, without those that were deleted."""
    from batten.protocols.macp.events import CanonicalEvent

    async with aclosing(service.views.run_events(run_id).pages()) as pages:
        async for rows in pages:
            for row in rows:
                if row.type != "artifact.created":
                    continue
                event = msgspec.json.decode(row.body, type=CanonicalEvent)
                if (
                    found := await _artifact(service, event.run_id, row.ts, event.data)
                ) is not None:
                    yield found


async def _artifact(
    service: RunService, run_id: str, ts: str, data: dict[str, Any]
) -> Artifact | None:
    inline: Any = None
    if data["label"] == ROOT_TRACE and "traceId" in data:
        inline = {"traceId": data["traceId"]}
    else:
        row = await service.journal.artifact(from_uuid(data["artifactId"], "art"))
        if row is None or row.deleted_at is not None:
            return None
        if attached(row.metadata).get("has_inline"):
            inline = msgspec.Raw(await service.journal.body(row.sha256))
    return Artifact(
        id=data["artifactId"],
        run_id=run_id,
        kind=data["kind"],
        label=data["label"],
        uri=data.get("uri"),
        inline=inline,
        created_at=ts,
    )


async def create_artifact(call: Call) -> Artifact:
    service: RunService = call.service
    asked: CreateArtifact = call.body
    run_id = run_id_of(call)
    record = await service.views.record(run_id)
    run = await service.journal.run(run_id)
    if run is None:
        raise NotFound(f"run {record.id} not found", code="RUN_NOT_FOUND")
    given: dict[str, Any] = {"kind": asked.kind}
    if asked.uri is not UNSET:
        given["uri"] = asked.uri
    inline = None if asked.inline is UNSET else asked.inline
    row = await service.artifacts.attach(run, asked.label, given, inline, by=call.principal.name)
    body = msgspec.Raw(await service.journal.body(row.sha256)) if inline is not None else None
    return Artifact(
        id=to_uuid(row.artifact_id),
        run_id=record.id,
        kind=asked.kind,
        label=row.summary,
        uri=attached(row.metadata).get("uri"),
        inline=body,
        created_at=row.created_at,
    )


def _row(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        tag="runs",
        errors=("not_found",),
        timeout_s=120.0,
        **more,
    )


ROUTES: tuple[Route, ...] = (
    _row("GET", "/runs/{id}/metrics", metrics, "Counts, tokens and cost of a run"),
    _row("GET", "/runs/{id}/traces", traces, "The trace of a run, and what is linked to it"),
    _row("GET", "/runs/{id}/messages", messages, "Messages that agents sent to the runtime"),
    _row("GET", "/runs/{id}/artifacts", list_artifacts, "Artifacts of a run, the oldest first"),
    _row(
        "POST",
        "/runs/{id}/artifacts",
        create_artifact,
        "Attach an artifact to a run",
        scope="operator",
        body=CreateArtifact,
        status=201,
    ),
)
