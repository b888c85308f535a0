"""Conformance scripts: a session as JSON, with what each message must lead to.

The shape is that of the protocol's published fixtures. Those are read from `../shared` beside the
repository when they are there; the scripts in `fixtures/` are our own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from batten.coordination.engine import Accepted, Engine, Event, read_opening, start
from batten.coordination.envelope import Message
from batten.coordination.payloads import COMMITMENT, SESSION_START, WireType, write
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import BUILT_IN, ModeRegistry, PolicyRegistry
from batten.coordination.rejection import Rejection

OURS = Path(__file__).parent / "fixtures"
PUBLISHED = Path(__file__).resolve().parents[3] / "shared/fixtures/macp/conformance-spec"
NOW_MS = 1_700_000_000_000
SESSION_ID = "0190b2f0-0000-7000-8000-000000000001"

Script = dict[str, Any]


def script_files() -> list[Path]:
    return sorted(OURS.glob("*.json")) + sorted(PUBLISHED.glob("*.json"))


each_script = pytest.mark.parametrize(
    "path", script_files(), ids=lambda path: f"{path.parent.name}/{path.stem}"
)


def load(path: Path) -> Script:
    script: Script = json.loads(path.read_text())
    return script


def fields(payload: Script, wire: WireType) -> Script:
    """The fields of a payload as protobuf takes them: text of bytes fields is UTF-8."""
    found: Script = {}
    for name, value in payload.items():
        if name.startswith("_"):
            continue
        kind = wire.value.__annotations__.get(name)
        if kind is bytes:
            value = value.encode() if isinstance(value, str) else b""
        found[name] = value
    return found


def payload_of(mode: str, message: Script) -> bytes:
    message_type: str = message["message_type"]
    if message_type == "Commitment":
        return write(
            COMMITMENT, {"outcome_positive": True, **fields(message["payload"], COMMITMENT)}
        )
    wire = BUILT_IN[mode].payloads[message_type]
    return write(wire, fields(message["payload"], wire))


def start_message(script: Script, session_id: str = SESSION_ID) -> Message:
    return Message(
        mode=script["mode"],
        message_type="SessionStart",
        message_id="m0",
        session_id=session_id,
        sender=script["initiator"],
        timestamp_unix_ms=0,
        payload=write(
            SESSION_START,
            {
                "intent": "conformance",
                "participants": script["participants"],
                "mode_version": script["mode_version"],
                "configuration_version": script["configuration_version"],
                "policy_version": script.get("policy_version", ""),
                "ttl_ms": script["ttl_ms"],
            },
        ),
    )


def messages(script: Script, session_id: str = SESSION_ID) -> Iterator[tuple[Message, Script]]:
    for number, message in enumerate(script["messages"], 1):
        yield (
            Message(
                mode=script["mode"],
                message_type=message["message_type"],
                message_id=f"m{number}",
                session_id=session_id,
                sender=message["sender"],
                payload=payload_of(script["mode"], message),
            ),
            message,
        )


def policy_of(script: Script) -> PolicyDescriptor | None:
    policy = script.get("policy")
    if policy is None:
        return None
    return PolicyDescriptor(
        policy_id=policy["policy_id"],
        mode=policy["mode"],
        description=policy.get("description", ""),
        rules=json.dumps(policy["rules"]),
        schema_version=policy["schema_version"],
    )


def policies_of(script: Script) -> PolicyRegistry:
    policy = policy_of(script)
    return PolicyRegistry() if policy is None else PolicyRegistry().register(policy)


def play(script: Script) -> tuple[Engine, Accepted, list[Event]]:
    """Run a script in process and check each answer."""
    engine, first = start(
        read_opening(start_message(script), ModeRegistry()), policies_of(script), NOW_MS
    )
    events: list[Event] = []
    for number, (message, expected) in enumerate(messages(script), 1):
        code = ""
        try:
            events.append(engine.receive(message, NOW_MS + number))
        except Rejection as rejection:
            code = rejection.macp_code
        check_answer(expected, code)
    return engine, first, events


def check_answer(expected: Script, code: str) -> None:
    """Compare an answer with the script's; an accepted message has no code."""
    assert ("reject" if code else "accept") == expected["expect"], (code, expected)
    if code and "expected_error_code" in expected:
        assert code == expected["expected_error_code"], expected


def is_part(expected: Any, found: Any) -> bool:
    """Whether every member of the expected value is in the other one, and equal."""
    if isinstance(expected, dict):
        members = cast(Script, expected)
        return isinstance(found, dict) and all(
            name in found and is_part(value, found[name])
            for name, value in members.items()
            if not name.startswith("_")
        )
    return bool(expected == found)
