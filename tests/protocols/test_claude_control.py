"""The control protocol: lines of the SDK's, and what its answers mean."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.commands import Prompt
from batten.contract.conversation import Image
from batten.contract.errors import CallerError, PeerError
from batten.protocols.claude import control
from batten.protocols.claude.control import (
    Answered,
    Asked,
    HookMatcher,
    Misasked,
    Permission,
    Withdrawn,
    parse,
    permission,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"in": value}
    return value


def line(value: Any) -> bytes:
    return msgspec.json.encode(value)


def request(**body: Any) -> bytes:
    return line({"type": "control_request", "request_id": "r1", "request": body})


def test_half_of_a_character_does_not_end_the_input() -> None:
    """Python's SDK sends what a tool of its client returns, with file names of any bytes."""
    prompt = b'{"type":"user","message":{"role":"user","content":"cut \\ud83d"}}'
    assert parse(prompt) == Prompt(text="cut \ufffd")
    answer = b'{"type":"control_response","response":{"subtype":"success","request_id":"q1",'
    answered = parse(answer + b'"response":{"name":"caf\\udce9"}}}')
    assert isinstance(answered, Answered)
    assert answered.body == {"name": "caf\ufffd"}
    with pytest.raises(PeerError, match="not of this protocol"):
        parse(b'{"type":"user","message":"\xed\xa0\xbd"}')
    with pytest.raises(PeerError, match="not of this protocol"):
        parse(b'{"type":5,"uuid":"\\ud83d"}')


def test_prompts_are_texts_or_blocks() -> None:
    text = {"type": "user", "message": {"role": "user", "content": "hello"}, "session_id": ""}
    assert parse(line(text)) == Prompt(text="hello")
    picture = {"type": "base64", "media_type": "image/png", "data": b64encode(b"png").decode()}
    blocks = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": picture},
        {"type": "text", "text": "here"},
    ]
    message = {"role": "user", "content": blocks}
    parsed = parse(line({"type": "user", "message": message, "uuid": "u", "origin": {}}))
    assert parsed == Prompt(text="look\nhere", images=(Image("image/png", b"png"),), prompt_id="u")


def test_requests_are_read_with_what_they_need() -> None:
    hooks = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["hook_0"], "timeout": 5}]}
    parsed = parse(request(subtype="initialize", hooks=hooks, newThing=1))
    matcher = HookMatcher(("hook_0",), "Bash", 5)
    assert parsed == Asked("r1", control.Initialize({"PreToolUse": (matcher,)}))
    assert parse(request(subtype="interrupt")) == Asked("r1", control.InterruptTurn())
    assert parse(request(subtype="set_model", model=None)) == Asked("r1", control.SetModel(None))
    toggled = parse(request(subtype="mcp_toggle", serverName="calc", enabled=False))
    assert toggled == Asked("r1", control.McpToggle("calc", False))


def test_requests_that_nobody_knows_or_that_lack_something_are_answered_so() -> None:
    assert parse(request(subtype="fly")) == Misasked(
        "r1", "the control request 'fly' is not supported"
    )
    lacking = parse(request(subtype="set_permission_mode"))
    assert isinstance(lacking, Misasked)
    assert "mode" in lacking.problem


@pytest.mark.parametrize("body", [None, 5, [], "x", nested(100)])
def test_a_request_of_another_shape_is_answered_so(body: Any) -> None:
    parsed = parse(line({"type": "control_request", "request_id": "r1", "request": body}))
    assert isinstance(parsed, Misasked)
    assert parsed.request_id == "r1"


@pytest.mark.parametrize("request_id", [None, 5, ["r1"], "r" * 257])
def test_an_id_that_is_none_or_too_long_does_not_come_back(request_id: Any) -> None:
    body = {"subtype": "interrupt"}
    parsed = parse(line({"type": "control_request", "request_id": request_id, "request": body}))
    assert isinstance(parsed, Misasked)
    assert parsed.request_id == ""
    assert "256" in parsed.problem


def test_a_hook_cannot_be_given_less_than_no_time() -> None:
    hooks = {"PreToolUse": [{"hookCallbackIds": ["h"], "timeout": -1}]}
    assert isinstance(parse(request(subtype="initialize", hooks=hooks)), Misasked)


