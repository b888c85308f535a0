"""Canonical events: one envelope, 26 types, and the data of each."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

SCHEMA_VERSION = 3

EventType = Literal[
    "run.created",
    "run.started",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "session.bound",
    "session.stream.opened",
    "session.state.changed",
    "participant.seen",
    "message.sent",
    "message.received",
    "message.send_failed",
    "signal.emitted",
    "signal.acknowledged",
    "proposal.created",
    "proposal.updated",
    "decision.proposed",
    "decision.finalized",
    "progress.reported",
    "tool.called",
    "tool.completed",
    "artifact.created",
    "policy.resolved",
    "policy.commitment.evaluated",
    "policy.denied",
    "llm.call.completed",
]
SubjectKind = Literal[
    "run",
    "session",
    "participant",
    "message",
    "signal",
    "proposal",
    "decision",
    "tool",
    "artifact",
    "trace",
    "policy",
]


class Subject(Struct, frozen=True):
    """What the event is about."""

    kind: SubjectKind
    id: str


class Source(Struct, frozen=True, kw_only=True, rename="camel"):
    """Who told it: the control plane itself, or a runtime."""

    kind: Literal["macp-control-plane", "runtime", "replay"]
    name: str
    raw_type: str | UnsetType = UNSET


class Trace(Struct, frozen=True, kw_only=True, rename="camel"):
    trace_id: str | UnsetType = UNSET
    span_id: str | UnsetType = UNSET
    parent_span_id: str | UnsetType = UNSET


class CanonicalEvent(Struct, frozen=True, kw_only=True, rename="camel"):
    """One event of a run, the same on every endpoint and stream."""

    id: str
    run_id: str
    seq: int
    """Its place in the run, from 1, without gaps."""
    ts: str
    """When its fact was stored; the events of one fact share it."""
    type: EventType
    schema_version: int = SCHEMA_VERSION
    subject: Subject | UnsetType = UNSET
    source: Source
    trace: Trace | UnsetType = UNSET
    data: dict[str, Any]
    """Its fields by type: see `DATA`."""


class _Data(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The data of a type of event; what is not known is left out."""


class RunCreatedData(_Data, frozen=True, kw_only=True):
    status: Literal["queued"]
    mode_name: str
    runtime_kind: str
    runtime_version: str | UnsetType = UNSET
    session_id: str
    trace_id: str


class RunStartedData(_Data, frozen=True, kw_only=True):
    status: Literal["starting"]
    started_at: str
    mode_name: str
    runtime_kind: str
    trace_id: str


class RunEndedData(_Data, frozen=True, kw_only=True):
    status: Literal["completed", "failed", "cancelled"]
    ended_at: str
    runtime_session_id: str
    trace_id: str
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class SessionBoundData(_Data, frozen=True, kw_only=True):
    session_id: str
    initiator: str
    state: str
    mode_name: str
    mode_version: str
    configuration_version: str
    policy_version: str
    participants: list[str]


class StreamOpenedData(_Data, frozen=True, kw_only=True):
    status: str
    """`opened`, `reconnecting` or `recovered`."""
    detail: str | UnsetType = UNSET


class StateChangedData(_Data, frozen=True, kw_only=True):
    session_id: str
    state: str
    started_at_unix_ms: int | UnsetType = UNSET
    expires_at_unix_ms: int | UnsetType = UNSET
    mode_name: str | UnsetType = UNSET
    mode_version: str | UnsetType = UNSET
    configuration_version: str | UnsetType = UNSET
    policy_version: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    by: str | UnsetType = UNSET


class ParticipantSeenData(_Data, frozen=True, kw_only=True):
    participant_id: str
    status: Literal["idle"] | UnsetType = UNSET
    """Set for one that was declared, before it said anything."""


class MessageSentData(_Data, frozen=True, kw_only=True):
    message_id: str
    session_id: str
    ok: bool
    duplicate: bool
    session_state: str
    accepted_at_unix_ms: int
    sender: str | UnsetType = UNSET


class MessageReceivedData(_Data, frozen=True, kw_only=True):
    mode_name: str
    message_type: str
    message_id: str
    session_id: str
    sender: str
    payload: Any = UNSET
    by_runtime: bool | UnsetType = UNSET


class SendFailedData(_Data, frozen=True, kw_only=True):
    error_code: str
    error_message: str
    session_id: str
    message_id: str
    message_type: str | UnsetType = UNSET
    sender: str | UnsetType = UNSET


class ContributionData(_Data, frozen=True, kw_only=True):
    """Signals, proposals, decisions and tools: the message, and its payload decoded."""

    mode_name: str
    message_type: str
    message_id: str
    session_id: str
    sender: str
    decoded_payload: Any = UNSET
    payload_type_name: str | UnsetType = UNSET


class ProgressData(_Data, frozen=True, kw_only=True):
    mode_name: str
    message_type: str
    sender: str
    decoded_payload: dict[str, Any]


class ArtifactData(_Data, frozen=True, kw_only=True):
    kind: str
    label: str
    artifact_id: str
    uri: str | UnsetType = UNSET
    trace_id: str | UnsetType = UNSET


class PolicyResolvedData(_Data, frozen=True, kw_only=True):
    mode_name: str
    message_type: Literal["PolicyResolved"]
    sender: str
    policy_version: str
    decoded_payload: dict[str, Any]


class PolicyEvaluatedData(_Data, frozen=True, kw_only=True):
    mode_name: str
    message_type: Literal["PolicyCommitmentEvaluated"]
    sender: str
    decoded_payload: dict[str, Any]


class PolicyDeniedData(_Data, frozen=True, kw_only=True):
    mode_name: str
    message_type: Literal["PolicyDenied"]
    sender: str | UnsetType = UNSET
    error_code: Literal["POLICY_DENIED"]
    error_message: str
    decoded_payload: dict[str, Any]


DATA: dict[EventType, type[Struct]] = {
    "run.created": RunCreatedData,
    "run.started": RunStartedData,
    "run.completed": RunEndedData,
    "run.failed": RunEndedData,
    "run.cancelled": RunEndedData,
    "session.bound": SessionBoundData,
    "session.stream.opened": StreamOpenedData,
    "session.state.changed": StateChangedData,
    "participant.seen": ParticipantSeenData,
    "message.sent": MessageSentData,
    "message.received": MessageReceivedData,
    "message.send_failed": SendFailedData,
    "signal.emitted": ContributionData,
    "signal.acknowledged": ContributionData,
    "proposal.created": ContributionData,
    "proposal.updated": ContributionData,
    "decision.proposed": ContributionData,
    "decision.finalized": ContributionData,
    "progress.reported": ProgressData,
    "tool.called": ContributionData,
    "tool.completed": ContributionData,
    "artifact.created": ArtifactData,
    "policy.resolved": PolicyResolvedData,
    "policy.commitment.evaluated": PolicyEvaluatedData,
    "policy.denied": PolicyDeniedData,
    "llm.call.completed": ContributionData,
}
"""The shape of each type's data. `decision.proposed` is reserved: nothing makes one."""

CANONICAL_EVENT_TYPES: tuple[EventType, ...] = tuple(DATA)
