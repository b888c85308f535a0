"""`batten -p` against each provider's protocol over real HTTP, with tools and streamed text."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.models.server import answer
from tests.models.wire import (
    anthropic_end,
    anthropic_start,
    anthropic_turn,
    chat_turn,
    gemini_chunk,
    ndjson,
    ollama_line,
    responses_call,
    responses_end,
    responses_turn,
    sse,
)

from .invoking import Json, Shell, serving

TURNS = {
    "anthropic/claude-sonnet-4-5": anthropic_turn,
    "openai/gpt-5.5": responses_turn,
    "openai-chat/gpt-5.5": chat_turn,
    "compat/anything": chat_turn,
}


def results_in(body: Json) -> list[tuple[str, str]]:
    """Id and text of each tool result in a request, in whichever protocol it is."""
    found: list[tuple[str, str]] = []
    for message in body["messages"] if "messages" in body else body["input"]:
        if message.get("role") == "tool":
            found.append((message["tool_call_id"], _text(message["content"])))
        elif message.get("type") == "function_call_output":
            found.append((message["call_id"], _text(message["output"])))
        elif isinstance(message.get("content"), list):
            found += [
                (block["tool_use_id"], _text(block["content"]))
                for block in message["content"]
                if block["type"] == "tool_result"
            ]
    return found


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def offered_in(body: Json) -> set[str]:
    tools = body["tools"]
    return {tool.get("name") or tool["function"]["name"] for tool in tools}


@pytest.mark.parametrize("model", TURNS)
def test_tools_and_streamed_text_make_a_whole_journal(shell: Shell, model: str) -> None:
    turn = TURNS[model]
    calls = [("c1", "bash", {"command": "echo hi"}), ("c2", "bash", {"command": "false"})]
    replies = [answer(turn("I look.", calls)), answer(turn("All is well."), piece=7)]
    with serving(shell, replies) as server:
        said = shell.print(model, "--allow", "bash", "--output-format", "events")
    assert said.code == 0
    deltas = [one["data"]["delta"] for one in said.frames() if one["type"].endswith("text_delta")]
    assert "".join(deltas) == "I look.All is well."
    assert len(deltas) > 4
    named = {str(one["data"].get("provider", "")) for one in said.frames()} - {""}
    assert named == {model.partition("/")[0]}
    first, second = (request.json() for request in server.requests)
    assert (first["model"], first["stream"]) == (model.partition("/")[2], True)
    assert {"bash", "agent", "todo_write"} <= offered_in(first)
    assert results_in(first) == []
    (one, hi), (two, failed) = results_in(second)
    assert (one, two) == ("c1", "c2")
    assert hi == "hi"
    assert "1" in failed
    (run_id,) = shell.run_ids()
    assert shell("events", run_id).out == said.out
    assert shell("verify").code == 0


@pytest.mark.parametrize("model", TURNS)
def test_the_next_prompt_of_a_session_carries_the_whole_conversation(
    shell: Shell, model: str
) -> None:
    turn = TURNS[model]
    calls = [("c1", "bash", {"command": "echo hi"})]
    replies = [answer(turn("I look.", calls)), answer(turn("well")), answer(turn("again"))]
    with serving(shell, replies) as server:
        shell.print(model, "--allow", "bash")
        (run_id,) = shell.run_ids()
        said = shell("-p", "and now?", "--resume", run_id)
    assert said.out == b"again\n"
    third = server.requests[2].body.decode()
    for words in ("go", "I look.", "echo hi", "well", "and now?"):
        assert words in third


_TOUCH = ("c1", "bash", {"command": "touch made"})
UNFINISHED = {
    "a response that is incomplete for a reason of its own": (
        "openai/gpt-5.5",
        sse(
            {"type": "response.created", "response": {"id": "resp_1"}},
            *responses_call(0, _TOUCH),
            responses_end("incomplete", incomplete_details={"reason": "something_new"}),
        ),
        "the provider aborted the answer: something_new",
    ),
    "an answer that Google gave up": (
        "google/gemini-3-pro",
        sse(gemini_chunk({"text": "I w"}, finish="OTHER")),
        "the provider aborted the answer: OTHER",
    ),
    "no words, and a reason that nobody knows": (
        "anthropic/claude-sonnet-4-5",
        sse(anthropic_start(), *anthropic_end("something_new")),
        "the model stopped without an answer: something_new",
    ),
    "a model that was loaded and said nothing": (
        "ollama/qwen3",
        ndjson(ollama_line(done=True) | {"done_reason": "load"}),
        "the model stopped without an answer: load",
    ),
}


@pytest.mark.parametrize(("model", "body", "error"), UNFINISHED.values(), ids=UNFINISHED.keys())
def test_is_no_success(shell: Shell, model: str, body: bytes, error: str) -> None:
    with serving(shell, [answer(body)]):
        said = shell.print(model, "--allow", "bash", "--output-format", "json")
    assert (said.code, said.result["outcome"], said.result["error"]) == (1, "model_error", error)
    assert not Path("made").exists()


def test_an_empty_answer_is_a_success_that_is_said_aloud(shell: Shell) -> None:
    with serving(shell, [answer(anthropic_turn())]):
        said = shell.print("anthropic/claude-sonnet-4-5", "--output-format", "json")
    assert (said.code, said.result["result"]) == (0, "")
    assert said.err == "batten: the model gave an empty answer\n"


@pytest.fixture
def bench_port() -> Generator[str, None, None]:
    """The server that measurements use: it speaks three protocols by itself."""
    path = Path(__file__).parents[2] / "bench" / "model_server.py"
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
        process.kill()


def test_the_server_of_the_bench_is_answered_in_its_three_protocols(
    shell: Shell, bench_port: str
) -> None:
    base = f"http://127.0.0.1:{bench_port}"
    shell.set(
        ANTHROPIC_BASE_URL=base, ANTHROPIC_API_KEY="k",
        OPENAI_BASE_URL=f"{base}/v1", OPENAI_API_KEY="k",
    )  # fmt: skip
    for model in ("anthropic/bench-2", "openai/bench-2", "openai-chat/bench-2"):
        said = shell.print(model, "--allow", "bash", "--output-format", "json")
        assert said.code == 0
        assert said.result["turns"] == 3
        assert said.result["result"].startswith("word00 word01 ")
