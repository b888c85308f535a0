"""Events of a session as facts of its run, and back."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.errors import StoreDamaged
from batten.contract.facts import Fact
from batten.contract.facts.macp import BoundMode, BoundPolicy, MacpDenial
from batten.coordination.engine import SEMANTICS, Accepted, Changed, Event
from batten.coordination.envelope import RUNTIME, Message
from batten.coordination.modes.extensions import Extension
from batten.coordination.modes.mode import Descriptor
from batten.coordination.payloads import (
    COMMITMENT,
    PROGRESS,
    SESSION_CANCEL,
    SESSION_RESUME,
    SESSION_START,
    SESSION_SUSPEND,
    SIGNAL,
    Commitment,
    read,
    write,
)
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import BUILT_IN, AnyMode
from batten.coordination.rejection import Rejection
from batten.coordination.session import Session
from batten.journal.contract import Body, Journal
from batten.journal.keeping import artifact_created, sealed_artifact
from batten.journal.recorder import load_artifact, open_sealed
from batten.protocols.macp.judgements import evaluated_payload, resolved_payload
from batten.protocols.macp.llm import find_call
from batten.protocols.macp.payloads import decode_payload
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey

LARGEST_PAYLOAD = 64 * 1024
"""Bytes of a payload inside a fact; more of them become an artifact."""
_LARGEST_BODY = 48 * 1024
"""Bytes of the readable form; lists are left out of a larger one."""
_SMALL_PAYLOAD = 4096
"""Bytes of a payload whose readable form is never larger: a byte takes 6 at most, as an escape."""
_LARGEST_CALL = 16 * 1024
"""Bytes of a model call in the readable form; prompt and response are left out of a larger one."""
_LONGEST_TEXT = 4000
"""Characters of a text in the readable form."""


class Keeping(Struct, frozen=True):
    """What storing and loading payloads needs."""

    journal: Journal
    redactor: Redactor
    seal_key: Callable[[], SealKey]
    patterns: tuple[str, ...] = ()
    """Texts that canonical events of new sessions do not show."""
    identity: dict[str, str] = {}
    """The ids of those that new sessions work for."""


class Written(Struct, frozen=True):
    """Facts to append, with the bodies of their artifacts."""

    facts: list[Fact]
    bodies: list[Body]


def bound(session: Session, keeping: Keeping) -> facts.MacpSessionBound:
    """What a session is bound to, for its run's first facts."""
    policy, descriptor = session.policy.descriptor, session.descriptor
    clean = keeping.redactor.authored.text
    extension: BoundMode | msgspec.UnsetType = UNSET
    if descriptor.mode not in BUILT_IN:
        extension = BoundMode(
            mode_version=descriptor.mode_version,
            message_types=list(descriptor.message_types),
            strict=session.mode.strict,
        )
    return facts.MacpSessionBound(
        session_id=session.session_id,
        mode=descriptor.mode,
        mode_version=session.mode_version,
        configuration_version=clean(session.configuration_version),
        initiator=session.panel.initiator,
        participants=list(session.panel.participants),
        policy=replace(bound_policy(policy), description=clean(policy.description)),
        deadline_unix_ms=session.deadline_ms,
        semantics_rev=SEMANTICS,
        extension=extension,
        redact=list(keeping.patterns) or UNSET,
    )


def bound_policy(policy: PolicyDescriptor) -> BoundPolicy:
    """A policy as facts keep it."""
    return BoundPolicy(
        policy_id=policy.policy_id,
        mode=policy.mode,
        description=policy.description,
        rules=policy.rules,
        schema_version=policy.schema_version,
    )


def mode_of(fact: facts.MacpSessionBound) -> AnyMode:
    """The mode of a stored session."""
    if (mode := BUILT_IN.get(fact.mode)) is not None:
        return mode
    if fact.extension is UNSET:
        raise StoreDamaged(f"session {fact.session_id} is bound to no known mode: {fact.mode}")
    descriptor = Descriptor(
        mode=fact.mode,
        mode_version=fact.extension.mode_version,
        message_types=tuple(fact.extension.message_types),
    )
    return Extension(descriptor, strict=fact.extension.strict)


