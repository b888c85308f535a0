"""The Anthropic Messages API: requests with cache marks, and a reader for its event stream."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.conversation import Block, Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import StopReason, Usage
from batten.models.address import parse_address
from batten.models.contract import WINDOW_FULL, Done, ModelEvent, ModelRequest
from batten.models.exchange import Dialect, Reader, read_payload
from batten.models.faults import broken, from_event
from batten.models.message_builder import MessageBuilder, Part, Tokens, count
from batten.models.schemas import closed_schema
from batten.models.spelling import Spelling, tool_name

PROVIDER = "anthropic"
_VERSION = "2023-06-01"
_CACHED: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
_REDACTED = "redacted:"
"""Marks redacted thinking in `Thinking.opaque`: a signature is base64 and has no colon."""
_LEAST_BUDGET = 1024

_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    WINDOW_FULL: "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
}


class AnthropicDialect(Dialect):
    provider = PROVIDER

    def __init__(self, model: str, base: str, *, key: str = "", token: str = "") -> None:
        self.native_schema = _version(model) >= (4, 5)
        self._target = parse_address(f"{base.rstrip('/').removesuffix('/v1')}/v1/messages")
        self.headers = {"anthropic-version": _VERSION}
        if key:
            self.headers["x-api-key"] = key
        if token:
            self.headers["authorization"] = f"Bearer {token}"
        self._spelling = Spelling(_spell)

    def reader(self) -> "AnthropicReader":
        return AnthropicReader()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model,
            "max_tokens": request.max_output_tokens,
            "messages": self._messages(request.messages),
            "stream": True,
        }
        if request.system:
            body["system"] = [{"type": "text", "text": request.system, **_CACHED}]
        if request.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in request.tools
            ]
            body["tools"][-1].update(_CACHED)
        version = _version(request.model)
        output: dict[str, Any] = {}
        if request.thinking_tokens > 0:
            body.update(_thinking(request, version, output))
        elif request.temperature is not None and version < (4, 7):
            body["temperature"] = request.temperature
        if request.output_schema is not None and self.native_schema:
            schema = closed_schema(request.output_schema)
            output["format"] = {"type": "json_schema", "schema": schema}
        if output:
            body["output_config"] = output
        return body

    def _messages(self, messages: tuple[Message, ...]) -> list[Any]:
        """The conversation, with cache marks on the last two user messages.

        The first of the two is where the previous call ended: it is read from the cache while the
        second is written. With system and tools that makes the four marks the API allows.
        """
        end, marks = len(messages), 0
        last: list[dict[str, Any]] = []
        while end and marks < 2:
            end -= 1
            spelled = _spell(messages[end])
            if spelled and messages[end].role == "user":
                spelled[0]["content"][-1].update(_CACHED)
                marks += 1
            last[:0] = spelled
        return [*self._spelling.of(messages[:end]), *last]


def _version(model: str) -> tuple[int, int]:
    """`claude-opus-4-6-20260101` and `claude-3-7-sonnet` as (4, 6) and (3, 7); ignores dates."""
    numbers = [int(number) for number in re.findall(r"(?<![0-9])[0-9]{1,2}(?![0-9])", model)]
    return (numbers[0] if numbers else 0, numbers[1] if numbers[1:] else 0)


def _thinking(
    request: ModelRequest, version: tuple[int, int], output: dict[str, Any]
) -> dict[str, Any]:
    """Since 4.6 a model decides how long to think, and the request sets only the effort."""
    tokens = request.thinking_tokens
    if version >= (4, 6):
        output["effort"] = "low" if tokens < 4096 else "medium" if tokens < 16384 else "high"
        return {"thinking": {"type": "adaptive", "display": "summarized"}}
    budget = max(tokens, _LEAST_BUDGET)
    return {
        "thinking": {"type": "enabled", "budget_tokens": budget},
        "max_tokens": request.max_output_tokens + budget,
    }


def _spell(message: Message) -> list[dict[str, Any]]:
    blocks = [block for raw in _ordered(message) if (block := _block(raw)) is not None]
    return [{"role": message.role, "content": blocks}] if blocks else []


def _ordered(message: Message) -> list[Block]:
    """In the message that answers a call, results must come first."""
    return sorted(message.blocks, key=lambda block: not isinstance(block, ToolResult))


def _block(block: Block) -> dict[str, Any] | None:
    match block:
        case Text():
            return {"type": "text", "text": block.text} if block.text.strip() else None
        case Thinking():
            return _thinking_block(block)
        case ToolCall():
            call_id, name = _call_id(block.id), tool_name(block.name)
            return {"type": "tool_use", "id": call_id, "name": name, "input": block.input}
        case Image():
            return _image(block)
        case ToolResult():
            return _result(block)


def _thinking_block(block: Thinking) -> dict[str, Any] | None:
    if block.provider != PROVIDER or not block.opaque:
        return None
    if block.opaque.startswith(_REDACTED):
        return {"type": "redacted_thinking", "data": block.opaque.removeprefix(_REDACTED)}
    return {"type": "thinking", "thinking": block.text, "signature": block.opaque}


def _call_id(call_id: str) -> str:
    """Ids of other providers may contain characters that this API rejects."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)


def _image(image: Image) -> dict[str, Any]:
    # The encoder writes bytes as base64.
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": image.mime, "data": image.data},
    }


