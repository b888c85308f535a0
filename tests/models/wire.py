"""Answers in each provider's documented wire format, written for these tests.

The functions that build whole turns (`anthropic_turn`, `responses_turn`, `chat_turn`)
serve tests of the whole program too.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

Call = tuple[str, str, dict[str, Any]]
"""Id, tool, arguments."""


def sse(*events: object, named: bool = False) -> bytes:
    """Events as `text/event-stream`; `named` repeats each one's type as the event's name."""
    wire = bytearray()
    for event in events:
        if named and isinstance(event, dict):
            wire += b"event: %s\n" % str(cast("dict[str, object]", event)["type"]).encode()
        data = event.encode() if isinstance(event, str) else msgspec.json.encode(event)
        wire += b"data: %s\n\n" % data
    return bytes(wire)


def ndjson(*lines: object) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def anthropic_block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[Any]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_start(**usage: int) -> dict[str, Any]:
    return {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test-4-5",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 10, "output_tokens": 1, **usage},
        },
    }


def anthropic_end(stop: str = "end_turn", output_tokens: int = 5, **delta: object) -> list[Any]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None, **delta},
            "usage": {"output_tokens": output_tokens},
        },
        {"type": "message_stop"},
    ]


def anthropic_text_block(index: int, text: str, size: int = 4) -> list[Any]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces(text, size)]
    return anthropic_block(index, {"type": "text", "text": ""}, *deltas)


def anthropic_call_block(index: int, call: Call, size: int = 7) -> list[Any]:
    call_id, name, arguments = call
    text = msgspec.json.encode(arguments).decode()
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(text, size)]
    start: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return anthropic_block(index, start, {"type": "input_json_delta", "partial_json": ""}, *deltas)


def anthropic_turn(text: str = "", calls: Sequence[Call] = (), **usage: int) -> bytes:
    """A whole answer: text, then tool calls."""
    blocks = anthropic_text_block(0, text) if text else []
    for number, call in enumerate(calls, start=1 if text else 0):
        blocks += anthropic_call_block(number, call)
    stop = "tool_use" if calls else "end_turn"
    return sse(
        anthropic_start(**usage), {"type": "ping"}, *blocks, *anthropic_end(stop), named=True
    )


def responses_turn(text: str = "", calls: Sequence[Call] = ()) -> bytes:
    """A whole answer of the Responses API: text, then function calls."""
    events: list[Any] = [{"type": "response.created", "response": {"id": "resp_1"}}]
    if text:
        events += responses_text(0, text)
    for number, call in enumerate(calls, start=1 if text else 0):
        events += responses_call(number, call)
    return sse(*events, responses_end(), named=True)


def responses_text(index: int, text: str) -> list[Any]:
    place = {"output_index": index, "content_index": 0}
    item = {"type": "message", "id": f"msg_{index}", "role": "assistant"}
    done: dict[str, Any] = {
        **item,
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "content": []},
        },
        *(
            {"type": "response.output_text.delta", **place, "delta": piece}
            for piece in pieces(text, 4)
        ),
        {"type": "response.output_text.done", **place, "text": text},
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def responses_call(index: int, call: Call) -> list[Any]:
    call_id, name, arguments = call
    text = msgspec.json.encode(arguments).decode()
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": name}
    added = {**item, "arguments": ""}
    kind = "response.function_call_arguments"
    return [
        {"type": "response.output_item.added", "output_index": index, "item": added},
        *(
            {"type": f"{kind}.delta", "output_index": index, "delta": piece}
            for piece in pieces(text, 7)
        ),
        {"type": f"{kind}.done", "output_index": index, "arguments": text},
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "arguments": text},
        },
    ]


def responses_end(kind: str = "completed", **more: object) -> dict[str, Any]:
    response = {
        "id": "resp_1",
        "model": "gpt-test",
        "status": kind,
        "usage": {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 8},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 27,
        },
        **more,
    }
    return {"type": f"response.{kind}", "response": response}


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "model": "chat-test", "choices": [choice]}


CHAT_USAGE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "chat-test",
    "choices": [],
    "usage": {
        "prompt_tokens": 30,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 12},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
}


def chat_turn(text: str = "", calls: Sequence[Call] = ()) -> bytes:
    """A whole answer of Chat Completions: text, then tool calls."""
    chunks: list[Any] = [chat_chunk({"role": "assistant", "content": ""})]
    chunks += [chat_chunk({"content": piece}) for piece in pieces(text, 4)]
    for index, (call_id, name, arguments) in enumerate(calls):
        begun = {"index": index, "id": call_id, "type": "function"}
        chunks.append(
            chat_chunk({"tool_calls": [{**begun, "function": {"name": name, "arguments": ""}}]})
        )
        for piece in pieces(msgspec.json.encode(arguments).decode(), 7):
            fragment = {"index": index, "function": {"arguments": piece}}
            chunks.append(chat_chunk({"tool_calls": [fragment]}))
    chunks.append(chat_chunk({}, "tool_calls" if calls else "stop"))
    return sse(*chunks, CHAT_USAGE, "[DONE]")


def gemini_chunk(
    *parts: dict[str, Any], finish: str | None = None, usage: bool = True
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    chunk: dict[str, Any] = {
        "candidates": [candidate],
        "modelVersion": "gemini-test",
        "responseId": "r1",
    }
    if usage:
        chunk["usageMetadata"] = {
            "promptTokenCount": 40,
            "cachedContentTokenCount": 16,
            "candidatesTokenCount": 6,
            "thoughtsTokenCount": 4,
            "totalTokenCount": 50,
        }
    return chunk


def ollama_line(done: bool = False, **message: object) -> dict[str, Any]:
    line: dict[str, Any] = {
        "model": "qwen3",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": "", **message},
        "done": done,
    }
    if done:
        line |= {"done_reason": "stop", "prompt_eval_count": 11, "eval_count": 4}
    return line
