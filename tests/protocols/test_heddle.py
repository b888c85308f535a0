"""Heddle's codec: requests are checked first, facts become events and a result."""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract import facts as f
from batten.contract.errors import CallerError
from batten.contract.facts.assistant import Usage
from batten.contract.outcomes import Outcome
from batten.protocols import json_line
from batten.protocols.heddle import failures, requests, variables, versions
from batten.protocols.heddle.approval import ApprovalMode, expanded, offered
from batten.protocols.heddle.frames import Correlation, SendFrames
from batten.protocols.heddle.messages import ErrorEnvelope, Event, Response, ShutdownOk
from batten.protocols.heddle.versions import Mismatch, Spoken, negotiate, parse

SESSION = "0190b3f4-0000-7000-8000-000000000000"
OLD = Spoken("0.2.0", (0, 2, 0))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from([*requests.REQUESTS, "dance"]) | json_values


def frames(mode: ApprovalMode | None = None, spoken: Spoken = OLD) -> SendFrames:
    return SendFrames("s", Correlation(session_id=SESSION, task_id="T"), spoken, mode)


def said(events: list[Event]) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(events))
    return encoded


def message(turn: int, usage: Usage, **more: Any) -> f.AssistantMessageComplete:
    return f.AssistantMessageComplete(
        turn_index=turn,
        model="m",
        provider="p",
        blocks=[],
        usage=usage,
        stop_reason="end_turn",
        cost_micros_usd=7,
        price_as_of="2026-01-01",
        duration_ms=5,
        time_to_first_token_ms=1,
        **more,
    )


FINISHED = f.RunFinished(final_status="completed", turns=1, cost_micros_usd=0, duration_ms=90)


def test_a_frame_is_encoded_as_one_line_and_nothing_more() -> None:
    assert json_line.encode(ShutdownOk(id="5")) == b'{"type":"shutdown_ok","id":"5"}\n'


@given(st.dictionaries(st.sampled_from(["type", "id", "message", "config", "x"]), json_values))
def test_any_object_is_a_request_or_says_why_it_is_none(given: dict[str, Any]) -> None:
    asked = requests.read(given)
    assert isinstance(asked, requests.Misasked) or given["id"] == asked.id


@given(kinds, st.text(), json_values)
def test_a_request_of_any_type_keeps_its_id(kind: object, request_id: str, config: object) -> None:
    asked = requests.read({"type": kind, "id": request_id, "config": config, "message": ""})
    assert asked.id == (request_id if isinstance(kind, str) else requests.UNKNOWN_ID)


@given(st.data())
def test_a_damaged_line_is_an_object_or_malformed_and_never_a_crash(data: st.DataObject) -> None:
    line = bytearray(b'{"type":"send","id":"s","message":"caf\xc3\xa9 \\u00e9"}')
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    read = json_line.read(bytes(line))
    if isinstance(read, json_line.Malformed):
        assert requests.unreadable(read).id == requests.UNKNOWN_ID


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{", "not_json"),
        (b"[]", "not_an_object"),
        (b'"\xff"', "not_utf8"),
        (b"[" * 100_000, "too_deep"),
    ],
)
def test_each_way_to_be_unreadable_has_its_name(line: bytes, fault: str) -> None:
    read = json_line.read(line)
    assert isinstance(read, json_line.Malformed)
    assert read.fault == fault


