"""Ollama's `/api/chat`: requests, and a reader for its lines of JSON. No key, no price."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import StopReason, Usage
from batten.models.address import parse_address
from batten.models.contract import Done, ModelEvent, ModelRequest
from batten.models.exchange import Dialect, Reader, read_payload
from batten.models.faults import from_event
from batten.models.message_builder import MessageBuilder, Tokens, count
from batten.models.openai_wire import functions
from batten.models.spelling import Spelling, tool_name
from batten.models.sse import NdjsonDecoder

PROVIDER = "ollama"
CONTEXT_TOKENS = 32_768
"""Set in each request: the server's own default truncates long conversations silently."""

_STOPS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens"}


class OllamaDialect(Dialect):
    provider = PROVIDER
    native_schema = False
    """A format keeps the model from calling tools, so it is sent only without them."""

    def __init__(self, base: str, *, context_tokens: int = CONTEXT_TOKENS) -> None:
        self._target = parse_address(f"{base.rstrip('/')}/api/chat", what="address of Ollama")
        self.headers = {}
        self._context_tokens = context_tokens
        self._spelling = Spelling(_messages)

    def decoder(self) -> NdjsonDecoder:
        return NdjsonDecoder()

    def reader(self) -> "OllamaReader":
        return OllamaReader()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        options: dict[str, Any] = {
            "num_ctx": self._context_tokens,
            "num_predict": request.max_output_tokens + request.thinking_tokens,
        }
        if request.temperature is not None:
            options["temperature"] = request.temperature
        messages: list[Any] = self._spelling.of(request.messages)
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        body: dict[str, Any] = {
            "model": request.model,
            "messages": messages,
            "stream": True,
            "options": options,
        }
        if request.thinking_tokens > 0:
            body["think"] = True
        if request.tools:
            body["tools"] = functions(request)
        elif request.output_schema is not None:
            body["format"] = request.output_schema
        return body


def _messages(message: Message) -> list[dict[str, Any]]:
    """One message per result, then one with the rest."""
    wire: list[dict[str, Any]] = []
    rest: dict[str, Any] = {"role": message.role, "content": message.text()}
    thought = ""
    for block in message.blocks:
        match block:
            case ToolResult():
                result: dict[str, Any] = {"role": "tool", "tool_name": tool_name(block.name)}
                result["content"] = block.output
                if block.images:
                    result["images"] = [image.data for image in block.images]
                wire.append(result)
            case ToolCall():
                call = {"function": {"name": tool_name(block.name), "arguments": block.input}}
                rest.setdefault("tool_calls", []).append(call)
            case Image():
                # The encoder writes bytes as base64.
                rest.setdefault("images", []).append(block.data)
            case Thinking():
                thought += block.text if block.provider == PROVIDER else ""
            case Text():
                pass
    if thought:
        rest["thinking"] = thought
    return [*wire, rest] if rest["content"] or len(rest) > 2 else wire


class _Function(Struct):
    name: str = ""
    arguments: dict[str, Any] | None = None


class _Call(Struct):
    function: _Function
    id: str | None = None


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(Struct):
    model: str = ""
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: Tokens = None
    eval_count: Tokens = None
    error: Any = None


class OllamaReader(Reader):
    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Line)
        self._builder = MessageBuilder(PROVIDER)

    def read(self, payload: bytes) -> Iterable[ModelEvent]:
        line = read_payload(self._decoder, payload, PROVIDER)
        if line.error:
            raise from_event(PROVIDER, line.error)
        message = line.message
        if message is not None:
            if message.thinking:
                yield from self._builder.go_on("thinking", message.thinking)
            if message.content:
                yield from self._builder.go_on("text", message.content)
            for call in message.tool_calls or ():
                function = call.function
                yield from self._builder.call(call.id, function.name, function.arguments)
        if line.done:
            yield from self._done(line)

    def _done(self, line: _Line) -> Iterable[ModelEvent]:
        yield from self._builder.end_all()
        finish = line.done_reason or "stop"
        reason = _STOPS.get(finish, "other")
        if reason == "end_turn" and self._builder.has_calls():
            reason = "tool_use"
        usage = Usage(count(line.prompt_eval_count), count(line.eval_count))
        note = "" if finish in _STOPS else finish
        yield Done(reason, usage, model=line.model, note=note)
