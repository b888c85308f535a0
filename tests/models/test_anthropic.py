from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import pytest

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.depth import DEEPEST
from batten.contract.facts.assistant import Usage
from batten.models.anthropic import AnthropicDialect
from batten.models.contract import (
    BlockDone,
    Done,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSpec,
)
from batten.models.message_builder import MAX_BLOCKS
from tests.models.calls import ask, contents, converse, done, failure, fold
from tests.models.server import Fault, answer, cut, refusal
from tests.models.wire import (
    anthropic_block,
    anthropic_call_block,
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

NAME = "anthropic/claude-sonnet-4-5"
DIALECT = AnthropicDialect("claude-sonnet-4-5", "http://localhost", key="k")
TOOL = ToolSpec("read", "Reads a file", {"type": "object", "properties": {}})


def body(request: ModelRequest) -> dict[str, Any]:
    dialect = AnthropicDialect(request.model, "http://localhost", key="k")
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dialect.body(request)))
    return value


async def test_text_comes_in_deltas_then_whole_then_done() -> None:
    events, server = await converse(NAME, [answer(anthropic_turn("Hi there"), piece=20)])
    assert events == [
        TextDelta(0, "Hi t"),
        TextDelta(0, "here"),
        BlockDone(0, Text("Hi there")),
        Done("end_turn", Usage(10, 5), "msg_1", "claude-test-4-5"),
    ]
    request = server.requests[0]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "test-key"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.json()["model"] == "claude-sonnet-4-5"


async def test_several_calls_in_one_turn_come_whole_and_in_order() -> None:
    calls = [("toolu_1", "read", {"path": "a"}), ("toolu_2", "bash", {"command": "ls"})]
    events, _ = await converse(NAME, [answer(anthropic_turn("Look", calls))])
    assert contents(events) == [
        Text("Look"),
        ToolCall("toolu_1", "read", {"path": "a"}),
        ToolCall("toolu_2", "bash", {"command": "ls"}),
    ]
    assert done(events).stop_reason == "tool_use"
    fragments = [event for event in events if isinstance(event, ToolCallDelta)]
    assert "".join(event.fragment for event in fragments if event.block == 1) == '{"path":"a"}'
    assert {event.name for event in fragments} == {"read", "bash"}


async def test_thinking_keeps_its_signature_and_goes_back_as_it_came() -> None:
    thinking = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see"},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    hidden = anthropic_block(1, {"type": "redacted_thinking", "data": "aGlkZGVu"})
    wire = sse(
        anthropic_start(), *thinking, *hidden, *anthropic_text_block(2, "Yes"), *anthropic_end()
    )
    events, _ = await converse(NAME, [answer(wire)])
    assert events[:2] == [ThinkingDelta(0, "Let me "), ThinkingDelta(0, "see")]
    said = contents(events)
    assert said == [
        Thinking("Let me see", "anthropic", "c2ln"),
        Thinking("", "anthropic", "redacted:aGlkZGVu"),
        Text("Yes"),
    ]
    history = Message(
        "assistant", tuple(event.content for event in events if isinstance(event, BlockDone))
    )
    sent = DIALECT.body(ask(messages=(history,)))["messages"][0]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "Let me see", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "aGlkZGVu"},
        {"type": "text", "text": "Yes"},
    ]


async def test_usage_counts_cached_tokens_as_input() -> None:
    wire = anthropic_turn("x", cache_creation_input_tokens=100, cache_read_input_tokens=1000)
    events, _ = await converse(NAME, [answer(wire)])
    assert done(events).usage == Usage(
        input_tokens=1110, output_tokens=5, cache_read_tokens=1000, cache_write_tokens=100
    )


@pytest.mark.parametrize(
    ("wire_reason", "reason", "note"),
    [
        ("max_tokens", "max_tokens", ""),
        ("refusal", "refusal", ""),
        ("pause_turn", "other", "pause_turn"),
        ("stop_sequence", "stop_sequence", ""),
        ("model_context_window_exceeded", "max_tokens", "model_context_window_exceeded"),
        ("something_new", "other", "something_new"),
    ],
)
def test_stop_reasons(wire_reason: str, reason: str, note: str) -> None:
    events = fold(DIALECT, [sse(anthropic_start(), *anthropic_end(wire_reason))])
    assert isinstance(events, list)
    assert (done(events).stop_reason, done(events).note) == (reason, note)


def test_a_message_that_ends_its_turn_with_calls_waits_for_their_results() -> None:
    block = anthropic_call_block(0, ("c1", "read", {"path": "a"}))
    events = fold(DIALECT, [sse(anthropic_start(), *block, *anthropic_end("end_turn"))])
    assert isinstance(events, list)
    assert (done(events).stop_reason, done(events).note) == ("tool_use", "")


def test_a_refusal_says_why_if_the_provider_does() -> None:
    end = anthropic_end("refusal", stop_details={"type": "refusal", "explanation": "not this"})
    events = fold(DIALECT, [sse(anthropic_start(), *end)])
    assert isinstance(events, list)
    assert done(events).note == "not this"