@pytest.mark.parametrize(
    ("client", "server", "spoken"),
    [
        (None, "", "0.2.0"),
        (None, "0.4.0", "0.4.0"),
        ("0.2.0", "", "0.2.0"),
        ("0.2.7", "", "0.2.0"),
        ("0.2.7", "0.2.7", "0.2.7"),
        ("0.2.9", "0.2.7", "0.2.7"),
        ("0.3", "", "0.3.0"),
        ("0.4.9", "", "0.4.0"),
        ("0.5.0", "", "0.5.0"),
        ("0.6.0", "", "0.5.0"),
        ("0.5.0", "0.2.0", "0.2.0"),
        ("0.3.0", "0.4.0", "0.3.0"),
        ("1", "1.2.0", "1.2.0"),
        ("0.2.0-beta", "", "0.2.0"),
        ("0.2.0-rc.1+build.7", "", "0.2.0"),
        ("0.2.0+exp.sha.5114f85", "", "0.2.0"),
        ("0.5.0+7", "", "0.5.0"),
        ("0.5.0-rc.1", "", "0.4.0"),
        ("0.5.1-0", "", "0.5.0"),
        ("1.0.0", "", None),
        ("1", "", None),
        ("0.1.0", "", None),
        ("0.1.9", "", None),
        ("0", "", None),
        ("", "", None),
        ("latest", "", None),
        ("1.0.0-beta", "", None),
        ("00.3.0", "", None),
        ("0.3.0-01", "", None),
        ("0.3.0-", "", None),
        ("0.3.0+", "", None),
        ("0.3.0-a..b", "", None),
        ("0.3.0 ", "", None),
        ("v0.3.0", "", None),
        ("0.٣.0", "", None),
    ],
)
def test_the_newest_version_of_ours_that_a_client_knows_is_spoken(
    client: str | None, server: str, spoken: str | None
) -> None:
    found = negotiate(client, server)
    if spoken is None:
        message = f"Client requested {client}, server is {server or '0.2.0'}"
        assert found == Mismatch(server or "0.2.0", message)
    else:
        assert found == Spoken(spoken, parse(spoken))


def test_missing_parts_of_a_version_are_zero() -> None:
    assert (parse("1"), parse("1.2"), parse("1.2.3")) == ((1, 0, 0), (1, 2, 0), (1, 2, 3))
    assert versions.parse(versions.BASE) < versions.parse(versions.LATEST)


def test_the_version_is_in_a_file_at_the_root_of_the_project() -> None:
    stored = (Path(__file__).parents[2] / "PROTOCOL_VERSION").read_text()
    assert stored == f"{versions.BASE}\n"


def test_a_send_is_counted_from_zero_without_gaps_heartbeats_included() -> None:
    send = frames()
    events = send.feed(f.AssistantTextDelta(turn_index=1, block_index=0, delta="a"))
    events += send.heartbeat(5)
    events += send.feed(f.AssistantTextDelta(turn_index=1, block_index=0, delta=""))
    events += send.feed(f.AssistantTextDelta(turn_index=1, block_index=0, delta="b"))
    assert [event.event_seq for event in events] == [0, 1, 2]
    assert said(events)[1] == {
        "type": "event",
        "event": {"event": "heartbeat", "duration_ms": 5},
        "event_seq": 1,
        "send_id": "s",
        "session_id": SESSION,
        "task_id": "T",
    }


def test_usage_is_told_per_call_and_added_up_in_the_result() -> None:
    send = frames()
    events = send.feed(message(1, Usage(input_tokens=10, output_tokens=1, cache_read_tokens=4)))
    events += send.feed(message(2, Usage()))
    events += send.feed(message(3, Usage(input_tokens=20, output_tokens=2)))
    send.feed(FINISHED)
    assert [event["event"]["total_tokens"] for event in said(events)] == [11, 22]
    usage = msgspec.to_builtins(send.result())["usage"]
    assert usage == {"prompt_tokens": 30, "completion_tokens": 3, "total_tokens": 33}


def compacted(**more: Any) -> f.ContextCompacted:
    return f.ContextCompacted(
        summary="s", messages_removed=4, tokens_before=9, tokens_after=3, kept_messages=2, **more
    )


def test_the_call_that_compacts_is_among_the_usage() -> None:
    send = frames()
    events = send.feed(message(1, Usage(input_tokens=10, output_tokens=1)))
    events += send.feed(compacted(usage=Usage(input_tokens=100, output_tokens=5)))
    events += send.feed(compacted())
    send.feed(FINISHED)
    assert [event["event"]["total_tokens"] for event in said(events)] == [11, 105]
    result = msgspec.to_builtins(send.result())
    usage = {"prompt_tokens": 110, "completion_tokens": 6, "total_tokens": 116}
    assert (result["usage"], result["iterations"]) == (usage, 1)


def test_tokens_that_a_cancelled_send_used_are_in_its_result() -> None:
    send = frames()
    send.feed(message(1, Usage(input_tokens=10, output_tokens=1)))
    send.cancel()
    send.fail("cancelled", "")
    assert msgspec.to_builtins(send.result())["usage"]["total_tokens"] == 11


