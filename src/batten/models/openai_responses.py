"""The OpenAI Responses API: stateless requests, and a reader for its event stream.

The provider stores nothing: reasoning comes back encrypted and is sent again.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import StopReason, Usage
from batten.models.address import parse_address
from batten.models.contract import Done, ModelEvent, ModelRequest
from batten.models.exchange import Dialect, Reader, read_payload
from batten.models.faults import broken, from_event
from batten.models.message_builder import MessageBuilder, Part, Tokens, count
from batten.models.openai_wire import arguments, data_url, effort, function, reasons
from batten.models.schemas import is_strict
from batten.models.spelling import Spelling, tool_name

PROVIDER = "openai"


class ResponsesDialect(Dialect):
    provider = PROVIDER
    native_schema = True

    def __init__(self, base: str, *, key: str = "") -> None:
        self._target = parse_address(f"{base.rstrip('/')}/responses")
        self.headers = {"authorization": f"Bearer {key}"} if key else {}
        self._spelling = Spelling(_items)

    def reader(self) -> "ResponsesReader":
        return ResponsesReader()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model,
            "input": self._spelling.of(request.messages),
            "max_output_tokens": request.max_output_tokens,
            "store": False,
            "stream": True,
        }
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = [
                {"type": "function", **function(tool), "strict": False} for tool in request.tools
            ]
        if reasons(request.model):
            body["include"] = ["reasoning.encrypted_content"]
            if request.thinking_tokens > 0:
                body["reasoning"] = {"effort": effort(request), "summary": "auto"}
                body["max_output_tokens"] += request.thinking_tokens
        elif request.temperature is not None:
            body["temperature"] = request.temperature
        if request.output_schema is not None:
            body["text"] = {
                "format": {
                    "type": "json_schema",
                    "name": "answer",
                    "schema": request.output_schema,
                    "strict": is_strict(request.output_schema),
                }
            }
        return body


def _items(message: Message) -> Iterable[dict[str, Any]]:
    """A message as input items: text and images share one, calls and results have their own."""
    content: list[dict[str, Any]] = []
    text_type = "output_text" if message.role == "assistant" else "input_text"
    for block in message.blocks:
        match block:
            case Text():
                if block.text:
                    content.append({"type": text_type, "text": block.text})
                continue
            case Image():
                content.append({"type": "input_image", "image_url": data_url(block)})
                continue
            case Thinking():
                item = _reasoning(block)
            case ToolCall():
                item = _call(block)
            case ToolResult():
                item = _result(block)
        if content:
            yield {"role": message.role, "content": content}
            content = []
        if item is not None:
            yield item
    if content:
        yield {"role": message.role, "content": content}


def _reasoning(block: Thinking) -> dict[str, Any] | None:
    if block.provider != PROVIDER or not block.opaque:
        return None
    item: dict[str, Any] = msgspec.json.decode(block.opaque)
    return item


def _call(block: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": block.id,
        "name": tool_name(block.name),
        "arguments": arguments(block),
    }


def _result(block: ToolResult) -> dict[str, Any]:
    output: str | list[dict[str, Any]] = block.output
    if block.images:
        output = [{"type": "input_text", "text": block.output}] if block.output else []
        output += [{"type": "input_image", "image_url": data_url(image)} for image in block.images]
    return {"type": "function_call_output", "call_id": block.call_id, "output": output}


class _InputDetails(Struct):
    cached_tokens: Tokens = None


class _OutputDetails(Struct):
    reasoning_tokens: Tokens = None


class _Usage(Struct):
    input_tokens: Tokens = None
    output_tokens: Tokens = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    id: str = ""
    model: str = ""
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


class _Text(Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(Struct):
    type: str
    id: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    content: list[_Text] | None = None
    summary: list[_Text] | None = None
    encrypted_content: str | None = None


class _Event(Struct):
    type: str
    output_index: int = -1
    summary_index: int = 0
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None


_KINDS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}


class ResponsesReader(Reader):
    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Event)
        self._builder = MessageBuilder(PROVIDER)
        self._parts: dict[int, Part | None] = {}
        self._summaries: dict[int, int] = {}
        self._refusal = ""

    def read(self, payload: bytes) -> Iterable[ModelEvent]:
        if payload == b"[DONE]":
            return ()
        event = read_payload(self._decoder, payload, PROVIDER)
        if event.type in _KINDS:
            return self._delta(event, _KINDS[event.type])
        match event.type:
            case "response.output_item.added":
                self._added(event)
            case "response.output_item.done":
                return self._item_done(event)
            case "response.completed" | "response.incomplete":
                return self._completed(event)
            case "response.failed":
                raise from_event(PROVIDER, event.response.error if event.response else None)
            case "error":
                error = event.error or {"code": event.code, "message": event.message}
                raise from_event(PROVIDER, error)
            case _:
                pass
        return ()

    def _added(self, event: _Event) -> None:
        item = event.item
        if item is None or event.output_index in self._parts:
            raise broken(PROVIDER, f"item {event.output_index} begins twice or is empty")
        part: Part | None = None
        match item.type:
            case "message":
                part = self._builder.begin("text")
            case "reasoning":
                part = self._builder.begin("thinking")
            case "function_call":
                part = self._builder.begin_call(item.call_id or item.id or "", item.name)
            case _:
                self._builder.count_block()
        self._parts[event.output_index] = part

    def _delta(self, event: _Event, kind: str) -> Iterable[ModelEvent]:
        part = self._part(event.output_index)
        text: object = event.delta
        if part is None or text == "":
            return ()
        if not isinstance(text, str) or part.kind != kind:
            raise broken(PROVIDER, f"a {event.type} that does not fit its {part.kind} block")
        if event.type == "response.refusal.delta":
            self._refusal += text
        if event.type == "response.reasoning_summary_text.delta":
            previous = self._summaries.setdefault(part.block, event.summary_index)
            if previous != event.summary_index:
                self._summaries[part.block] = event.summary_index
                text = "\n\n" + text
        return (self._builder.grow(part, text),)

    def _item_done(self, event: _Event) -> Iterable[ModelEvent]:
        item = event.item
        if item is None:
            raise broken(PROVIDER, f"item {event.output_index} ended empty")
        if event.output_index not in self._parts:
            # Some servers send only complete items.
            self._added(event)
        part = self._parts[event.output_index]
        if part is None:
            return
        whole = _whole(item)
        if whole and not part.pieces:
            yield self._builder.grow(part, whole)
        if item.type == "reasoning" and item.encrypted_content:
            self._builder.sign(part, _opaque(item))
        if not self._refusal and item.content:
            self._refusal = "".join(text.refusal for text in item.content)
        yield from self._builder.end(part)

    def _part(self, index: int) -> Part | None:
        if index not in self._parts:
            raise broken(PROVIDER, f"an event for item {index}, which never began")
        return self._parts[index]

    def _completed(self, event: _Event) -> Iterable[ModelEvent]:
        response = event.response
        if response is None:
            raise broken(PROVIDER, f"a {event.type} without a response")
        open_parts = any(not part.done for part in self._builder.parts)
        if open_parts and event.type == "response.completed":
            raise broken(PROVIDER, "the response completed inside an item")
        yield from self._builder.end_all()
        reason, note = self._stop(event.type, response)
        yield Done(reason, _usage(response.usage), response.id, response.model, note)

    def _stop(self, kind: str, response: _Response) -> tuple[StopReason, str]:
        if kind == "response.incomplete":
            details = response.incomplete_details
            why = (details.reason if details is not None else None) or "incomplete"
            if why == "max_output_tokens":
                return "max_tokens", ""
            return ("filtered" if why == "content_filter" else "aborted"), why
        if self._refusal:
            return "refusal", self._refusal
        return ("tool_use" if self._builder.has_calls() else "end_turn"), ""


def _whole(item: _Item) -> str:
    if item.type == "function_call":
        return item.arguments
    texts = (item.summary if item.type == "reasoning" else item.content) or []
    joint = "\n\n" if item.type == "reasoning" else ""
    return joint.join(text.text or text.refusal for text in texts)


def _opaque(item: _Item) -> str:
    summary = [{"type": "summary_text", "text": text.text} for text in item.summary or []]
    kept: dict[str, Any] = {
        "type": "reasoning",
        "summary": summary,
        "encrypted_content": item.encrypted_content,
    }
    if item.id:
        kept["id"] = item.id
    return msgspec.json.encode(kept).decode()


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    inputs, outputs = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        input_tokens=count(usage.input_tokens),
        output_tokens=count(usage.output_tokens),
        cache_read_tokens=count(inputs.cached_tokens) if inputs is not None else 0,
        reasoning_tokens=count(outputs.reasoning_tokens) if outputs is not None else 0,
    )
