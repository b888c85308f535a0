from typing import Any

import msgspec
import pytest

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import Usage
from batten.models.contract import ModelRequest, ToolSpec
from batten.models.ollama import OllamaDialect
from tests.models.calls import ask, contents, converse, done, failure, fold
from tests.models.server import Fault, answer, cut, refusal
from tests.models.wire import ndjson, ollama_line

NAME = "ollama/qwen3"
DIALECT = OllamaDialect("http://localhost:11434")
KIND = "application/x-ndjson"


def body(request: ModelRequest) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(DIALECT.body(request)))
    return value


async def test_thinking_text_and_calls_come_in_order_with_counts() -> None:
    calls = [{"function": {"name": "read", "arguments": {"p": 1}}}, {"function": {"name": "now"}}]
    wire = ndjson(
        ollama_line(thinking="H"),
        ollama_line(thinking="m"),
        ollama_line(content="Look"),
        ollama_line(tool_calls=calls),
        ollama_line(done=True),
    )
    events, server = await converse(NAME, [answer(wire, piece=33, kind=KIND)])
    said = contents(events)
    assert said[:2] == [Thinking("Hm", "ollama"), Text("Look")]
    first, second = said[2:]
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.name, first.input, second.name, second.input) == ("read", {"p": 1}, "now", {})
    assert first.id != second.id
    assert done(events).stop_reason == "tool_use"
    assert done(events).usage == Usage(11, 4)
    assert server.requests[0].path == "/api/chat"


@pytest.mark.parametrize(
    ("finish", "reason", "note"),
    [("stop", "end_turn", ""), ("length", "max_tokens", ""), ("unload", "other", "unload")],
)
def test_done_reasons(finish: str, reason: str, note: str) -> None:
    events = fold(DIALECT, [ndjson({**ollama_line(done=True), "done_reason": finish})])
    assert isinstance(events, list)
    assert (done(events).stop_reason, done(events).note) == (reason, note)


LIES: dict[str, bytes] = {
    "nothing": b"",
    "no end": ndjson(ollama_line(content="x")),
    "cut inside a line": ndjson(ollama_line(done=True))[:-20],
    "a list": b"[]\n",
    "a number for a text": ndjson(ollama_line(content=7)),
    "a call without a name": ndjson(ollama_line(tool_calls=[{"function": {"name": ""}}])),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_stream_that_lies_is_a_protocol_error_and_one_that_breaks_a_lost_connection(
    lie: str,
) -> None:
    error = await failure(NAME, [answer(LIES[lie], kind=KIND)])
    code = "model_unreachable" if lie == "no end" else "model_protocol"
    assert (error.code, error.provider) == (code, "ollama")


async def test_errors_come_by_status_or_as_a_line() -> None:
    missing = await failure(NAME, [refusal(404, {"error": "model 'qwen3' not found"})])
    assert (missing.code, missing.retriable) == ("model_not_found", False)
    assert "qwen3" in missing.message
    late = await failure(NAME, [answer(ndjson({"error": "runner died"}), kind=KIND)])
    assert (late.code, late.retriable) == ("model_server_error", True)
    lost = await failure(NAME, [cut(ndjson(ollama_line(content="x")), Fault.CLOSE, kind=KIND)])
    assert lost.code == "model_unreachable"


def test_the_request_carries_everything_the_conversation_has() -> None:
    image = Image("image/png", b"\x89PNG")
    messages = (
        Message("user", (Text("Look"), image)),
        Message("assistant", (Thinking("hm", "ollama"), ToolCall("c1", "read", {"p": 1}))),
        Message("user", (ToolResult("c1", "read", "seen", images=(image,)),)),
    )
    tool = ToolSpec("read", "Reads", {"type": "object"})
    sent = body(
        ask(system="Be", messages=messages, tools=(tool,), temperature=0.5, thinking_tokens=100)
    )
    assert sent["messages"] == [
        {"role": "system", "content": "Be"},
        {"role": "user", "content": "Look", "images": ["iVBORw=="]},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"function": {"name": "read", "arguments": {"p": 1}}}],
        },
        {"role": "tool", "tool_name": "read", "content": "seen", "images": ["iVBORw=="]},
    ]
    assert sent["options"] == {"num_ctx": 32768, "num_predict": 8292, "temperature": 0.5}
    assert sent["think"] is True
    assert sent["tools"][0]["function"]["name"] == "read"


def test_a_format_is_asked_for_only_without_tools() -> None:
    schema = {"type": "object"}
    tool = ToolSpec("read", "Reads", {"type": "object"})
    assert body(ask(output_schema=schema))["format"] == schema
    assert "format" not in body(ask(output_schema=schema, tools=(tool,)))