def test_the_latency_of_the_model_is_that_of_its_calls() -> None:
    send = frames()
    send.feed(message(1, Usage()))
    send.feed(
        f.ToolCompleted(
            tool_call_id="c", tool_name="grep", kind="grep", duration_ms=3, output="found"
        )
    )
    send.feed(message(2, Usage()))
    send.feed(FINISHED)
    result = msgspec.to_builtins(send.result())
    latencies = [result[f"{part}_latency_ms"] for part in ("model", "tool", "total")]
    assert latencies == [10, 3, 90]


def timed_out() -> f.RunFailed:
    return f.RunFailed(
        code="timeout",
        message="the limit of 2 s is reached",
        retriable=True,
        turns=1,
        outcome="timeout",
        duration_ms=90,
    )


@pytest.mark.parametrize(
    "before",
    [
        [f.TurnFailed(1, "cut_short", "the call was cut short", False)],
        [
            f.TurnFailed(1, "model_overloaded", "later", True, provider="openrouter", status=529),
            message(1, Usage()),
        ],
    ],
    ids=["in a call", "after a call that was made again"],
)
def test_a_limit_of_ours_is_named_and_not_what_failed_before_it(before: list[f.Fact]) -> None:
    send = frames()
    for fact in before:
        send.feed(fact)
    (event,) = send.feed(timed_out())
    said = msgspec.to_builtins(event.event)
    assert (said["message"], "provider" in said) == ("the limit of 2 s is reached", False)
    assert msgspec.to_builtins(send.result())["error"]["message"] == said["message"]


def test_a_call_that_fails_is_among_the_latency_of_the_model() -> None:
    send = frames()
    send.feed(message(1, Usage()))
    send.feed(f.TurnFailed(2, "model_overloaded", "later", False, duration_ms=70))
    send.feed(
        f.RunFailed(
            code="model_overloaded",
            message="later",
            retriable=True,
            turns=1,
            outcome="model_error",
            duration_ms=90,
        )
    )
    result = msgspec.to_builtins(send.result())
    assert (result["model_latency_ms"], result["total_latency_ms"]) == (75, 90)


@pytest.mark.parametrize(
    ("version", "code"),
    [("0.2.0", "loop_detected"), ("0.3.0", "loop_detected"), ("0.4.0", "max_iterations")],
)
@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_a_client_hears_only_the_codes_of_its_version(
    outcome: Outcome, version: str, code: str
) -> None:
    send = frames(spoken=Spoken(version, parse(version)))
    send.fail(outcome, "m")
    error = send.result().error
    assert isinstance(error, ErrorEnvelope)
    six = {
        *("provider_error", "protocol_error", "protocol_version_mismatch"),
        *("tool_error", "loop_detected", "cancelled"),
    }
    assert error.code in six | {code}
    assert error.retryable is (error.code == "provider_error")
    if outcome == "max_turns":
        assert error.code == code


@pytest.mark.parametrize("text", ["", " ", "\n\t\r", "\u00a0\u2003"])
def test_a_message_without_words_is_refused(text: str) -> None:
    asked = requests.read({"type": "send", "id": "s", "message": text})
    assert asked == requests.Misasked("s", "Invalid send request: the message is blank")


def test_the_wait_for_an_answer_and_for_a_hook_is_bounded() -> None:
    newest = Spoken("0.5.0", (0, 5, 0))
    several: list[dict[str, Any]] = [
        {"approvals": {"timeout_ms": 86_400_001}},
        {"approvals": {"timeout_ms": 10**30}},
        {"approvals": {"timeout_ms": 0}},
        {"hooks": {"pre_tool": [{"command": "true", "timeout": 86_400_001}]}},
    ]
    for field in several:
        config = requests.Config(model="m", system_prompt="s", tools=[], **field)
        with pytest.raises(CallerError, match=r"Invalid config: .*timeout"):
            config.later(newest)
    longest = {"timeout_ms": 86_400_000}
    config = requests.Config(model="m", system_prompt="s", tools=[], approvals=longest)
    assert config.later(OLD).approvals == requests.Approvals(86_400_000)


DEEP = b'{"a":' * 150_000 + b"1" + b"}" * 150_000
"""Deeper than a parser goes."""
DEEPER_THAN_OURS = b"[" * 300 + b"]" * 300


@pytest.mark.parametrize("inside", [DEEP, DEEPER_THAN_OURS])
def test_a_deep_line_is_refused_with_its_id(inside: bytes) -> None:
    line = b'{"type":"send", "x":{"id":"inner"}, "id":"s\\u00e9", "message":' + inside + b"}"
    read = json_line.read(line)
    assert isinstance(read, json_line.Malformed)
    refused = requests.unreadable(read)
    assert (read.fault, refused.id) == ("too_deep", "sé")


