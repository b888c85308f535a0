from typing import Any

import msgspec
import pytest

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import Usage
from batten.models.contract import ModelEvent, ModelRequest, ToolSpec
from batten.models.openai_chat import ChatDialect
from tests.models.calls import ask, contents, converse, done, failure, fold
from tests.models.server import answer, refusal
from tests.models.wire import CHAT_USAGE, chat_chunk, chat_turn, sse

NAME = "compat/some-model"
DIALECT = ChatDialect("compat", "http://localhost/v1")


def body(request: ModelRequest, dialect: ChatDialect = DIALECT) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dialect.body(request)))
    return value


def read(*events: object) -> list[ModelEvent]:
    folded = fold(DIALECT, [sse(*events)])
    assert isinstance(folded, list), folded
    return folded


def calls(*entries: dict[str, Any]) -> dict[str, Any]:
    return chat_chunk({"tool_calls": list(entries)})


async def test_text_and_calls_come_in_order_with_usage() -> None:
    turn = chat_turn("Look here", [("c1", "read", {"path": "a"}), ("c2", "bash", {"x": 1})])
    events, server = await converse(NAME, [answer(turn, piece=25)])
    assert contents(events) == [
        Text("Look here"),
        ToolCall("c1", "read", {"path": "a"}),
        ToolCall("c2", "bash", {"x": 1}),
    ]
    last = done(events)
    assert (last.stop_reason, last.message_id, last.model) == (
        "tool_use",
        "chatcmpl-1",
        "chat-test",
    )
    assert last.usage == Usage(30, 9, cache_read_tokens=12, reasoning_tokens=2)
    assert server.requests[0].path == "/v1/chat/completions"
    assert "authorization" not in server.requests[0].headers


async def test_the_official_server_is_asked_by_its_own_names() -> None:
    events, server = await converse("openai-chat/gpt-4o", [answer(chat_turn("Hi"))])
    assert done(events).stop_reason == "end_turn"
    sent = server.requests[0]
    assert sent.headers["authorization"] == "Bearer test-key"
    assert sent.json()["max_completion_tokens"] == 8192


def test_thinking_under_either_name_is_a_block_of_its_own() -> None:
    for key in ("reasoning_content", "reasoning"):
        events = read(
            chat_chunk({key: "Hm"}), chat_chunk({"content": "Yes"}), chat_chunk({}, "stop")
        )
        assert contents(events) == [Thinking("Hm", "compat"), Text("Yes")]


def test_content_may_come_in_parts_of_thinking_and_text() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "H"}, {"type": "other"}]}
    events = read(
        chat_chunk({"content": [thought]}),
        chat_chunk({"content": [{"type": "thinking", "thinking": "m"}, {"type": "reference"}]}),
        chat_chunk({"content": [{"type": "text", "text": "Ye"}]}),
        chat_chunk({"content": "s"}, "stop"),
    )
    assert contents(events) == [Thinking("Hm", "compat"), Text("Yes")]


def test_pieces_of_two_calls_may_come_mixed() -> None:
    events = read(
        calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}),
        calls({"index": 1, "id": "b", "function": {"name": "g", "arguments": '{"y"'}}),
        calls(
            {"index": 0, "function": {"arguments": ":1}"}},
            {"index": 1, "function": {"arguments": ":2}"}},
        ),
        chat_chunk({}, "tool_calls"),
    )
    assert contents(events) == [ToolCall("a", "f", {"x": 1}), ToolCall("b", "g", {"y": 2})]


def test_calls_without_ids_get_their_own() -> None:
    events = read(
        calls({"index": 0, "function": {"name": "f", "arguments": "{}"}}),
        calls({"index": 1, "function": {"name": "g", "arguments": "{}"}}),
        chat_chunk({}, "stop"),
        "[DONE]",
    )
    first, second = (block for block in contents(events) if isinstance(block, ToolCall))
    assert (first.name, second.name) == ("f", "g")
    assert first.id
    assert first.id != second.id
    assert done(events).stop_reason == "tool_use"


