"""The request for a run is read strictly; errors have one shape."""

from typing import Any

import msgspec
import pytest

from batten.contract.errors import CallerError, Conflict, NotFound
from batten.protocols.macp.descriptor import (
    CloneRun,
    cloned,
    concealed,
    is_session_id,
    read_descriptor,
)
from batten.protocols.macp.errors import STATUSES, body_of, error_body


def given(**changes: Any) -> dict[str, Any]:
    """The document's example, with members of `session` replaced."""
    return {
        "mode": "live",
        "runtime": {"kind": "rust"},
        "session": {
            "modeName": "macp.mode.decision.v1",
            "modeVersion": "1.0.0",
            "configurationVersion": "config.default",
            "ttlMs": 60000,
            "participants": [{"id": "agent-1"}, {"id": "agent-2"}],
            "metadata": {"cancelCallback": {"url": "http://initiator/cancel", "bearer": "s"}},
            **changes,
        },
        "execution": {
            "idempotencyKey": "unique-key",
            "tags": ["production"],
            "requester": {"actorId": "user-1", "actorType": "user"},
        },
    }


def read(body: Any) -> Any:
    return read_descriptor(msgspec.json.encode(body))


def refusal(body: Any) -> CallerError:
    with pytest.raises(CallerError) as caught:
        read(body)
    assert body_of(caught.value).status_code == 400
    return caught.value


def test_the_documented_request_is_read() -> None:
    descriptor = read(given())
    assert descriptor.tags == ["production"]
    assert descriptor.idempotency_key == "unique-key"
    assert read(given() | {"mode": "sandbox"}).tags == ["production", "sandbox"]


def test_a_clone_keeps_what_it_does_not_change_and_drops_key_and_session() -> None:
    original = given(sessionId="9b2f0c1a-5d1e-4c7b-8a3f-0123456789ab")
    plain = msgspec.to_builtins(cloned(original, CloneRun()))
    execution = {
        name: value for name, value in original["execution"].items() if name != "idempotencyKey"
    }
    assert plain == {**given(), "execution": execution}
    changed = cloned(original, CloneRun(tags=[], context={"a": 1}))
    assert (changed.tags, changed.metadata["context"]) == ([], {"a": 1})
    assert changed.metadata["cancelCallback"] == original["session"]["metadata"]["cancelCallback"]


def test_a_callback_s_secret_is_concealed_and_nothing_else() -> None:
    shown = concealed(given())
    assert shown["session"]["metadata"]["cancelCallback"]["bearer"] == "[redacted]"
    callback = {"url": "http://initiator/cancel"}
    assert concealed(body := given(metadata={"cancelCallback": callback})) is body
    assert concealed(body := given(metadata={})) is body


def test_deep_metadata_is_refused() -> None:
    deep: Any = "x"
    for _ in range(70):
        deep = {"a": deep}
    assert "nests more than" in refusal(given(metadata=deep)).message


REFUSED: list[tuple[Any, str]] = [
    (given() | {"kickoff": []}, "kickoff"),
    (given() | {"commitments": []}, "commitments"),
    (given(policyHints={}), "policyHints"),
    (given(initiatorParticipantId="a"), "initiatorParticipantId"),
    (given(participants=[{"id": "a", "role": "voter"}]), "session.participants[0]"),
    (given(participants=[]), "session.participants"),
    (given(participants=[{"id": ""}]), "session.participants[0].id"),
    (given(ttlMs=0), "session.ttlMs"),
    (given(ttlMs=1.5), "session.ttlMs"),
    (given(modeName=""), "session.modeName"),
    (given(metadata={"cancelCallback": {}}), "session.metadata.cancelCallback"),
    (given(metadata={"cancellationDelegated": "yes"}), "cancellationDelegated"),
    ({"mode": "live", "runtime": {"kind": "rust"}}, "session"),
    ({"mode": "live", "session": given()["session"]}, "runtime"),
    (given() | {"mode": "dry"}, "mode"),
    (given() | {"execution": {"requester": {"actorType": "robot"}}}, "actorType"),
    (given(participants=[{"id": str(n)} for n in range(1001)]), "Maximum 1000 participants"),
]