ODD: list[dict[str, Any]] = [
    {"subtype": "maybe"},
    {"subtype": 5},
    {"subtype": "success", "response": 5},
    {"subtype": "success", "response": [{}]},
    {"subtype": "success", "response": nested(100)},
    {"subtype": "error", "error": nested(100)},
]


@pytest.mark.parametrize("more", ODD)
def test_an_answer_of_another_shape_is_an_error_of_what_it_answers(more: Any) -> None:
    parsed = parse(line({"type": "control_response", "response": {"request_id": "a", **more}}))
    assert isinstance(parsed, Answered)
    assert (parsed.request_id, parsed.body) == ("a", {})
    assert parsed.error


def test_answers_are_successes_or_errors() -> None:
    good = {"subtype": "success", "request_id": "a", "response": {"x": 1}}
    assert parse(line({"type": "control_response", "response": good})) == Answered("a", {"x": 1})
    bad = {"subtype": "error", "request_id": "a", "error": "no"}
    assert parse(line({"type": "control_response", "response": bad})) == Answered("a", {}, "no")


def test_a_request_may_be_withdrawn_and_some_lines_ask_for_nothing() -> None:
    cancel = {"type": "control_cancel_request", "request_id": "r1"}
    assert parse(line(cancel)) == Withdrawn("r1")
    assert parse(line({"type": "keep_alive"})) is None


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"type":"user"}',
        b'{"type":"user","message":{"content":[{"type":"video"}]}}',
        b'{"type":"user","message":{"content":[{"type":"image","source":{"media_type":"a","data":"?"}}]}}',
        b'{"type":"control_response","response":{"subtype":"maybe"}}',
        b'{"type":"assistant"}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_lines_of_another_protocol_are_peer_errors(text: bytes) -> None:
    with pytest.raises(PeerError):
        parse(text)


@given(st.sampled_from(["user", "control_request", "control_response", "other"]), JSON, JSON)
def test_nothing_that_comes_in_is_worse_than_a_peer_error(kind: str, one: Any, other: Any) -> None:
    frame = {"type": kind, "message": one, "request": other, "response": one, "request_id": other}
    try:
        parse(line(frame))
    except PeerError:
        return


def test_an_answer_without_a_change_is_no_change() -> None:
    asked = {"command": "ls"}
    same = Answered("a", {"behavior": "allow", "updatedInput": {"command": "ls"}})
    assert permission(same, asked) == Permission(True)
    changed = Answered("a", {"behavior": "allow", "updatedInput": {"command": "pwd"}})
    assert permission(changed, asked) == Permission(True, "", {"command": "pwd"})
    denied = Answered("a", {"behavior": "deny", "message": "no", "interrupt": True})
    assert permission(denied, asked) == Permission(False, "no", interrupt=True)


@pytest.mark.parametrize(
    "answer",
    [
        Answered("a", {}, "it broke"),
        Answered("a", {}),
        Answered("a", {"behavior": "maybe"}),
        Answered("a", {"behavior": "allow", "updatedInput": "ls"}),
        Answered("a", {"behavior": "allow", "updatedPermissions": 5}),
        Answered("a", {"behavior": "allow", "updatedPermissions": True}),
        Answered("a", {"behavior": "allow", "updatedPermissions": {"type": "setMode"}}),
        Answered("a", {"behavior": "allow", "updatedPermissions": ["setMode"]}),
    ],
)
def test_an_answer_that_makes_no_sense_grants_nothing(answer: Answered) -> None:
    with pytest.raises(CallerError):
        permission(answer, {})


def test_what_we_send_can_be_told_apart_by_its_id() -> None:
    asked = control.ask("b1", "mcp_message", server_name="calc", message={"id": 1})
    assert asked["request"] == {
        "subtype": "mcp_message",
        "server_name": "calc",
        "message": {"id": 1},
    }
    assert control.success("r1")["response"] == {
        "subtype": "success",
        "request_id": "r1",
        "response": {},
    }
    assert control.refusal("r1", "no")["response"]["error"] == "no"
    assert control.withdraw("b1") == {"type": "control_cancel_request", "request_id": "b1"}