def test_calls_without_indexes_or_all_numbered_0_are_told_apart() -> None:
    without = read(
        calls({"id": "a", "function": {"name": "f", "arguments": "{}"}}),
        calls({"id": "b", "function": {"name": "g", "arguments": '{"x"'}}),
        calls({"function": {"arguments": ":1}"}}),
        chat_chunk({}, "tool_calls"),
    )
    zeros = read(
        calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}),
        calls({"index": 0, "id": "b", "function": {"name": "g", "arguments": '{"x"'}}),
        calls({"index": 0, "function": {"arguments": ":1}"}}),
        chat_chunk({}, "tool_calls"),
    )
    assert contents(without) == contents(zeros)
    assert contents(zeros) == [ToolCall("a", "f", {}), ToolCall("b", "g", {"x": 1})]


def test_a_name_may_come_in_pieces_or_again_with_each_piece() -> None:
    pieces = read(
        calls({"index": 0, "id": "a", "function": {"arguments": ""}}),
        calls({"index": 0, "function": {"name": "read", "arguments": ""}}),
        calls({"index": 0, "function": {"name": "_file", "arguments": '{"x"'}}),
        calls({"index": 0, "function": {"name": "", "arguments": ":1}"}}),
        chat_chunk({}, "tool_calls"),
    )
    repeated = read(
        calls({"index": 0, "id": "a", "function": {"name": "read_file", "arguments": '{"x"'}}),
        calls({"index": 0, "id": "a", "function": {"name": "read_file", "arguments": ":1}"}}),
        chat_chunk({}, "tool_calls"),
    )
    assert contents(pieces) == contents(repeated) == [ToolCall("a", "read_file", {"x": 1})]


def test_null_means_a_call_without_arguments() -> None:
    events = read(
        calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": " null "}}),
        calls({"index": 1, "id": "b", "function": {"name": "g", "arguments": "nul"}}),
        chat_chunk({}, "tool_calls"),
    )
    assert contents(events) == [ToolCall("a", "f", {}), ToolCall("b", "g", {}, raw="nul")]


def test_arguments_given_as_an_object_are_taken() -> None:
    events = read(
        calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}),
        chat_chunk({}, "tool_calls"),
    )
    assert contents(events) == [ToolCall("a", "f", {"x": 1})]


@pytest.mark.parametrize(
    ("finish", "reason", "note"),
    [
        ("stop", "end_turn", ""),
        ("length", "max_tokens", ""),
        ("content_filter", "filtered", "content_filter"),
        ("novel", "other", "novel"),
    ],
)
def test_finish_reasons(finish: str, reason: str, note: str) -> None:
    last = done(read(chat_chunk({"content": "x"}), chat_chunk({}, finish), "[DONE]"))
    assert (last.stop_reason, last.note) == (reason, note)


def test_a_refusal_is_text_and_the_reason_to_stop() -> None:
    events = read(chat_chunk({"refusal": "No"}), chat_chunk({}, "stop"), "[DONE]")
    assert contents(events) == [Text("No")]
    assert (done(events).stop_reason, done(events).note) == ("refusal", "No")


def test_servers_may_leave_out_the_reason_the_usage_or_the_last_event() -> None:
    assert done(read(chat_chunk({"content": "x"}), "[DONE]")).stop_reason == "end_turn"
    no_last = read(chat_chunk({"content": "x"}, "stop"), CHAT_USAGE)
    assert done(no_last).usage.input_tokens == 30
    assert done(read(chat_chunk({"content": None}, "stop"))).usage == Usage()


def test_nonsense_counts_are_brought_into_range() -> None:
    usage = {"usage": {"prompt_tokens": -5, "completion_tokens": 10**15}}
    last = done(read(chat_chunk({"content": "x"}, "stop"), usage, "[DONE]"))
    assert last.usage == Usage(0, 10**12)
    for odd, read_as in ((30.0, 30), (1e30, 10**12), ("30", 0), ([30], 0), (True, 0)):
        counts = {"usage": {"prompt_tokens": odd, "completion_tokens": 5}}
        last = done(read(chat_chunk({"content": "x"}, "stop"), counts, "[DONE]"))
        assert last.usage == Usage(read_as, 5)