def test_arguments_that_are_not_an_object_are_kept_raw() -> None:
    start: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    for text in ('{"path": "unfini', "[1]", "\x00"):
        block = anthropic_block(0, start, {"type": "input_json_delta", "partial_json": text})
        events = fold(DIALECT, [sse(anthropic_start(), *block, *anthropic_end("max_tokens"))])
        assert isinstance(events, list)
        assert contents(events) == [ToolCall("t", "read", {}, raw=text)]


@pytest.mark.parametrize(("depth", "readable"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_arguments_nested_too_deep_are_kept_raw(depth: int, readable: bool) -> None:
    start: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    text = '{"a":' * depth + "[]" + "}" * depth
    block = anthropic_block(0, start, {"type": "input_json_delta", "partial_json": text})
    events = fold(DIALECT, [sse(anthropic_start(), *block, *anthropic_end("tool_use"))])
    assert isinstance(events, list)
    (call,) = contents(events)
    assert isinstance(call, ToolCall)
    assert (call.raw is None, bool(call.input)) == (readable, readable)


def _signatures() -> Iterator[bytes]:
    start = {"type": "thinking", "thinking": ""}
    yield sse({"type": "content_block_start", "index": 0, "content_block": start})
    delta = {"type": "signature_delta", "signature": "s" * 2**22}
    for _ in range(17):
        yield sse({"type": "content_block_delta", "index": 0, "delta": delta})


def _hidden_thoughts() -> Iterator[bytes]:
    for index in range(17):
        yield sse(
            *anthropic_block(index, {"type": "redacted_thinking", "data": "d" * 2**22}),
        )


def _long_names() -> Iterator[bytes]:
    for index in range(17):
        yield sse(
            *anthropic_block(index, {"type": "tool_use", "id": f"c{index}", "name": "n" * 2**22})
        )


def _blocks(kind: str) -> Iterator[bytes]:
    for index in range(MAX_BLOCKS + 1):
        yield sse(*anthropic_block(index, {"type": kind}))


@pytest.mark.parametrize(
    "flood",
    [
        _signatures,
        _hidden_thoughts,
        _long_names,
        partial(_blocks, "text"),
        partial(_blocks, "unheard_of"),
    ],
)
def test_an_answer_that_would_fill_the_memory_is_a_protocol_error(
    flood: Callable[[], Iterator[bytes]],
) -> None:
    wire = chain([sse(anthropic_start())], flood(), [sse(*anthropic_end())])
    assert fold(DIALECT, wire) == "model_protocol"


def test_a_call_without_arguments_has_empty_input() -> None:
    block = anthropic_block(0, {"type": "tool_use", "id": "t", "name": "now", "input": {}})
    events = fold(DIALECT, [sse(anthropic_start(), *block, *anthropic_end("tool_use"))])
    assert isinstance(events, list)
    assert contents(events) == [ToolCall("t", "now", {})]


def test_two_calls_with_one_id_are_told_apart() -> None:
    blocks = anthropic_call_block(0, ("same", "a", {})) + anthropic_call_block(1, ("same", "b", {}))
    events = fold(DIALECT, [sse(anthropic_start(), *blocks, *anthropic_end("tool_use"))])
    assert isinstance(events, list)
    first, second = (block for block in contents(events) if isinstance(block, ToolCall))
    assert first.id == "same"
    assert second.id not in ("same", "")


def test_unknown_events_blocks_and_deltas_are_passed_over() -> None:
    unknown = anthropic_block(0, {"type": "server_tool_use", "id": "x"}, {"type": "odd_delta"})
    text = anthropic_text_block(1, "Hi")
    wire = sse(
        anthropic_start(), {"type": "new_kind", "index": 9}, *unknown, *text, *anthropic_end()
    )
    events = fold(DIALECT, [wire])
    assert isinstance(events, list)
    assert contents(events) == [Text("Hi")]
    assert [event.block for event in events if isinstance(event, TextDelta)] == [0]


START = anthropic_start()
BEGIN_TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
LIES: dict[str, bytes] = {
    "nothing at all": b"",
    "ends before the message does": sse(START, BEGIN_TEXT, DELTA),
    "a block that never began": sse(START, DELTA),
    "a block that begins twice": sse(START, BEGIN_TEXT, BEGIN_TEXT),
    "a block before the message": sse(BEGIN_TEXT),
    "two messages": sse(START, START),
    "stops inside a block": sse(START, BEGIN_TEXT, *anthropic_end()),
    "stops without a reason": sse(START, {"type": "message_stop"}),
    "goes on after the end of a block": sse(START, *anthropic_text_block(0, "a"), DELTA),
    "invalid JSON": b"data: {nonsense\n\n",
    "bad UTF-8": b'data: {"type": "\xff"}\n\n',
    "a number for a text": sse(START, {**DELTA, "delta": {"type": "text_delta", "text": 7}}),
    "a list for an event": b"data: []\n\n",
    "too deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "text for a call": sse(
        START, {**BEGIN_TEXT, "content_block": {"type": "tool_use", "id": "t", "name": "n"}}, DELTA
    ),
    "a call without a name": sse(
        START, *anthropic_block(0, {"type": "tool_use", "id": "t"}), *anthropic_end("tool_use")
    ),
    "cut inside an event": sse(START, BEGIN_TEXT, DELTA)[:-9],
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_stream_that_lies_is_a_protocol_error_and_one_that_breaks_a_lost_connection(
    lie: str,
) -> None:
    error = await failure(NAME, [answer(LIES[lie])])
    code = "model_unreachable" if lie == "ends before the message does" else "model_protocol"
    assert (error.code, error.retriable, error.provider) == (code, True, "anthropic")


@pytest.mark.parametrize(
    ("kind", "code", "retriable"),
    [
        ("overloaded_error", "model_overloaded", True),
        ("rate_limit_error", "model_rate_limited", True),
        ("api_error", "model_server_error", True),
        ("invalid_request_error", "model_bad_request", False),
        ("unheard_of", "model_server_error", True),
    ],
)
async def test_an_error_event_after_200_is_that_error(
    kind: str, code: str, retriable: bool
) -> None:
    wire = sse(START, {"type": "error", "error": {"type": kind, "message": "so sorry"}})
    error = await failure(NAME, [answer(wire)])
    assert (error.code, error.retriable) == (code, retriable)
    assert "so sorry" in error.message


async def test_a_connection_that_breaks_in_the_middle_is_unreachable() -> None:
    for fault in (Fault.RESET, Fault.CLOSE):
        error = await failure(NAME, [cut(sse(START, BEGIN_TEXT, DELTA), fault)])
        assert (error.code, error.retriable) == ("model_unreachable", True)


async def test_an_error_in_place_of_a_stream_is_read() -> None:
    said = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    error = await failure(NAME, [refusal(200, said)])
    assert "Overloaded" in error.message
    assert error.retriable
    error = await failure(NAME, [refusal(200, {"content": []})])
    assert error.code == "model_protocol"


def test_the_request_marks_what_to_cache_in_four_places() -> None:
    messages = tuple(
        Message(role, (Text(f"{role} {number}"),))
        for number in range(3)
        for role in ("user", "assistant")
    )
    sent = body(
        ask(model="claude-sonnet-4-5", system="Be brief", tools=(TOOL, TOOL), messages=messages)
    )
    mark = {"type": "ephemeral"}
    assert sent["system"] == [{"type": "text", "text": "Be brief", "cache_control": mark}]
    tools, turns = sent["tools"], sent["messages"]
    assert [tool.get("cache_control") for tool in tools] == [None, mark]
    marks = [turn["content"][-1].get("cache_control") for turn in turns]
    assert marks == [None, None, mark, None, mark, None]


def test_the_request_carries_images_results_and_calls() -> None:
    image = Image("image/png", b"\x89PNG")
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    messages = (
        Message("user", (Text("Look"), image)),
        Message("assistant", (Text(""), ToolCall("id.1", "read", {"p": 1}))),
        Message(
            "user",
            (Text("and?"), ToolResult("id.1", "read", "", is_error=True, images=(image,))),
        ),
    )
    sent = body(ask(model="claude-sonnet-4-5", messages=messages))["messages"]
    mark = {"cache_control": {"type": "ephemeral"}}
    picture = {"type": "image", "source": source}
    assert sent == [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {**picture, **mark}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "id_1", "name": "read", "input": {"p": 1}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "id_1",
                    "content": [
                        {"type": "text", "text": "(the tool failed and said nothing)"},
                        picture,
                    ],
                    "is_error": True,
                },
                {"type": "text", "text": "and?", **mark},
            ],
        },
    ]


