"""`GET /runs/:id`: the record of a run, folded from its facts and events."""

from typing import Any, Literal

from msgspec import Struct

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.protocols.macp.decisions import certainty, outcome, weigh
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.json_values import object_of, texts_of
from batten.protocols.macp.messages import first_text, payload_fields
from batten.protocols.macp.metrics import Metrics, milliseconds
from batten.protocols.macp.standing import Weight
from batten.protocols.macp.state import RunStatus

_FACETS = ("environment", "scenarioRef", "cancelCallback", "cancellationDelegated")
"""Members of the session's metadata that are the run's too."""
ARCHIVED = "archived"
"""The tag of archived runs."""
_STATUSES: dict[str, RunStatus] = {
    "SESSION_STATE_OPEN": "running",
    "SESSION_STATE_SUSPENDED": "suspended",
}
_COMPARED = ("modeName", "modeVersion", "configurationVersion", "policyVersion")
"""Members of the descriptor's session that the initiator decides."""


class RunRecord(Struct, kw_only=True, rename="camel"):
    id: str = ""
    status: RunStatus = "queued"
    mode: Literal["live", "sandbox"] = "live"
    runtime_kind: str = ""
    runtime_version: str | None = None
    runtime_session_id: str | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    last_event_seq: int = 0
    source_kind: str | None = None
    source_ref: str | None = None
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    error_code: str | None = None
    error_message: str | None = None
    created_at: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    updated_at: str = ""
    archived_at: str | None = None


def describe(record: RunRecord, envelope: Envelope) -> None:
    """Take the descriptor of a run, or that it was archived, if the fact is one of these."""
    fact = envelope.data
    if isinstance(fact, f.MacpRunArchived) and record.archived_at is None:
        record.archived_at = record.updated_at = envelope.occurred_at
        if ARCHIVED not in record.tags:
            record.tags = [*record.tags, ARCHIVED]
    if not isinstance(fact, f.MacpRunDescribed):
        return
    descriptor = fact.descriptor
    session = object_of(descriptor.get("session")) or {}
    execution = object_of(descriptor.get("execution")) or {}
    given = object_of(session.get("metadata")) or {}
    record.mode = "sandbox" if descriptor.get("mode") == "sandbox" else "live"
    record.idempotency_key = first_text(execution, "idempotencyKey") or None
    record.tags = texts_of(execution.get("tags"))
    if record.mode == "sandbox" and "sandbox" not in record.tags:
        record.tags.append("sandbox")
    record.source_kind = first_text(given, "source") or None
    record.source_ref = first_text(given, "sourceRef") or None
    record.metadata = {"executionRequest": descriptor}
    if (requester := execution.get("requester")) is not None:
        record.metadata["requester"] = requester
    record.metadata.update({name: given[name] for name in _FACETS if name in given})


def note(record: RunRecord, event: CanonicalEvent, weight: Weight) -> None:
    """Take the run's next event; `weight` is what was said about its proposals so far."""
    data = event.data
    record.id = event.run_id
    record.last_event_seq = event.seq
    record.updated_at = event.ts
    match event.type:
        case "run.created":
            record.created_at = event.ts
            record.runtime_kind = data["runtimeKind"]
            record.runtime_version = data.get("runtimeVersion")
            record.runtime_session_id = data["sessionId"] or None
            record.trace_id = data["traceId"]
        case "run.started":
            record.status = "starting"
            record.started_at = data["startedAt"]
        case "session.bound":
            record.runtime_session_id = data["sessionId"]
            if record.ended_at is None:
                record.status = "binding_session"
            _compare(record, data)
        case "session.state.changed":
            if record.ended_at is None:
                record.status = _STATUSES.get(data["state"], record.status)
        case "run.completed" | "run.failed" | "run.cancelled":
            record.status = data["status"]
            record.ended_at = data["endedAt"]
            if event.type == "run.failed":
                record.error_code = data.get("errorCode") or "RUN_FAILED"
                record.error_message = data.get("error")
        case "proposal.created" | "proposal.updated":
            weigh(weight, event)
        case "decision.finalized":
            _decide(record, data, weight)
        case _:
            pass


def _compare(record: RunRecord, bound: dict[str, Any]) -> None:
    """Note where the session that was opened is not the one that was asked for."""
    request = object_of(record.metadata.get("executionRequest")) or {}
    asked = object_of(request.get("session")) or {}
    differing = {
        name: {"asked": asked[name], "opened": bound[name]}
        for name in _COMPARED
        if asked.get(name) and bound.get(name) and asked[name] != bound[name]
    }
    if differing:
        record.metadata["sessionDiffers"] = differing


def _decide(record: RunRecord, data: dict[str, Any], weight: Weight) -> None:
    fields = payload_fields(data.get("decodedPayload"))
    record.metadata["finalAction"] = first_text(fields, "action") or "resolved"
    if (confidence := certainty(fields, weight)) is not None:
        record.metadata["finalConfidence"] = confidence
    record.metadata["finalOutcomePositive"] = outcome(fields)


def enrich(record: RunRecord, metrics: Metrics) -> dict[str, Any]:
    """The metadata of a run; of one that completed or failed with how long it took and so on."""
    if record.status not in ("completed", "failed"):
        hidden = {"finalAction", "finalConfidence", "finalOutcomePositive"}
        return {name: value for name, value in record.metadata.items() if name not in hidden}
    start = record.started_at or record.created_at
    return {
        **record.metadata,
        "durationMs": milliseconds(start, record.ended_at or record.updated_at),
        "eventCount": metrics.event_count,
        "signalCount": metrics.signal_count,
        "decisionCount": metrics.decision_count,
    }
