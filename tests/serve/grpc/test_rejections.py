"""Which of several faults a message is rejected for, and what registries and lists refuse."""

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from batten.coordination.envelope import Message
from tests.coordination.given import DECISION, say, start_message
from tests.coordination.published import core, sdk
from tests.serve.grpc.running import Server, bearer, plain_stub
from tests.serve.grpc.test_access import status_of, wire

MODES = [f"macp.mode.{name}.v1" for name in ("decision", "proposal", "task", "handoff", "quorum")]


@pytest.fixture
def stub(server: Server) -> Iterator[Any]:
    with plain_stub(server) as made:
        yield made


def send(stub: Any, message: Message, token: str = "") -> Any:
    request = core.SendRequest(envelope=wire.write_envelope(message))
    return stub.Send(request, metadata=bearer(token or message.sender)).ack


def code_of(stub: Any, message: Message, token: str = "") -> str:
    ack = send(stub, message, token)
    assert not ack.ok
    assert ack.session_state == 0
    code: str = ack.error.code
    return code


def test_second_start_is_judged_by_its_payload_before_its_session(stub: Any) -> None:
    session_id = sdk.new_session_id()
    assert send(stub, start_message(session_id=session_id)).ok
    again = send(stub, start_message(session_id=session_id))
    assert (again.ok, again.duplicate) == (True, True)

    def second(mode: str = DECISION, **fields: Any) -> str:
        named = start_message(mode, session_id=session_id, **fields)
        other = Message(
            mode=mode,
            message_type="SessionStart",
            message_id="another",
            session_id=session_id,
            sender="lead",
            payload=named.payload,
        )
        return code_of(stub, other)

    assert second("macp.mode.none.v1") == "MODE_NOT_SUPPORTED"
    assert second(ttl_ms=0) == "INVALID_ENVELOPE"
    assert second(mode_version="9.9.9") == "INVALID_ENVELOPE"
    # The session's own existence comes before its policy.
    assert second(policy_version="policy.none") == "SESSION_ALREADY_EXISTS"
    assert second() == "SESSION_ALREADY_EXISTS"


def test_faults_of_a_start_are_told_in_their_order(stub: Any) -> None:
    bad_id = start_message("macp.mode.none.v1", session_id="short", ttl_ms=0)
    assert code_of(stub, bad_id) == "INVALID_SESSION_ID"
    bad_mode = start_message("macp.mode.none.v1", session_id=sdk.new_session_id(), ttl_ms=0)
    assert code_of(stub, bad_mode) == "MODE_NOT_SUPPORTED"
    bad_payload = start_message(
        session_id=sdk.new_session_id(), ttl_ms=0, policy_version="policy.none"
    )
    assert code_of(stub, bad_payload) == "INVALID_ENVELOPE"


def test_shape_comes_before_the_credential_and_that_before_the_session(stub: Any) -> None:
    unshaped = Message(message_type="Vote", message_id="", session_id="x", mode="m")
    request = core.SendRequest(envelope=wire.write_envelope(unshaped))
    assert stub.Send(request).ack.error.code == "INVALID_ENVELOPE"
    shaped = Message(message_type="Vote", message_id="1", session_id="x", mode="m")
    request = core.SendRequest(envelope=wire.write_envelope(shaped))
    assert stub.Send(request).ack.error.code == "UNAUTHENTICATED"
    assert code_of(stub, shaped, "ann") == "SESSION_NOT_FOUND"


def test_faults_of_a_message_are_told_in_their_order(stub: Any) -> None:
    session_id = sdk.new_session_id()
    assert send(stub, start_message(session_id=session_id)).ok

    def message(sender: str, id_: str, mode: str = DECISION, payload: bytes = b"\xff") -> Message:
        return Message(
            mode=mode,
            message_type="Proposal",
            message_id=id_,
            session_id=session_id,
            sender=sender,
            payload=payload,
        )

    assert code_of(stub, message("zoe", "1", mode=MODES[1])) == "INVALID_ENVELOPE"
    assert code_of(stub, message("zoe", "1")) == "FORBIDDEN"
    assert code_of(stub, message("ann", "1")) == "INVALID_ENVELOPE"
    # What was rejected used up no id, and what was accepted is a duplicate in any state.
    good = say("ann", "Proposal", id_="1", proposal_id="p1", option="a").payload
    assert send(stub, message("ann", "1", payload=good)).ok
    suspend = core.SuspendSessionRequest(session_id=session_id)
    assert stub.SuspendSession(suspend, metadata=bearer("lead")).ack.ok
    assert code_of(stub, message("zoe", "2", mode=MODES[1])) == "INVALID_ENVELOPE"
    assert code_of(stub, message("zoe", "2")) == "SESSION_NOT_OPEN"
    assert code_of(stub, message("zoe", "1")) == "SESSION_NOT_OPEN"
    again = send(stub, message("ann", "1"))
    assert (again.ok, again.duplicate, again.session_state) == (
        True,
        True,
        wire.envelopes.SESSION_STATE_SUSPENDED,
    )


def test_each_built_in_mode_names_the_file_of_its_payloads(stub: Any) -> None:
    standard = stub.ListModes(core.ListModesRequest()).modes
    extension = stub.ListExtModes(core.ListExtModesRequest()).modes
    found = {one.mode: dict(one.schema_uris) for one in (*standard, *extension)}
    for name in (*MODES, "ext.multi_round.v1"):
        module = import_module(f"macp.modes.{name.split('.')[-2]}.v1.{name.split('.')[-2]}_pb2")
        assert found[name] == {"protobuf": module.DESCRIPTOR.name}


def test_default_policy_tells_its_rules(stub: Any) -> None:
    request = wire.policies.GetPolicyRequest(policy_id="policy.default")
    found = stub.GetPolicy(request, metadata=bearer("ann")).policy_descriptor
    assert (found.mode, found.schema_version) == ("*", 1)
    rules = json.loads(found.rules)
    assert rules["voting"]["algorithm"] == "none"
    assert rules["objection_handling"]["critical_severity_vetoes"] is False
    assert rules["evaluation"]["required_before_voting"] is False
    assert rules["commitment"]["authority"] == "initiator_only"


@pytest.mark.parametrize(
    "wrong", [{"page_size": -1}, *({"page_token": token} for token in ("x", "%", "YWI=", "YSBi%"))]
)
def test_page_that_there_cannot_be_is_refused(stub: Any, wrong: dict[str, Any]) -> None:
    request = core.ListSessionsRequest(**wrong)
    assert status_of(lambda: stub.ListSessions(request, metadata=bearer("ann"))) == (
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
    )
