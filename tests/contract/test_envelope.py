"""Envelopes: what is known is typed, what is not passes through, and bytes never crash us."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.envelope import (
    Envelope,
    decode,
    decode_fact,
    encode,
    on_one_line,
    payload,
    timestamp,
)
from batten.contract.errors import PeerError
from batten.contract.facts import Fact, RunCancelled, ToolInvoked, TurnStarted, Unknown

from .journals import LINES

OUTER: dict[str, Any] = {
    "schema_version": "1",
    "event_id": "evt_01M1DZPWGPEATTGW6000CX6DE4",
    "run_id": "run_01M1DZPWFMEATTGW6000CX6DE0",
    "sequence": 7,
    "occurred_at": "2026-09-01T08:00:00.534Z",
    "type": "run.cancelled",
    "data": {"by": "operator", "reason": ""},
}

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, json_values, max_size=5)


def wire(**changed: Any) -> bytes:
    return msgspec.json.encode(OUTER | changed)


def again(envelope: Envelope) -> bytes:
    return encode(msgspec.structs.replace(envelope, data=payload(envelope.data)))


def test_a_known_type_becomes_its_fact() -> None:
    assert decode(wire()) == Envelope(
        event_id=OUTER["event_id"],
        run_id=OUTER["run_id"],
        sequence=7,
        occurred_at=OUTER["occurred_at"],
        type="run.cancelled",
        data=RunCancelled(by="operator", reason=""),
    )


@given(objects)
def test_an_unknown_type_passes_through_unchanged(data: dict[str, Any]) -> None:
    body = wire(type="weather.changed", data=data)
    envelope = decode(body)
    assert envelope.data == Unknown(type="weather.changed", data=data)
    assert again(envelope) == on_one_line(body)


def test_an_unknown_fact_has_the_type_it_came_with() -> None:
    assert decode_fact(wire(type="weather.changed", data={})).type == "weather.changed"


@given(st.dictionaries(st.from_regex(r"x_[a-z]{1,8}", fullmatch=True), json_values, max_size=4))
def test_unknown_keys_of_the_envelope_are_ignored(extra: dict[str, Any]) -> None:
    assert decode(wire(**extra)) == decode(wire())


@given(st.dictionaries(st.from_regex(r"x_[a-z]{1,8}", fullmatch=True), json_values, max_size=4))
def test_unknown_fields_of_a_payload_are_ignored(extra: dict[str, Any]) -> None:
    assert decode(wire(data=OUTER["data"] | extra)) == decode(wire())


@pytest.mark.parametrize(
    "data", [{}, {"by": "operator"}, {"by": 7, "reason": ""}, {"by": None, "reason": ""}]
)
def test_a_known_type_with_an_unfitting_payload_is_unknown(data: dict[str, Any]) -> None:
    assert decode_fact(wire(data=data)) == Unknown(type="run.cancelled", data=data)


def test_a_tool_kind_of_a_newer_writer_is_still_a_tool_call() -> None:
    data = {"tool_call_id": "c1", "tool_name": "fly", "kind": "drone", "turn_index": 1}
    fact = decode_fact(wire(type="tool.invoked", data=data))
    assert fact == ToolInvoked(tool_call_id="c1", tool_name="fly", kind="drone", turn_index=1)


@pytest.mark.parametrize("key", list(OUTER))
def test_an_envelope_without_a_required_key_is_a_peer_error(key: str) -> None:
    rest = {name: value for name, value in OUTER.items() if name != key}
    with pytest.raises(PeerError, match=key):
        decode(msgspec.json.encode(rest))


@pytest.mark.parametrize(
    "changed",
    [
        {"data": None},
        {"data": []},
        {"data": "text"},
        {"type": "weather.changed", "data": None},
        {"type": None},
        {"sequence": -1},
        {"sequence": "7"},
        {"sequence": 7.0},
        {"task_id": None},
        {"session_id": 5},
        {"schema_version": 1},
    ],
    ids=str,
)
def test_an_envelope_with_a_wrong_value_is_a_peer_error(changed: dict[str, Any]) -> None:
    with pytest.raises(PeerError):
        decode(wire(**changed))


NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\x00\xff\xfe",
        NESTED,
        wire()[:-1] + b',"more":' + NESTED + b"}",
        wire().replace(b'"by":"operator"', b'"by":' + NESTED),
        wire(type="weather.changed").replace(b'"by":"operator"', b'"by":' + NESTED),
        wire().replace(b"operator", b"oper\xffator"),
        wire(type="weather.changed").replace(b"operator", b"oper\xffator"),
        wire(type="weather.changed").replace(b"operator", b"\\ud800"),
        wire(type="weather.changed").replace(b'"operator"', b"1e999"),
        wire(type="weather.changed").replace(b'"operator"', b"9" * 5000),
    ],
    ids=lambda body: repr(body[:12]) + str(len(body)),
)
def test_bytes_that_are_no_envelope_are_a_peer_error(body: bytes) -> None:
    with pytest.raises(PeerError):
        decode(body)


@given(st.binary(max_size=200))
def test_random_bytes_are_a_peer_error(body: bytes) -> None:
    with pytest.raises(PeerError):
        decode(body)


@given(st.sampled_from(LINES), st.data())
def test_a_damaged_envelope_is_a_peer_error_or_other_data_but_never_a_crash(
    line: bytes, data: st.DataObject
) -> None:
    body = bytearray(line)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["change", "cut", "repeat"])):
            case "change":
                body[at] = data.draw(st.integers(0, 255))
            case "cut":
                del body[at : at + data.draw(st.integers(1, 20))]
            case _:
                body[at:at] = body[at : at + data.draw(st.integers(1, 40))]
        if not body:
            break
    try:
        envelope = decode(bytes(body))
    except PeerError:
        return
    assert isinstance(envelope.data, Fact)
    json.loads(again(envelope))


@given(objects, st.sampled_from("\x85\u2028\u2029"))
def test_an_envelope_is_one_line_for_every_reader_of_lines(
    data: dict[str, Any], line_end: str
) -> None:
    said = {**data, f"key{line_end}": f"a{line_end}b é"}
    body = again(decode(wire(type="weather.changed", data=said)))
    assert len(body.decode().splitlines()) == 1
    assert json.loads(body)["data"] == said


def test_absent_ids_are_absent_from_the_wire() -> None:
    body = encode(
        Envelope(
            event_id="evt_x",
            run_id="run_x",
            sequence=0,
            occurred_at="2026-09-01T08:00:00.000Z",
            type="turn.started",
            data=TurnStarted(1, "m-small", "scripted", 5),
        )
    )
    assert json.loads(body) == {
        "schema_version": "1",
        "event_id": "evt_x",
        "run_id": "run_x",
        "sequence": 0,
        "occurred_at": "2026-09-01T08:00:00.000Z",
        "type": "turn.started",
        "data": {
            "turn_index": 1,
            "model": "m-small",
            "provider": "scripted",
            "input_tokens_estimate": 5,
        },
    }


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (999_999, "1970-01-01T00:00:00.000Z"),
        (1_788_249_600_534_999_999, "2026-09-01T08:00:00.534Z"),
    ],
)
def test_a_timestamp_is_utc_with_milliseconds(nanoseconds: int, text: str) -> None:
    assert timestamp(nanoseconds) == text


def test_a_timestamp_is_now_if_no_instant_is_given() -> None:
    before = time.time_ns()
    now = timestamp()
    assert timestamp(before) <= now <= timestamp(time.time_ns())