def policy_from(kept: BoundPolicy) -> PolicyDescriptor:
    """The policy that a fact keeps."""
    return PolicyDescriptor(
        policy_id=kept.policy_id,
        mode=kept.mode,
        description=kept.description,
        rules=kept.rules,
        schema_version=kept.schema_version,
    )


def write_events(
    events: Sequence[Event], session: Session, run_id: str, keeping: Keeping
) -> Written:
    """The facts of events of a session, in order."""
    written = Written([], [])
    for event in events:
        match event:
            case Accepted():
                if event.message.message_type == "Commitment":
                    written.facts.append(
                        _evaluated(event.message, session, "allow", (), keeping.redactor)
                    )
                _write_accepted(event, session, run_id, keeping, written)
            case Changed():
                written.facts.append(
                    facts.MacpSessionChanged(
                        state=event.state,
                        at_unix_ms=event.at_ms,
                        by=event.by,
                        reason=keeping.redactor.authored.text(event.reason),
                        banked_ms=event.banked_ms,
                    )
                )
    return written


def _write_accepted(
    event: Accepted, session: Session, run_id: str, keeping: Keeping, written: Written
) -> None:
    message = event.message
    body, has_secret = _readable(message, session, keeping.redactor)
    places = write_payload(
        message.message_type, message.payload, run_id, keeping, written, has_secret=has_secret
    )
    if "payload" not in places:
        mode = session.descriptor.mode
        body |= told_call(mode, message.message_type, message.payload, keeping.redactor)
    written.facts.append(
        facts.MacpMessageAccepted(
            ordinal=event.ordinal,
            message_id=message.message_id,
            message_type=message.message_type,
            sender=message.sender,
            timestamp_unix_ms=message.timestamp_unix_ms,
            accepted_at_unix_ms=event.at_ms,
            state=event.state,
            body=body,
            metadata=keeping.redactor.authored.value(message.metadata)[0]
            if message.metadata
            else UNSET,
            by_runtime=True if event.by_runtime else UNSET,
            **places,
        )
    )


def write_payload(
    message_type: str,
    payload: bytes,
    run_id: str,
    keeping: Keeping,
    written: Written,
    *,
    has_secret: bool,
) -> dict[str, Any]:
    """The fields that hold the payload's bytes, or name the artifact that does."""
    summary = f"the payload of {message_type}"
    if has_secret:
        created, content = sealed_artifact(
            keeping.journal, keeping.seal_key(), run_id, payload, summary=summary
        )
        place = "sealed_artifact_id"
    elif len(payload) > LARGEST_PAYLOAD:
        content = keeping.journal.inline(payload)
        created = artifact_created(
            "tool_result_blob", content, mime_type="application/x-protobuf", summary=summary
        )
        place = "payload_artifact_id"
    else:
        return {"payload": b64encode(payload).decode()}
    written.facts.append(created)
    written.bodies.append(content)
    return {place: created.artifact_id}


def write_ambient(message: Message, session: Session, run_id: str, keeping: Keeping) -> Written:
    """The facts of a Signal or Progress that belongs to a session; none of a stranger's."""
    written, panel = Written([], []), session.panel
    if not panel.is_open and message.sender not in (panel.initiator, *panel.participants):
        return written
    body, has_secret = _readable(message, session, keeping.redactor)
    places = write_payload(
        message.message_type, message.payload, run_id, keeping, written, has_secret=has_secret
    )
    if "payload" not in places:
        body |= told_call("", message.message_type, message.payload, keeping.redactor)
    written.facts.append(
        facts.MacpFrameObserved(
            kind="envelope",
            session_id=session.session_id,
            detail=body,
            mode=message.mode or UNSET,
            message_id=message.message_id,
            message_type=message.message_type,
            sender=message.sender,
            timestamp_unix_ms=message.timestamp_unix_ms,
            **places,
        )
    )
    return written


