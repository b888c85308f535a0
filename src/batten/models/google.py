"""The Gemini API's `streamGenerateContent`: requests, and a reader for its stream.

A thought signature belongs to the part it came with. Since a `ToolCall` cannot hold one, it is
kept as an empty `Thinking` block, marked with the place it returns to: `call:` on the next call,
`text:` on an empty text of its own.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.conversation import Image, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.facts.assistant import StopReason, Usage
from batten.models.address import Address, parse_address
from batten.models.contract import Done, ModelEvent, ModelRequest
from batten.models.exchange import Dialect, Reader, read_payload
from batten.models.faults import broken, from_event
from batten.models.message_builder import MessageBuilder, Tokens, count
from batten.models.spelling import tool_name

PROVIDER = "google"
_NO_SIGNATURE = "skip_thought_signature_validator"
"""Documented for calls made by another model: Gemini 3 rejects calls without a signature."""

_STOPS: dict[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "filtered",
    "RECITATION": "filtered",
    "BLOCKLIST": "filtered",
    "PROHIBITED_CONTENT": "filtered",
    "SPII": "filtered",
    "LANGUAGE": "filtered",
    "IMAGE_SAFETY": "filtered",
}


class GoogleDialect(Dialect):
    provider = PROVIDER

    def __init__(self, model: str, base: str, *, key: str = "") -> None:
        # Earlier models accept a schema or tools, not both.
        self.native_schema = _generation(model) >= 3
        self._base = base.rstrip("/").removesuffix("/v1beta")
        self.headers = {"x-goog-api-key": key} if key else {}

    def target(self, model: str) -> Address:
        name = model.removeprefix("models/")
        return parse_address(
            f"{self._base}/v1beta/models/{name}:streamGenerateContent?alt=sse",
            what="address of the model",
        )

    def reader(self) -> "GoogleReader":
        return GoogleReader()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        generation = _generation(request.model)
        config: dict[str, Any] = {"maxOutputTokens": request.max_output_tokens}
        if request.temperature is not None:
            config["temperature"] = request.temperature
        if request.thinking_tokens > 0:
            config["maxOutputTokens"] += request.thinking_tokens
            config["thinkingConfig"] = _thinking(request.thinking_tokens, generation)
        if request.output_schema is not None and self.native_schema:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = request.output_schema
        contents = [_content(message, generation) for message in request.messages]
        body: dict[str, Any] = {
            "contents": [content for content in contents if content["parts"]],
            "generationConfig": config,
        }
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            declarations = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": tool.parameters,
                }
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declarations}]
        return body


def _generation(model: str) -> int:
    found = re.search(r"gemini-([0-9]+)", model)
    return int(found[1]) if found else 0


def _thinking(tokens: int, generation: int) -> dict[str, Any]:
    if generation >= 3:
        return {"includeThoughts": True, "thinkingLevel": "low" if tokens < 8192 else "high"}
    return {"includeThoughts": True, "thinkingBudget": tokens}


def _content(message: Message, generation: int) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    signature = _NO_SIGNATURE if generation >= 3 else ""
    for block in message.blocks:
        match block:
            case Text():
                if block.text:
                    parts.append({"text": block.text})
            case Thinking():
                place, _, value = block.opaque.partition(":")
                if block.provider == PROVIDER and place == "call":
                    signature = value
                elif block.provider == PROVIDER and place == "text":
                    parts.append({"text": "", "thoughtSignature": value})
            case ToolCall():
                call = {"id": block.id, "name": tool_name(block.name), "args": block.input}
                signed = {"thoughtSignature": signature} if signature else {}
                parts.append({"functionCall": call, **signed})
                # Only the first of several calls in a message carries one.
                signature = ""
            case Image():
                parts.append(_image(block))
            case ToolResult():
                key = "error" if block.is_error else "output"
                response = {
                    "id": block.call_id,
                    "name": tool_name(block.name),
                    "response": {key: block.output},
                }
                parts.append({"functionResponse": response})
                parts += [_image(image) for image in block.images]
    return {"role": "model" if message.role == "assistant" else "user", "parts": parts}


def _image(image: Image) -> dict[str, Any]:
    # The encoder writes bytes as base64.
    return {"inlineData": {"mimeType": image.mime, "data": image.data}}


class _FunctionCall(Struct):
    name: str = ""
    id: str | None = None
    args: dict[str, Any] | None = None


class _Part(Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str = ""
    function_call: _FunctionCall | None = None


class _Content(Struct):
    parts: list[_Part] | None = None


class _Candidate(Struct, rename="camel"):
    index: int = 0
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Usage(Struct, rename="camel"):
    prompt_token_count: Tokens = None
    tool_use_prompt_token_count: Tokens = None
    cached_content_token_count: Tokens = None
    candidates_token_count: Tokens = None
    thoughts_token_count: Tokens = None


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    model_version: str = ""
    response_id: str = ""
    error: Any = None


class GoogleReader(Reader):
    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Chunk)
        self._builder = MessageBuilder(PROVIDER)
        self._usage = _Usage()
        self._has_usage = False
        self._finish = ""
        self._note = ""
        self._model = ""
        self._id = ""

    def read(self, payload: bytes) -> Iterable[ModelEvent]:
        chunk = read_payload(self._decoder, payload, PROVIDER)
        if chunk.error:
            raise from_event(PROVIDER, chunk.error)
        self._model = chunk.model_version or self._model
        self._id = chunk.response_id or self._id
        if chunk.usage_metadata is not None:
            self._usage, self._has_usage = chunk.usage_metadata, True
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._finish, self._note = "SAFETY", chunk.prompt_feedback.block_reason
        for candidate in chunk.candidates or ():
            if candidate.index == 0:
                for part in (candidate.content.parts or ()) if candidate.content else ():
                    yield from self._part(part)
                self._finish = candidate.finish_reason or self._finish
                self._note = candidate.finish_message or self._note
        # Without usage so far, a chunk with it may still follow.
        if self._finish and chunk.usage_metadata is not None:
            yield from self._done()

    def reported(self) -> Usage | None:
        return _counted(self._usage) if self._has_usage else None

    def finish(self) -> Iterable[ModelEvent]:
        return self._done() if self._finish else ()

    def _part(self, part: _Part) -> Iterable[ModelEvent]:
        if part.function_call is not None:
            if part.thought_signature:
                yield from self._sign("call", part.thought_signature)
            call = part.function_call
            yield from self._builder.call(call.id, call.name, call.args)
            return
        if part.text:
            yield from self._builder.go_on("thinking" if part.thought else "text", part.text)
        if part.thought_signature:
            yield from self._sign("text", part.thought_signature)

    def _sign(self, place: str, signature: str) -> Iterable[ModelEvent]:
        yield from self._builder.end_all()
        signed = self._builder.begin("thinking")
        self._builder.sign(signed, f"{place}:{signature}")
        yield from self._builder.end(signed)

    def _done(self) -> Iterable[ModelEvent]:
        yield from self._builder.end_all()
        if self._finish in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"):
            raise broken(PROVIDER, f"the model wrote a call that cannot be read ({self._finish})")
        reason = _STOPS.get(self._finish, "aborted")  # only STOP is a whole answer
        if reason == "end_turn" and self._builder.has_calls():
            reason = "tool_use"
        note = self._note or ("" if reason in ("end_turn", "tool_use") else self._finish)
        yield Done(reason, _counted(self._usage), self._id, self._model, note)


def _counted(usage: _Usage) -> Usage:
    thoughts = count(usage.thoughts_token_count)
    return Usage(
        input_tokens=count(usage.prompt_token_count) + count(usage.tool_use_prompt_token_count),
        output_tokens=count(usage.candidates_token_count) + thoughts,
        cache_read_tokens=count(usage.cached_content_token_count),
        reasoning_tokens=thoughts,
    )
