"""Chat Completions, as spoken by OpenAI and the many compatible servers.

Compatible servers omit ids, indexes, usage, the finish reason or the last event; any remaining
sign that the answer is complete is accepted.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.conversation import Image, Message, Text, ToolResult
from batten.contract.facts.assistant import StopReason, Usage
from batten.models.address import parse_address
from batten.models.contract import Done, ModelEvent, ModelRequest
from batten.models.exchange import Dialect, Reader, read_payload
from batten.models.faults import broken, from_event
from batten.models.message_builder import MessageBuilder, Part, Tokens, count
from batten.models.openai_wire import arguments, data_url, effort, functions, reasons
from batten.models.schemas import is_strict
from batten.models.spelling import Spelling, tool_name

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "end_turn": "end_turn",
    "eos": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "filtered",
    "refusal": "refusal",
}


class ChatDialect(Dialect):
    def __init__(
        self,
        provider: str,
        base: str,
        *,
        key: str = "",
        native_schema: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.provider = provider
        self.native_schema = native_schema
        self._target = parse_address(f"{base.rstrip('/')}/chat/completions")
        self.headers = {**(headers or {})}
        if key:
            self.headers["authorization"] = f"Bearer {key}"
        self._spelling = Spelling(_spell)

    def reader(self) -> "ChatReader":
        return ChatReader(self.provider)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        messages: list[Any] = self._spelling.of(request.messages)
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        body: dict[str, Any] = {
            "model": request.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        official = self.provider == "openai-chat"
        limit = "max_completion_tokens" if official else "max_tokens"
        body[limit] = request.max_output_tokens
        if request.tools:
            body["tools"] = functions(request)
        if request.thinking_tokens > 0 and (not official or reasons(request.model)):
            body["reasoning_effort"] = effort(request)
            body[limit] += request.thinking_tokens
        if request.temperature is not None and not (official and reasons(request.model)):
            body["temperature"] = request.temperature
        if request.output_schema is not None and self.native_schema:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": "answer",
                    "schema": request.output_schema,
                    "strict": is_strict(request.output_schema),
                },
            }
        return body


def _spell(message: Message) -> list[dict[str, Any]]:
    return _assistant(message) if message.role == "assistant" else _user(message)


def _assistant(message: Message) -> list[dict[str, Any]]:
    wire: dict[str, Any] = {"role": "assistant", "content": message.text() or None}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": tool_name(call.name), "arguments": arguments(call)},
        }
        for call in message.tool_calls()
    ]
    if calls:
        wire["tool_calls"] = calls
    return [wire] if calls or wire["content"] else []


def _user(message: Message) -> list[dict[str, Any]]:
    """Results first, one message each; only a user message can hold their images."""
    wire: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, ToolResult):
            wire.append({"role": "tool", "tool_call_id": block.call_id, "content": block.output})
            content += [_image(image) for image in block.images]
        elif isinstance(block, Image):
            content.append(_image(block))
        elif isinstance(block, Text):
            content.append({"type": "text", "text": block.text})
    if content and all(part["type"] == "text" for part in content):
        # Plain text where possible: some servers accept nothing else.
        wire.append({"role": "user", "content": "\n\n".join(part["text"] for part in content)})
    elif content:
        wire.append({"role": "user", "content": content})
    return wire


def _image(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(image)}}


class _Function(Struct):
    name: str | None = None
    arguments: Any = None


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Thought(Struct):
    text: str | None = None


class _ContentPart(Struct):
    """Of an answer in parts. Parts of other types, such as references, are passed over."""

    type: str
    text: str | None = None
    thinking: str | list[_Thought] | None = None

    def thought(self) -> str:
        if isinstance(self.thinking, list):
            return "".join(piece.text or "" for piece in self.thinking)
        return self.thinking or ""


class _Delta(Struct):
    content: str | list[_ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct):
    cached_tokens: Tokens = None
    cache_write_tokens: Tokens = None


class _CompletionDetails(Struct):
    reasoning_tokens: Tokens = None


class _Usage(Struct):
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(Struct):
    id: str | None = None
    model: str | None = None
    provider: Any = None
    """From a gateway: the provider that answered. Other servers use the field differently."""
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class ChatReader(Reader):
    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._decoder = msgspec.json.Decoder(_Chunk)
        self._builder = MessageBuilder(provider)
        self._text: Part | None = None
        self._thinking: Part | None = None
        self._calls: dict[int, Part] = {}
        self._given_ids: dict[int, str] = {}
        self._finish: str | None = None
        self._refusal = ""
        self._usage = _Usage()
        self._id = ""
        self._model = ""
        self._upstream = ""

    def read(self, payload: bytes) -> Iterable[ModelEvent]:
        if payload.strip() == b"[DONE]":
            yield from self._done()
            return
        chunk = read_payload(self._decoder, payload, self._provider)
        if chunk.error:
            raise from_event(self._provider, chunk.error)
        self._id = chunk.id or self._id
        self._model = chunk.model or self._model
        if isinstance(chunk.provider, str):
            self._upstream = chunk.provider
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices or ():
            if choice.index != 0:
                continue
            if choice.delta is not None:
                yield from self._grow(choice.delta)
            self._finish = choice.finish_reason or self._finish

    def finish(self) -> Iterable[ModelEvent]:
        return self._done() if self._finish is not None else ()

    def _grow(self, delta: _Delta) -> Iterable[ModelEvent]:
        yield from self._think(delta.reasoning_content or delta.reasoning)
        if isinstance(delta.content, list):
            # As models of Mistral that think write.
            for part in delta.content:
                yield from self._grow_part(part)
        else:
            yield from self._say(delta.content)
        self._refusal += delta.refusal or ""
        yield from self._say(delta.refusal)
        for call in delta.tool_calls or ():
            yield from self._grow_call(call)

    def _grow_part(self, part: _ContentPart) -> Iterable[ModelEvent]:
        if part.type == "thinking":
            yield from self._think(part.thought())
        elif part.type == "text":
            yield from self._say(part.text)

    def _think(self, thought: str | None) -> Iterable[ModelEvent]:
        if thought:
            self._thinking = self._thinking or self._builder.begin("thinking")
            yield self._builder.grow(self._thinking, thought)

    def _say(self, text: str | None) -> Iterable[ModelEvent]:
        if text:
            self._text = self._text or self._builder.begin("text")
            yield self._builder.grow(self._text, text)

    def _grow_call(self, call: _Call) -> Iterable[ModelEvent]:
        function = call.function or _Function()
        index = -1 if call.index is None else call.index
        part = self._calls.get(index)
        if part is None or self._is_another(call, function, index):
            part = self._builder.begin_call(call.id or "", function.name or "")
            self._calls[index] = part
            self._given_ids[index] = call.id or ""
        elif function.name and function.name != part.name:
            # A piece of the name; some servers repeat it whole with each piece of a call.
            self._builder.name(part, part.name + function.name)
        fragment: object = function.arguments
        if fragment is not None and not isinstance(fragment, str):
            # Some servers send the arguments as an object instead of as text.
            fragment = msgspec.json.encode(fragment).decode()
        if fragment:
            yield self._builder.grow(part, fragment)

    def _is_another(self, call: _Call, function: _Function, index: int) -> bool:
        """Whether a piece begins a new call, for servers that number none or all with 0."""
        if not function.name:
            return False
        if call.id:
            return call.id != self._given_ids[index]
        return index < 0

    def _done(self) -> Iterable[ModelEvent]:
        if self._finish is None and not self._builder.parts:
            raise broken(self._provider, "the stream ended without an answer")
        yield from self._builder.end_all()
        reason, note = self._stop()
        yield Done(reason, _usage(self._usage), self._id, self._model, note, self._upstream)

    def _stop(self) -> tuple[StopReason, str]:
        if self._refusal:
            return "refusal", self._refusal
        finish = self._finish or "stop"
        if finish == "error":
            raise broken(self._provider, "the server broke off the answer")
        reason = _STOPS.get(finish, "other")
        if reason == "end_turn" and self._builder.has_calls():
            reason = "tool_use"
        return reason, "" if finish in _STOPS and reason != "filtered" else finish


def _usage(usage: _Usage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=count(usage.prompt_tokens),
        output_tokens=count(usage.completion_tokens),
        cache_read_tokens=count(prompt.cached_tokens) if prompt is not None else 0,
        cache_write_tokens=count(prompt.cache_write_tokens) if prompt is not None else 0,
        reasoning_tokens=count(completion.reasoning_tokens) if completion is not None else 0,
    )
