"""The spans of a run that a coordination session is: one for each fact, below `run.lifecycle`.

They follow from the canonical events of the facts, which name the same trace and run span.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.facts.macp import FrameKind
from batten.protocols.macp.decisions import outcome
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.json_values import object_of
from batten.protocols.macp.messages import first_text, payload_fields
from batten.protocols.macp.normaliser import normalise
from batten.sinks.otel.encoding import Attributes

_LONGEST = 200
_FRAMES: dict[FrameKind, str] = {
    "envelope": "stream-envelope",
    "stream_status": "stream-status",
    "session_snapshot": "session-snapshot",
    "send_ack": "send-ack",
    "stream_error": "stream-inline-error",
}


class SessionSpan(Struct, frozen=True):
    """A span below the run's."""

    part: str
    """Its id follows from this and the fact's place."""
    name: str
    attributes: dict[str, Any]


class SessionFold:
    """Takes all facts of one run."""

    def __init__(self) -> None:
        self._state = NormaliserState()
        self._mode = "live"

    @property
    def run_attributes(self) -> dict[str, Any]:
        """What is known of the run, for its own span."""
        state = self._state
        return {
            "run_id": state.run_id,
            "runtime_kind": state.runtime_kind,
            "mode_name": state.mode,
            "execution_mode": self._mode,
        }

    def take(self, envelope: Envelope) -> tuple[list[SessionSpan], list[tuple[str, Attributes]]]:
        """The spans of a fact, and the annotations of the run's span."""
        fact = envelope.data
        if isinstance(fact, facts.MacpRunDescribed):
            self._mode = str(fact.descriptor.get("mode") or "live")
        made = normalise(self._state, envelope)
        notes = [note for event in made for note in _notes(event)]
        raw_kind = _raw_kind(fact)
        if not raw_kind:
            emitted = SessionSpan("emit", "run-event.emit", {"macp.event_count": len(made)})
            return [emitted] if made else [], notes
        told: dict[str, Any] = {"macp.raw_kind": raw_kind}
        if message_type := _message_type(fact):
            told["macp.message_type"] = message_type
        told["macp.session_id"] = self._state.session_id
        stored = {"macp.event_count": len(made), "macp.raw_kind": raw_kind}
        return [
            SessionSpan("raw", "stream.handle_raw_event", told),
            SessionSpan("persist", "run-event.persist", stored),
        ], notes


def _raw_kind(fact: facts.Fact) -> str:
    """How a runtime tells such a fact; empty for what the control plane itself did."""
    match fact:
        case facts.MacpFrameObserved():
            return _FRAMES[fact.kind]
        case facts.MacpMessageAccepted() | facts.MacpCommitmentEvaluated():
            return "stream-envelope"
        case facts.MacpSessionBound() | facts.MacpSessionChanged():
            return "session-snapshot"
        case _:
            return ""


def _message_type(fact: facts.Fact) -> str:
    match fact:
        case facts.MacpFrameObserved():
            return fact.message_type or ""
        case facts.MacpMessageAccepted():
            return fact.message_type
        case facts.MacpCommitmentEvaluated():
            return "PolicyCommitmentEvaluated"
        case _:
            return ""


def _notes(event: CanonicalEvent) -> Iterator[tuple[str, Attributes]]:
    """The annotation that a key event is."""
    data = event.data
    fields = payload_fields(object_of(data.get("decodedPayload")) or {})
    about: dict[str, Any]
    match event.type:
        case "signal.emitted":
            name = first_text(fields, "signalType") or data["messageType"]
            about = {"name": name, "sender": data["sender"]}
        case "signal.acknowledged":
            signal = "" if not event.subject else event.subject.id
            about = {"signalId": signal, "sender": data["sender"]}
        case "policy.denied":
            about = {"errorCode": data["errorCode"]}
        case "decision.finalized":
            about = {"action": first_text(fields, "action")}
            if (positive := outcome(fields)) is not None:
                about["outcome"] = "positive" if positive else "negative"
        case _:
            return
    shown = {key: str(value)[:_LONGEST] for key, value in about.items()}
    yield event.type, {**shown, "seq": event.seq}
