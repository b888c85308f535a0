"""Facts of our own agent's runs as canonical events: the agent and its user take part."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET

from batten.contract import facts as f
from batten.contract.facts.assistant import Usage
from batten.contract.ids import to_uuid
from batten.contract.tracing import span_of
from batten.protocols.macp import events as ev
from batten.protocols.macp.artifacts import attached
from batten.protocols.macp.emitting import ARTIFACTS, RECOVERY, STREAMS, Emitter
from batten.protocols.macp.events import EventType, Source, Subject
from batten.protocols.macp.llm import NANO, dollars
from batten.protocols.macp.messages import Message, emit_call, emit_message, first_text
from batten.protocols.macp.payloads import Decoded
from batten.protocols.macp.redaction import redact

KIND = "agent"
"""`runtimeKind` of such runs."""
AGENT = "agent"
USER = "user"
_MICRO = NANO // 1_000_000


def queued(emitter: Emitter, fact: f.RunQueued) -> None:
    state = emitter.state
    state.runtime_kind = KIND
    state.mode = fact.kind
    session_id = emitter.envelope.session_id
    state.session_id = to_uuid(session_id) if isinstance(session_id, str) else state.run_id
    emitter.created()


def described(emitter: Emitter, fact: f.MacpRunDescribed) -> None:
    """The run was asked for by `POST /runs`: its rules are pinned like those of a session."""
    state = emitter.state
    state.version = fact.normaliser
    state.redact = [] if fact.redact is UNSET else list(fact.redact)


def _started(emitter: Emitter, fact: f.RunStarted) -> None:
    state = emitter.state
    if state.started_at:
        emitter.stream_opened("recovered", "another worker goes on with the run", RECOVERY)
        return
    state.started_at = emitter.ts
    emitter.started()
    emitter.bound(
        ev.SessionBoundData(
            session_id=state.session_id,
            initiator=USER,
            state="SESSION_STATE_OPEN",
            mode_name=state.mode,
            mode_version="",
            configuration_version="",
            policy_version="",
            participants=[AGENT],
        )
    )


def _source(raw_type: str) -> Source:
    return Source(kind="runtime", name="batten-agent", raw_type=raw_type)


def _message(
    emitter: Emitter, message_type: str, sender: str, payload: Mapping[str, Any]
) -> Message:
    state = emitter.state
    return Message(
        mode=state.mode,
        message_type=message_type,
        message_id=to_uuid(emitter.envelope.event_id),
        session_id=state.session_id,
        sender=sender,
        decoded=Decoded(redact(dict(payload), state.redact)),
    )


def _received(emitter: Emitter, message_type: str, sender: str, payload: Mapping[str, Any]) -> None:
    message = _message(emitter, message_type, sender, payload)
    emit_message(emitter, message, _source(emitter.envelope.type))


def _said(emitter: Emitter, fact: f.UserMessage) -> None:
    _received(emitter, "UserMessage", USER, {"text": fact.text})


def _text(emitter: Emitter, fact: f.AssistantTextComplete) -> None:
    _received(emitter, "AssistantText", AGENT, {"text": fact.text})


def _answered(emitter: Emitter, fact: f.AssistantFinalAnswer) -> None:
    payload: dict[str, Any] = {"summary": fact.summary}
    if fact.structured_output is not UNSET:
        payload["structuredOutput"] = fact.structured_output
    _received(emitter, "FinalAnswer", AGENT, payload)


def _called(emitter: Emitter, fact: f.AssistantMessageComplete) -> None:
    _call(emitter, fact.model, fact.provider, fact.usage, fact.cost_micros_usd, fact.duration_ms)


def _compacted(emitter: Emitter, fact: f.ContextCompacted) -> None:
    if fact.model is not UNSET:
        usage = Usage() if fact.usage is UNSET else fact.usage
        _call(emitter, fact.model, fact.provider or "", usage, fact.cost_micros_usd, None)


def _unfinished(emitter: Emitter, fact: f.CostCallUnfinished) -> None:
    _call(emitter, fact.model, fact.provider, fact.usage, fact.cost_micros_usd, None)


def _call(
    emitter: Emitter,
    model: str,
    provider: str,
    usage: Usage,
    cost_micros_usd: int | None,
    duration_ms: int | None,
) -> None:
    call: dict[str, Any] = {
        "promptTokens": usage.input_tokens,
        "completionTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "model": model,
        "provider": provider,
    }
    if duration_ms is not None:
        call["latencyMs"] = duration_ms
    if cost_micros_usd is not None:
        call["estimatedCostUsd"] = dollars(cost_micros_usd * _MICRO)
    emitter.participant(AGENT)
    message = _message(emitter, "AssistantMessage", AGENT, {})
    emit_call(emitter, message, call, _source(emitter.envelope.type))


def _invoked(emitter: Emitter, fact: f.ToolInvoked) -> None:
    payload: dict[str, Any] = {"toolCallId": fact.tool_call_id, "tool": fact.tool_name}
    _tool(emitter, "tool.called", "ToolCall", fact, payload)


def _ended(emitter: Emitter, fact: f.ToolEnded) -> None:
    payload: dict[str, Any] = {
        "toolCallId": fact.tool_call_id,
        "tool": fact.tool_name,
        "status": fact.TYPE.removeprefix("tool."),
        "durationMs": fact.duration_ms,
        "summary": fact.summary,
    }
    if error := getattr(fact, "error", None):
        payload["error"] = error
    _tool(emitter, "tool.completed", "ToolResult", fact, payload)


def _tool(
    emitter: Emitter,
    type_: EventType,
    message_type: str,
    fact: f.ToolInvoked | f.ToolEnded,
    payload: dict[str, Any],
) -> None:
    call_id, attempt = fact.tool_call_id, 1 if fact.attempt is UNSET else fact.attempt
    _contribute(
        emitter,
        type_,
        message_type,
        AGENT,
        Subject("tool", call_id),
        payload,
        span_of(emitter.state.journal_id, "tool", call_id, attempt),
    )


def _contribute(
    emitter: Emitter,
    type_: EventType,
    message_type: str,
    sender: str,
    subject: Subject,
    payload: dict[str, Any],
    span: str = "",
) -> None:
    state = emitter.state
    emitter.participant(sender)
    emitter.emit(
        type_,
        subject,
        _source(emitter.envelope.type),
        ev.ContributionData(
            mode_name=state.mode,
            message_type=message_type,
            message_id=to_uuid(emitter.envelope.event_id),
            session_id=state.session_id,
            sender=sender,
            decoded_payload=redact(payload, state.redact),
        ),
        span=span,
    )


def _planned(emitter: Emitter, fact: f.ToolTodoWriteUpdated) -> None:
    done = sum(one.status == "completed" for one in fact.todos)
    current = next((one.content for one in fact.todos if one.status == "in_progress"), "")
    told: dict[str, Any] = {"message": current, "total": len(fact.todos)}
    if fact.todos:
        told["percentage"] = done / len(fact.todos) * 100
    emitter.emit(
        "progress.reported",
        Subject("participant", AGENT),
        _source(emitter.envelope.type),
        ev.ProgressData(
            mode_name=emitter.state.mode,
            message_type="Progress",
            sender=AGENT,
            decoded_payload=redact(told, emitter.state.redact),
        ),
    )


def _asked(emitter: Emitter, fact: f.ApprovalRequested) -> None:
    payload = {
        "requestId": fact.approval_id,
        "action": fact.kind,
        "summary": fact.summary,
        "reason": fact.policy_reason,
    }
    subject = Subject("proposal", fact.approval_id)
    _contribute(emitter, "proposal.created", "ApprovalRequest", AGENT, subject, payload)


def _decided(emitter: Emitter, fact: f.ApprovalResolved) -> None:
    payload = {"requestId": fact.approval_id, "reason": fact.comment}
    message_type = "Approve" if fact.decision == "approved" else "Reject"
    subject = Subject("proposal", fact.approval_id)
    _contribute(emitter, "proposal.updated", message_type, fact.by or USER, subject, payload)


def _blocked(emitter: Emitter, fact: f.PolicyToolBlocked) -> None:
    emitter.denied(
        fact.policy_id or fact.tool_call_id,
        _source("PolicyDenied"),
        sender=AGENT,
        message=fact.reason,
        payload={"decision": "deny", "reasons": [fact.reason], "toolCallId": fact.tool_call_id},
    )


def artifact(emitter: Emitter, fact: f.ArtifactCreated) -> None:
    """Sealed bodies, and those that only hold a message's payload, are nobody's artifacts."""
    if fact.kind == "sealed" or (emitter.state.kind == "coordination" and fact.by is UNSET):
        return
    artifact_id, given = to_uuid(fact.artifact_id), attached(fact.metadata)
    emitter.emit(
        "artifact.created",
        Subject("artifact", artifact_id),
        ARTIFACTS,
        ev.ArtifactData(
            kind=str(given.get("kind") or fact.kind),
            label=fact.summary,
            artifact_id=artifact_id,
            uri=first_text(given, "uri") or UNSET,
        ),
    )


def _disconnected(emitter: Emitter, fact: f.GapRunDisconnected) -> None:
    emitter.stream_opened("reconnecting", fact.reason, STREAMS)


def _finished(emitter: Emitter, fact: f.RunFinished) -> None:
    emitter.state_changed("SESSION_STATE_RESOLVED", _source("session-snapshot"))
    emitter.ended("run.completed", "completed")


def _failed(emitter: Emitter, fact: f.RunFailed) -> None:
    emitter.ended("run.failed", "failed", error=fact.message, error_code=fact.code)


def _cancelled(emitter: Emitter, fact: f.RunCancelled) -> None:
    emitter.ended("run.cancelled", "cancelled", reason=fact.reason or UNSET)


_Step: TypeAlias = Callable[[Emitter, Any], None]
STEPS: dict[type[f.Fact], _Step] = {
    f.RunStarted: _started,
    f.UserMessage: _said,
    f.AssistantTextComplete: _text,
    f.AssistantFinalAnswer: _answered,
    f.AssistantMessageComplete: _called,
    f.ContextCompacted: _compacted,
    f.CostCallUnfinished: _unfinished,
    f.ToolInvoked: _invoked,
    f.ToolCompleted: _ended,
    f.ToolFailed: _ended,
    f.ToolCancelled: _ended,
    f.ToolTimedOut: _ended,
    f.ToolTodoWriteUpdated: _planned,
    f.ApprovalRequested: _asked,
    f.ApprovalResolved: _decided,
    f.PolicyToolBlocked: _blocked,
    f.ArtifactCreated: artifact,
    f.GapRunDisconnected: _disconnected,
    f.RunFinished: _finished,
    f.RunFailed: _failed,
    f.RunCancelled: _cancelled,
}
"""What each fact of an agent's run means. Other facts have no canonical event."""
