from typing import Any

import msgspec
import pytest

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import Usage
from batten.models.contract import BlockDone, ModelEvent, ModelRequest, ToolSpec
from batten.models.google import GoogleDialect
from tests.models.calls import ask, contents, converse, done, failure, fold
from tests.models.server import answer, refusal
from tests.models.wire import gemini_chunk, sse

NAME = "gemini/gemini-3-pro"
DIALECT = GoogleDialect("gemini-3-pro", "http://localhost")


def body(request: ModelRequest) -> dict[str, Any]:
    dialect = GoogleDialect(request.model, "http://localhost")
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dialect.body(request)))
    return value


def read(*chunks: object) -> list[ModelEvent]:
    folded = fold(DIALECT, [sse(*chunks)])
    assert isinstance(folded, list), folded
    return folded


async def test_thinking_text_and_calls_come_in_order_with_usage() -> None:
    wire = sse(
        gemini_chunk({"text": "Hm", "thought": True}),
        gemini_chunk({"text": "Look "}),
        gemini_chunk({"text": "here"}),
        gemini_chunk(
            {"functionCall": {"name": "read", "args": {"p": 1}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "g2", "name": "now"}},
            finish="STOP",
        ),
    )
    events, server = await converse(NAME, [answer(wire, piece=30)])
    said = contents(events)
    call = said[3]
    assert isinstance(call, ToolCall)
    assert said == [
        Thinking("Hm", "google"),
        Text("Look here"),
        Thinking("", "google", "call:c2ln"),
        ToolCall(call.id, "read", {"p": 1}),
        ToolCall("g2", "now", {}),
    ]
    last = done(events)
    assert (last.stop_reason, last.message_id, last.model) == ("tool_use", "r1", "gemini-test")
    assert last.usage == Usage(40, 10, cache_read_tokens=16, reasoning_tokens=4)
    request = server.requests[0]
    assert request.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "test-key"

    blocks = tuple(event.content for event in events if isinstance(event, BlockDone))
    sent = body(ask(model="gemini-3-pro", messages=(Message("assistant", blocks),)))["contents"]
    assert sent == [
        {
            "role": "model",
            "parts": [
                {"text": "Look here"},
                {
                    "functionCall": {"id": call.id, "name": "read", "args": {"p": 1}},
                    "thoughtSignature": "c2ln",
                },
                {"functionCall": {"id": "g2", "name": "now", "args": {}}},
            ],
        }
    ]


def test_a_signature_without_a_call_keeps_its_place() -> None:
    events = read(
        gemini_chunk({"text": "Hi"}),
        gemini_chunk({"text": "", "thoughtSignature": "c2ln"}, finish="STOP"),
    )
    assert contents(events) == [Text("Hi"), Thinking("", "google", "text:c2ln")]
    blocks = tuple(event.content for event in events if isinstance(event, BlockDone))
    sent = body(ask(model="gemini-3-pro", messages=(Message("assistant", blocks),)))["contents"]
    assert sent[0]["parts"] == [{"text": "Hi"}, {"text": "", "thoughtSignature": "c2ln"}]


@pytest.mark.parametrize(
    ("finish", "reason", "note"),
    [
        ("STOP", "end_turn", ""),
        ("MAX_TOKENS", "max_tokens", "MAX_TOKENS"),
        ("SAFETY", "filtered", "SAFETY"),
        ("PROHIBITED_CONTENT", "filtered", "PROHIBITED_CONTENT"),
        ("LANGUAGE", "filtered", "LANGUAGE"),
        ("OTHER", "aborted", "OTHER"),
        ("MALFORMED_RESPONSE", "aborted", "MALFORMED_RESPONSE"),
    ],
)
def test_finish_reasons(finish: str, reason: str, note: str) -> None:
    last = done(read(gemini_chunk({"text": "x"}), gemini_chunk(finish=finish)))
    assert (last.stop_reason, last.note) == (reason, note)


def test_a_blocked_prompt_is_filtered() -> None:
    last = done(read({"promptFeedback": {"blockReason": "BLOCKLIST"}}))
    assert (last.stop_reason, last.note) == ("filtered", "BLOCKLIST")


def test_usage_may_come_after_the_end() -> None:
    end = gemini_chunk({"text": "x"}, finish="STOP", usage=False)
    assert done(read(end, gemini_chunk())).usage.input_tokens == 40
    assert done(read(end)).usage == Usage()


LIES: dict[str, bytes] = {
    "nothing": b"",
    "no end": sse(gemini_chunk({"text": "x"})),
    "an unreadable call": sse(gemini_chunk(finish="MALFORMED_FUNCTION_CALL")),
    "a number for a text": sse(gemini_chunk({"text": 7})),
    "a call without a name": sse(gemini_chunk({"functionCall": {"args": {}}}, finish="STOP")),
    "arguments that are a list": sse(gemini_chunk({"functionCall": {"name": "f", "args": []}})),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_stream_that_lies_is_a_protocol_error_and_one_that_breaks_a_lost_connection(
    lie: str,
) -> None:
    error = await failure(NAME, [answer(LIES[lie])])
    code = "model_unreachable" if lie == "no end" else "model_protocol"
    assert (error.code, error.provider) == (code, "google")


async def test_errors_are_read_in_googles_shape() -> None:
    said = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid"}}
    assert (await failure(NAME, [refusal(400, [said])])).code == "model_auth"
    late = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "later"}}
    error = await failure(NAME, [answer(sse(gemini_chunk({"text": "x"}), late))])
    assert (error.code, error.retriable) == ("model_overloaded", True)


def test_the_request_carries_everything_the_conversation_has() -> None:
    image = Image("image/png", b"\x89PNG")
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    messages = (
        Message("user", (Text("Look"), image)),
        Message("assistant", (Thinking("", "anthropic", "x"), ToolCall("c1", "read", {"p": 1}))),
        Message("user", (ToolResult("c1", "read", "no", is_error=True, images=(image,)),)),
    )
    tool = ToolSpec("read", "Reads", {"type": "object"})
    schema = {"type": "object"}
    sent = body(
        ask(
            model="gemini-3-pro",
            system="Be",
            messages=messages,
            tools=(tool,),
            temperature=0.5,
            thinking_tokens=9000,
            output_schema=schema,
        )
    )
    assert sent == {
        "systemInstruction": {"parts": [{"text": "Be"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Look"}, picture]},
            {
                "role": "model",
                "parts": [
                    {
                        "functionCall": {"id": "c1", "name": "read", "args": {"p": 1}},
                        "thoughtSignature": "skip_thought_signature_validator",
                    }
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c1", "name": "read", "response": {"error": "no"}}},
                    picture,
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "read",
                        "description": "Reads",
                        "parametersJsonSchema": {"type": "object"},
                    }
                ]
            }
        ],
        "generationConfig": {
            "maxOutputTokens": 8192 + 9000,
            "temperature": 0.5,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"},
            "responseMimeType": "application/json",
            "responseJsonSchema": schema,
        },
    }
    older = body(ask(model="gemini-2.5-pro", thinking_tokens=100, output_schema=schema))
    assert older["generationConfig"] == {
        "maxOutputTokens": 8292,
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 100},
    }
