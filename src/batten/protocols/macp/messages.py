"""A message of a session as canonical events: the table of message types and its rules."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct

from batten.protocols.macp import events as ev
from batten.protocols.macp.emitting import Emitter
from batten.protocols.macp.events import EventType, Source, Subject, SubjectKind
from batten.protocols.macp.json_values import list_of, number_of, object_of, texts_of
from batten.protocols.macp.llm import find_call
from batten.protocols.macp.payloads import Decoded, read_json, text_of

_CREATED = ("Proposal", "CounterProposal", "ApprovalRequest", "TaskRequest", "HandoffOffer")
_UPDATED = (
    *("Evaluation", "Objection", "Vote", "Accept", "Reject", "Withdraw", "Approve", "Abstain"),
    *("TaskAccept", "TaskReject", "TaskUpdate", "TaskComplete", "TaskFail"),
    *("HandoffContext", "HandoffAccept", "HandoffDecline", "Contribute"),
)
TYPES: dict[str, EventType] = {
    "Signal": "signal.emitted",
    "SignalAck": "signal.acknowledged",
    "SignalAcknowledged": "signal.acknowledged",
    "Commitment": "decision.finalized",
    **dict.fromkeys(_CREATED, "proposal.created"),
    **dict.fromkeys(_UPDATED, "proposal.updated"),
}
"""The canonical type of each message type. Others are only received."""

_TOOLS: dict[str, EventType] = {
    **dict.fromkeys(("toolcall", "toolrequest"), "tool.called"),
    **dict.fromkeys(("toolresult", "toolcompleted", "tooloutput"), "tool.completed"),
}
"""By message type in lower case."""

_SUBJECTS: dict[EventType, tuple[SubjectKind, tuple[str, ...]]] = {
    "signal.emitted": ("signal", ()),
    "signal.acknowledged": ("signal", ("signalId",)),
    "proposal.created": ("proposal", ("proposalId", "requestId")),
    "proposal.updated": ("proposal", ("proposalId", "requestId")),
    "decision.finalized": ("decision", ("commitmentId", "decisionId")),
    "tool.called": ("tool", ("toolCallId", "requestId")),
    "tool.completed": ("tool", ("toolCallId", "requestId")),
}
"""Fields of the payload that name the subject, the first present one; else the message does."""


class Message(Struct, frozen=True, kw_only=True):
    """A message that a runtime showed."""

    mode: str
    message_type: str
    message_id: str
    session_id: str
    sender: str
    decoded: Decoded
    metadata: Mapping[str, Any] = {}
    """What came beside the payload."""
    by_runtime: bool = False

    @property
    def fields(self) -> Mapping[str, Any]:
        """The payload's fields, also of one that came as JSON."""
        return payload_fields(self.decoded.value)


def payload_fields(value: Any) -> Mapping[str, Any]:
    fields = object_of(value) or {}
    inner = object_of(fields.get("json")) if fields.get("encoding") == "json" else None
    return fields if inner is None else inner


def signal_fields(value: Any) -> Mapping[str, Any]:
    """The fields of a signal's payload, with those in its data: the protocol has few of its own."""
    fields = payload_fields(value)
    return {**(object_of(read_json(text_of(fields.get("data")) or "")) or {}), **fields}


def field(fields: Mapping[str, Any], name: str) -> Any:
    """A field in either spelling: `proposalId` or `proposal_id`."""
    if (found := fields.get(name)) is not None:
        return found
    return fields.get("".join(f"_{c.lower()}" if c.isupper() else c for c in name))


def first_text(fields: Mapping[str, Any], *names: str) -> str:
    """The first field that is a text with something in it."""
    for name in names:
        found = field(fields, name)
        if isinstance(found, str) and found:
            return found
    return ""


def emit_message(emitter: Emitter, message: Message, source: Source) -> None:
    """The events of a message: received, its model call, what its type means, and progress.

    Only the runtime can tell what a policy says, and that is no message: of others such messages
    are received, no more.
    """
    policy = _POLICIES.get(message.message_type)
    if policy is not None and emitter.is_runtime(message.sender):
        policy(emitter, message, source)
        return
    emitter.participant(message.sender)
    emitter.emit(
        "message.received",
        Subject("message", message.message_id),
        source,
        ev.MessageReceivedData(
            mode_name=message.mode,
            message_type=message.message_type,
            message_id=message.message_id,
            session_id=message.session_id,
            sender=message.sender,
            payload=UNSET if message.decoded.value is None else message.decoded.value,
            by_runtime=True if message.by_runtime else UNSET,
        ),
    )
    call = find_call(message.message_type, message.decoded.value, message.metadata)
    if call is not None:
        emit_call(emitter, message, call, source)
    if message.message_type == "Progress":
        _progress(emitter, message, source)
    else:
        _emit_derived(emitter, message, source)
    if (progress := _TASK_PROGRESS.get(message.message_type)) is not None:
        _emit_progress(emitter, message, source, progress(message.fields), "message")


def emit_call(emitter: Emitter, message: Message, call: dict[str, Any], source: Source) -> None:
    emitter.emit(
        "llm.call.completed",
        Subject("message", message.message_id),
        source,
        _contribution(message, call, ""),
    )


