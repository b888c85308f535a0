"""The scripted model server of the bench, as a process of its own, in each protocol it speaks."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[2] / "bench" / "model_server.py"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def ask(connection: http.client.HTTPConnection, path: str, request: object) -> list[dict[str, Any]]:
    """The data of every event, in order; the end mark of Chat Completions is left out."""
    connection.request("POST", path, json.dumps(request))
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["content-type"] == "text/event-stream"
    lines = response.read().decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(item) for item in data if item != "[DONE]"]


@pytest.fixture
def connection(port: int) -> Iterator[http.client.HTTPConnection]:
    made = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    yield made
    made.close()


def test_anthropic_messages_asks_for_a_tool_until_the_results_are_enough(
    connection: http.client.HTTPConnection,
) -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
    commands: list[str] = []
    for results in range(2):
        events = ask(
            connection, "/v1/messages", {"model": "bench-2", "messages": [result] * results}
        )
        assert [event["type"] for event in events] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        assert events[1]["content_block"]["name"] == "bash"
        assert events[4]["delta"]["stop_reason"] == "tool_use"
        commands.append(json.loads(events[2]["delta"]["partial_json"])["command"])
    assert commands == ["echo step 0", "echo step 1"]
    answer = ask(
        connection, "/v1/messages?beta=a/b", {"messages": [result] * 2, "model": "bench-2"}
    )
    texts = [event["delta"]["text"] for event in answer if event["type"] == "content_block_delta"]
    assert len(texts) == 100
    assert answer[-2]["delta"]["stop_reason"] == "end_turn"


def test_openai_responses_asks_for_a_tool_and_then_answers(
    connection: http.client.HTTPConnection,
) -> None:
    call = ask(connection, "/v1/responses", {"model": "bench-1", "input": []})
    done = call[-1]["response"]
    assert done["status"] == "completed"
    assert done["output"][0]["name"] == "bash"
    assert json.loads(done["output"][0]["arguments"]) == {"command": "echo step 0"}
    assert [event["sequence_number"] for event in call] == list(range(len(call)))
    result = {"type": "function_call_output", "call_id": done["output"][0]["call_id"], "output": ""}
    answer = ask(connection, "/v1/responses", {"model": "bench-1", "input": [result]})
    deltas = [e["delta"] for e in answer if e["type"] == "response.output_text.delta"]
    assert len(deltas) == 100
    assert answer[-1]["response"]["output"][0]["content"][0]["text"] == "".join(deltas)


def test_openai_chat_asks_for_a_tool_and_then_answers(
    connection: http.client.HTTPConnection,
) -> None:
    call = ask(connection, "/v1/chat/completions", {"model": "bench-1", "messages": []})
    function = call[1]["choices"][0]["delta"]["tool_calls"][0]["function"]
    assert function == {"name": "bash", "arguments": '{"command": "echo step 0"}'}
    assert call[-2]["choices"][0]["finish_reason"] == "tool_calls"
    result = {"role": "tool", "tool_call_id": "call_0000", "content": ""}
    answer = ask(connection, "/v1/chat/completions", {"model": "bench-1", "messages": [result]})
    choices = [choice for event in answer for choice in event["choices"]]
    assert len([choice for choice in choices if choice["delta"].get("content")]) == 100
    assert choices[-1]["finish_reason"] == "stop"
    assert answer[-1]["usage"]["completion_tokens"] == 100


def test_a_quoted_result_inside_a_text_is_not_counted(
    connection: http.client.HTTPConnection,
) -> None:
    quoted = {"role": "user", "content": '{"type": "tool_result"}'}
    events = ask(connection, "/v1/messages", {"model": "bench-1", "messages": [quoted]})
    assert events[1]["content_block"]["type"] == "tool_use"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/messages"), ("POST", "/v1/models")])
def test_anything_else_is_not_found_and_the_connection_stays(
    connection: http.client.HTTPConnection, method: str, path: str
) -> None:
    for _ in range(2):
        connection.request(method, path, b"" if method == "POST" else None)
        response = connection.getresponse()
        assert (response.status, response.read()) == (404, b"")
