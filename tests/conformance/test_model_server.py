"""The suite's own model: it plays the script in both dialects, whole or in pieces."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from batten.conformance.model_server import ModelServer
from batten.conformance.script import Call, Fail, Say, Script, run

Json = dict[str, Any]
SCRIPT: Script = (
    (Say("Let me look."), run("ls {workspace}")),
    (Say("Done."),),
    (Fail(429, "Too many"),),
)
CHAT_TOOL: Json = {"function": {"name": "shell", "parameters": {"properties": {"cmd": {}}}}}
TOOL: Json = {"name": "Bash", "input_schema": {"properties": {"command": {}}}}
SPOKEN: Json = {"role": "assistant", "content": "x"}


@asynccontextmanager
async def serving(script: Script = SCRIPT) -> AsyncGenerator[ModelServer, None]:
    async with asyncio.TaskGroup() as group:
        model = ModelServer(script, "/work", group)
        await model.open()
        try:
            yield model
        finally:
            model.close()


async def post(model: ModelServer, path: str, body: Json) -> tuple[int, bytes]:
    """Status and body of an answer."""
    host, _, port = model.url.removeprefix("http://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    said = msgspec.json.encode(body)
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(said)}\r\n\r\n"
    writer.write(head.encode() + said)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    first, _, rest = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), rest


async def test_a_whole_chat_completion_names_the_tool_that_is_offered() -> None:
    async with serving() as model:
        status, body = await post(
            model, "/v1/chat/completions", {"messages": [], "tools": [CHAT_TOOL]}
        )
        choice = msgspec.json.decode(body)["choices"][0]
        (call,) = choice["message"]["tool_calls"]
        assert (status, choice["finish_reason"]) == (200, "tool_calls")
        assert choice["message"]["content"] == "Let me look."
        assert call["function"] == {"name": "shell", "arguments": '{"cmd":"ls /work"}'}
        assert (len(model.requests), model.missing) == (1, "")


async def test_a_whole_message_has_the_same_in_the_other_dialect() -> None:
    async with serving() as model:
        _, body = await post(model, "/v1/messages", {"messages": [], "tools": [TOOL]})
        said = msgspec.json.decode(body)
        assert said["stop_reason"] == "tool_use"
        assert said["content"][0] == {"type": "text", "text": "Let me look."}
        assert said["content"][1]["input"] == {"command": "ls /work"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_the_turn_to_play_is_the_number_of_answers_so_far(path: str) -> None:
    async with serving() as model:
        _, body = await post(model, path, {"messages": [SPOKEN], "stream": True})
        assert b'"Do"' in body
        assert b'"ne."' in body
        status, body = await post(model, path, {"messages": [SPOKEN] * 2, "stream": True})
        assert (status, msgspec.json.decode(body)["error"]["message"]) == (429, "Too many")
        _, body = await post(model, path, {"messages": [SPOKEN] * 9})
        assert b"Nothing more." in body


async def test_a_tool_that_nobody_offers_is_noted() -> None:
    async with serving(((Call("write", {"path": "a", "content": "b"}),),)) as model:
        _, body = await post(model, "/v1/messages", {"messages": [], "stream": True})
        assert model.missing == "write"
        assert b"tool_use" not in body


async def test_another_path_is_not_found() -> None:
    async with serving() as model:
        status, _ = await post(model, "/v1/models", {})
        assert (status, model.requests) == (404, [])