def told_call(
    mode: str, message_type: str, payload: bytes, redactor: Redactor
) -> dict[str, dict[str, Any]]:
    """The model call that a payload reports, for the readable form that is shown in its place and
    may be cut; empty if it reports none.
    """
    call = find_call(message_type, decode_payload(mode, message_type, payload).value, {})
    if call is None:
        return {}
    clean, _ = redactor.authored.value(call)
    if len(msgspec.json.encode(clean)) > _LARGEST_CALL:
        clean = {name: clean[name] for name in clean if name not in ("prompt", "response")}
    return {"llmCall": clean} if len(msgspec.json.encode(clean)) <= _LARGEST_CALL else {}


_WIRE = {"SessionStart": SESSION_START, "Signal": SIGNAL, "Progress": PROGRESS}
"""Payloads that are the same in every mode."""


def _readable(
    message: Message, session: Session, redactor: Redactor
) -> tuple[dict[str, Any], bool]:
    """The payload for people, without secrets, and whether it holds any."""
    wire = _WIRE.get(message.message_type)
    if wire is None:
        value = session.mode.read_payload(message.message_type, message.payload)
    else:
        value = read(wire, message.payload)
    plain: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if isinstance(field, bytes):
            field = field.decode("utf-8", "replace")
        if name == "extensions":
            field = sorted(field)
        if field or field is False:
            plain[name] = field if type(field) is str else msgspec.to_builtins(field)
    clean, paths = redactor.authored.value(plain)
    short = {
        name: field[:_LONGEST_TEXT] + "…"
        if isinstance(field, str) and len(field) > _LONGEST_TEXT
        else field
        for name, field in clean.items()
    }
    is_small = len(message.payload) <= _SMALL_PAYLOAD
    if not is_small and len(msgspec.json.encode(short)) > _LARGEST_BODY:
        short = {name: field for name, field in short.items() if isinstance(field, str | bool)}
    return short, bool(paths)


def denied(
    message: Message, session: Session, rejection: Rejection, redactor: Redactor
) -> facts.MacpCommitmentEvaluated:
    """The fact of a commitment that the policy denied."""
    denials = tuple(
        MacpDenial(one.code, redactor.authored.text(one.message), list(one.participants))
        for one in rejection.denials
    )
    return _evaluated(message, session, "deny", denials, redactor)


def _evaluated(
    message: Message,
    session: Session,
    decision: Any,
    denials: tuple[MacpDenial, ...],
    redactor: Redactor,
) -> facts.MacpCommitmentEvaluated:
    commitment = read(COMMITMENT, message.payload)
    assert isinstance(commitment, Commitment)
    return facts.MacpCommitmentEvaluated(
        message_id=message.message_id,
        sender=message.sender,
        commitment_id=redactor.authored.text(commitment.commitment_id),
        policy_id=session.policy.descriptor.policy_id,
        decision=decision,
        denials=list(denials),
    )


async def read_event(fact: Fact, fixed: facts.MacpSessionBound, keeping: Keeping) -> Event | None:
    """The event of a stored fact; None for a fact that is none."""
    match fact:
        case facts.MacpMessageAccepted():
            return await read_accepted(fact, fixed, keeping)
        case facts.MacpSessionChanged():
            return Changed(
                state=fact.state,
                at_ms=fact.at_unix_ms,
                by=fact.by,
                reason=fact.reason,
                banked_ms=fact.banked_ms,
            )
        case _:
            return None


