from typing import Any

import msgspec
import pytest

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import Usage
from batten.models.contract import BlockDone, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from batten.models.openai_responses import ResponsesDialect
from tests.models.calls import ask, contents, converse, done, failure, fold
from tests.models.server import Fault, answer, cut
from tests.models.wire import (
    responses_call,
    responses_end,
    responses_text,
    responses_turn,
    sse,
)

NAME = "openai/gpt-5"
DIALECT = ResponsesDialect("http://localhost/v1")


def body(request: ModelRequest) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(DIALECT.body(request)))
    return value


async def test_text_and_calls_come_in_order_with_usage() -> None:
    calls = [("call_1", "read", {"path": "a"}), ("call_2", "bash", {"command": "ls"})]
    events, server = await converse(NAME, [answer(responses_turn("Look here", calls), piece=30)])
    assert contents(events) == [
        Text("Look here"),
        ToolCall("call_1", "read", {"path": "a"}),
        ToolCall("call_2", "bash", {"command": "ls"}),
    ]
    last = done(events)
    assert (last.stop_reason, last.message_id, last.model) == ("tool_use", "resp_1", "gpt-test")
    assert last.usage == Usage(20, 7, cache_read_tokens=8, reasoning_tokens=3)
    request = server.requests[0]
    assert request.path == "/v1/responses"
    assert request.headers["authorization"] == "Bearer test-key"
    assert request.json()["store"] is False


async def test_reasoning_goes_back_as_it_came() -> None:
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
    summary = [{"type": "summary_text", "text": "One"}, {"type": "summary_text", "text": "Two"}]
    whole = {**item, "summary": summary, "encrypted_content": "c2VjcmV0"}
    kind = "response.reasoning_summary_text.delta"
    wire = sse(
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": kind, "output_index": 0, "summary_index": 0, "delta": "One"},
        {"type": kind, "output_index": 0, "summary_index": 1, "delta": "Two"},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        *responses_call(1, ("call_1", "read", {})),
        responses_end(),
    )
    events, _ = await converse(NAME, [answer(wire)])
    assert events[:2] == [ThinkingDelta(0, "One"), ThinkingDelta(0, "\n\nTwo")]
    blocks = tuple(event.content for event in events if isinstance(event, BlockDone))
    thinking = blocks[0]
    assert isinstance(thinking, Thinking)
    assert (thinking.text, thinking.provider) == ("One\n\nTwo", "openai")
    sent = body(ask(messages=(Message("assistant", blocks),)))["input"]
    assert sent == [
        whole,
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
    ]


def test_a_refusal_is_text_and_the_reason_to_stop() -> None:
    item: dict[str, Any] = {"type": "message", "id": "m", "content": []}
    wire = sse(
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.refusal.delta", "output_index": 0, "delta": "I will not"},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**item, "content": [{"type": "refusal", "refusal": "I will not"}]},
        },
        responses_end(),
    )
    events = fold(DIALECT, [wire])
    assert isinstance(events, list)
    assert contents(events) == [Text("I will not")]
    assert (done(events).stop_reason, done(events).note) == ("refusal", "I will not")


@pytest.mark.parametrize(
    ("why", "reason", "note"),
    [
        ({"reason": "max_output_tokens"}, "max_tokens", ""),
        ({"reason": "content_filter"}, "filtered", "content_filter"),
        ({"reason": "something_new"}, "aborted", "something_new"),
        (None, "aborted", "incomplete"),
    ],
)
def test_an_incomplete_response_says_why(why: object, reason: str, note: str) -> None:
    begun = responses_call(0, ("call_1", "read", {"path": "long"}))[:-2]
    wire = sse(*begun, responses_end("incomplete", incomplete_details=why))
    events = fold(DIALECT, [wire])
    assert isinstance(events, list)
    assert (done(events).stop_reason, done(events).note) == (reason, note)
    assert contents(events) == [ToolCall("call_1", "read", {"path": "long"})]