def test_thinking_of_others_is_not_sent() -> None:
    blocks = (Thinking("a", "openai", "{}"), Thinking("b", "anthropic", ""), Text("c"))
    sent = body(ask(messages=(Message("assistant", blocks),)))["messages"]
    assert sent == [{"role": "assistant", "content": [{"type": "text", "text": "c"}]}]


def test_thinking_is_asked_for_as_the_model_knows_it() -> None:
    old = body(ask(model="claude-sonnet-4-5-20250929", thinking_tokens=2000, temperature=0.5))
    assert old["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert old["max_tokens"] == 8192 + 2000
    assert "temperature" not in old
    new = body(ask(model="claude-opus-4-6", thinking_tokens=20000))
    assert new["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert new["output_config"] == {"effort": "high"}
    assert body(ask(model="claude-3-7-sonnet-20250219", temperature=0.5))["temperature"] == 0.5
    assert "temperature" not in body(ask(model="claude-opus-5", temperature=0.5))


def test_a_schema_is_sent_closed_to_models_that_hold_to_one() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}, "minimum": {"type": "string"}},
        "required": ["n"],
    }
    sent = body(ask(model="claude-sonnet-4-5", output_schema=schema))
    assert sent["output_config"] == {
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "minimum": {"type": "string"}},
                "required": ["n"],
                "additionalProperties": False,
            },
        }
    }
    assert "output_config" not in body(ask(model="claude-3-5-haiku", output_schema=schema))
