"""Facts of a run as canonical events: a pure fold with pinned rules.

A session of the embedded runtime, one that an observer watches elsewhere, and a run of our own
agent all go through it. `VERSION` is what new runs are pinned to; a changed rule is a new version
beside the old one, so that a rebuilt run has the same events.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.contract.tracing import place_of
from batten.protocols.macp import agent_runs
from batten.protocols.macp import events as ev
from batten.protocols.macp.emitting import RECOVERY, STREAMS, Emitter, NormaliserState
from batten.protocols.macp.events import CanonicalEvent, Source, Subject
from batten.protocols.macp.json_values import object_of, texts_of
from batten.protocols.macp.judgements import AUTHOR, evaluated_payload, resolved_payload
from batten.protocols.macp.messages import (
    Message,
    emit_evaluated,
    emit_message,
    emit_resolved,
    first_text,
)
from batten.protocols.macp.payloads import Decoded, decode_body, decode_payload, text_of
from batten.protocols.macp.redaction import redact

VERSION = 1
EMBEDDED = "embedded"
_ELSEWHERE = "rust-runtime"
_STATE = "SESSION_STATE_"


def normalise(state: NormaliserState, envelope: Envelope) -> list[CanonicalEvent]:
    """The canonical events of the run's next fact; `state` moves on."""
    emitter = Emitter(state, envelope)
    state.sequence = envelope.sequence
    fact: f.Fact = envelope.data
    if isinstance(fact, f.MacpRunDescribed) and state.kind != "coordination":
        agent_runs.described(emitter, fact)
    elif state.kind == "coordination" or isinstance(fact, f.RunQueued):
        step = _STEPS.get(type(fact))
        if step is not None:
            step(emitter, fact)
    elif (agent_step := agent_runs.STEPS.get(type(fact))) is not None:
        agent_step(emitter, fact)
    return emitter.made


def _queued(emitter: Emitter, fact: f.RunQueued) -> None:
    state = emitter.state
    if state.kind:
        return  # queued again
    state.kind = fact.kind
    state.queued_at = emitter.ts
    state.trace_id = place_of(state.journal_id, fact).trace_id
    if fact.kind == "coordination":
        state.runtime_kind = EMBEDDED
    else:
        agent_runs.queued(emitter, fact)


def _pin(state: NormaliserState, patterns: list[str] | UnsetType) -> None:
    """Hide these texts from here on."""
    if patterns is not UNSET:
        state.redact += [one for one in patterns if one not in state.redact]


def _known(emitter: Emitter) -> None:
    """The session is known: tell what happened before."""
    state = emitter.state
    if not state.is_created:
        emitter.created(state.queued_at)
    if state.started_at and not state.is_started:
        emitter.started(state.started_at)


def _started(emitter: Emitter, fact: f.RunStarted) -> None:
    state = emitter.state
    if state.started_at:
        if state.is_bound:
            emitter.stream_opened("recovered", "stream resumed after restart", RECOVERY)
        return
    state.started_at = emitter.ts
    if state.is_created:
        emitter.started()


def _described(emitter: Emitter, fact: f.MacpRunDescribed) -> None:
    state = emitter.state
    state.version = fact.normaliser
    _pin(state, fact.redact)
    state.session_id = fact.session_id
    session: Mapping[str, Any] = fact.descriptor.get("session") or {}
    runtime: Mapping[str, Any] = fact.descriptor.get("runtime") or {}
    state.mode = str(session.get("modeName", ""))
    state.runtime_kind = str(runtime.get("kind", state.runtime_kind))
    state.runtime_version = str(runtime.get("version", ""))
    _known(emitter)


def _bound(emitter: Emitter, fact: f.MacpSessionBound) -> None:
    state = emitter.state
    state.session_id, state.mode, state.is_hosted = fact.session_id, fact.mode, True
    _pin(state, fact.redact)
    _known(emitter)
    emitter.bound(
        ev.SessionBoundData(
            session_id=fact.session_id,
            initiator=fact.initiator,
            state=f"{_STATE}OPEN",
            mode_name=fact.mode,
            mode_version=fact.mode_version,
            configuration_version=fact.configuration_version,
            policy_version=fact.policy.policy_id,
            participants=fact.participants,
        )
    )
    payload = resolved_payload(fact.policy, emitter.ts)
    emit_resolved(emitter, fact.policy.policy_id, AUTHOR, payload, _from("PolicyResolved"))


def _from(raw_type: str, name: str = AUTHOR) -> Source:
    return Source(kind="runtime", name=name, raw_type=raw_type)