@pytest.mark.parametrize(
    ("head", "request_id"),
    [
        (b'{"type":"send","id":"s","message":"xxxx', "s"),
        (b' { "id" : "s" , "message" : "xxxx', "s"),
        (b'{"config":{"id":"inner","tools":["a",1,true]},"n":-1.5e3,"b":true,"id":"s","m":"x', "s"),
        (b'{"a":"{\\"id\\":\\"no\\"","id":"s","m":"x', "s"),
        (b'{"type":"send","id":"s', "unknown"),
        (b'{"type":"send","id":7,"m":"x', "unknown"),
        (b'{"type":"send","message":"\\"id\\":\\"no\\"', "unknown"),
        (b'{"config":{"id":"inner"', "unknown"),
        (b'["id","s","x', "unknown"),
        (b'"id":"s","x', "unknown"),
        (b'{"id":"\xff","x":"', "unknown"),
        (b"", "unknown"),
    ],
)
def test_a_long_line_is_refused_with_its_id_if_that_comes_first(
    head: bytes, request_id: str
) -> None:
    assert requests.unreadable(json_line.too_long(10, head)).id == request_id


def test_since_0_3_usage_has_its_cost_and_its_cache() -> None:
    send = frames(spoken=Spoken("0.3.0", (0, 3, 0)))
    used = Usage(input_tokens=10, output_tokens=1, cache_read_tokens=4)
    send.feed(message(1, used, message_id="g1"))
    send.feed(message(2, used, message_id="g2"))
    send.feed(FINISHED)
    usage = msgspec.to_builtins(send.result())["usage"]
    assert usage == {
        "prompt_tokens": 20,
        "completion_tokens": 2,
        "total_tokens": 22,
        "cost_micros": 14,
        "cost_currency": "USD",
        "cached_tokens": 8,
        "generation_id": "g2",
    }


def test_pruning_is_told_with_its_numbers() -> None:
    pruned = f.ContextPruned(tool_call_ids=["a", "b"], tokens_before=45000, tokens_after=28000)
    (event,) = said(frames().feed(pruned))
    assert event["event"] == {
        "event": "context_prune",
        "messages_pruned": 2,
        "tokens_before": 45000,
        "tokens_after": 28000,
    }


def test_a_preview_is_the_first_500_characters() -> None:
    ended = f.ToolCompleted(
        tool_call_id="c", tool_name="grep", kind="grep", duration_ms=3, output="é" * 900
    )
    (event,) = said(frames().feed(ended))
    assert event["event"]["result_preview"] == "é" * 500


def test_nothing_is_shown_of_a_cancelled_send_but_its_result() -> None:
    send = frames()
    send.cancel()
    assert send.feed(f.AssistantTextDelta(turn_index=1, block_index=0, delta="late")) == []
    assert send.heartbeat(1) == []
    assert send.fail("cancelled", "") == []
    result = msgspec.to_builtins(send.result())
    assert result["error"] == {"code": "cancelled", "message": "cancelled", "retryable": False}


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"error": {"message": "Model error"}}, "Model error"),
        ({"error": "plain"}, "plain"),
        (" words \n", "words"),
        ({"error": {"message": 7}}, ""),
        ({}, ""),
        (None, ""),
        ([1], ""),
    ],
)
def test_a_provider_s_words_are_found_in_what_it_answered(details: object, message: str) -> None:
    assert failures.words(details) == message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, variables.Variables()),
        ({"HEARTBEAT_INTERVAL": "100"}, variables.Variables(heartbeat_ms=100)),
        ({"HEARTBEAT_INTERVAL": "0"}, variables.Variables()),
        ({"HEARTBEAT_INTERVAL": "soon"}, variables.Variables()),
        ({"HEARTBEAT_INTERVAL": "inf"}, variables.Variables()),
        ({"TEMPERATURE": "0"}, variables.Variables(temperature=0.0)),
        ({"TEMPERATURE": "", "MAX_TOKENS": "many"}, variables.Variables()),
        ({"MAX_TOKENS": "50"}, variables.Variables(max_tokens=50)),
        ({"APPROVAL_MODE": "plan"}, variables.Variables(approval_mode="plan")),
        ({"APPROVAL_MODE": "Plan"}, variables.Variables()),
        ({"PROTOCOL_VERSION": "new"}, variables.Variables()),
    ],
)
def test_a_variable_that_makes_no_sense_is_as_if_not_set(
    given: dict[str, str], expected: variables.Variables
) -> None:
    assert variables.read({f"HEDDLE_{name}": value for name, value in given.items()}) == expected


