"""Small sessions for tests: a panel of three, and messages in one line."""

from typing import Any

from batten.coordination.engine import Engine, read_opening, start
from batten.coordination.envelope import Message
from batten.coordination.payloads import COMMITMENT, SESSION_START, write
from batten.coordination.policy.policy import DEFAULT, PolicyDescriptor
from batten.coordination.registry import BUILT_IN, ModeRegistry, PolicyRegistry

NOW_MS = 1_700_000_000_000
SESSION_ID = "0190b2f0-0000-7000-8000-000000000001"
DECISION = "macp.mode.decision.v1"
HANDOFF = "macp.mode.handoff.v1"
PANEL = ("lead", "ann", "ben")


def start_message(mode: str = DECISION, *, sender: str = "lead", **fields: Any) -> Message:
    session_id: str = fields.pop("session_id", SESSION_ID)
    at: int = fields.pop("timestamp_unix_ms", 0)
    named = {
        "intent": "decide",
        "participants": PANEL,
        "mode_version": "1.0.0",
        "configuration_version": "c-1",
        "ttl_ms": 60_000,
        **fields,
    }
    return Message(
        mode=mode,
        message_type="SessionStart",
        message_id="m0",
        session_id=session_id,
        sender=sender,
        timestamp_unix_ms=at,
        payload=write(SESSION_START, named),
    )


def policies(*given: PolicyDescriptor) -> PolicyRegistry:
    registry = PolicyRegistry()
    for policy in given:
        registry = registry.register(policy)
    return registry


def open_session(
    mode: str = DECISION,
    policy: PolicyDescriptor = DEFAULT,
    modes: ModeRegistry | None = None,
    **fields: Any,
) -> Engine:
    known = PolicyRegistry({DEFAULT.policy_id: DEFAULT, policy.policy_id: policy})
    message = start_message(mode, policy_version=policy.policy_id, **fields)
    engine, _ = start(read_opening(message, modes or ModeRegistry()), known, NOW_MS)
    return engine


def say(
    sender: str, message_type: str, mode: str = DECISION, id_: str = "", **fields: Any
) -> Message:
    wire = COMMITMENT if message_type == "Commitment" else BUILT_IN[mode].payloads[message_type]
    return Message(
        mode=mode,
        message_type=message_type,
        message_id=id_ or f"{sender}-{message_type}-{sorted(fields.items())}",
        session_id=SESSION_ID,
        sender=sender,
        payload=write(wire, fields),
    )


def commitment(sender: str = "lead", mode: str = DECISION, **fields: Any) -> Message:
    named: dict[str, Any] = {
        "commitment_id": "c1",
        "action": "decision.selected",
        "authority_scope": "tests",
        "reason": "agreed",
        "mode_version": "1.0.0",
        "configuration_version": "c-1",
        "outcome_positive": True,
        **fields,
    }
    return say(sender, "Commitment", mode, **named)