def _emit_derived(emitter: Emitter, message: Message, source: Source) -> None:
    type_ = TYPES.get(message.message_type) or _TOOLS.get(message.message_type.lower())
    if type_ is None:
        return
    kind, names = _SUBJECTS[type_]
    subject = Subject(kind, first_text(message.fields, *names) or message.message_id)
    value = message.decoded.value
    emitter.emit(
        type_,
        subject,
        source,
        _contribution(message, UNSET if value is None else value, message.decoded.type_name),
    )


def _contribution(message: Message, payload: Any, type_name: str) -> ev.ContributionData:
    return ev.ContributionData(
        mode_name=message.mode,
        message_type=message.message_type,
        message_id=message.message_id,
        session_id=message.session_id,
        sender=message.sender,
        decoded_payload=payload,
        payload_type_name=type_name or UNSET,
    )


def _percentage(value: Any, total: Any = None) -> dict[str, Any]:
    """A share as a percentage: of the total, or of 1."""
    share, whole = number_of(value), number_of(total)
    if share is None:
        return {}
    if whole is not None and whole > 0:
        found = number_of(share / whole * 100)
    else:
        found = share * 100 if share <= 1 else share
    # Without the noise of binary fractions: 0.07 is 7 percent, not 7.000000000000001.
    return {} if found is None else {"percentage": round(found, 9)}


def _progress(emitter: Emitter, message: Message, source: Source) -> None:
    fields = message.fields
    told: dict[str, Any] = {
        **_percentage(fields.get("progress"), fields.get("total")),
        "message": first_text(fields, "message", "status"),
    }
    for name in ("progressToken", "total"):
        if (value := field(fields, name)) is not None:
            told[name] = value
    _emit_progress(emitter, message, source, told, "participant")


def _emit_progress(
    emitter: Emitter, message: Message, source: Source, told: dict[str, Any], kind: SubjectKind
) -> None:
    subject = message.sender if kind == "participant" else message.message_id
    emitter.emit(
        "progress.reported",
        Subject(kind, subject),
        source,
        ev.ProgressData(
            mode_name=message.mode,
            message_type=message.message_type,
            sender=message.sender,
            decoded_payload=told,
        ),
    )


_Fields: TypeAlias = Mapping[str, Any]
_TASK_PROGRESS: dict[str, Callable[[_Fields], dict[str, Any]]] = {
    "TaskUpdate": lambda fields: {
        **_percentage(fields.get("progress")),
        "message": first_text(fields, "status", "message"),
    },
    "TaskComplete": lambda _: {"percentage": 100, "message": "completed"},
    "TaskFail": lambda fields: {"message": first_text(fields, "reason") or "failed"},
}


def _resolved(emitter: Emitter, message: Message, source: Source) -> None:
    fields = message.fields
    version = first_text(fields, "policyVersion", "policyId")
    emit_resolved(emitter, version, message.sender, dict(fields), source)


def emit_resolved(
    emitter: Emitter, version: str, sender: str, payload: dict[str, Any], source: Source
) -> None:
    emitter.emit(
        "policy.resolved",
        Subject("policy", first_text(payload, "policyId") or version),
        source,
        ev.PolicyResolvedData(
            mode_name=emitter.state.mode,
            message_type="PolicyResolved",
            sender=sender,
            policy_version=version,
            decoded_payload=payload,
        ),
    )


def _evaluated(emitter: Emitter, message: Message, source: Source) -> None:
    fields = message.fields
    decision = "allow" if first_text(fields, "decision").lower() == "allow" else "deny"
    emit_evaluated(
        emitter,
        first_text(fields, "commitmentId"),
        message.sender,
        {**fields, "decision": decision, "reasons": reasons_of(fields)},
        source,
    )


def emit_evaluated(
    emitter: Emitter, commitment_id: str, sender: str, payload: dict[str, Any], source: Source
) -> None:
    emitter.emit(
        "policy.commitment.evaluated",
        Subject("policy", commitment_id),
        source,
        ev.PolicyEvaluatedData(
            mode_name=emitter.state.mode,
            message_type="PolicyCommitmentEvaluated",
            sender=sender,
            decoded_payload=payload,
        ),
    )


def _denied(emitter: Emitter, message: Message, source: Source) -> None:
    fields = message.fields
    reasons = reasons_of(fields)
    text = first_text(fields, "errorMessage", "message", "reason") or "; ".join(reasons)
    emitter.denied(
        first_text(fields, "commitmentId") or message.message_id,
        source,
        sender=message.sender,
        message=text,
        payload={**fields, "decision": "deny", "reasons": reasons},
    )


def reasons_of(fields: _Fields) -> list[str]:
    """The texts in `reasons`, else the one in `reason`."""
    if list_of(fields.get("reasons")) is not None:
        return texts_of(fields["reasons"])
    single = first_text(fields, "reason")
    return [single] if single else []


_POLICIES: dict[str, Callable[[Emitter, Message, Source], None]] = {
    "PolicyResolved": _resolved,
    "PolicyCommitmentEvaluated": _evaluated,
    "PolicyDenied": _denied,
}
