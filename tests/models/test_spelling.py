"""A conversation is written for a provider as if every message were written anew."""

import msgspec
import pytest

from batten.contract.conversation import Image, Message, Text, ToolCall, ToolResult
from batten.models.anthropic import AnthropicDialect
from batten.models.exchange import Dialect
from batten.models.google import GoogleDialect
from batten.models.ollama import OllamaDialect
from batten.models.openai_chat import ChatDialect
from batten.models.openai_responses import ResponsesDialect
from tests.models.calls import ask


def _dialects() -> list[Dialect]:
    base = "http://127.0.0.1:1"
    return [
        AnthropicDialect("claude-test", base),
        ResponsesDialect(base),
        ChatDialect("openai", base),
        OllamaDialect(base),
    ]


def _turn(number: int) -> list[Message]:
    call = ToolCall(f"call_{number}", "bash", {"command": f"echo {number}"})
    result = ToolResult(f"call_{number}", "bash", f"{number}\n", images=(Image("image/png", b"x"),))
    return [Message("assistant", (Text(f"step {number}"), call)), Message("user", (result,))]


@pytest.mark.parametrize("which", range(4), ids=["anthropic", "responses", "chat", "ollama"])
def test_a_growing_conversation_is_written_like_a_new_one(which: int) -> None:
    remembers = _dialects()[which]
    messages = [Message("user", (Text("go"),))]
    for number in range(5):
        if number == 3:  # the older half was summed up, and a message changed on the way
            messages[:3] = [Message("user", (Text("so far: 1, 2"),)), Message("user", ())]
        request = ask(messages=tuple(messages))
        sent = msgspec.json.decode(msgspec.json.encode(remembers.body(request)))
        fresh = msgspec.json.decode(msgspec.json.encode(_dialects()[which].body(request)))
        assert sent == fresh
        assert f"echo {number - 1}" in str(sent) or number == 0
        messages += _turn(number)


@pytest.mark.parametrize(
    "which", range(5), ids=["anthropic", "responses", "chat", "ollama", "google"]
)
def test_a_name_that_no_tool_has_and_no_provider_takes_is_spelled_so_that_it_does(
    which: int,
) -> None:
    dialect = [*_dialects(), GoogleDialect("gemini-3-pro", "http://127.0.0.1:1")][which]
    calls = (
        ToolCall("c1", "functions.bash", {}),
        ToolCall("c2", "mcp__server__tool", {}),
        ToolCall("c3", "è" * 200, {}),
    )
    results = tuple(ToolResult(call.id, call.name, "Error: Unknown tool") for call in calls)
    messages = (
        Message("user", (Text("go"),)),
        Message("assistant", calls),
        Message("user", results),
    )
    body = msgspec.json.encode(dialect.body(ask(messages=messages))).decode()
    assert "functions_bash" in body
    assert "mcp__server__tool" in body
    assert "functions.bash" not in body
    assert "è" not in body
    assert "_" * 65 not in body


@pytest.mark.parametrize("which", [1, 2], ids=["responses", "chat"])
def test_arguments_that_are_no_json_are_not_sent_back_as_such(which: int) -> None:
    call = ToolCall("c1", "bash", {}, raw='{"command": "ls')
    messages = (Message("user", (Text("go"),)), Message("assistant", (call,)))
    body = msgspec.json.encode(_dialects()[which].body(ask(messages=messages))).decode()
    assert '"arguments":"{}"' in body
