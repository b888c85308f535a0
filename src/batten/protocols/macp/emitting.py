"""What the normaliser remembers of a run, and how it makes its next event."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec
from msgspec import UNSET, Struct

from batten.contract.envelope import Envelope
from batten.contract.tracing import span_of, trace_of
from batten.protocols.macp import events as ev
from batten.protocols.macp.artifacts import ROOT_TRACE
from batten.protocols.macp.events import CanonicalEvent, EventType, Source, Subject, Trace
from batten.protocols.macp.ids import run_uuid
from batten.protocols.macp.redaction import redact

RUNS = Source(kind="macp-control-plane", name="run-manager")
EXECUTOR = Source(kind="macp-control-plane", name="run-executor")
STREAMS = Source(kind="macp-control-plane", name="stream-consumer")
RECOVERY = Source(kind="macp-control-plane", name="run-recovery")
ARTIFACTS = Source(kind="macp-control-plane", name="observability-controller")


class NormaliserState(Struct, kw_only=True):
    """Enough of a run to make its next canonical events."""

    version: int = 0
    """The pinned version of the rules; 0 before the first fact."""
    journal_id: str = ""
    run_id: str = ""
    """The run's id on this protocol: a UUID."""
    kind: str = ""
    seq: int = 0
    sequence: int = -1
    """The last fact that was taken."""
    session_id: str = ""
    mode: str = ""
    runtime_kind: str = ""
    runtime_version: str = ""
    trace_id: str = ""
    span_id: str = ""
    redact: list[str] = []
    initiator: str = ""
    seen: dict[str, bool] = {}
    """Participants that have their event."""
    queued_at: str = ""
    """Set while `run.created` waits for the session to be known."""
    started_at: str = ""
    is_created: bool = False
    is_started: bool = False
    is_bound: bool = False
    is_hosted: bool = False
    """Whether the session is one of the runtime beside the service."""


_FREE = ("error", "errorMessage", "reason", "detail", "label", "decodedPayload", "payload")
"""Members of an event's data that a person or a program wrote."""


def _shown(data: Struct, patterns: Sequence[str]) -> dict[str, Any]:
    """The data of an event, without what patterns hide."""
    shown: dict[str, Any] = msgspec.to_builtins(data)
    if patterns:
        shown |= {name: redact(shown[name], patterns) for name in _FREE if name in shown}
    return shown


class Emitter:
    """Makes the canonical events of one fact."""

    def __init__(self, state: NormaliserState, envelope: Envelope) -> None:
        self.state = state
        self.envelope = envelope
        self.ts = envelope.occurred_at
        self.made: list[CanonicalEvent] = []
        if not state.run_id:
            state.version = state.version or 1
            state.journal_id = envelope.run_id
            state.run_id = run_uuid(envelope.run_id)
            state.trace_id = trace_of(envelope.run_id)
            state.span_id = span_of(envelope.run_id)

    def emit(
        self,
        type_: EventType,
        subject: Subject,
        source: Source,
        data: Struct,
        *,
        ts: str = "",
        span: str = "",
    ) -> None:
        state = self.state
        state.seq += 1
        self.made.append(
            CanonicalEvent(
                id=str(uuid5(UUID(state.run_id), str(state.seq))),
                run_id=state.run_id,
                seq=state.seq,
                ts=ts or self.ts,
                type=type_,
                subject=subject,
                source=source,
                trace=self._trace(span),
                data=_shown(data, state.redact),
            )
        )

    def _trace(self, span: str) -> Trace:
        state = self.state
        if not span:
            return Trace(trace_id=state.trace_id, span_id=state.span_id)
        return Trace(trace_id=state.trace_id, span_id=span, parent_span_id=state.span_id)

    def created(self, ts: str = "") -> None:
        state = self.state
        state.is_created = True
        self.emit(
            "run.created",
            self.run,
            RUNS,
            ev.RunCreatedData(
                status="queued",
                mode_name=state.mode,
                runtime_kind=state.runtime_kind,
                runtime_version=state.runtime_version or UNSET,
                session_id=state.session_id,
                trace_id=state.trace_id,
            ),
            ts=ts,
        )

    def started(self, ts: str = "") -> None:
        state = self.state
        state.is_started = True
        self.emit(
            "run.started",
            self.run,
            RUNS,
            ev.RunStartedData(
                status="starting",
                started_at=ts or self.ts,
                mode_name=state.mode,
                runtime_kind=state.runtime_kind,
                trace_id=state.trace_id,
            ),
            ts=ts,
        )

    @property
    def run(self) -> Subject:
        return Subject("run", self.state.run_id)

    @property
    def session(self) -> Subject:
        return Subject("session", self.state.session_id)

    def is_runtime(self, sender: str) -> bool:
        """Whether a message that was observed comes from the runtime itself. The one beside the
        service has facts for what it says.
        """
        state = self.state
        return not state.is_hosted and sender != state.initiator and sender not in state.seen

    def participant(self, name: str, *, is_declared: bool = False) -> None:
        """The event of a participant, unless it has one."""
        if not name or name in self.state.seen:
            return
        self.state.seen[name] = True
        self.emit(
            "participant.seen",
            Subject("participant", name),
            EXECUTOR if is_declared else STREAMS,
            ev.ParticipantSeenData(participant_id=name, status="idle" if is_declared else UNSET),
        )

    def bound(self, data: ev.SessionBoundData) -> None:
        """A session was seen open: the run is bound to it, and reads its stream."""
        state = self.state
        state.is_bound = True
        state.initiator = data.initiator
        self.emit("session.bound", self.session, EXECUTOR, data)
        for name in data.participants:
            self.participant(name, is_declared=True)
        self.state_changed(data.state, EXECUTOR)
        self.stream_opened("opened")
        artifact_id = str(uuid5(UUID(state.run_id), "root trace"))
        self.emit(
            "artifact.created",
            Subject("artifact", artifact_id),
            EXECUTOR,
            ev.ArtifactData(
                kind="trace",
                label=ROOT_TRACE,
                artifact_id=artifact_id,
                trace_id=state.trace_id,
            ),
        )

    def state_changed(self, state: str, source: Source, **fields: Any) -> None:
        self.emit(
            "session.state.changed",
            self.session,
            source,
            ev.StateChangedData(session_id=self.state.session_id, state=state, **fields),
        )

    def stream_opened(self, status: str, detail: str = "", source: Source = STREAMS) -> None:
        self.emit(
            "session.stream.opened",
            self.session,
            source,
            ev.StreamOpenedData(status=status, detail=detail or UNSET),
        )

    def ended(self, type_: EventType, status: Any, **fields: Any) -> None:
        data = ev.RunEndedData(
            status=status,
            ended_at=self.ts,
            runtime_session_id=self.state.session_id,
            trace_id=self.state.trace_id,
            **fields,
        )
        self.emit(type_, self.run, RUNS, data)

    def denied(
        self,
        subject_id: str,
        source: Source,
        *,
        sender: str,
        message: str,
        payload: Mapping[str, Any],
    ) -> None:
        self.emit(
            "policy.denied",
            Subject("policy", subject_id),
            source,
            ev.PolicyDeniedData(
                mode_name=self.state.mode,
                message_type="PolicyDenied",
                sender=sender or UNSET,
                error_code="POLICY_DENIED",
                error_message=message,
                decoded_payload=dict(payload),
            ),
        )
