"""What is asked of a shared runtime and what it answers, on the wire."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from batten.protocols.maestro import hosted
from batten.protocols.maestro.hosted import (
    AskedCapabilities,
    ConnectAsk,
    ConnectionClosed,
    Envelope,
    HeartbeatEnvelope,
    MessageEnvelope,
    ResetEnvelope,
    RuntimeSnapshot,
    SnapshotEnvelope,
    SubscribeAsk,
)
from batten.protocols.maestro.incoming import Hello, Init, Prompt
from batten.protocols.maestro.outgoing import (
    LONGEST,
    ClientCapabilities,
    ClientInfo,
    RawAgentEvent,
    Status,
)
from batten.protocols.maestro.state import Conversation
from tests.maestro.schemas import PRESENT, Published
from tests.protocols.sharing import Shared, snapshot_at

Json = dict[str, Any]
published = pytest.mark.skipif(not PRESENT, reason="the published files are not beside this")


def wire(value: Struct) -> Json:
    said: Json = msgspec.json.decode(msgspec.json.encode(value))
    return said


def busy_snapshot(shared: Shared) -> RuntimeSnapshot:
    """Of a conversation in which something was said, with who is connected."""
    conversation = Conversation()
    conversation.say(Prompt(content="go on"))
    conversation.hear(Status(message="Prompt: go on"))
    init = Init(system_prompt="Be brief", approval_mode="prompt")
    snapshot = snapshot_at(7, shared.registry.shown(conversation.state))
    return msgspec.structs.replace(snapshot, last_init=init)


def crowd() -> tuple[Shared, str, str]:
    """A controller that says much of itself, and a viewer; their subscriptions."""
    shared = Shared()
    controller = shared.registry.subscribe(
        SubscribeAsk(
            protocol_version="2026-04-02",
            client_info=ClientInfo("desk", "1.0"),
            capabilities=AskedCapabilities(
                server_requests=("approval",), utility_operations=("file_read",)
            ),
            opt_out_notifications=("heartbeat", "heartbeat"),
        )
    )
    return shared, controller, shared.registry.subscribe(SubscribeAsk(role="viewer"))


def test_an_ask_is_spelled_in_camel_case_and_is_a_greeting() -> None:
    ask = msgspec.json.decode(
        b'{"connectionId":"conn_1","protocolVersion":"2026-04-02","clientInfo":{"name":"desk"},'
        b'"capabilities":{"serverRequests":["approval"],"utilityOperations":["file_read"],'
        b'"rawAgentEvents":true},"optOutNotifications":["status"],"role":"viewer",'
        b'"takeControl":true,"later":1}',
        type=SubscribeAsk,
    )
    assert (ask.connection_id, ask.take_control) == ("conn_1", True)
    assert ask.hello() == Hello(
        protocol_version="2026-04-02",
        client_info=ClientInfo("desk"),
        capabilities=ClientCapabilities(
            server_requests=("approval",),
            utility_operations=("file_read",),
            raw_agent_events=True,
        ),
        role="viewer",
        opt_out_notifications=("status",),
    )
    assert msgspec.json.decode(b"{}", type=ConnectAsk).hello() == Hello()


@pytest.mark.parametrize(
    "body",
    [
        b'{"optOutNotifications":["weather"]}',
        b'{"role":"owner"}',
        b'{"capabilities":{"serverRequests":["lunch"]}}',
        b'{"takeControl":"yes"}',
    ],
)
def test_an_ask_with_words_that_nobody_knows_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=SubscribeAsk)


def test_each_envelope_is_one_line_that_says_its_kind() -> None:
    snapshot = wire(snapshot_at(4))
    assert snapshot["protocolVersion"] == "2026-04-02"
    told: list[tuple[Envelope, Json]] = [
        (
            SnapshotEnvelope(snapshot=snapshot_at(4)),
            {"type": "snapshot", "snapshot": snapshot},
        ),
        (
            MessageEnvelope(cursor=3, message=Status(message="two\nlines")),
            {
                "type": "message",
                "cursor": 3,
                "message": {"type": "status", "message": "two\nlines"},
            },
        ),
        (HeartbeatEnvelope(cursor=9), {"type": "heartbeat", "cursor": 9}),
        (
            ResetEnvelope(reason="lagged", snapshot=snapshot_at(4)),
            {"type": "reset", "reason": "lagged", "snapshot": snapshot},
        ),
    ]
    for envelope, expected in told:
        line = hosted.encode(envelope)
        assert b"\n" not in line
        assert msgspec.json.decode(line) == expected


def test_a_message_that_cannot_be_sent_is_replaced_inside_its_envelope() -> None:
    for message in (
        RawAgentEvent(event_type="x", event=object()),
        Status(message="x" * LONGEST),
    ):
        said = msgspec.json.decode(hosted.encode(MessageEnvelope(cursor=5, message=message)))
        assert (said["type"], said["cursor"], said["message"]["type"]) == ("message", 5, "error")
        assert said["message"]["message"].startswith("Failed to emit headless message: ")


def test_a_snapshot_is_read_again_as_it_was_written() -> None:
    shared, _, _ = crowd()
    snapshot = busy_snapshot(shared)
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=RuntimeSnapshot) == snapshot
    assert wire(snapshot)["last_init"] == {
        "type": "init",
        "system_prompt": "Be brief",
        "approval_mode": "prompt",
    }


def test_answers_have_the_fields_of_the_reference_and_no_others() -> None:
    shared, controller, viewer = crowd()
    snapshot = snapshot_at(7)
    lease: Json = {
        "controller_connection_id": "conn_1",
        "lease_expires_at": "1970-01-01T00:17:25.000Z",
        "heartbeat_interval_ms": 15_000,
    }
    watching = {"connection_id": "conn_2", "controller_lease_granted": False, **lease}
    holding = {"connection_id": "conn_1", "controller_lease_granted": True, **lease}
    assert wire(shared.registry.heartbeat(subscription_id=controller)) == holding
    assert wire(shared.registry.heartbeat("conn_2")) == watching
    assert wire(shared.registry.connection_snapshot("conn_1", snapshot)) == {
        **holding,
        "session_id": "sess_1",
        "role": "controller",
        "opt_out_notifications": ["heartbeat"],
        "snapshot": wire(snapshot),
    }
    assert wire(
        shared.registry.subscription_snapshot(
            shared.registry.subscribe(SubscribeAsk(role="viewer", opt_out_notifications=())),
            snapshot,
        )
    ) == {
        **watching,
        "connection_id": "conn_3",
        "subscription_id": "sub_3",
        "role": "viewer",
        "controller_subscription_id": "sub_1",
        "snapshot": wire(snapshot),
    }
    closed = shared.registry.disconnect(subscription_id=viewer)
    assert wire(closed) == {
        "success": True,
        "connection_id": "conn_2",
        "controller_connection_id": "conn_1",
        "disconnected_subscription_ids": ["sub_2"],
    }
    assert msgspec.convert(wire(closed), ConnectionClosed) == closed


@published
def test_answers_and_envelopes_are_valid_against_the_published_schemas() -> None:
    judge = Published()
    shared, controller, viewer = crowd()
    shared.registry.attached(controller, True)
    snapshot = busy_snapshot(shared)
    judge.check_named("HeadlessRuntimeSnapshotSchema", wire(snapshot))
    for subscription_id in (controller, viewer):
        judge.check_named(
            "HeadlessRuntimeSubscriptionSnapshotSchema",
            wire(shared.registry.subscription_snapshot(subscription_id, snapshot)),
        )
        judge.check_named(
            "HeadlessRuntimeHeartbeatSnapshotSchema",
            wire(shared.registry.heartbeat(subscription_id=subscription_id)),
        )
    for name, envelope in (
        ("Snapshot", SnapshotEnvelope(snapshot=snapshot)),
        ("Heartbeat", HeartbeatEnvelope(cursor=7)),
        ("Reset", ResetEnvelope(reason="lagged", snapshot=snapshot)),
        ("Reset", ResetEnvelope(reason="replay_gap", snapshot=snapshot)),
        ("Reset", ResetEnvelope(reason="restored_from_snapshot", snapshot=snapshot)),
    ):
        said = msgspec.json.decode(hosted.encode(envelope))
        judge.check_named(f"HeadlessRuntime{name}EnvelopeSchema", said)
    judge.check(wire(shared.registry.info("conn_2")))
    judge.check(wire(shared.registry.greet("conn_1", Hello(role="controller"))))
    shared.registry.disconnect("conn_1")
    judge.check_named(
        "HeadlessRuntimeHeartbeatSnapshotSchema", wire(shared.registry.heartbeat("conn_2"))
    )