def test_whole_items_without_deltas_are_enough() -> None:
    wire = sse(
        responses_text(0, "Hi")[-1], responses_call(1, ("c", "f", {"a": 1}))[-1], responses_end()
    )
    events = fold(DIALECT, [wire])
    assert isinstance(events, list)
    assert events[0] == TextDelta(0, "Hi")
    assert contents(events) == [Text("Hi"), ToolCall("c", "f", {"a": 1})]


ADDED = responses_text(0, "x")[0]
DELTA = responses_text(0, "x")[1]
LIES: dict[str, bytes] = {
    "nothing": b"",
    "no end": sse(*responses_text(0, "x")),
    "an item that never began": sse(DELTA, responses_end()),
    "an item that begins twice": sse(ADDED, ADDED),
    "completes inside an item": sse(ADDED, DELTA, responses_end()),
    "goes on after its end": sse(*responses_text(0, "x"), DELTA),
    "a number for a text": sse(ADDED, {**DELTA, "delta": 7}),
    "the end without a response": sse({"type": "response.completed"}),
    "only the other API's end": sse("[DONE]"),
    "invalid JSON": b"data: {\n\n",
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_stream_that_lies_is_a_protocol_error_and_one_that_breaks_a_lost_connection(
    lie: str,
) -> None:
    error = await failure(NAME, [answer(LIES[lie])])
    code = "model_unreachable" if lie == "no end" else "model_protocol"
    assert (error.code, error.retriable, error.provider) == (code, True, "openai")


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m"}, "model_rate_limited"),
        ({"type": "error", "error": {"type": "invalid_request_error"}}, "model_bad_request"),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error"}}},
            "model_server_error",
        ),
        ({"type": "response.failed"}, "model_server_error"),
    ],
)
async def test_an_error_event_after_200_is_that_error(event: object, code: str) -> None:
    assert (await failure(NAME, [answer(sse(event))])).code == code


async def test_a_cut_connection_is_unreachable() -> None:
    error = await failure(NAME, [cut(sse(ADDED), Fault.RESET)])
    assert error.code == "model_unreachable"


def test_the_request_carries_everything_the_conversation_has() -> None:
    image = Image("image/png", b"\x89PNG")
    url = "data:image/png;base64,iVBORw=="
    messages = (
        Message("user", (Text("Look"), image)),
        Message(
            "assistant",
            (Text("I do"), ToolCall("c1", "read", {"p": 1}), ToolCall("c2", "x", {}, "{bad")),
        ),
        Message(
            "user",
            (ToolResult("c1", "read", "seen", images=(image,)), ToolResult("c2", "x", "no", True)),
        ),
    )
    tool = ToolSpec("read", "Reads", {"type": "object"})
    sent = body(
        ask(
            model="gpt-5",
            system="Be",
            messages=messages,
            tools=(tool,),
            thinking_tokens=9000,
            temperature=1.0,
        )
    )
    assert sent["instructions"] == "Be"
    assert sent["input"] == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "image_url": url},
            ],
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "I do"}]},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"p":1}'},
        {"type": "function_call", "call_id": "c2", "name": "x", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "seen"},
                {"type": "input_image", "image_url": url},
            ],
        },
        {"type": "function_call_output", "call_id": "c2", "output": "no"},
    ]
    assert sent["tools"] == [
        {
            "type": "function",
            "name": "read",
            "description": "Reads",
            "parameters": {"type": "object"},
            "strict": False,
        }
    ]
    assert sent["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["max_output_tokens"] == 8192 + 9000
    assert "temperature" not in sent
    plain = body(ask(model="gpt-4o", temperature=0.5))
    assert plain["temperature"] == 0.5
    assert "include" not in plain


def test_a_schema_is_strict_only_if_it_can_be() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    sent = body(ask(output_schema={**inner, "additionalProperties": False}))["text"]["format"]
    assert (sent["type"], sent["name"], sent["strict"]) == ("json_schema", "answer", True)
    assert body(ask(output_schema=inner))["text"]["format"]["strict"] is False