@pytest.mark.parametrize(("body", "where"), REFUSED)
def test_what_the_document_does_not_list_is_refused_by_its_place(body: Any, where: str) -> None:
    error = refusal(body)
    assert error.code == "VALIDATION_ERROR"
    assert where in error.message


def test_null_says_that_an_optional_member_is_left_out() -> None:
    nothing = dict.fromkeys(("sessionId", "policyVersion", "metadata"))
    requester = {"actorId": None, "actorType": None}
    execution = {"idempotencyKey": None, "tags": None, "requester": requester}
    body = given(**nothing) | {
        "runtime": {"kind": "rust", "version": None},
        "execution": execution,
    }
    assert msgspec.to_builtins(read(body)) == {
        "mode": "live",
        "runtime": {"kind": "rust"},
        "session": {name: one for name, one in body["session"].items() if name not in nothing},
        "execution": {"requester": {}},
    }
    assert msgspec.to_builtins(read(body | {"execution": None})).keys() == body.keys() - {
        "execution"
    }
    callback = {"url": "http://initiator/cancel", "bearer": None}
    kept = {"cancelCallback": callback, "note": None}
    assert concealed(msgspec.to_builtins(read(given(metadata=kept))))["session"]["metadata"] == kept


def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    session = read(given(ttlMs=60_000.0, metadata={"share": 1.0})).session
    assert session.ttl_ms == 60_000
    assert msgspec.json.encode(session.metadata) == b'{"share":1.0}'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (given(ttlMs=1.5), "session.ttlMs: Expected `int`, got `float`"),
        (given(ttlMs=None), "session.ttlMs: Expected `int`, got `null`"),
        (given() | {"mode": None}, "mode: Expected `str`, got `null`"),
        (given() | {"session": None}, "session: Expected `object`, got `null`"),
        (given(metadata=None, kickoff=None), "session: Object contains unknown field `kickoff`"),
        (given() | {"mode": "dry"}, "mode: Invalid enum value 'dry'; use one of live, sandbox"),
    ],
)
def test_a_refusal_says_what_is_wrong(body: Any, message: str) -> None:
    assert refusal(body).message == message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"\xff"', b"[" * 5000])
def test_what_is_no_request_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError) as caught:
        read_descriptor(body)
    assert caught.value.code == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    ("session_id", "is_good"),
    [
        ("0190b2f0-0000-7000-8000-000000000001", True),
        ("8b1f4c9e-3d2a-4e5b-9c7d-1a2b3c4d5e6f", True),
        ("8B1F4C9E-3D2A-4E5B-9C7D-1A2B3C4D5E6F", False),
        ("8b1f4c9e-3d2a-1e5b-9c7d-1a2b3c4d5e6f", False),
        ("abcdefghijklmnopqrstu_", True),
        ("abcdefghijklmnopqrstu", False),
        ("abcdefghijklmnopqrstuv!", False),
        ("", False),
    ],
)
def test_a_session_id_is_one_that_a_runtime_would_open(session_id: str, is_good: bool) -> None:
    assert is_session_id(session_id) is is_good
    if is_good:
        assert read(given(sessionId=session_id)).session.session_id == session_id
    else:
        assert refusal(given(sessionId=session_id)).code == "INVALID_SESSION_ID"


def test_every_error_has_a_status_a_code_and_a_message() -> None:
    assert msgspec.to_builtins(error_body("INVALID_STATE_TRANSITION", "no")) == {
        "statusCode": 409,
        "errorCode": "INVALID_STATE_TRANSITION",
        "message": "no",
    }
    assert STATUSES["CIRCUIT_BREAKER_OPEN"] == 503
    assert STATUSES["RATE_LIMITED"] == 429


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (NotFound("run x not found", code="RUN_NOT_FOUND"), "RUN_NOT_FOUND", 404),
        (NotFound("x"), "NOT_FOUND", 404),
        (Conflict("x"), "CONFLICT", 409),
        (CallerError("x"), "VALIDATION_ERROR", 400),
        (RuntimeError("a secret"), "INTERNAL_ERROR", 500),
    ],
)
def test_errors_of_ours_have_their_code(error: Exception, code: str, status: int) -> None:
    body = body_of(error)
    assert (body.error_code, body.status_code) == (code, status)
    assert "secret" not in body.message
