"""The bundle of a run: its parts, and the lines of its JSONL form."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.contract import facts as f
from batten.contract.envelope import Envelope, payload
from batten.contract.ids import to_uuid
from batten.protocols.macp.artifacts import Artifact
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.ids import run_uuid
from batten.protocols.macp.metrics import RunMetrics
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.redaction import redact
from batten.protocols.macp.sessions import SessionRow
from batten.protocols.macp.state import ProjectedState, RunStatus

_encode = msgspec.json.Encoder().encode
_KINDS: dict[str, str] = {
    "envelope": "stream-envelope",
    "stream_status": "stream-status",
    "session_snapshot": "session-snapshot",
    "send_ack": "send-ack",
    "stream_error": "stream-inline-error",
}


class ExportSource(Struct, frozen=True, kw_only=True):
    kind: str
    ref: str | UnsetType = UNSET


class ExportedRun(Struct, frozen=True, kw_only=True, rename="camel"):
    """The run's record, without what only a list needs."""

    id: str
    status: RunStatus
    runtime_kind: str
    runtime_version: str | UnsetType = UNSET
    runtime_session_id: str | UnsetType = UNSET
    trace_id: str | UnsetType = UNSET
    created_at: str
    started_at: str | UnsetType = UNSET
    ended_at: str | UnsetType = UNSET
    tags: list[str]
    archived_at: str | None
    source: ExportSource | UnsetType = UNSET
    metadata: dict[str, Any]


class RawEvent(Struct, frozen=True, kw_only=True, rename="camel"):
    """A fact of the journal, from which canonical events were made."""

    id: str
    run_id: str
    seq: int
    """Its place among the run's facts, from 0."""
    ts: str
    kind: str
    """What a runtime sent, such as `stream-envelope`; of other facts their type."""
    source_name: str
    payload: Any
    trace_id: str
    span_id: str
    created_at: str


class RunBundle(Struct, frozen=True, kw_only=True, rename="camel"):
    """`GET /runs/:id/export`, as one value: for the documentation."""

    run: ExportedRun
    session: SessionRow | None
    projection: ProjectedState
    metrics: RunMetrics
    artifacts: list[Artifact]
    canonical_events: list[CanonicalEvent]
    raw_events: list[RawEvent]
    exported_at: str


def exported_run(record: RunRecord) -> ExportedRun:
    source: ExportSource | UnsetType = UNSET
    if record.source_kind is not None:
        source = ExportSource(kind=record.source_kind, ref=record.source_ref or UNSET)
    return ExportedRun(
        id=record.id,
        status=record.status,
        runtime_kind=record.runtime_kind,
        runtime_version=record.runtime_version or UNSET,
        runtime_session_id=record.runtime_session_id or UNSET,
        trace_id=record.trace_id or UNSET,
        created_at=record.created_at,
        started_at=record.started_at or UNSET,
        ended_at=record.ended_at or UNSET,
        tags=record.tags,
        archived_at=record.archived_at,
        source=source,
        metadata=record.metadata,
    )


def event_line(body: bytes) -> bytes:
    """A line for an encoded canonical event: `type` tells lines apart, `eventType` is its own."""
    fields = msgspec.json.decode(body, type=dict[str, Any])
    fields["eventType"] = fields.pop("type")
    return _encode({"type": "canonical_event", **fields}) + b"\n"


def raw_line(body: bytes) -> bytes:
    """A line for an encoded raw event."""
    return b'{"type":"raw_event",%b\n' % body[1:]


def raw_event(envelope: Envelope, trace: tuple[str, str], patterns: Sequence[str]) -> RawEvent:
    """A fact without what patterns hide. `trace` are the ids of the run's trace and span."""
    fact: f.Fact = envelope.data
    kind, source, told = envelope.type, "batten", payload(fact)
    if isinstance(fact, f.MacpMessageAccepted):
        kind, source = _KINDS["envelope"], "batten-runtime"
        told = {"envelope": _envelope(fact, fact.body)}
    elif isinstance(fact, f.MacpFrameObserved):
        kind, source = _KINDS[fact.kind], "rust-runtime"
        is_envelope = fact.kind == "envelope"
        told = {"envelope": _envelope(fact, fact.detail)} if is_envelope else fact.detail
    return RawEvent(
        id=to_uuid(envelope.event_id),
        run_id=run_uuid(envelope.run_id),
        seq=envelope.sequence,
        ts=envelope.occurred_at,
        kind=kind,
        source_name=source,
        payload=redact(msgspec.to_builtins(told), patterns),
        trace_id=trace[0],
        span_id=trace[1],
        created_at=envelope.occurred_at,
    )


def _envelope(fact: f.MacpMessageAccepted | f.MacpFrameObserved, body: Any) -> dict[str, Any]:
    """A message as the runtime sent it: its bytes where they may be shown, and readable."""
    given = {
        "messageType": fact.message_type,
        "messageId": fact.message_id,
        "sender": fact.sender,
        "timestampUnixMs": fact.timestamp_unix_ms,
        "payloadBase64": fact.payload,
    }
    shown = {name: value for name, value in given.items() if value is not UNSET}
    return {**shown, "payload": body}