async def read_accepted(
    fact: facts.MacpMessageAccepted, fixed: facts.MacpSessionBound, keeping: Keeping
) -> Accepted:
    message = Message(
        mode=fixed.mode,
        message_type=fact.message_type,
        message_id=fact.message_id,
        session_id=fixed.session_id,
        sender=fact.sender,
        timestamp_unix_ms=fact.timestamp_unix_ms,
        payload=await _payload(fact, keeping),
        metadata={} if fact.metadata is UNSET else fact.metadata,
    )
    return Accepted(
        message=message,
        at_ms=fact.accepted_at_unix_ms,
        ordinal=fact.ordinal,
        state=fact.state,
        by_runtime=fact.by_runtime is True,
    )


def told_change(
    fact: facts.MacpSessionChanged, fixed: facts.MacpSessionBound, sequence: int, last: int
) -> Accepted | None:
    """The message by which streams tell a change; None of those that no message tells.

    It enters no history. A cancellation has the place after the last message; a suspension and a
    resumption have that of the message before them, `last`, so that no message changes its place.
    """
    session_id, place = fixed.session_id, last
    match fact.state:
        case "CANCELLED":
            name, message_id, place = "SessionCancel", f"session-cancel:{session_id}", last + 1
            payload = write(SESSION_CANCEL, {"reason": fact.reason, "cancelled_by": fact.by})
        case "SUSPENDED":
            name, message_id = "SessionSuspend", f"session-suspend:{session_id}:{sequence}"
            payload = write(SESSION_SUSPEND, {"reason": fact.reason, "suspended_by": fact.by})
        case "OPEN":
            name, message_id = "SessionResume", f"session-resume:{session_id}:{sequence}"
            told = {"reason": fact.reason, "resumed_by": fact.by, "banked_ms": fact.banked_ms}
            payload = write(SESSION_RESUME, told)
        case _:
            return None
    message = Message(
        mode=fixed.mode,
        message_type=name,
        message_id=message_id,
        session_id=session_id,
        sender=RUNTIME,
        timestamp_unix_ms=fact.at_unix_ms,
        payload=payload,
    )
    return Accepted(
        message=message, at_ms=fact.at_unix_ms, ordinal=place, state=fact.state, by_runtime=True
    )


def told_judgements(
    envelope: Envelope, fixed: facts.MacpSessionBound, place: int
) -> list[Accepted]:
    """What the policy said, for observers. It has the place of the message before it, and enters
    no history.
    """
    told: list[tuple[str, dict[str, Any]]] = []
    match envelope.data:
        case facts.MacpSessionBound() as opened:
            told = [("PolicyResolved", resolved_payload(opened.policy, envelope.occurred_at))]
        case facts.MacpCommitmentEvaluated() as judged:
            payload = evaluated_payload(judged)
            told = [("PolicyCommitmentEvaluated", payload)]
            if judged.decision == "deny":
                told.append(("PolicyDenied", payload))
        case _:
            pass
    at_ms = round(datetime.fromisoformat(envelope.occurred_at).timestamp() * 1000)
    return [
        Accepted(
            message=Message(
                mode=fixed.mode,
                message_type=message_type,
                message_id=f"policy:{envelope.sequence}:{message_type}",
                session_id=fixed.session_id,
                sender=RUNTIME,
                timestamp_unix_ms=at_ms,
                payload=msgspec.json.encode(payload),
            ),
            at_ms=at_ms,
            ordinal=place,
            state="OPEN",
            by_runtime=True,
        )
        for message_type, payload in told
    ]


async def _payload(fact: facts.MacpMessageAccepted, keeping: Keeping) -> bytes:
    if fact.payload is not UNSET:
        return b64decode(fact.payload)
    if fact.sealed_artifact_id is not UNSET:
        return await open_sealed(keeping.journal, keeping.seal_key(), fact.sealed_artifact_id)
    if fact.payload_artifact_id is not UNSET:
        return await load_artifact(keeping.journal, fact.payload_artifact_id)
    raise StoreDamaged(f"message {fact.message_id} is stored without its payload")