def _accepted(emitter: Emitter, fact: f.MacpMessageAccepted) -> None:
    state = emitter.state
    decoded = _decoded(state, state.mode, fact.message_type, fact.payload, fact.body)
    message = Message(
        mode=state.mode,
        message_type=fact.message_type,
        message_id=fact.message_id,
        session_id=state.session_id,
        sender=fact.sender,
        decoded=decoded,
        metadata=redact({} if fact.metadata is UNSET else fact.metadata, state.redact),
        by_runtime=fact.by_runtime is True,
    )
    emit_message(emitter, message, _from(fact.message_type))
    if fact.state in ("RESOLVED", "EXPIRED", "CANCELLED"):
        emitter.state_changed(_STATE + fact.state, _from("session-snapshot"))


def _decoded(
    state: NormaliserState, mode: str, message_type: str, payload: Any, body: Mapping[str, Any]
) -> Decoded:
    """The payload without what patterns hide; of a sealed or long one its readable form."""
    if isinstance(payload, str):
        decoded = decode_payload(mode, message_type, b64decode(payload))
    else:
        decoded = decode_body(mode, message_type, body, has_texts=state.is_hosted)
    if not state.redact:
        return decoded
    return Decoded(redact(decoded.value, state.redact), decoded.type_name)


def _evaluated(emitter: Emitter, fact: f.MacpCommitmentEvaluated) -> None:
    payload = evaluated_payload(fact)
    emit_evaluated(emitter, fact.commitment_id, AUTHOR, payload, _from("PolicyCommitmentEvaluated"))
    if fact.decision == "deny":
        text = "; ".join(payload["reasons"]) or "the policy denied the commitment"
        _send_failed(
            emitter,
            "POLICY_DENIED",
            text,
            fact.message_id,
            _from("stream-inline-error"),
            message_type="Commitment",
            sender=fact.sender,
        )
        emitter.denied(
            fact.commitment_id or fact.message_id,
            _from("PolicyDenied"),
            sender=AUTHOR,
            message=text,
            payload=payload,
        )


def _send_failed(
    emitter: Emitter, code: str, text: str, message_id: str, source: Source, **known: str
) -> None:
    emitter.emit(
        "message.send_failed",
        Subject("message", message_id),
        source,
        ev.SendFailedData(
            error_code=code,
            error_message=text,
            session_id=emitter.state.session_id,
            message_id=message_id,
            **known,
        ),
    )


def _changed(emitter: Emitter, fact: f.MacpSessionChanged) -> None:
    emitter.state_changed(
        _STATE + fact.state,
        _from("session-snapshot"),
        reason=fact.reason or UNSET,
        by=fact.by or UNSET,
    )


def _observed(emitter: Emitter, fact: f.MacpFrameObserved) -> None:
    _FRAMES[fact.kind](emitter, fact)


def _envelope(emitter: Emitter, fact: f.MacpFrameObserved) -> None:
    state = emitter.state
    mode = fact.mode or state.mode
    message_type = fact.message_type or ""
    message = Message(
        mode=mode,
        message_type=message_type,
        message_id=fact.message_id or "",
        session_id=fact.session_id,
        sender=fact.sender or "",
        decoded=_decoded(state, mode, message_type, fact.payload, fact.detail),
    )
    emit_message(emitter, message, _from(message_type, _runtime(state)))


def _runtime(state: NormaliserState) -> str:
    return AUTHOR if state.is_hosted else _ELSEWHERE


def _status(emitter: Emitter, fact: f.MacpFrameObserved) -> None:
    source = _from("stream-status", _ELSEWHERE)
    detail = str(fact.detail.get("detail") or "")
    emitter.stream_opened(str(fact.detail.get("status", "opened")), detail, source)


def _snapshot(emitter: Emitter, fact: f.MacpFrameObserved) -> None:
    detail = fact.detail
    state = emitter.state
    named = {
        "mode_name": str(detail.get("modeName") or state.mode),
        "mode_version": str(detail.get("modeVersion") or ""),
        "configuration_version": str(detail.get("configurationVersion") or ""),
        "policy_version": str(detail.get("policyVersion") or ""),
    }
    told = str(detail.get("state", ""))
    if not state.is_bound:
        emitter.bound(
            ev.SessionBoundData(
                session_id=state.session_id,
                initiator=str(detail.get("initiator") or ""),
                state=told,
                participants=texts_of(detail.get("participants")),
                **named,
            )
        )
        return
    times = {
        name: value if isinstance(value := detail.get(key), int) else UNSET
        for name, key in (
            ("started_at_unix_ms", "startedAtUnixMs"),
            ("expires_at_unix_ms", "expiresAtUnixMs"),
        )
    }
    emitter.state_changed(told, _from("session-snapshot", _ELSEWHERE), **named, **times)