def test_tools_are_those_asked_for_that_there_are() -> None:
    asked = ["bash", "nonesuch", "grep"]
    assert offered(asked, None) == ("grep", "bash")
    assert offered(asked, "plan") == ("grep",)
    assert offered(["ask_user", "save_memory"], None) == ("save_memory", "ask_user")
    assert offered([], None) == ()


def test_the_name_of_a_category_stands_for_its_tools() -> None:
    assert expanded("network") == ["web_fetch"]
    assert expanded("write(*.md)") == [
        "write_file(*.md)",
        "edit_file(*.md)",
        "save_memory(*.md)",
    ]
    assert expanded("Bash(git *)") == ["Bash(git *)"]


def event_of(payload: dict[str, Any]) -> dict[str, Any]:
    return {"type": "event", "event": payload, "event_seq": 0, "send_id": "s"}


@pytest.mark.parametrize(
    "frame",
    [
        event_of({"event": "context_compact"}),
        event_of({"event": "context_handoff"}),
        event_of({"event": "permission_request", "name": "bash", "reason": "x"}),
        event_of({"event": "error", "code": "c", "message": "m", "retryable": True}),
        event_of(
            {"event": "error", "code": "c", "message": "m", "retryable": True, "details": None}
        ),
        {
            "type": "init_ok",
            "id": "i",
            "session_id": "",
            "protocol_version": "0.2.0",
            "error": {"code": "protocol_version_mismatch", "message": "m", "retryable": False},
        },
        {"type": "status_ok", "id": "q", "model": "m", "messages_count": 1, "session_id": "x",
         "active": False, "odd": "unknown fields are passed over"},
    ],
)  # fmt: skip
def test_frames_that_the_protocol_describes_are_ones(frame: dict[str, Any]) -> None:
    msgspec.convert(frame, Response)


@pytest.mark.parametrize(
    ("init", "problem"),
    [
        ({"system_prompt": "s", "tools": []}, "model"),
        ({"model": "m", "tools": []}, "system_prompt"),
        ({"model": "m", "system_prompt": "s"}, "tools"),
        ({"model": "m", "system_prompt": "s", "tools": "bash"}, "tools"),
    ],
)
def test_a_config_that_leaves_out_what_is_needed_is_refused(
    init: dict[str, Any], problem: str
) -> None:
    asked = requests.read({"type": "init", "id": "i", "config": init})
    assert isinstance(asked, requests.Misasked)
    assert asked.id == "i"
    assert problem in asked.problem


def test_a_complete_config_is_taken_whatever_else_it_says() -> None:
    config: dict[str, Any] = {
        "model": "m",
        "system_prompt": "s",
        "tools": ["bash"],
        "max_iterations": 5,
        "task_id": "T",
        "worker_id": "W",
        "odd": {},
    }
    asked = requests.read({"type": "init", "id": "i", "config": config, "odd": 1})
    assert isinstance(asked, requests.Init)
    assert (asked.config.max_iterations, asked.config.task_id) == (5, "T")


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "event", "event": {"event": "heartbeat"}, "event_seq": 0, "send_id": "s"},
        {"type": "event", "event": {"event": "error", "message": "x", "retryable": True}},
        {"type": "event", "event": {"event": "heartbeat", "duration_ms": 1}, "send_id": "s"},
        {"type": "event", "event": {"event": "heartbeat", "duration_ms": 1}, "event_seq": 0},
        {"type": "result", "id": "s", "status": "error", "error": "bare words"},
        event_of({"event": "error", "code": "provider_error", "message": "x"}),
        event_of({"event": "error", "error": "flat", "retryable": False}),
        event_of({"event": "context_prune", "messages_pruned": 1, "tokens_before": 2}),
        event_of({"event": "context_prune", "messages_pruned": 1, "tokens_after": 2}),
        event_of({"event": "context_prune", "tokens_before": 1, "tokens_after": 2}),
        {"type": "dance", "id": "s"},
    ],
)
def test_frames_that_leave_out_what_is_needed_are_none(frame: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(frame, Response)
