"""Runs as facts: sessions that the rules of coordination accepted, and frames of an observer."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from batten.contract import facts as f
from batten.contract.envelope import Envelope, decode, encode, payload, timestamp
from batten.contract.facts.macp import BoundPolicy
from batten.contract.ids import Minter
from batten.coordination.payloads import PROGRESS, SIGNAL, write
from batten.coordination.registry import BUILT_IN
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.projection import new_projection, project, state_of
from batten.protocols.macp.state import ProjectedState

RUN_ID = "run_01M7K9R1V6EDY8VHY62AQH24WC"
CHAT_ID = "chat_01J2SF0000E008000000000001"
SESSION_ID = "0190b2f0-0000-7000-8000-000000000002"
DECISION = "macp.mode.decision.v1"
START_NS = 1_777_629_600_000_000_000
"""2026-05-01T10:00:00Z"""
_minter = Minter()


def at(second: int) -> str:
    """The time of the fact with this sequence."""
    return timestamp(START_NS + second * 1_000_000_000)


def envelopes(facts: Sequence[f.Fact], run_id: str = RUN_ID) -> list[Envelope]:
    """Facts as the journal gives them back: one a second."""
    return [
        decode(
            encode(
                Envelope(
                    event_id="evt_" + _minter.mint(),
                    run_id=run_id,
                    session_id=CHAT_ID,
                    sequence=number,
                    occurred_at=at(number),
                    type=fact.type,
                    data=payload(fact),
                )
            )
        )
        for number, fact in enumerate(facts)
    ]


def canonical(facts: Sequence[f.Fact], run_id: str = RUN_ID) -> list[CanonicalEvent]:
    state = NormaliserState()
    return [event for one in envelopes(facts, run_id) for event in normalise(state, one)]


def projected(events: Sequence[CanonicalEvent]) -> ProjectedState:
    projection = new_projection()
    for event in events:
        project(projection, event)
    return state_of(projection)


def shown(facts: Sequence[f.Fact]) -> dict[str, Any]:
    """The state of a run as JSON."""
    state: dict[str, Any] = msgspec.to_builtins(projected(canonical(facts)))
    return state


def types(events: Sequence[CanonicalEvent]) -> list[str]:
    return [event.type for event in events]


def only(events: Sequence[CanonicalEvent], type_: str) -> CanonicalEvent:
    [found] = [event for event in events if event.type == type_]
    return found


def queued(kind: Any = "coordination") -> f.RunQueued:
    return f.RunQueued(
        kind=kind,
        model=None,
        provider=None,
        workspace_path="",
        workspace_mode="in_place",
        prior_run_id=None,
        executor_type="live",
    )


def started() -> f.RunStarted:
    return f.RunStarted(worker_id="w-1", lease_until=at(60))


def finished() -> f.RunFinished:
    return f.RunFinished(final_status="completed", turns=0, cost_micros_usd=0, duration_ms=1)


def failed() -> f.RunFailed:
    return f.RunFailed(code="timeout", message="the session expired", retriable=False, turns=0)


def cancelled() -> f.RunCancelled:
    return f.RunCancelled(by="lead", reason="enough")


def bound(
    participants: Sequence[str] = ("lead", "ann"), mode: str = DECISION, rules: str = "{}"
) -> f.MacpSessionBound:
    return f.MacpSessionBound(
        session_id=SESSION_ID,
        mode=mode,
        mode_version="1.0.0",
        configuration_version="c-1",
        initiator="lead",
        participants=list(participants),
        policy=BoundPolicy(
            policy_id="policy.default",
            mode="*",
            description="default",
            rules=rules,
            schema_version=1,
        ),
        deadline_unix_ms=0,
        semantics_rev=1,
    )


def described(redact: Sequence[str] = (), **session: Any) -> f.MacpRunDescribed:
    return f.MacpRunDescribed(
        session_id=SESSION_ID,
        descriptor={
            "mode": "live",
            "runtime": {"kind": "rust", "version": "0.5"},
            "session": {"modeName": DECISION, **session},
        },
        normaliser=1,
        redact=list(redact),
    )


def frame(kind: Any, message_id: str = "", sender: str = "", **detail: Any) -> f.MacpFrameObserved:
    return f.MacpFrameObserved(
        kind=kind,
        session_id=SESSION_ID,
        detail=detail,
        message_id=message_id or UNSET,
        sender=sender or UNSET,
    )


def snapshot(state: str = "OPEN", participants: Sequence[str] = ("lead", "ann")) -> f.Fact:
    return frame(
        "session_snapshot",
        state=f"SESSION_STATE_{state}",
        initiator="lead",
        participants=list(participants),
        modeName=DECISION,
        policyVersion="policy.default",
    )


def said(
    sender: str, message_type: str, body: bytes | str = b"", mode: str = DECISION, **fields: Any
) -> f.MacpFrameObserved:
    """An envelope on an observed stream: protobuf of these fields, or the given bytes."""
    if fields:
        if message_type in ("Signal", "Progress"):
            body = write(SIGNAL if message_type == "Signal" else PROGRESS, fields)
        else:
            body = write(BUILT_IN[mode].payloads[message_type], fields)
    payload_bytes = body.encode() if isinstance(body, str) else body
    _count[0] += 1
    return f.MacpFrameObserved(
        kind="envelope",
        session_id=SESSION_ID,
        detail={},
        mode=mode,
        message_id=f"{message_type}-{_count[0]}",
        message_type=message_type,
        sender=sender,
        payload=b64encode(payload_bytes).decode(),
    )


_count = [0]


def observed(*frames: f.Fact, redact: Sequence[str] = ()) -> list[f.Fact]:
    """An observed session of lead and ann with these frames."""
    return [queued(), described(redact), started(), snapshot(), *frames]


def json_text(**members: Any) -> str:
    return msgspec.json.encode(members).decode()