def _ack(emitter: Emitter, fact: f.MacpFrameObserved) -> None:
    detail = fact.detail
    message_id = fact.message_id or str(detail.get("messageId") or "")
    source = _from("send-ack", _ELSEWHERE)
    accepted_at = detail.get("acceptedAtUnixMs")
    emitter.emit(
        "message.sent",
        Subject("message", message_id),
        source,
        ev.MessageSentData(
            message_id=message_id,
            session_id=fact.session_id,
            ok=detail.get("ok") is True,
            duplicate=detail.get("duplicate") is True,
            session_state=str(detail.get("sessionState") or ""),
            accepted_at_unix_ms=accepted_at if isinstance(accepted_at, int) else 0,
            sender=fact.sender or UNSET,
        ),
    )
    error = object_of(detail.get("error"))
    if error is not None and detail.get("ok") is not True:
        _deny(emitter, fact, error, message_id, source)


def _error(emitter: Emitter, fact: f.MacpFrameObserved) -> None:
    detail = fact.detail
    message_id = fact.message_id or str(detail.get("messageId") or "")
    source = _from("stream-inline-error", _ELSEWHERE)
    text = str(detail.get("message") or "")
    _send_failed(emitter, str(detail.get("code") or ""), text, message_id, source)
    _deny(emitter, fact, detail, message_id, source)


def _deny(
    emitter: Emitter,
    fact: f.MacpFrameObserved,
    error: Mapping[str, Any],
    message_id: str,
    source: Source,
) -> None:
    """A refusal by policy is told as a denial, although the runtime sent no such message."""
    if error.get("code") != "POLICY_DENIED":
        return
    emitter.denied(
        first_text(error, "commitmentId") or message_id,
        source,
        sender=fact.sender or "",
        message=str(error.get("message") or ""),
        payload={"decision": "deny", "reasons": denial_reasons(error)},
    )


def denial_reasons(error: Mapping[str, Any]) -> list[str]:
    """`reasons`, else those in the details, as JSON or in the binary metadata, else the message."""
    if given := texts_of(error.get("reasons")):
        return given
    for key in ("details", "macp-error-details-bin"):
        value = error.get(key)
        for text in (value, text_of(value)):
            try:
                inner = msgspec.json.decode(text) if isinstance(text, str) else text
            except (msgspec.DecodeError, RecursionError):
                continue
            if reasons := texts_of((object_of(inner) or {}).get("reasons")):
                return reasons
    message = str(error.get("message") or "")
    return [message] if message else []


def _disconnected(emitter: Emitter, fact: f.GapRunDisconnected) -> None:
    if emitter.state.is_bound:
        emitter.stream_opened("reconnecting", fact.reason, STREAMS)


def _finished(emitter: Emitter, fact: f.RunFinished) -> None:
    _known(emitter)
    emitter.ended("run.completed", "completed")


def _failed(emitter: Emitter, fact: f.RunFailed) -> None:
    _known(emitter)
    emitter.ended("run.failed", "failed", error=fact.message, error_code=fact.code)


def _cancelled(emitter: Emitter, fact: f.RunCancelled) -> None:
    _known(emitter)
    emitter.ended("run.cancelled", "cancelled", reason=fact.reason or UNSET)


_Step: TypeAlias = Callable[[Emitter, Any], None]
_FRAMES: dict[str, _Step] = {
    "envelope": _envelope,
    "stream_status": _status,
    "session_snapshot": _snapshot,
    "send_ack": _ack,
    "stream_error": _error,
}
_STEPS: dict[type[f.Fact], _Step] = {
    f.RunQueued: _queued,
    f.RunStarted: _started,
    f.MacpRunDescribed: _described,
    f.MacpSessionBound: _bound,
    f.MacpMessageAccepted: _accepted,
    f.MacpCommitmentEvaluated: _evaluated,
    f.MacpSessionChanged: _changed,
    f.MacpFrameObserved: _observed,
    f.GapRunDisconnected: _disconnected,
    f.ArtifactCreated: agent_runs.artifact,
    f.RunFinished: _finished,
    f.RunFailed: _failed,
    f.RunCancelled: _cancelled,
}
"""What each fact of a session's run means. Other facts have no canonical event."""