def _result(result: ToolResult) -> dict[str, Any]:
    output = result.output or ("(the tool failed and said nothing)" if result.is_error else "")
    content: list[dict[str, Any]] = [{"type": "text", "text": output}] if output.strip() else []
    content += [_image(image) for image in result.images]
    wire: dict[str, Any] = {"type": "tool_result", "tool_use_id": _call_id(result.call_id)}
    if content:
        wire["content"] = content
    if result.is_error:
        wire["is_error"] = True
    return wire


class _Usage(Struct):
    input_tokens: Tokens = None
    output_tokens: Tokens = None
    cache_creation_input_tokens: Tokens = None
    cache_read_input_tokens: Tokens = None


class _Message(Struct):
    id: str = ""
    model: str = ""
    usage: _Usage | None = None


class _Content(Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""


class _StopDetails(Struct):
    explanation: str | None = None


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Event(Struct):
    """All event types in one: a union by tag would reject unknown types."""

    type: str
    index: int = -1
    delta: _Delta | None = None
    content_block: _Content | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


class AnthropicReader(Reader):
    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Event)
        self._builder = MessageBuilder(PROVIDER)
        self._parts: dict[int, Part | None] = {}
        self._message: _Message | None = None
        self._usage = _Usage()
        self._stop: str | None = None
        self._note = ""

    def read(self, payload: bytes) -> Iterable[ModelEvent]:
        event = read_payload(self._decoder, payload, PROVIDER)
        match event.type:
            case "content_block_delta":
                return self._delta(event)
            case "content_block_start":
                return self._start(event)
            case "content_block_stop":
                part = self._part(event.index)
                return () if part is None else self._builder.end(part)
            case "message_start":
                self._begin(event.message)
            case "message_delta":
                self._close(event)
            case "message_stop":
                return (self._done(),)
            case "error":
                raise from_event(PROVIDER, event.error)
            case _:
                pass
        return ()

    def _begin(self, message: _Message | None) -> None:
        if self._message is not None or message is None:
            raise broken(PROVIDER, "a message begins twice or is empty")
        self._message = message
        self._count(message.usage)

    def _start(self, event: _Event) -> Iterable[ModelEvent]:
        content = event.content_block
        if self._message is None or content is None or event.index in self._parts:
            raise broken(PROVIDER, f"block {event.index} begins where it cannot")
        builder = self._builder
        match content.type:
            case "text":
                part = builder.begin("text")
            case "thinking":
                part = builder.begin("thinking")
                builder.sign(part, content.signature)
            case "redacted_thinking":
                part = builder.begin("thinking")
                builder.sign(part, _REDACTED + content.data)
            case "tool_use":
                part = builder.begin_call(content.id, content.name)
            case _:
                # A block type we did not request: its deltas are ignored too.
                builder.count_block()
                self._parts[event.index] = None
                return ()
        self._parts[event.index] = part
        begun = content.text or content.thinking
        return (builder.grow(part, begun),) if begun else ()

    def _delta(self, event: _Event) -> Iterable[ModelEvent]:
        part = self._part(event.index)
        delta = event.delta
        if part is None or delta is None:
            return ()
        match delta.type:
            case "text_delta":
                kind, text = "text", delta.text
            case "thinking_delta":
                kind, text = "thinking", delta.thinking
            case "input_json_delta":
                kind, text = "call", delta.partial_json
            case "signature_delta":
                self._builder.sign(part, delta.signature)
                return ()
            case _:
                return ()
        if part.kind != kind:
            raise broken(PROVIDER, f"a {delta.type} for a {part.kind} block")
        return (self._builder.grow(part, text),) if text else ()

    def _part(self, index: int) -> Part | None:
        if index not in self._parts:
            raise broken(PROVIDER, f"an event for block {index}, which never began")
        return self._parts[index]

    def _close(self, event: _Event) -> None:
        self._count(event.usage)
        if event.delta is not None:
            self._stop = event.delta.stop_reason or self._stop
            details = event.delta.stop_details
            self._note = (details.explanation or "") if details is not None else self._note

    def _count(self, usage: _Usage | None) -> None:
        """Counts are running totals: a later one replaces an earlier one."""
        if usage is None:
            return
        for field in usage.__struct_fields__:
            value = getattr(usage, field)
            if value is not None:
                setattr(self._usage, field, value)

    def reported(self) -> Usage | None:
        return None if self._message is None or self._message.usage is None else self._counted()

    def _counted(self) -> Usage:
        usage = self._usage
        read = count(usage.cache_read_input_tokens)
        written = count(usage.cache_creation_input_tokens)
        return Usage(
            input_tokens=count(usage.input_tokens) + read + written,
            output_tokens=count(usage.output_tokens),
            cache_read_tokens=read,
            cache_write_tokens=written,
        )

    def _done(self) -> Done:
        if self._message is None or self._stop is None:
            raise broken(PROVIDER, "the message stopped without a reason")
        if any(not part.done for part in self._builder.parts):
            raise broken(PROVIDER, "the message stopped inside a block")
        reason = _STOPS.get(self._stop, "other")
        note = self._note or ("" if reason == self._stop else self._stop)
        if reason == "end_turn" and self._builder.has_calls():
            reason = "tool_use"  # some compatible servers end every message so
        return Done(
            reason,
            self._counted(),
            message_id=self._message.id,
            model=self._message.model,
            note=note,
        )