LIES: dict[str, bytes] = {
    "nothing": b"",
    "no reason and no end": sse(chat_chunk({"content": "x"})),
    "only the end": sse("[DONE]"),
    "a number for a text": sse(chat_chunk({"content": 7})),
    "a part that is a text": sse(chat_chunk({"content": ["x"]})),
    "a part with a number for a text": sse(chat_chunk({"content": [{"type": "text", "text": 7}]})),
    "choices of the wrong kind": sse({"choices": {"0": 1}}),
    "a call without a name": sse(calls({"index": 0, "id": "a"}), chat_chunk({}, "tool_calls")),
    "broken off": sse(chat_chunk({"content": "x"}, "error"), "[DONE]"),
    "invalid JSON": b"data: {]\n\n",
    "a page": b"<html></html>",
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_stream_that_lies_is_a_protocol_error_and_one_that_breaks_a_lost_connection(
    lie: str,
) -> None:
    error = await failure(NAME, [answer(LIES[lie])])
    code = "model_unreachable" if lie == "no reason and no end" else "model_protocol"
    assert (error.code, error.provider) == (code, "compat")


async def test_an_error_after_200_is_that_error() -> None:
    said = {"error": {"message": "Overworked", "code": "rate_limit_exceeded"}}
    error = await failure(NAME, [answer(sse(chat_chunk({"content": "x"}), said))])
    assert (error.code, error.retriable) == ("model_rate_limited", True)
    error = await failure(NAME, [answer(sse({"error": "out of memory"}))])
    assert "out of memory" in error.message


@pytest.mark.parametrize(
    ("said", "code", "status"),
    [
        ({"message": "slow down", "code": 429}, "model_rate_limited", 429),
        ({"message": "no credit", "code": 402}, "model_quota", 402),
        ({"message": "full", "code": "server_is_overloaded"}, "model_overloaded", None),
        ("out of memory", "model_server_error", None),
    ],
)
async def test_an_error_in_place_of_a_stream_is_that_error(
    said: object, code: str, status: int | None
) -> None:
    """Whether the provider sends it alone or as Google does, in a list."""
    for body in ({"error": said}, [{"error": said}]):
        error = await failure(NAME, [refusal(200, body)])
        assert (error.code, error.status) == (code, status)


def test_the_request_carries_everything_the_conversation_has() -> None:
    image = Image("image/png", b"\x89PNG")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    messages = (
        Message("user", (Text("Look"), image)),
        Message("assistant", (Thinking("hm", "compat"), ToolCall("c1", "read", {"p": 1}))),
        Message("user", (Text("and?"), ToolResult("c1", "read", "seen", images=(image,)))),
        Message("assistant", (Text("Done"),)),
        Message("user", (Text("a"), Text("b"))),
    )
    tool = ToolSpec("read", "Reads", {"type": "object"})
    sent = body(
        ask(system="Be", messages=messages, tools=(tool,), temperature=0.5, thinking_tokens=100)
    )
    function = {"name": "read", "arguments": '{"p":1}'}
    assert sent["messages"] == [
        {"role": "system", "content": "Be"},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, picture]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        {"role": "user", "content": [{"type": "text", "text": "and?"}, picture]},
        {"role": "assistant", "content": "Done"},
        {"role": "user", "content": "a\n\nb"},
    ]
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["temperature"] == 0.5
    assert (sent["reasoning_effort"], sent["max_tokens"]) == ("low", 8292)
    assert sent["tools"][0]["function"]["name"] == "read"


def test_a_schema_is_sent_only_to_servers_that_hold_to_one() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    sent = body(ask(output_schema=schema))["response_format"]
    assert sent["json_schema"] == {"name": "answer", "schema": schema, "strict": False}
    other = ChatDialect("compat", "http://localhost/v1", native_schema=False)
    assert "response_format" not in body(ask(output_schema=schema), other)
