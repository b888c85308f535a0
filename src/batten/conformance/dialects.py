"""A model's answer in two formats: Chat Completions and Anthropic's Messages."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from batten.conformance.check import Json, part, parts

_MODEL = "conformance"
_CHAT_USAGE: Json = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
_USAGE: Json = {"input_tokens": 11, "output_tokens": 7}


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    arguments: Json


class Dialect(Protocol):
    """One answer: piece by piece from `begin` to `end`, or as one `message`."""

    def offered(self, request: Json) -> dict[str, Any]: ...
    def begin(self) -> bytes: ...
    def text(self, text: str) -> bytes: ...
    def call(self, call: ToolCall) -> bytes: ...
    def end(self, called: bool) -> bytes: ...
    def message(self, frame: Sequence[str | ToolCall]) -> Json: ...


def of(path: str) -> Dialect | None:
    """The dialect served at this path, for one answer."""
    if path.endswith("/chat/completions"):
        return _Chat()
    return _Messages() if path.endswith("/messages") else None


class _Chat:
    def __init__(self) -> None:
        self._calls = 0

    def begin(self) -> bytes:
        return _chunk({"role": "assistant", "content": ""})

    def text(self, text: str) -> bytes:
        half = len(text) // 2  # in pieces, so that the client has to join them
        return b"".join(_chunk({"content": one}) for one in (text[:half], text[half:]) if one)

    def call(self, call: ToolCall) -> bytes:
        index, self._calls = self._calls, self._calls + 1
        return _chunk({"tool_calls": [{"index": index, **_function(call)}]})

    def end(self, called: bool) -> bytes:
        last = _chunk({}, "tool_calls" if called else "stop", usage=_CHAT_USAGE)
        return last + b"data: [DONE]\n\n"

    def offered(self, request: Json) -> dict[str, Any]:
        functions = [part(one, "function") for one in parts(request, "tools")]
        return {one["name"]: part(part(one, "parameters"), "properties") for one in functions}

    def message(self, frame: Sequence[str | ToolCall]) -> Json:
        calls = [_function(one) for one in frame if isinstance(one, ToolCall)]
        text = "".join(one for one in frame if isinstance(one, str))
        message: Json = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if calls else "stop",
        }
        return {"id": "gen-1", "model": _MODEL, "choices": [choice], "usage": _CHAT_USAGE}


class _Messages:
    def __init__(self) -> None:
        self._blocks = 0

    def begin(self) -> bytes:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": _MODEL}
        return _event("message_start", message=message | {"content": [], "usage": _USAGE})

    def text(self, text: str) -> bytes:
        half = len(text) // 2
        pieces = [one for one in (text[:half], text[half:]) if one]
        deltas = [{"type": "text_delta", "text": one} for one in pieces]
        return self._block({"type": "text", "text": ""}, deltas)

    def call(self, call: ToolCall) -> bytes:
        partial = msgspec.json.encode(call.arguments).decode()
        delta = {"type": "input_json_delta", "partial_json": partial}
        block: Json = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        return self._block(block, [delta])

    def end(self, called: bool) -> bytes:
        reason = {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None}
        return _event("message_delta", delta=reason, usage=_USAGE) + _event("message_stop")

    def _block(self, block: Json, deltas: Sequence[Json]) -> bytes:
        index, self._blocks = self._blocks, self._blocks + 1
        pieces = [_event("content_block_delta", index=index, delta=one) for one in deltas]
        first = _event("content_block_start", index=index, content_block=block)
        return first + b"".join(pieces) + _event("content_block_stop", index=index)

    def offered(self, request: Json) -> dict[str, Any]:
        tools = parts(request, "tools")
        return {one["name"]: part(part(one, "input_schema"), "properties") for one in tools}

    def message(self, frame: Sequence[str | ToolCall]) -> Json:
        content: list[Json] = [
            {"type": "text", "text": one}
            if isinstance(one, str)
            else {"type": "tool_use", "id": one.id, "name": one.name, "input": one.arguments}
            for one in frame
        ]
        called = any(isinstance(one, ToolCall) for one in frame)
        reason = "tool_use" if called else "end_turn"
        head: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": _MODEL}
        return head | {"content": content, "stop_reason": reason, "usage": _USAGE}


def _function(call: ToolCall) -> Json:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _chunk(delta: Json, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head: Json = {"id": "gen-1", "object": "chat.completion.chunk", "created": 0, "model": _MODEL}
    return b"data: " + msgspec.json.encode(head | {"choices": [choice], **more}) + b"\n\n"


def _event(kind: str, **data: Any) -> bytes:
    body = msgspec.json.encode({"type": kind, **data})
    return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"
